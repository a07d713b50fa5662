-- Allowances: those who wait in the line: wait, look, cancel.

CREATE FUNCTION kernel.no_allowance_waiter(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'allowance waiter ' || p_id::text || ' does not exist in this space')
$$;

-- A waiter as readers see it. p_id must exist.
CREATE FUNCTION kernel.allowance_waiter_facts(p_space text, p_id uuid) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('waiterId', w.id, 'state', w.state, 'units', w.units, 'consumptionId',
      w.consumption_id)
    FROM runstate.line_waiters w WHERE w.space_id = p_space AND w.id = p_id
$$;

-- Join the line; granted at once when the units are left and nobody is ahead. Refuses: NOT_FOUND (scope,
-- allowance), SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED.
CREATE FUNCTION kernel.allowance_wait(p_space text, p_id uuid, p_scope uuid, p_waiter uuid, p_units bigint,
  p_holder text, p_ttl_s double precision, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_ticket bigint;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT a.next_ticket INTO v_ticket FROM runstate.allowances a
   WHERE a.space_id = p_space AND a.id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN kernel.no_allowance(p_id);
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.allowance_refusal(p_space, p_id, p_units, v_now);
    IF v_reply.code <> 'VALIDATION_FAILED' THEN
      v_reply := NULL;
    END IF;
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.allowances a SET next_ticket = v_ticket + 1, waited = true
   WHERE a.space_id = p_space AND a.id = p_id;
  PERFORM kernel.waiter_insert(p_space, p_waiter, 'allowance', p_id, v_ticket, p_units, v_path, p_holder,
    p_ttl_s, v_now);
  v_wake := kernel.allowance_turn(p_space, p_id, v_now);
  SELECT pg_catalog.json_build_object('waiterId', w.id, 'state', w.state, 'consumptionId', w.consumption_id,
      'position', kernel.waiter_position(p_space, w.id, v_now)) INTO v_reply.facts
    FROM runstate.line_waiters w WHERE w.space_id = p_space AND w.id = p_waiter;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200, v_reply.facts, v_wake));
END $$;

-- A waiter's own look, which keeps it in the line; takes the turn if something is due. The first two look
-- again soon: no event tells that one before them has left. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.allowance_waiter_look(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_allowance uuid;
  v_root uuid;
  v_limit bigint;
  v_ttl_s double precision;
  v_deadline timestamptz;
  v_live boolean;
  v_now timestamptz := kernel.kernel_now();
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT w.resource_id, w.root_id, w.state = 'WAITING', w.ttl_s, s.effective_deadline, a.units_limit
    INTO v_allowance, v_root, v_live, v_ttl_s, v_deadline, v_limit
    FROM runstate.line_waiters w CROSS JOIN LATERAL (
      SELECT x.effective_deadline FROM runstate.scopes x
       WHERE x.space_id = p_space AND x.id = w.scope_id OFFSET 0) s CROSS JOIN LATERAL (
      SELECT x.units_limit FROM runstate.allowances x
       WHERE x.space_id = p_space AND x.id = w.resource_id OFFSET 0) a
   WHERE w.space_id = p_space AND w.id = p_id AND w.kind = 'allowance';
  IF NOT FOUND THEN
    RETURN kernel.no_allowance_waiter(p_id);
  END IF;
  IF v_live AND (kernel.waiter_unseen(p_space, p_id, v_limit, v_now)
    OR kernel.allowance_due(p_space, v_allowance, v_now)) THEN
    v_wake := kernel.allowance_waiter_met(p_space, v_allowance, p_id);
  END IF;
  v_reply := kernel.seen(kernel.allowance_waiter_facts(p_space, p_id), NULL, LEAST(v_ttl_s / 4,
    kernel.seconds_until(LEAST(kernel.allowance_next(p_space, v_allowance, v_now), v_deadline), v_now),
    CASE WHEN kernel.waiter_position(p_space, p_id, v_now) <= 2 THEN 2 END));
  v_reply.wake := v_wake;
  v_reply.sleep := ARRAY[kernel.waiter_topic(p_space, p_id), kernel.line_topic(p_space, v_allowance),
    kernel.topic('scope', p_space, v_root::text)];
  RETURN v_reply;
END $$;

-- Note that a waiter was there, and take its allowance's turn. Returns the topics to wake.
CREATE FUNCTION kernel.allowance_waiter_met(p_space text, p_allowance uuid, p_id uuid) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_limit bigint;
  v_now timestamptz;
BEGIN
  PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.id = p_allowance FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT a.units_limit INTO v_limit FROM runstate.allowances a
   WHERE a.space_id = p_space AND a.id = p_allowance;
  PERFORM kernel.waiter_seen(p_space, p_id, v_limit, v_now);
  RETURN kernel.allowance_turn(p_space, p_allowance, v_now);
END $$;

-- Leave the line; one that has ended answers its state. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.allowance_waiter_cancel(p_space text, p_id uuid, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_allowance uuid;
  v_now timestamptz;
  v_wake text[];
  v_cancelled boolean;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT w.resource_id INTO v_allowance FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_id AND w.kind = 'allowance';
  IF NOT FOUND THEN
    RETURN kernel.no_allowance_waiter(p_id);
  END IF;
  v_wake := kernel.allowance_waiter_met(p_space, v_allowance, p_id);
  v_now := kernel.kernel_now();
  SELECT w.state = 'WAITING' INTO v_cancelled FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_id;
  IF v_cancelled THEN
    v_wake := v_wake || kernel.waiter_end(p_space, p_id, 'CANCELLED', NULL, v_now)
      || kernel.allowance_turn(p_space, v_allowance, v_now);
  END IF;
  IF NOT v_cancelled THEN
    v_reply := kernel.seen(kernel.allowance_waiter_facts(p_space, p_id), NULL, NULL);
    v_reply.wake := v_wake;
    RETURN v_reply;
  END IF;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.allowance_waiter_facts(p_space, p_id), v_wake));
END $$;
