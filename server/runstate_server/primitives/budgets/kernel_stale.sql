-- Budgets, last: reservations past their time.

-- Write off the reservations of a budget that are past settleBy: their money goes back, unless the budget
-- holds it. The budget's row is locked. Returns the topics to wake. Index: reservations_due_in_budget.
CREATE FUNCTION kernel.budget_stale(p_space text, p_id uuid, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_hold boolean;
  v_reservation uuid;
  v_reserved bigint;
  v_freed bigint;
  v_wake text[] := '{}'::text[];
BEGIN
  SELECT b.hold_stale INTO v_hold FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  FOR v_reservation, v_reserved IN
    SELECT r.id, r.reserved_minor FROM runstate.budget_reservations r
     WHERE r.space_id = p_space AND r.budget_id = p_id AND r.state = 'ACTIVE' AND r.settle_by <= p_now
     ORDER BY r.settle_by
  LOOP
    v_freed := CASE WHEN v_hold THEN 0 ELSE v_reserved END;
    UPDATE runstate.budget_reservations r SET state = 'STALE', held = v_hold
     WHERE r.space_id = p_space AND r.id = v_reservation;
    PERFORM kernel.budget_entry(p_space, p_id, v_reservation, 'stale', NULL, v_freed, v_freed,
      v_reserved - v_freed, 'STALE', -v_freed, 0, 0, p_now);
    IF v_freed > 0 THEN
      v_wake := ARRAY[kernel.budget_topic(p_space, p_id)];
    END IF;
    PERFORM kernel.budget_event(p_space, p_now, 'budget.stale', p_id, v_reservation, v_freed, v_wake);
  END LOOP;
  RETURN v_wake;
END $$;

-- Write off what is past its time, everywhere: p_batch reservations, and what else is due in their budgets.
-- Locks: budgets, only tried. Index: reservations_due.
CREATE FUNCTION kernel.budget_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_budget uuid;
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_budget IN
    SELECT DISTINCT d.space_id, d.budget_id FROM (
      SELECT r.space_id, r.budget_id FROM runstate.budget_reservations r
       WHERE r.state = 'ACTIVE' AND r.settle_by <= v_now ORDER BY r.settle_by LIMIT p_batch) d
  LOOP
    PERFORM 1 FROM runstate.budgets b WHERE b.space_id = v_space AND b.id = v_budget
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    wake := wake || kernel.budget_stale(v_space, v_budget, kernel.kernel_now());
    count := count + 1;
  END LOOP;
END $$;
