-- Permits: acquire, and the line: wait, look, cancel.

-- Why so many units cannot be had now by one who is not, or not yet, signalled; null when they can. The
-- pool's line is as its last turn left it.
CREATE FUNCTION kernel.permit_refusal(p_space text, p_pool uuid, p_units bigint, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_total bigint;
  v_free bigint;
  v_line bigint;
  v_reply kernel.reply;
BEGIN
  SELECT b.name, b.units_total, b.units_total - b.units_used - b.units_signaled INTO v_name, v_total, v_free
    FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_pool;
  IF p_units > v_total THEN
    RETURN kernel.refuse('VALIDATION_FAILED', '''units'': ' || p_units::text || ' are more than the '
      || v_total::text || ' of permit pool "' || v_name || '"');
  END IF;
  v_line := kernel.line_length(p_space, p_pool, p_now) + kernel.line_holders(p_space, p_pool, p_now);
  IF v_line = 0 AND p_units <= v_free THEN
    RETURN NULL;
  END IF;
  v_reply := kernel.refuse('CAPACITY_UNAVAILABLE', 'permit pool "' || v_name || '" has '
    || GREATEST(v_free, 0)::text || ' of ' || v_total::text || ' units free, ' || v_line::text
    || ' wait in its line');
  v_reply.facts := pg_catalog.json_build_object('message', v_reply.facts ->> 'message', 'retryAfter',
    kernel.seconds_until(kernel.permit_next(p_space, p_pool), p_now));
  RETURN v_reply;
END $$;

-- Write a grant; its units are counted by the caller, who holds the pool's row. p_message: the delivery it is
-- for. Returns its end.
CREATE FUNCTION kernel.grant_insert(p_space text, p_id uuid, p_pool uuid, p_path uuid[], p_units bigint,
  p_holder text, p_session text, p_lease_s double precision, p_token text, p_message uuid, p_now timestamptz)
RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_expires_at timestamptz := kernel.lease_end(p_now, p_lease_s);
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
BEGIN
  INSERT INTO runstate.grants (space_id, id, pool_id, scope_id, root_id, units, token, holder, session,
    lease_s, expires_at, due_at, message_id, created_at)
  VALUES (p_space, p_id, p_pool, v_scope, p_path[1], p_units, p_token, p_holder, p_session, p_lease_s,
    v_expires_at, v_expires_at, p_message, p_now);
  PERFORM kernel.permit_event(p_space, p_now, 'permit.granted', p_pool, v_scope, p_id, p_units, p_holder,
    NULL);
  RETURN v_expires_at;
END $$;

-- Take units of a pool, with p_waiter as the one whom the line has signalled.
-- Refuses: NOT_FOUND (scope, pool, waiter), SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED (more than
-- there are), CAPACITY_UNAVAILABLE, CONFLICT (other units than those waited for, an ended waiter).
CREATE FUNCTION kernel.permit_acquire(p_space text, p_pool uuid, p_scope uuid, p_id uuid, p_units bigint,
  p_holder text, p_session text, p_lease_s double precision, p_waiter uuid, p_token text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_wake text[];
  v_ends timestamptz;
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
  PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_pool;
  IF NOT FOUND THEN
    RETURN kernel.no_pool(p_pool);
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF p_waiter IS NULL AND NOT kernel.permit_due(p_space, p_pool, v_now) THEN
    v_reply := kernel.permit_refusal(p_space, p_pool, p_units, v_now);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END IF;
  PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_pool FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_wake := kernel.permit_turn(p_space, p_pool, v_now);
  v_reply := CASE WHEN p_waiter IS NULL THEN kernel.permit_refusal(p_space, p_pool, p_units, v_now)
    ELSE kernel.waiter_called(p_space, p_pool, p_waiter, p_units, v_now) END;
  IF v_reply.changed IS NOT NULL THEN
    v_reply.wake := v_wake;
    RETURN v_reply;
  END IF;
  UPDATE runstate.pools b SET units_used = b.units_used + p_units, units_signaled = b.units_signaled
    - CASE WHEN p_waiter IS NULL THEN 0 ELSE p_units END WHERE b.space_id = p_space AND b.id = p_pool;
  v_ends := kernel.grant_insert(p_space, p_id, p_pool, v_path, p_units, p_holder, p_session, p_lease_s,
    p_token, NULL, v_now);
  v_reply := kernel.done(200, pg_catalog.json_build_object('grantId', p_id, 'token', p_token, 'units',
    p_units, 'leaseExpiresAt', kernel.wire_time(v_ends)), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Take the place of a waiter who is signalled; the pool's row is locked. Null: the units are his.
CREATE FUNCTION kernel.waiter_called(p_space text, p_pool uuid, p_waiter uuid, p_units bigint,
  p_now timestamptz) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_units bigint;
BEGIN
  SELECT w.state, w.units INTO v_state, v_units FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_waiter AND w.resource_id = p_pool;
  IF NOT FOUND THEN
    RETURN kernel.no_waiter(p_waiter);
  ELSIF v_units <> p_units THEN
    RETURN kernel.refuse('CONFLICT', 'waiter ' || p_waiter::text || ' waits for ' || v_units::text
      || ' units, not for ' || p_units::text);
  ELSIF v_state = 'WAITING' THEN
    RETURN kernel.refuse('CAPACITY_UNAVAILABLE', 'waiter ' || p_waiter::text
      || ' is not signalled: it is not yet, or no longer, its turn');
  ELSIF v_state <> 'SIGNALED' THEN
    RETURN kernel.refuse('CONFLICT', 'waiter ' || p_waiter::text || ' is ' || v_state);
  END IF;
  PERFORM kernel.waiter_end(p_space, p_waiter, 'GRANTED', NULL, p_now);
  RETURN NULL;
END $$;

CREATE FUNCTION kernel.no_waiter(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'permit waiter ' || p_id::text || ' does not exist in this space')
$$;

-- A waiter as readers see it. p_id must exist.
CREATE FUNCTION kernel.waiter_facts(p_space text, p_id uuid, p_units boolean) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN p_units THEN pg_catalog.json_build_object('waiterId', w.id, 'state', w.state, 'units',
      w.units, 'position', x.position)
    ELSE pg_catalog.json_build_object('waiterId', w.id, 'state', w.state, 'position', x.position) END
    FROM runstate.line_waiters w CROSS JOIN LATERAL (
      SELECT kernel.waiter_position(p_space, p_id, kernel.kernel_now()) AS position) x
   WHERE w.space_id = p_space AND w.id = p_id
$$;

-- Join the line. Refuses: NOT_FOUND (scope, pool), SCOPE_CANCELLED, DEADLINE_EXCEEDED, VALIDATION_FAILED.
CREATE FUNCTION kernel.permit_wait(p_space text, p_pool uuid, p_scope uuid, p_id uuid, p_units bigint,
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
  SELECT b.next_ticket INTO v_ticket FROM runstate.pools b
   WHERE b.space_id = p_space AND b.id = p_pool FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN kernel.no_pool(p_pool);
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.permit_refusal(p_space, p_pool, p_units, v_now);
    IF v_reply.code = 'CAPACITY_UNAVAILABLE' THEN
      v_reply := NULL;
    END IF;
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.pools b SET next_ticket = v_ticket + 1 WHERE b.space_id = p_space AND b.id = p_pool;
  PERFORM kernel.waiter_insert(p_space, p_id, 'permit', p_pool, v_ticket, p_units, v_path, p_holder, p_ttl_s,
    v_now);
  v_wake := kernel.permit_turn(p_space, p_pool, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.waiter_facts(p_space, p_id, false), v_wake));
END $$;
