-- Timers: set one, by a name or without.

-- Write a new timer; one whose time has come fires at once. Gate passed, the name, if any, locked and free.
CREATE FUNCTION kernel.timer_insert(p_space text, p_id uuid, p_path uuid[], p_name text,
  p_fire_at timestamptz, p_token text, p_now timestamptz) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_wake text[] := ARRAY[kernel.timers_topic(p_space, v_scope)];
  v_reply kernel.reply;
BEGIN
  INSERT INTO runstate.timers (space_id, id, scope_id, root_id, name, state, fire_at, token, created_at)
  VALUES (p_space, p_id, v_scope, p_path[1], p_name, 'PENDING', p_fire_at, p_token, p_now);
  PERFORM kernel.event(p_space, p_now, 'timer.created', p_path, 'timer', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'fireAt', kernel.wire_time(p_fire_at)), v_wake);
  IF p_fire_at <= p_now THEN
    v_wake := kernel.timer_fire(p_space, p_id, p_path, p_now);
  END IF;
  v_reply := kernel.done(200, kernel.timer_facts(p_space, p_id, p_now, true), v_wake);
  IF p_fire_at > p_now THEN
    v_reply.again_s := kernel.seconds_until(p_fire_at, p_now);
  END IF;
  RETURN v_reply;
END $$;

-- Set a timer to p_at or to p_after_s from now, at most p_ahead_s away; a name that has its timer answers
-- with that one, whatever time is given. Refuses: VALIDATION_FAILED (too far ahead), NOT_FOUND (scope),
-- SCOPE_CANCELLED, DEADLINE_EXCEEDED.
CREATE FUNCTION kernel.timer_set(p_space text, p_id uuid, p_scope uuid, p_name text,
  p_after_s double precision, p_at timestamptz, p_ahead_s double precision, p_token text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF kernel.seconds_until(p_at, kernel.kernel_now()) > p_ahead_s THEN
    RETURN kernel.refuse('VALIDATION_FAILED', '''at'' must be at most ' || p_ahead_s / 86400
      || ' days ahead');
  END IF;
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_reply := kernel.scope_refusal(p_space, p_scope, kernel.kernel_now());
  IF v_reply.changed IS NULL AND p_name IS NOT NULL THEN
    v_reply := kernel.timer_named(p_space, p_scope, p_name);
    IF v_reply.changed IS NULL THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('timer', p_space, p_scope::text || '/'
        || p_name));
      v_reply := kernel.timer_named(p_space, p_scope, p_name);
    END IF;
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.timer_insert(p_space, p_id, v_path,
    p_name, COALESCE(p_at, v_now + pg_catalog.make_interval(secs => p_after_s)), p_token, v_now));
END $$;
