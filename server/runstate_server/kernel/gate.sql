-- The gate of a run: every mutation inside it passes shared; cancel, complete and expire pass alone. So
-- nothing is granted or recorded after the end of a scope has been answered, and no row is dirtied. A call
-- takes all its gates first, sorted, in a statement of their own, and never upgrades one.

CREATE FUNCTION kernel.gate_shared(p_space text, p_root uuid) RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.pg_advisory_xact_lock_shared(kernel.lock_key('gate', p_space, p_root::text))
$$;

CREATE FUNCTION kernel.gate_alone(p_space text, p_root uuid) RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.pg_advisory_xact_lock(kernel.lock_key('gate', p_space, p_root::text))
$$;

-- A sweep never waits: it passes over a run whose gate is taken.
CREATE FUNCTION kernel.gate_tried(p_space text, p_root uuid) RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.pg_try_advisory_xact_lock_shared(kernel.lock_key('gate', p_space, p_root::text))
$$;

-- Pass the gate of a scope. Returns the scope's path from its root to itself, null when this space has no
-- such scope. The path never changes, so reading it before the gate is safe; the state must be read after
-- (scope_refusal).
CREATE FUNCTION kernel.gate_pass(p_space text, p_scope uuid) RETURNS uuid[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
BEGIN
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF v_path IS NOT NULL THEN
    PERFORM kernel.gate_shared(p_space, v_path[1]);
  END IF;
  RETURN v_path;
END $$;

CREATE FUNCTION kernel.no_scope(p_scope uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'scope ' || p_scope::text || ' does not exist in this space')
$$;

-- What a scope answers at this instant: its stored end, or EXPIRED once any deadline on its chain has passed.
CREATE FUNCTION kernel.effective_at(p_effective text, p_deadline timestamptz, p_now timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_effective = 'ACTIVE' AND p_deadline <= p_now THEN 'EXPIRED' ELSE p_effective END
$$;

-- The refusal of a mutation in a scope that has ended, null while it is active. Call it after the last lock.
-- A deadline found passed is not written here (that needs the gate alone): the reply asks the server to do
-- it.
CREATE FUNCTION kernel.scope_refusal(p_space text, p_scope uuid, p_now timestamptz) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_effective text;
  v_deadline timestamptz;
  v_reply kernel.reply;
BEGIN
  SELECT s.effective, s.effective_deadline INTO v_effective, v_deadline
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF v_effective = 'ACTIVE' AND (v_deadline IS NULL OR v_deadline > p_now) THEN
    RETURN NULL;
  END IF;
  IF v_effective IN ('ACTIVE', 'EXPIRED') THEN
    v_reply := kernel.refuse('DEADLINE_EXCEEDED',
      'scope ' || p_scope::text || ' expired at ' || kernel.wire_time(v_deadline));
    IF v_effective = 'ACTIVE' THEN
      v_reply.expire := p_scope;
    END IF;
    RETURN v_reply;
  END IF;
  RETURN kernel.refuse('SCOPE_CANCELLED', 'scope ' || p_scope::text || ' is ' || v_effective);
END $$;

-- Pass the gates of several runs, sorted by lock number, so that two calls never wait for each other in a
-- circle.
CREATE FUNCTION kernel.gates_shared(p_space text, p_roots uuid[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_key bigint;
BEGIN
  FOR v_key IN SELECT DISTINCT kernel.lock_key('gate', p_space, r.root::text) AS number
                 FROM pg_catalog.unnest(p_roots) r (root) ORDER BY number
  LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(v_key);
  END LOOP;
END $$;

-- The scopes of the subtree that a path leads to; null for a whole run, whose things are found by their root.
-- Ask for them once, in a variable or in FROM: in a WHERE clause they would be sought for every row.
CREATE FUNCTION kernel.scopes_within(p_space text, p_path uuid[]) RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN p_path[2] IS NOT NULL THEN ARRAY(
    SELECT s.id FROM runstate.scopes s WHERE s.space_id = p_space AND s.root_id = p_path[1]
       AND s.path[pg_catalog.cardinality(p_path)] = p_path[pg_catalog.cardinality(p_path)]) END
$$;

-- Write a new scope below the one that p_above leads to, or a new root when that is null, and its event: for
-- the room of scopes, and for rooms whose things own one. The caller has passed the gate. p_until: the
-- effective deadline above. Returns its path.
CREATE FUNCTION kernel.scope_write(p_space text, p_id uuid, p_name text, p_run_name text, p_above uuid[],
  p_until timestamptz, p_deadline timestamptz, p_child_limit int, p_now timestamptz) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := COALESCE(p_above, '{}'::uuid[]) || p_id;
  v_parent uuid := p_above[pg_catalog.cardinality(p_above)];
BEGIN
  INSERT INTO runstate.scopes (space_id, id, name, run_name, parent_id, root_id, path, depth, stored,
    effective, deadline, effective_deadline, child_limit, children, version, created_at)
  VALUES (p_space, p_id, p_name, p_run_name, v_parent, v_path[1], v_path, pg_catalog.cardinality(v_path) - 1,
    'ACTIVE', 'ACTIVE', p_deadline, LEAST(p_deadline, p_until), p_child_limit, 0, 1, p_now);
  PERFORM kernel.event(p_space, p_now, 'scope.created', v_path, 'scope', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'parentId', v_parent, 'deadline',
      kernel.wire_time(p_deadline)), NULL);
  RETURN v_path;
END $$;
