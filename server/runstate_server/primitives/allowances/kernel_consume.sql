-- Allowances: the turn of one, through which all that is consumed goes; consume, cool down, sweep.

-- Count units as consumed in the window of p_now, with the event. The row is locked and they are there.
-- p_wake: see event. Returns the consumption's id.
CREATE FUNCTION kernel.allowance_take(p_space text, p_id uuid, p_scope uuid, p_units bigint, p_holder text,
  p_now timestamptz, p_wake text[]) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid := pg_catalog.gen_random_uuid();
  v_name text;
  v_start timestamptz;
  v_consumed bigint;
  v_path uuid[];
BEGIN
  SELECT n.name, n.window_start, n.consumed + p_units INTO v_name, v_start, v_consumed
    FROM kernel.allowance_now(p_space, p_id, p_now) n;
  UPDATE runstate.allowances a SET window_start = v_start, consumed = v_consumed
   WHERE a.space_id = p_space AND a.id = p_id;
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  PERFORM kernel.event(p_space, p_now, 'allowance.consumed', v_path, 'allowance', p_id::text,
    pg_catalog.json_build_object('name', v_name, 'consumptionId', v_id, 'units', p_units, 'holder', p_holder,
      'windowStart', kernel.wire_time(v_start), 'consumed', v_consumed), p_wake);
  RETURN v_id;
END $$;

