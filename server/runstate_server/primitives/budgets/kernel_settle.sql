-- Budgets, second: settle and void, once per key.

-- The answer to a settle or void, read off its line of the ledger.
CREATE FUNCTION kernel.budget_told(p_space text, p_budget uuid, p_kind text, p_key text, p_replay boolean)
RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('entryId', e.id, 'reservedMinor', e.left_minor::text, 'state', e.state,
    'replay', p_replay, 'chargedMinor', e.settled_change::text, 'overrunMinor',
    CASE e.kind WHEN 'settle' THEN e.asked_minor - e.settled_change ELSE 0 END::text)
    FROM runstate.budget_entries e
   WHERE e.space_id = p_space AND e.budget_id = p_budget AND e.kind = p_kind AND e.work_key = p_key
$$;

-- What a key that was used before answers: the first outcome, or its refusal; null for a new one. Lines of
-- the ledger never change, so this needs no lock. p_asked: null for a void.
CREATE FUNCTION kernel.budget_before(p_space text, p_budget uuid, p_reservation uuid, p_kind text, p_key text,
  p_asked bigint) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_reservation uuid;
  v_asked bigint;
BEGIN
  SELECT e.reservation_id, e.asked_minor INTO v_reservation, v_asked FROM runstate.budget_entries e
   WHERE e.space_id = p_space AND e.budget_id = p_budget AND e.kind = p_kind AND e.work_key = p_key;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF v_reservation <> p_reservation THEN
    RETURN kernel.refuse('CONFLICT', 'workKey "' || p_key || '" was used before to ' || p_kind
      || ' reservation ' || v_reservation::text);
  ELSIF v_asked <> p_asked THEN
    RETURN kernel.refuse('CONFLICT', 'workKey "' || p_key || '" was used before to settle ' || v_asked
      || ' minor units, not ' || p_asked);
  END IF;
  RETURN kernel.seen(kernel.budget_told(p_space, p_budget, p_kind, p_key, true), NULL, NULL);
END $$;

