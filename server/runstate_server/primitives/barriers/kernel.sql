-- Barriers.
-- WAITING -> RELEASED (the last arrival) -> WAITING (reset: the next epoch);  WAITING -> CANCELLED (end of
-- the scope, which reads so at once, whether or not anybody has written it).
-- Tables: barriers, barrier_arrivals (of the present epoch).  Locks: gate shared, idempotency key, then the
-- barrier's row; to create one by name the name in its scope (advisory).

CREATE FUNCTION kernel.barrier_topic(p_space text, p_id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('barrier', p_space, p_id::text)
$$;

CREATE FUNCTION kernel.no_barrier(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'barrier ' || p_id::text || ' does not exist in this space')
$$;

-- The path of a barrier's scope, null when this space has no such barrier. It never changes.
CREATE FUNCTION kernel.barrier_path(p_space text, p_id uuid) RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT (SELECT s.path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = b.scope_id)
    FROM runstate.barriers b WHERE b.space_id = p_space AND b.id = p_id
$$;

-- The view of section 10 of the API.
CREATE FUNCTION kernel.barrier_facts(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', b.id, 'name', b.name, 'scopeId', b.scope_id,
    'state', CASE WHEN b.state = 'WAITING' AND c.effective <> 'ACTIVE' THEN 'CANCELLED' ELSE b.state END,
    'epoch', b.epoch, 'arrivals', b.arrivals, 'target', b.target)
    FROM runstate.barriers b
    CROSS JOIN LATERAL (SELECT kernel.effective_at(s.effective, s.effective_deadline, p_now) AS effective
                          FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = b.scope_id OFFSET 0) c
   WHERE b.space_id = p_space AND b.id = p_id
$$;

-- The answer to a named PUT when the name is there: the barrier, or CONFLICT when it has another target.
CREATE FUNCTION kernel.barrier_found(p_space text, p_scope uuid, p_name text, p_target int,
  p_now timestamptz) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid;
  v_target int;
BEGIN
  SELECT b.id, b.target INTO v_id, v_target FROM runstate.barriers b
   WHERE b.space_id = p_space AND b.scope_id = p_scope AND b.name = p_name;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF v_target <> p_target THEN
    RETURN kernel.refuse('CONFLICT', 'barrier "' || p_name || '" of this scope has the target ' || v_target
      || ', not ' || p_target);
  END IF;
  RETURN kernel.seen(kernel.barrier_facts(p_space, v_id, p_now), NULL, NULL);
END $$;

-- Create a barrier; with a name, unique in its scope, find it or create it.
-- Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (another target).
CREATE FUNCTION kernel.barrier_create(p_space text, p_id uuid, p_scope uuid, p_name text, p_target int,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
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
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.barrier_found(p_space, p_scope, p_name, p_target, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF p_name IS NOT NULL THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('barrier', p_space, p_scope::text || '/'
      || p_name));
    v_now := kernel.kernel_now();
    v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
    IF v_reply.changed IS NULL THEN
      v_reply := kernel.barrier_found(p_space, p_scope, p_name, p_target, v_now);
    END IF;
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END IF;
  INSERT INTO runstate.barriers (space_id, id, scope_id, root_id, name, state, epoch, target, arrivals,
    created_at)
  VALUES (p_space, p_id, p_scope, v_path[1], p_name, 'WAITING', 1, p_target, 0, v_now);
  PERFORM kernel.event(p_space, v_now, 'resource.created', v_path, 'barrier', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'target', p_target), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.barrier_facts(p_space, p_id, v_now), NULL));
END $$;

-- Read a barrier. Locks: none. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.barrier_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_facts json := kernel.barrier_facts(p_space, p_id, v_now);
  v_root uuid;
  v_deadline timestamptz;
  v_reply kernel.reply;
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_barrier(p_id);
  END IF;
  v_reply := kernel.seen(v_facts, NULL, NULL);
  IF v_facts ->> 'state' = 'WAITING' THEN
    SELECT s.root_id, s.effective_deadline INTO v_root, v_deadline FROM runstate.scopes s
     WHERE s.space_id = p_space AND s.id = (v_facts ->> 'scopeId')::uuid;
    v_reply.again_s := kernel.seconds_until(v_deadline, v_now);
    v_reply.sleep := ARRAY[kernel.barrier_topic(p_space, p_id),
      kernel.topic('scope', p_space, v_root::text)];
  END IF;
  RETURN v_reply;
