-- Permits: pools of N units, and the line before them (waiters.sql).  Grants: live -> RELEASED, LAPSED.
--  Tables: pools, grants.  Locks: gate shared, idempotency key, the pool's row, its grants, its
-- waiters. The end of a scope locks no pool: a turn drops waiters whose scope has ended.

CREATE FUNCTION kernel.pool_facts(p_space text, p_id uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', b.id, 'name', b.name, 'unitsTotal', b.units_total, 'unitsUsed',
    b.units_used, 'waiting', kernel.line_length(p_space, p_id, kernel.kernel_now()))
  FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_id
$$;

CREATE FUNCTION kernel.no_pool(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'permit pool ' || p_id::text || ' does not exist in this space')
$$;

-- Write a new pool and its event; the name is locked and free.
CREATE FUNCTION kernel.pool_insert(p_space text, p_id uuid, p_name text, p_units bigint, p_now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO runstate.pools (space_id, id, name, units_total, units_used, units_signaled, next_ticket,
    created_at) VALUES (p_space, p_id, p_name, p_units, 0, 0, 1, p_now);
  PERFORM kernel.event(p_space, p_now, 'resource.created', NULL, 'permit', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'units', p_units), NULL);
END $$;

-- Create a pool. Refuses: CONFLICT (the name exists).
CREATE FUNCTION kernel.pool_create(p_space text, p_id uuid, p_name text, p_units bigint, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('permit', p_space, p_name));
  PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.name = p_name;
  IF FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'permit pool "' || p_name || '" exists already');
  END IF;
  v_now := kernel.kernel_now();
  PERFORM kernel.pool_insert(p_space, p_id, p_name, p_units, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(201,
    pg_catalog.json_build_object('id', p_id, 'name', p_name, 'unitsTotal', p_units), NULL));
END $$;

-- Find a pool by name; with p_units create it, or check its size. p_configure: the caller may create.
-- Refuses: NOT_FOUND (no units given), CONFLICT (another size), FORBIDDEN.
CREATE FUNCTION kernel.pool_ensure(p_space text, p_id uuid, p_name text, p_units bigint, p_configure boolean,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_id uuid;
  v_units bigint;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  FOR v_turn IN 1..2 LOOP
    SELECT b.id, b.units_total INTO v_id, v_units FROM runstate.pools b
     WHERE b.space_id = p_space AND b.name = p_name;
    IF FOUND AND v_units <> p_units THEN
      RETURN kernel.refuse('CONFLICT', 'permit pool "' || p_name || '" has ' || v_units::text
        || ' units, not ' || p_units::text);
    ELSIF FOUND THEN
      RETURN kernel.seen(kernel.pool_sized(kernel.pool_facts(p_space, v_id), v_units), NULL, NULL);
    ELSIF p_units IS NULL THEN
      RETURN kernel.refuse('NOT_FOUND', 'permit pool "' || p_name
        || '" does not exist in this space; to create it, give ''units''');
    ELSIF NOT p_configure THEN
      RETURN kernel.refuse('FORBIDDEN', 'this key lacks the permission ''resource_config'' to create permit '
        'pool "' || p_name || '"');
    END IF;
    IF v_turn = 1 THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('permit', p_space, p_name));
    END IF;
  END LOOP;
  v_now := kernel.kernel_now();
  PERFORM kernel.pool_insert(p_space, p_id, p_name, p_units, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.pool_sized(kernel.pool_facts(p_space, p_id), p_units), NULL));
END $$;

-- The view with `units`, which the answers by name carry besides.
CREATE FUNCTION kernel.pool_sized(p_facts json, p_units bigint) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.json_build_object('id', p_facts -> 'id', 'name', p_facts -> 'name', 'unitsTotal',
    p_facts -> 'unitsTotal', 'unitsUsed', p_facts -> 'unitsUsed', 'waiting', p_facts -> 'waiting', 'units',
    p_units)
$$;

-- Resize a pool; below what is in use it drains as grants end. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.pool_resize(p_space text, p_id uuid, p_units bigint, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_name text;
  v_before bigint;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT b.name, b.units_total INTO v_name, v_before FROM runstate.pools b
   WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN kernel.no_pool(p_id);
  ELSIF v_before = p_units THEN
    RETURN kernel.seen(kernel.pool_facts(p_space, p_id), NULL, NULL);
  END IF;
  v_now := kernel.kernel_now();
  UPDATE runstate.pools b SET units_total = p_units WHERE b.space_id = p_space AND b.id = p_id;
  v_wake := kernel.permit_turn(p_space, p_id, v_now);
  PERFORM kernel.event(p_space, v_now, 'permit.resized', NULL, 'permit', p_id::text,
    pg_catalog.json_build_object('name', v_name, 'units', p_units, 'before', v_before), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.pool_facts(p_space, p_id), v_wake));
END $$;

-- The view of a pool, with what was observed at the last release that said something. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.pool_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_facts json := kernel.pool_facts(p_space, p_id);
  v_observation text;
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_pool(p_id);
  END IF;
  SELECT g.observation INTO v_observation FROM runstate.grants g
   WHERE g.pool_id = p_id AND g.space_id = p_space AND g.observation IS NOT NULL
   ORDER BY g.ended_at DESC LIMIT 1;
  RETURN kernel.seen(pg_catalog.json_build_object('id', v_facts -> 'id', 'name', v_facts -> 'name',
    'unitsTotal', v_facts -> 'unitsTotal', 'unitsUsed', v_facts -> 'unitsUsed', 'waiting',
    v_facts -> 'waiting', 'observation', kernel.payload_here(0)), ARRAY[COALESCE(v_observation, 'null')],
    NULL);
END $$;