-- One turn: grant the heads of the line whose units are left in this window. The row is locked. Returns the
-- topics to wake.
CREATE FUNCTION kernel.allowance_turn(p_space text, p_id uuid, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_limit bigint;
  v_left bigint;
  v_cooling boolean;
  v_waiter uuid;
  v_units bigint;
  v_gone text;
  v_scope uuid;
  v_holder text;
  v_wake text[] := '{}'::text[];
BEGIN
  LOOP
    SELECT n.units_limit, n.units_limit - n.consumed, n.cooldown_until IS NOT NULL
      INTO v_limit, v_left, v_cooling FROM kernel.allowance_now(p_space, p_id, p_now) n;
    SELECT h.id, h.units, h.gone, v_left - kernel.line_holds(p_space, p_id, h.since, p_now)
      INTO v_waiter, v_units, v_gone, v_left FROM kernel.line_head(p_space, p_id, v_limit, p_now) h;
    EXIT WHEN v_waiter IS NULL OR (v_gone IS NULL AND (v_cooling OR v_units > v_left));
    IF v_gone IS NOT NULL THEN
      v_wake := v_wake || kernel.waiter_end(p_space, v_waiter, v_gone, NULL, p_now);
    ELSE
      SELECT w.scope_id, w.holder INTO v_scope, v_holder FROM runstate.line_waiters w
       WHERE w.space_id = p_space AND w.id = v_waiter;
      v_wake := v_wake || kernel.waiter_end(p_space, v_waiter, 'GRANTED',
        kernel.allowance_take(p_space, p_id, v_scope, v_units, v_holder, p_now,
          ARRAY[kernel.waiter_topic(p_space, v_waiter)]), p_now);
    END IF;
  END LOOP;
  UPDATE runstate.allowances a SET waited = v_waiter IS NOT NULL
   WHERE a.space_id = p_space AND a.id = p_id AND a.waited <> (v_waiter IS NOT NULL);
  RETURN v_wake || (SELECT kernel.line_wakes(p_space, p_id, n.units_limit - n.consumed, p_now)
    FROM kernel.allowance_now(p_space, p_id, p_now) n WHERE n.cooldown_until IS NULL);
END $$;

-- What an allowance has for one who stands in its line since p_since: less what those before him keep.
-- Nothing during a cooldown, and while one who waits stands before him.
CREATE FUNCTION kernel.allowance_left(p_space text, p_id uuid, p_since timestamptz, p_now timestamptz)
RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN n.cooldown_until IS NOT NULL
        OR (h.id IS NOT NULL AND h.gone IS NULL AND h.since <= p_since) THEN 0
      ELSE n.units_limit - n.consumed - kernel.line_holds(p_space, p_id, p_since, p_now) END
    FROM kernel.allowance_now(p_space, p_id, p_now) n
   CROSS JOIN LATERAL kernel.line_head(p_space, p_id, n.units_limit, p_now) h
$$;

-- When time alone gives the head of the line its units: at the turn of the window, or when a cooldown is
-- over. Null: nobody waits.
CREATE FUNCTION kernel.allowance_opens(p_space text, p_id uuid, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN h.units <= n.units_limit - n.consumed
        - kernel.line_holds(p_space, p_id, h.since, p_now) THEN COALESCE(n.cooldown_until, p_now)
      ELSE GREATEST(n.cooldown_until, n.window_end) END
    FROM kernel.allowance_now(p_space, p_id, p_now) n
   CROSS JOIN LATERAL kernel.line_head(p_space, p_id, n.units_limit, p_now) h
   WHERE h.id IS NOT NULL
$$;

-- When time alone changes what an allowance has for its line. Null: never.
CREATE FUNCTION kernel.allowance_next(p_space text, p_id uuid, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(kernel.line_next(p_space, p_id), kernel.allowance_opens(p_space, p_id, p_now))
$$;

-- Whether a turn would change something at this instant.
CREATE FUNCTION kernel.allowance_due(p_space text, p_id uuid, p_now timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(kernel.allowance_next(p_space, p_id, p_now) <= p_now, false) OR EXISTS (
    SELECT 1 FROM runstate.allowances a
     CROSS JOIN LATERAL kernel.line_head(p_space, p_id, a.units_limit, p_now) h
     WHERE a.space_id = p_space AND a.id = p_id AND h.gone IS NOT NULL)
$$;

-- Why so many units cannot be had now by one who does not stand in the line; null when they can. The line is
-- as its last turn left it.
CREATE FUNCTION kernel.allowance_refusal(p_space text, p_id uuid, p_units bigint, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_limit bigint;
  v_left bigint;
  v_end timestamptz;
  v_cooldown timestamptz;
  v_line bigint := kernel.line_length(p_space, p_id, p_now) + kernel.line_holders(p_space, p_id, p_now);
  v_reply kernel.reply;
BEGIN
  SELECT n.name, n.units_limit, n.units_limit - n.consumed, n.window_end, n.cooldown_until
    INTO v_name, v_limit, v_left, v_end, v_cooldown FROM kernel.allowance_now(p_space, p_id, p_now) n;
  IF p_units > v_limit THEN
    RETURN kernel.refuse('VALIDATION_FAILED', '''units'': ' || p_units::text || ' are more than the '
      || v_limit::text || ' per window of allowance "' || v_name || '"');
  ELSIF v_cooldown IS NOT NULL THEN
    v_reply := kernel.refuse('ALLOWANCE_COOLDOWN', 'allowance "' || v_name || '" cools down until '
      || kernel.wire_time(v_cooldown));
    v_end := v_cooldown;
  ELSIF v_line = 0 AND p_units <= v_left THEN
    RETURN NULL;
  ELSE
    v_reply := kernel.refuse('ALLOWANCE_EXHAUSTED', 'allowance "' || v_name || '" has '
      || GREATEST(v_left, 0)::text || ' of ' || v_limit::text || ' units left until '
      || kernel.wire_time(v_end) || ', ' || v_line::text || ' wait in its line');
  END IF;
  v_reply.facts := pg_catalog.json_build_object('message', v_reply.facts ->> 'message', 'retryAfter',
    kernel.seconds_until(v_end, p_now));
  RETURN v_reply;
END $$;

-- Consume units now. Refuses: NOT_FOUND (scope, allowance), SCOPE_CANCELLED, DEADLINE_EXCEEDED,
-- VALIDATION_FAILED, ALLOWANCE_EXHAUSTED, ALLOWANCE_COOLDOWN.
CREATE FUNCTION kernel.allowance_consume(p_space text, p_id uuid, p_scope uuid, p_units bigint,
  p_holder text, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_consumption uuid;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF kernel.gate_pass(p_space, p_scope) IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_allowance(p_id);
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL AND NOT kernel.allowance_due(p_space, p_id, v_now) THEN
    v_reply := kernel.allowance_refusal(p_space, p_id, p_units, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_wake := kernel.allowance_turn(p_space, p_id, v_now);
    v_reply := kernel.allowance_refusal(p_space, p_id, p_units, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    v_reply.wake := v_wake;
    RETURN v_reply;
  END IF;
  v_consumption := kernel.allowance_take(p_space, p_id, p_scope, p_units, p_holder, v_now, NULL);
  SELECT pg_catalog.json_build_object('consumptionId', v_consumption, 'units', p_units, 'windowStart',
      kernel.wire_time(n.window_start), 'remaining', n.units_limit - n.consumed) INTO v_reply.facts
    FROM kernel.allowance_now(p_space, p_id, v_now) n;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200, v_reply.facts, v_wake));
END $$;

-- Grant nothing for p_seconds; never shortens a longer cooldown. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.allowance_cool(p_space text, p_id uuid, p_seconds double precision, p_reason text,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_until timestamptz;
  v_name text;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT a.name, a.cooldown_until INTO v_name, v_until FROM runstate.allowances a
   WHERE a.space_id = p_space AND a.id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN kernel.no_allowance(p_id);
  END IF;
  v_now := kernel.kernel_now();
  IF v_until >= kernel.lease_end(v_now, p_seconds) THEN
    RETURN kernel.seen(pg_catalog.json_build_object('cooldownUntil', kernel.wire_time(v_until)), NULL, NULL);
  END IF;
  v_until := kernel.lease_end(v_now, p_seconds);
  UPDATE runstate.allowances a SET cooldown_until = v_until WHERE a.space_id = p_space AND a.id = p_id;
  PERFORM kernel.event(p_space, v_now, 'allowance.cooldown', NULL, 'allowance', p_id::text,
    pg_catalog.json_build_object('name', v_name, 'until', kernel.wire_time(v_until), 'reason', p_reason),
    NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('cooldownUntil', kernel.wire_time(v_until)), NULL));
END $$;

-- Take the turns of allowances in whose line somebody waits and which are due. Waits for nobody.
CREATE FUNCTION kernel.allowance_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_due timestamptz := kernel.kernel_now();
  v_space text;
  v_id uuid;
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_id IN
    SELECT a.space_id, a.id FROM runstate.allowances a
     WHERE a.waited AND kernel.allowance_due(a.space_id, a.id, v_due) LIMIT p_batch
  LOOP
    PERFORM 1 FROM runstate.allowances a WHERE a.space_id = v_space AND a.id = v_id
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    wake := wake || kernel.allowance_turn(v_space, v_id, kernel.kernel_now());
    count := count + 1;
  END LOOP;
END $$;