END $$;

-- What an arrival that is not to be counted is told; null when it is the next one to count. A key that is
-- there already is told how the barrier stands. Refuses: SCOPE_CANCELLED, DEADLINE_EXCEEDED,
-- BARRIER_RELEASED, BARRIER_CANCELLED.
CREATE FUNCTION kernel.barrier_answer(p_space text, p_scope uuid, p_id uuid, p_key text, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_name text;
  v_epoch int;
  v_arrivals int;
  v_reply kernel.reply;
BEGIN
  v_reply := kernel.scope_refusal(p_space, p_scope, p_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT b.state, COALESCE('"' || b.name || '"', b.id::text), b.epoch, b.arrivals
    INTO v_state, v_name, v_epoch, v_arrivals FROM runstate.barriers b
   WHERE b.space_id = p_space AND b.id = p_id;
  IF v_state = 'CANCELLED' THEN
    RETURN kernel.refuse('BARRIER_CANCELLED', 'barrier ' || v_name || ' was cancelled with its scope');
  END IF;
  PERFORM 1 FROM runstate.barrier_arrivals a
    WHERE a.space_id = p_space AND a.barrier_id = p_id AND a.key = p_key;
  IF FOUND THEN
    RETURN kernel.seen(pg_catalog.json_build_object('state', v_state, 'arrivals', v_arrivals, 'epoch',
      v_epoch), NULL, NULL);
  ELSIF v_state = 'RELEASED' THEN
    RETURN kernel.refuse('BARRIER_RELEASED', 'barrier ' || v_name || ' was released with its ' || v_arrivals
      || ' arrivals before "' || p_key || '" came');
  END IF;
  RETURN NULL;
END $$;

-- Arrive under a key, which counts once in an epoch; the last one releases. Refuses: NOT_FOUND, and as
-- barrier_answer.
CREATE FUNCTION kernel.barrier_arrive(p_space text, p_id uuid, p_key text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_scope uuid;
  v_now timestamptz;
  v_state text;
  v_epoch int;
  v_arrivals int;
  v_facts json;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.barrier_path(p_space, p_id);
  IF v_path IS NULL THEN
    RETURN kernel.no_barrier(p_id);
  END IF;
  v_scope := v_path[pg_catalog.cardinality(v_path)];
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.barrier_answer(p_space, v_scope, p_id, p_key, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.barriers b WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.barrier_answer(p_space, v_scope, p_id, p_key, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  INSERT INTO runstate.barrier_arrivals (space_id, barrier_id, key, arrived_at)
  VALUES (p_space, p_id, p_key, v_now);
  UPDATE runstate.barriers b SET arrivals = b.arrivals + 1,
    state = CASE WHEN b.arrivals + 1 = b.target THEN 'RELEASED' ELSE 'WAITING' END
   WHERE b.space_id = p_space AND b.id = p_id
  RETURNING b.state, b.epoch, b.arrivals, pg_catalog.json_build_object('name', b.name, 'key', p_key, 'epoch',
    b.epoch, 'arrivals', b.arrivals, 'target', b.target) INTO v_state, v_epoch, v_arrivals, v_facts;
  PERFORM kernel.event(p_space, v_now, 'barrier.arrived', v_path, 'barrier', p_id::text, v_facts, NULL);
  IF v_state = 'RELEASED' THEN
    v_wake := ARRAY[kernel.barrier_topic(p_space, p_id)];
    PERFORM kernel.event(p_space, v_now, 'barrier.released', v_path, 'barrier', p_id::text, v_facts, v_wake);
  END IF;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('state', v_state, 'arrivals', v_arrivals, 'epoch', v_epoch), v_wake));
END $$;

-- Why a barrier cannot be reset; null when it can. One that was still waiting when its scope ended is
-- cancelled.
CREATE FUNCTION kernel.barrier_stuck(p_space text, p_scope uuid, p_id uuid, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_name text;
  v_reply kernel.reply := kernel.scope_refusal(p_space, p_scope, p_now);
BEGIN
  SELECT b.state, COALESCE('"' || b.name || '"', b.id::text) INTO v_state, v_name FROM runstate.barriers b
   WHERE b.space_id = p_space AND b.id = p_id;
  IF v_reply.changed IS NOT NULL AND v_state <> 'RELEASED' THEN
    v_reply.code := 'BARRIER_CANCELLED';
    v_reply.facts := pg_catalog.json_build_object('message', 'barrier ' || v_name
      || ' was cancelled: ' || (v_reply.facts ->> 'message'));
  END IF;
  RETURN v_reply;
END $$;

-- Begin the next epoch: nobody has arrived. Who waits for the epoch that is over wakes. Refuses: NOT_FOUND,
-- BARRIER_CANCELLED; SCOPE_CANCELLED and DEADLINE_EXCEEDED of one that was released before its scope ended.
CREATE FUNCTION kernel.barrier_reset(p_space text, p_id uuid, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_scope uuid;
  v_now timestamptz;
  v_facts json;
  v_wake text[] := ARRAY[kernel.barrier_topic(p_space, p_id)];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.barrier_path(p_space, p_id);
  IF v_path IS NULL THEN
    RETURN kernel.no_barrier(p_id);
  END IF;
  v_scope := v_path[pg_catalog.cardinality(v_path)];
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.barrier_stuck(p_space, v_scope, p_id, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.barriers b WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.barrier_stuck(p_space, v_scope, p_id, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  DELETE FROM runstate.barrier_arrivals a WHERE a.space_id = p_space AND a.barrier_id = p_id;
  UPDATE runstate.barriers b SET state = 'WAITING', epoch = b.epoch + 1, arrivals = 0
   WHERE b.space_id = p_space AND b.id = p_id
  RETURNING pg_catalog.json_build_object('name', b.name, 'epoch', b.epoch, 'target', b.target) INTO v_facts;
  PERFORM kernel.event(p_space, v_now, 'resource.updated', v_path, 'barrier', p_id::text, v_facts, v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    kernel.barrier_facts(p_space, p_id, v_now), v_wake));
END $$;

-- Cancel the barriers that wait in the subtree that a path leads to, p_limit at most; as once_end.
-- Index: barriers_waiting.
CREATE FUNCTION kernel.barriers_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz,
  p_limit int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scopes uuid[] := kernel.scopes_within(p_space, p_path);
  v_id uuid;
  v_scope uuid;
  v_facts json;
  v_count int := 0;
BEGIN
  FOR v_id, v_scope IN
    SELECT w.id, w.scope_id FROM (
      SELECT b.id, b.scope_id FROM runstate.barriers b WHERE v_scopes IS NULL
         AND b.space_id = p_space AND b.root_id = p_path[1] AND b.state = 'WAITING'
      UNION ALL
      SELECT b.id, b.scope_id FROM runstate.barriers b
       WHERE b.space_id = p_space AND b.root_id = p_path[1] AND b.state = 'WAITING'
         AND b.scope_id = ANY (v_scopes)) w LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    UPDATE runstate.barriers b SET state = 'CANCELLED'
     WHERE b.space_id = p_space AND b.id = v_id AND b.state = 'WAITING'
    RETURNING pg_catalog.json_build_object('name', b.name, 'epoch', b.epoch, 'arrivals', b.arrivals, 'target',
      b.target, 'reason', p_reason) INTO v_facts;
    CONTINUE WHEN NOT FOUND;  -- another step has just ended it
    PERFORM kernel.event(p_space, p_now, 'barrier.cancelled', s.path, 'barrier', v_id::text, v_facts,
      ARRAY[kernel.barrier_topic(p_space, v_id)])
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = v_scope;
  END LOOP;
  RETURN v_count;
END $$;

-- How many barriers are still to be cancelled in the subtree that a path leads to.
CREATE FUNCTION kernel.barriers_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT 1 FROM runstate.barriers b WHERE i.scopes IS NULL AND b.space_id = p_space
         AND b.root_id = p_path[1] AND b.state = 'WAITING'
      UNION ALL
      SELECT 1 FROM runstate.barriers b WHERE b.space_id = p_space AND b.root_id = p_path[1]
         AND b.state = 'WAITING' AND b.scope_id = ANY (i.scopes)) w
$$;