-- First steps of settle and void. changed is null: the budget's row is locked, this reservation and others
-- past their time are written off (wake says who is to look), it is open and the key new.
-- Refuses: NOT_FOUND (budget, reservation), CONFLICT (key used otherwise, reservation ended).
CREATE FUNCTION kernel.budget_enter(p_space text, p_id uuid, p_reservation uuid, p_kind text, p_key text,
  p_asked bigint, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_budget(p_id);
  END IF;
  PERFORM 1 FROM runstate.budget_reservations r
   WHERE r.space_id = p_space AND r.id = p_reservation AND r.budget_id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.refuse('NOT_FOUND', 'reservation ' || p_reservation::text || ' is none of this budget');
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.budget_before(p_space, p_id, p_reservation, p_kind, p_key, p_asked);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  v_reply := kernel.budget_before(p_space, p_id, p_reservation, p_kind, p_key, p_asked);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT s.wake INTO v_wake
    FROM kernel.budget_write_off(p_space, p_id, p_reservation, kernel.kernel_now()) s;
  SELECT r.state INTO v_state FROM runstate.budget_reservations r
   WHERE r.space_id = p_space AND r.id = p_reservation;
  IF v_state IN ('SETTLED', 'VOIDED') THEN
    v_reply := kernel.refuse('CONFLICT', 'reservation ' || p_reservation::text || ' is already ' || v_state);
  END IF;
  v_reply.wake := v_wake;
  RETURN v_reply;
END $$;

-- Charge a reservation. What is left stays reserved; of a stale one that gave its money back, as far as the
-- budget has it. p_overrun: more than is reserved is taken from what the budget has, and what it does not
-- have is recorded.
-- Refuses: NOT_FOUND, CONFLICT (key used otherwise, reservation ended, more than is reserved),
-- INSUFFICIENT_BUDGET (a stale one whose money has gone to others).
CREATE FUNCTION kernel.budget_settle(p_space text, p_id uuid, p_reservation uuid, p_amount bigint, p_key text,
  p_overrun boolean, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reserved bigint;
  v_held boolean;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.budget_enter(p_space, p_id, p_reservation, 'settle', p_key, p_amount, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_wake := v_reply.wake;
  v_reply := NULL;
  v_now := kernel.kernel_now();
  SELECT r.reserved_minor, r.held INTO v_reserved, v_held FROM runstate.budget_reservations r
   WHERE r.space_id = p_space AND r.id = p_reservation;
  IF p_amount > v_reserved AND NOT p_overrun THEN
    v_reply := kernel.refuse('CONFLICT', 'reservation ' || p_reservation::text || ' has ' || v_reserved
      || ' minor units reserved, not ' || p_amount || '; with allowOverrun more can be settled');
  ELSIF NOT v_held AND NOT p_overrun THEN
    v_reply := kernel.budget_refusal(p_space, p_id, p_amount, v_now);
  END IF;
  IF v_reply.changed IS NULL AND (NOT v_held OR p_amount > v_reserved)
    AND kernel.budget_due(p_space, p_id, v_now) > 0 THEN
    v_reply := kernel.budget_again(p_id);
  END IF;
  IF v_reply.changed IS NULL THEN
    PERFORM kernel.budget_charge(p_space, p_id, p_reservation, v_reserved, v_held, p_amount, p_key, v_now);
    v_reply := kernel.done(200, kernel.budget_told(p_space, p_id, 'settle', p_key, false), NULL);
  END IF;
  v_reply.wake := v_wake;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- The same behind its checks: v_own comes from the reservation's own money, the rest from the budget's.
CREATE FUNCTION kernel.budget_charge(p_space text, p_id uuid, p_reservation uuid, p_reserved bigint,
  p_held boolean, p_amount bigint, p_key text, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_left bigint := kernel.budget_free(p_space, p_id);
  v_own bigint := CASE WHEN p_held THEN LEAST(p_amount, p_reserved) ELSE 0 END;
  v_charged bigint := v_own + LEAST(p_amount - v_own, v_left);
  v_rest bigint := GREATEST(p_reserved - p_amount, 0);
  v_kept bigint := CASE WHEN p_held THEN v_rest ELSE LEAST(v_rest, v_left - v_charged) END;
  v_state text := CASE WHEN v_rest > 0 THEN 'ACTIVE' ELSE 'SETTLED' END;
BEGIN
  UPDATE runstate.budget_reservations r SET state = v_state, reserved_minor = v_kept, held = true,
    -- One that was stale has had its time: what is left of it waits for the next settle or void.
    settle_by = CASE WHEN r.state = 'STALE' AND v_rest > 0 THEN NULL ELSE r.settle_by END,
    ended_at = CASE WHEN v_rest = 0 THEN p_now END
   WHERE r.space_id = p_space AND r.id = p_reservation;
  PERFORM kernel.budget_entry(p_space, p_id, p_reservation, 'settle', p_key, v_charged, p_amount, v_kept,
    v_state, v_kept - CASE WHEN p_held THEN p_reserved ELSE 0 END, v_charged, 0, p_now);
  PERFORM kernel.budget_event(p_space, p_now, 'budget.settled', p_id, p_reservation, v_charged, NULL);
  IF v_charged < p_amount THEN
    PERFORM kernel.budget_entry(p_space, p_id, p_reservation, 'overrun', p_key, p_amount - v_charged,
      p_amount, v_kept, v_state, 0, 0, p_amount - v_charged, p_now);
    PERFORM kernel.budget_event(p_space, p_now, 'budget.overrun', p_id, p_reservation, p_amount - v_charged,
      NULL);
  END IF;
END $$;

-- Give a reservation up. Refuses: NOT_FOUND, CONFLICT (key used otherwise, reservation ended).
CREATE FUNCTION kernel.budget_void(p_space text, p_id uuid, p_reservation uuid, p_key text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.budget_enter(p_space, p_id, p_reservation, 'void', p_key, NULL, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_wake := v_reply.wake || kernel.budget_void_locked(p_space, p_id, p_reservation, p_key, v_now);
  v_reply := kernel.done(200, kernel.budget_told(p_space, p_id, 'void', p_key, false), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Void an open reservation; the budget's row is locked. p_key: null for a void of the server's own. Returns
-- the topics to wake.
CREATE FUNCTION kernel.budget_void_locked(p_space text, p_id uuid, p_reservation uuid, p_key text,
  p_now timestamptz) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_freed bigint;
  v_wake text[] := '{}'::text[];
BEGIN
  SELECT CASE WHEN r.held THEN r.reserved_minor ELSE 0 END INTO v_freed FROM runstate.budget_reservations r
   WHERE r.space_id = p_space AND r.id = p_reservation;
  UPDATE runstate.budget_reservations r SET state = 'VOIDED', reserved_minor = 0, ended_at = p_now
   WHERE r.space_id = p_space AND r.id = p_reservation;
  PERFORM kernel.budget_entry(p_space, p_id, p_reservation, 'void', p_key, v_freed, v_freed, 0, 'VOIDED',
    -v_freed, 0, 0, p_now);
  IF v_freed > 0 THEN
    v_wake := ARRAY[kernel.budget_topic(p_space, p_id)];
  END IF;
  PERFORM kernel.budget_event(p_space, p_now, 'budget.voided', p_id, p_reservation, v_freed, v_wake);
  RETURN v_wake;
END $$;

-- Lock the budgets in which deliveries have open reservations, in their order; for the server's own changes.
CREATE FUNCTION kernel.budgets_lock_of(p_space text, p_messages uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_budget uuid;
BEGIN
  -- Materialized, here and below: so it is found by the message, whatever index would bring the order.
  FOR v_budget IN
    WITH held AS MATERIALIZED (
      SELECT r.budget_id FROM pg_catalog.unnest(p_messages) m (id) CROSS JOIN LATERAL (
        SELECT x.budget_id FROM runstate.budget_reservations x
         WHERE x.space_id = p_space AND x.message_id = m.id AND x.ended_at IS NULL OFFSET 0) r)
    SELECT DISTINCT h.budget_id FROM held h ORDER BY h.budget_id
  LOOP
    PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = v_budget FOR NO KEY UPDATE;
  END LOOP;
END $$;

-- The same without waiting: false when another call has one of them in hand.
CREATE FUNCTION kernel.budgets_tried_of(p_space text, p_message uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_budget uuid;
BEGIN
  FOR v_budget IN SELECT DISTINCT r.budget_id AS id FROM runstate.budget_reservations r
                   WHERE r.space_id = p_space AND r.message_id = p_message AND r.ended_at IS NULL ORDER BY id
  LOOP
    PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = v_budget
      FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      RETURN false;
    END IF;
  END LOOP;
  RETURN true;
END $$;

-- Void what a delivery that has ended without success holds (nack, lapse, cancel). Locks: its budgets.
-- Returns the topics to wake.
CREATE FUNCTION kernel.budget_void_of(p_space text, p_message uuid) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_budget uuid;
  v_reservation uuid;
  v_now timestamptz;
  v_wake text[] := '{}'::text[];
BEGIN
  PERFORM kernel.budgets_lock_of(p_space, ARRAY[p_message]);
  v_now := kernel.kernel_now();
  FOR v_budget, v_reservation IN
    WITH held AS MATERIALIZED (
      SELECT r.budget_id, r.id FROM runstate.budget_reservations r
       WHERE r.space_id = p_space AND r.message_id = p_message AND r.ended_at IS NULL)
    SELECT h.budget_id, h.id FROM held h ORDER BY h.budget_id, h.id
  LOOP
    v_wake := v_wake || kernel.budget_void_locked(p_space, v_budget, v_reservation, NULL, v_now);
  END LOOP;
  RETURN v_wake;
END $$;

-- Give the worker of a delivery that is complete until p_settle_by to settle what it holds. Locks: its
-- budgets. One that is stale already, or has its time, keeps it.
CREATE FUNCTION kernel.budget_settle_by(p_space text, p_message uuid, p_settle_by timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM kernel.budgets_lock_of(p_space, ARRAY[p_message]);
  UPDATE runstate.budget_reservations r SET settle_by = p_settle_by
   WHERE r.space_id = p_space AND r.message_id = p_message AND r.ended_at IS NULL AND r.state = 'ACTIVE'
     AND r.settle_by IS NULL;
END $$;

-- The same for a delivery that has ended with its scope, whose end locks no budget: what its worker neither
-- settles nor voids goes stale, and its money back. Nothing is decided by this, and no balance changes.
CREATE FUNCTION kernel.budget_outlive(p_space text, p_message uuid, p_settle_by timestamptz) RETURNS void
LANGUAGE sql VOLATILE AS $$
  UPDATE runstate.budget_reservations r SET settle_by = p_settle_by
   WHERE r.space_id = p_space AND r.message_id = p_message AND r.ended_at IS NULL AND r.state = 'ACTIVE'
     AND r.settle_by IS NULL
$$;

-- The open reservations of a delivery.
CREATE FUNCTION kernel.reservations_of(p_space text, p_message uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(pg_catalog.json_agg(r.id ORDER BY r.budget_id), '[]'::json)
    FROM runstate.budget_reservations r
   WHERE r.message_id = p_message AND r.space_id = p_space AND r.ended_at IS NULL
$$;
