-- Budgets, first verb: reserve.

-- Write one line of the ledger and move the budget's sums by it; the budget's row is locked. Nothing else
-- changes them. p_asked: what was asked for; p_left, p_state: the reservation after it.
CREATE FUNCTION kernel.budget_entry(p_space text, p_budget uuid, p_reservation uuid, p_kind text, p_key text,
  p_amount bigint, p_asked bigint, p_left bigint, p_state text, p_reserved bigint, p_settled bigint,
  p_overrun bigint, p_now timestamptz) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid := pg_catalog.gen_random_uuid();
BEGIN
  INSERT INTO runstate.budget_entries (space_id, budget_id, id, reservation_id, scope_id, kind, work_key,
    amount_minor, asked_minor, left_minor, state, reserved_change, settled_change, overrun_change, created_at)
  SELECT p_space, p_budget, v_id, p_reservation, r.scope_id, p_kind, p_key, p_amount, p_asked, p_left,
    p_state, p_reserved, p_settled, p_overrun, p_now
    FROM runstate.budget_reservations r WHERE r.space_id = p_space AND r.id = p_reservation;
  UPDATE runstate.budgets b SET reserved_minor = b.reserved_minor + p_reserved,
    settled_minor = b.settled_minor + p_settled, overrun_minor = b.overrun_minor + p_overrun
   WHERE b.space_id = p_space AND b.id = p_budget;
  RETURN v_id;
END $$;

-- The event of a reservation.
CREATE FUNCTION kernel.budget_event(p_space text, p_now timestamptz, p_type text, p_budget uuid,
  p_reservation uuid, p_amount bigint, p_wake text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM kernel.event(p_space, p_now, p_type, s.path, 'budget', p_budget::text,
    pg_catalog.json_build_object('name', b.name, 'reservationId', r.id, 'holder', r.holder, 'state', r.state,
      'amountMinor', p_amount::text, 'currency', b.currency, 'scale', b.scale), p_wake)
    FROM runstate.budget_reservations r
    CROSS JOIN LATERAL (SELECT c.path FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = r.scope_id OFFSET 0) s
    CROSS JOIN LATERAL (SELECT x.name, x.currency, x.scale FROM runstate.budgets x
                         WHERE x.space_id = p_space AND x.id = p_budget OFFSET 0) b
   WHERE r.space_id = p_space AND r.id = p_reservation;
END $$;

-- The refusal of an amount that a budget does not have at p_now, null when it has.
CREATE FUNCTION kernel.budget_refusal(p_space text, p_id uuid, p_amount bigint, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_left bigint := kernel.budget_left(p_space, p_id, p_now);
BEGIN
  IF p_amount <= v_left THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('INSUFFICIENT_BUDGET', (SELECT 'budget "' || b.name || '" has ' || v_left
    || ' minor units left of ' || b.limit_minor || ', not ' || p_amount || ' (' || b.currency || ', scale '
    || b.scale || ')' FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id));
END $$;

-- Reserve what the budget has: its row is locked, it has so much at p_now (budget_left), the scope is active.
-- Of what stale reservations have still to give back, so many are written off as it takes.
-- p_message: the delivery it is for.
CREATE FUNCTION kernel.budget_reserve_locked(p_space text, p_id uuid, p_reservation uuid, p_scope uuid,
  p_holder text, p_amount bigint, p_settle_by timestamptz, p_message uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  WHILE p_amount > kernel.budget_free(p_space, p_id) LOOP
    EXIT WHEN (SELECT w.count FROM kernel.budget_write_off(p_space, p_id, NULL, p_now) w) = 0;
  END LOOP;
  INSERT INTO runstate.budget_reservations (space_id, id, budget_id, scope_id, message_id, holder,
    reserved_minor, held, state, settle_by, created_at)
  VALUES (p_space, p_reservation, p_id, p_scope, p_message, p_holder, p_amount, true, 'ACTIVE', p_settle_by,
    p_now);
  PERFORM kernel.budget_entry(p_space, p_id, p_reservation, 'reserve', NULL, p_amount, p_amount, p_amount,
    'ACTIVE', p_amount, 0, 0, p_now);
  PERFORM kernel.budget_event(p_space, p_now, 'budget.reserved', p_id, p_reservation, p_amount, NULL);
END $$;

-- Reserve money. Refuses: NOT_FOUND (budget, scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, INSUFFICIENT_BUDGET.
CREATE FUNCTION kernel.budget_reserve(p_space text, p_id uuid, p_reservation uuid, p_scope uuid,
  p_holder text, p_amount bigint, p_settle_by timestamptz, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_budget(p_id);
  ELSIF kernel.gate_pass(p_space, p_scope) IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.budget_refusal(p_space, p_id, p_amount, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT s.wake INTO v_wake FROM kernel.budget_write_off(p_space, p_id, NULL, v_now) s;
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.budget_refusal(p_space, p_id, p_amount, v_now);
  END IF;
  IF v_reply.changed IS NULL AND p_amount > kernel.budget_free(p_space, p_id) THEN
    v_reply := kernel.budget_again(p_id);
  END IF;
  IF v_reply.changed IS NULL THEN
    PERFORM kernel.budget_reserve_locked(p_space, p_id, p_reservation, p_scope, p_holder, p_amount,
      p_settle_by, NULL, v_now);
    v_reply := kernel.done(200, pg_catalog.json_build_object('reservationId', p_reservation, 'reservedMinor',
      p_amount::text, 'state', 'ACTIVE'), NULL);
  END IF;
  v_reply.wake := v_wake;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
