-- Allowances: N units per window, and the line before them (waiters.sql).  Windows are aligned to the Unix
-- epoch by the database's clock.  Table: allowances.  Locks: gate shared, idempotency key, the allowance's
-- row, its waiters.

-- The start of the window that an instant is in.
CREATE FUNCTION kernel.window_of(p_at timestamptz, p_window_s bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.to_timestamp((pg_catalog.floor(EXTRACT(epoch FROM p_at) / p_window_s)
    * p_window_s)::double precision)
$$;

-- What an allowance has at an instant. A clock that goes back never begins a window again: the later start
-- stands. p_id must exist.
CREATE FUNCTION kernel.allowance_now(p_space text, p_id uuid, p_now timestamptz, OUT name text,
  OUT units_limit bigint, OUT window_start timestamptz, OUT window_end timestamptz, OUT consumed bigint,
  OUT cooldown_until timestamptz) LANGUAGE sql VOLATILE AS $$
  SELECT a.name, a.units_limit, w.start, w.start + pg_catalog.make_interval(secs => a.window_s),
      CASE WHEN w.start > a.window_start THEN 0 ELSE a.consumed END,
      CASE WHEN a.cooldown_until > p_now THEN a.cooldown_until END
    FROM runstate.allowances a
    CROSS JOIN LATERAL (SELECT GREATEST(a.window_start, kernel.window_of(p_now, a.window_s)) AS start) w
   WHERE a.space_id = p_space AND a.id = p_id
$$;

CREATE FUNCTION kernel.allowance_facts(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', a.id, 'name', a.name, 'unitsLimit', a.units_limit,
      'windowSeconds', a.window_s, 'windowStart', kernel.wire_time(n.window_start), 'consumed', n.consumed,
      'remaining', GREATEST(a.units_limit - n.consumed, 0), 'cooldownUntil',
      kernel.wire_time(n.cooldown_until), 'waiting', kernel.line_length(p_space, p_id, p_now))
    FROM runstate.allowances a CROSS JOIN LATERAL kernel.allowance_now(p_space, p_id, p_now) n
   WHERE a.space_id = p_space AND a.id = p_id
$$;

CREATE FUNCTION kernel.no_allowance(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'allowance ' || p_id::text || ' does not exist in this space')
$$;

-- Write a new allowance and its event; the name is locked and free.
CREATE FUNCTION kernel.allowance_insert(p_space text, p_id uuid, p_name text, p_units bigint,
  p_window_s bigint, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO runstate.allowances (space_id, id, name, units_limit, window_s, window_start, consumed, waited,
    next_ticket, created_at)
  VALUES (p_space, p_id, p_name, p_units, p_window_s, kernel.window_of(p_now, p_window_s), 0, false, 1,
    p_now);
  PERFORM kernel.event(p_space, p_now, 'resource.created', NULL, 'allowance', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'unitsLimit', p_units, 'windowSeconds', p_window_s), NULL);
END $$;

-- Create an allowance. Refuses: CONFLICT (the name exists).
CREATE FUNCTION kernel.allowance_create(p_space text, p_id uuid, p_name text, p_units bigint,
  p_window_s bigint, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('allowance', p_space, p_name));
  PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.name = p_name;
  IF FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'allowance "' || p_name || '" exists already');
  END IF;
  v_now := kernel.kernel_now();
  PERFORM kernel.allowance_insert(p_space, p_id, p_name, p_units, p_window_s, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(201,
    kernel.allowance_facts(p_space, p_id, v_now), NULL));
END $$;

-- Why an allowance of that name does not do; null when it has what is asked for, or does not exist.
CREATE FUNCTION kernel.allowance_mismatch(p_space text, p_id uuid, p_name text, p_units bigint,
  p_window_s bigint) RETURNS kernel.reply LANGUAGE sql VOLATILE AS $$
  SELECT kernel.refuse('CONFLICT', 'allowance "' || p_name || '" has ' || a.units_limit::text
      || ' units in ' || a.window_s::text || ' s, not ' || COALESCE(p_units, a.units_limit)::text || ' in '
      || COALESCE(p_window_s, a.window_s)::text || ' s')
    FROM runstate.allowances a
   WHERE a.space_id = p_space AND a.id = p_id AND (a.units_limit <> p_units OR a.window_s <> p_window_s)
