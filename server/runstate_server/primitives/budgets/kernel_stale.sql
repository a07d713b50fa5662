-- Budgets, last: reservations past their time.

-- Write one reservation off: its money goes back, unless the budget holds it (p_hold). The budget's row is
-- locked. Returns what came free.
CREATE FUNCTION kernel.budget_stale_one(p_space text, p_id uuid, p_reservation uuid, p_hold boolean,
  p_now timestamptz) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_reserved bigint;
  v_freed bigint;
BEGIN
  UPDATE runstate.budget_reservations r SET state = 'STALE', held = p_hold
   WHERE r.space_id = p_space AND r.id = p_reservation RETURNING r.reserved_minor INTO v_reserved;
  v_freed := CASE WHEN p_hold THEN 0 ELSE v_reserved END;
  PERFORM kernel.budget_entry(p_space, p_id, p_reservation, 'stale', NULL, v_freed, v_freed,
    v_reserved - v_freed, 'STALE', -v_freed, 0, 0, p_now);
  PERFORM kernel.budget_event(p_space, p_now, 'budget.stale', p_id, p_reservation, v_freed,
    CASE WHEN v_freed > 0 THEN ARRAY[kernel.budget_topic(p_space, p_id)] END);
  RETURN v_freed;
END $$;

-- Write off the reservations of a budget that are past settleBy, p_first before all others, and a few hundred
-- at most, so that no crowd of them takes longer than a statement may: what is left has budget_due. The
-- budget's row is locked. Index: reservations_due_in_budget.
CREATE FUNCTION kernel.budget_write_off(p_space text, p_id uuid, p_first uuid, p_now timestamptz,
  OUT count int, OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_most CONSTANT int := 300;
  v_hold boolean;
  v_reservation uuid;
  v_freed bigint := 0;
BEGIN
  count := 0;
  wake := '{}'::text[];
  SELECT b.hold_stale INTO v_hold FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  PERFORM 1 FROM runstate.budget_reservations r WHERE r.space_id = p_space AND r.id = p_first
    AND r.state = 'ACTIVE' AND r.settle_by <= p_now;
  IF FOUND THEN
    v_freed := kernel.budget_stale_one(p_space, p_id, p_first, v_hold, p_now);
    count := 1;
  END IF;
  FOR v_reservation IN
    SELECT r.id FROM runstate.budget_reservations r
     WHERE r.space_id = p_space AND r.budget_id = p_id AND r.state = 'ACTIVE' AND r.settle_by <= p_now
     ORDER BY r.settle_by LIMIT v_most
  LOOP
    v_freed := v_freed + kernel.budget_stale_one(p_space, p_id, v_reservation, v_hold, p_now);
    count := count + 1;
  END LOOP;
  IF v_freed > 0 THEN
    wake := ARRAY[kernel.budget_topic(p_space, p_id)];
  END IF;
END $$;

-- The same for rooms that lock budgets by themselves. Returns the topics to wake.
CREATE FUNCTION kernel.budget_stale(p_space text, p_id uuid, p_now timestamptz) RETURNS text[]
LANGUAGE sql VOLATILE AS $$
  SELECT w.wake FROM kernel.budget_write_off(p_space, p_id, NULL, p_now) w
$$;

-- What a call answers that needs money which is still to be written off: the server repeats it.
CREATE FUNCTION kernel.budget_again(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('AGAIN', 'stale reservations of budget ' || p_id::text || ' are being written off')
$$;

-- Write off what is past its time, everywhere: p_batch reservations, and what else is due in their budgets.
-- Locks: budgets, only tried. Index: reservations_due.
CREATE FUNCTION kernel.budget_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_budget uuid;
  v_count int;
  v_woken text[];
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_budget IN
    SELECT DISTINCT d.space_id, d.budget_id FROM (
      SELECT r.space_id, r.budget_id FROM runstate.budget_reservations r
       WHERE r.state = 'ACTIVE' AND r.settle_by <= v_now ORDER BY r.settle_by LIMIT p_batch) d
  LOOP
    EXIT WHEN count >= p_batch;
    PERFORM 1 FROM runstate.budgets b WHERE b.space_id = v_space AND b.id = v_budget
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    SELECT s.count, s.wake INTO v_count, v_woken
      FROM kernel.budget_write_off(v_space, v_budget, NULL, kernel.kernel_now()) s;
    count := count + v_count;
    wake := wake || v_woken;
  END LOOP;
END $$;