$$;

-- Find an allowance by name; with both sizes create it, or check those that are given. p_configure: the
-- caller may create. Refuses: NOT_FOUND, CONFLICT (another size), FORBIDDEN, VALIDATION_FAILED (one size
-- alone, and nothing there).
CREATE FUNCTION kernel.allowance_ensure(p_space text, p_id uuid, p_name text, p_units bigint,
  p_window_s bigint, p_configure boolean, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_id uuid;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  FOR v_turn IN 1..2 LOOP
    SELECT a.id INTO v_id FROM runstate.allowances a WHERE a.space_id = p_space AND a.name = p_name;
    IF FOUND THEN
      v_reply := kernel.allowance_mismatch(p_space, v_id, p_name, p_units, p_window_s);
      RETURN CASE WHEN v_reply.changed IS NOT NULL THEN v_reply ELSE
        kernel.seen(kernel.allowance_facts(p_space, v_id, kernel.kernel_now()), NULL, NULL) END;
    ELSIF p_units IS NULL AND p_window_s IS NULL THEN
      RETURN kernel.refuse('NOT_FOUND', 'allowance "' || p_name
        || '" does not exist in this space; to create it, give ''unitsLimit'' and ''windowSeconds''');
    ELSIF p_units IS NULL OR p_window_s IS NULL THEN
      RETURN kernel.refuse('VALIDATION_FAILED', CASE WHEN p_units IS NULL THEN '''unitsLimit'''
        ELSE '''windowSeconds''' END || ' is required to create allowance "' || p_name || '"');
    ELSIF NOT p_configure THEN
      RETURN kernel.refuse('FORBIDDEN', 'this key lacks the permission ''resource_config'' to create '
        'allowance "' || p_name || '"');
    END IF;
    IF v_turn = 1 THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('allowance', p_space, p_name));
    END IF;
  END LOOP;
  v_now := kernel.kernel_now();
  PERFORM kernel.allowance_insert(p_space, p_id, p_name, p_units, p_window_s, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.allowance_facts(p_space, p_id, v_now), NULL));
END $$;

-- Change the sizes that are given. What the window has consumed stays consumed in the window that takes its
-- place: a change is no refill. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.allowance_resize(p_space text, p_id uuid, p_units bigint, p_window_s bigint,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_name text;
  v_units bigint;
  v_window_s bigint;
  v_start timestamptz;
  v_consumed bigint;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT a.name, a.units_limit, a.window_s INTO v_name, v_units, v_window_s FROM runstate.allowances a
   WHERE a.space_id = p_space AND a.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  IF NOT FOUND THEN
    RETURN kernel.no_allowance(p_id);
  ELSIF v_units = COALESCE(p_units, v_units) AND v_window_s = COALESCE(p_window_s, v_window_s) THEN
    RETURN kernel.seen(kernel.allowance_facts(p_space, p_id, v_now), NULL, NULL);
  END IF;
  SELECT n.window_start, n.consumed INTO v_start, v_consumed
    FROM kernel.allowance_now(p_space, p_id, v_now) n;
  UPDATE runstate.allowances a SET units_limit = COALESCE(p_units, v_units),
    window_s = COALESCE(p_window_s, v_window_s), consumed = v_consumed, window_start =
      kernel.window_of(GREATEST(v_now, v_start), COALESCE(p_window_s, v_window_s))
   WHERE a.space_id = p_space AND a.id = p_id;
  v_wake := kernel.allowance_turn(p_space, p_id, v_now);
  PERFORM kernel.event(p_space, v_now, 'resource.updated', NULL, 'allowance', p_id::text,
    pg_catalog.json_build_object('name', v_name, 'unitsLimit', COALESCE(p_units, v_units), 'windowSeconds',
      COALESCE(p_window_s, v_window_s)), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.allowance_facts(p_space, p_id, v_now), v_wake));
END $$;

-- The view of an allowance. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.allowance_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_facts json := kernel.allowance_facts(p_space, p_id, kernel.kernel_now());
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_allowance(p_id);
  END IF;
  RETURN kernel.seen(v_facts, NULL, NULL);
END $$;
