-- Scopes.  stored: ACTIVE -> CANCELLED | COMPLETED | EXPIRED, for good.  effective: what the whole chain
-- says, written for the subtree by the end of any scope above; a deadline that has passed is EXPIRED before
-- anybody wrote it.
-- Tables: scopes, scope_tidies.  Locks: gate (alone to end, shared to create a child), idempotency key, then
-- the advisory lock of a run's name, or the parent's row.  Ends call down into the rooms below (once_end,
-- claim_end, messages_end).

-- The view of section 2 of the API.
CREATE FUNCTION kernel.scope_facts(p_space text, p_id uuid, p_now timestamptz)
RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object(
    'id', s.id, 'name', s.name, 'parentId', s.parent_id, 'rootId', s.root_id, 'depth', s.depth,
    'storedState', s.stored, 'effective', kernel.effective_at(s.effective, s.effective_deadline, p_now),
    'deadline', kernel.wire_time(s.deadline), 'childLimit', s.child_limit, 'version', s.version,
    'createdAt', kernel.wire_time(s.created_at), 'endedAt', kernel.wire_time(s.ended_at))
  FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_id
$$;

-- Read one scope. Locks: none. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.scope_view(p_space text, p_id uuid)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_facts json := kernel.scope_facts(p_space, p_id, kernel.kernel_now());
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_scope(p_id);
  END IF;
  RETURN kernel.seen(v_facts, NULL, NULL);
END $$;

-- Write a new scope and its event. The caller has passed the gate and locked the parent, if any.
CREATE FUNCTION kernel.scope_insert(p_space text, p_id uuid, p_name text, p_run_name text, p_parent uuid,
  p_parent_path uuid[], p_above timestamptz, p_deadline timestamptz, p_child_limit int, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := COALESCE(p_parent_path, '{}') || p_id;
BEGIN
  INSERT INTO runstate.scopes (space_id, id, name, run_name, parent_id, root_id, path, depth, stored,
    effective, deadline, effective_deadline, child_limit, children, version, created_at)
  VALUES (p_space, p_id, p_name, p_run_name, p_parent, v_path[1], v_path, pg_catalog.cardinality(v_path) - 1,
    'ACTIVE', 'ACTIVE', p_deadline, LEAST(p_deadline, p_above), p_child_limit, 0, 1, p_now);
  PERFORM kernel.event(p_space, p_now, 'scope.created', v_path, 'scope', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'parentId', p_parent, 'deadline',
      kernel.wire_time(p_deadline)), NULL);
  RETURN kernel.done(201, kernel.scope_facts(p_space, p_id, p_now), NULL);
END $$;

-- Create a scope: a root, or a child of p_parent. Locks: parent's gate, idempotency key, parent's row.
-- Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED (parent ended), CONFLICT (childLimit or depth
-- reached).
CREATE FUNCTION kernel.scope_create(p_space text, p_id uuid, p_name text, p_parent uuid,
  p_deadline timestamptz, p_child_limit int, p_depth_max int, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_above timestamptz;
  v_children int;
  v_limit int;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF p_parent IS NOT NULL THEN
    v_path := kernel.gate_pass(p_space, p_parent);
    IF v_path IS NULL THEN
      RETURN kernel.no_scope(p_parent);
    END IF;
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF p_parent IS NOT NULL THEN
    v_reply := kernel.scope_refusal(p_space, p_parent, kernel.kernel_now());
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
    IF pg_catalog.cardinality(v_path) > p_depth_max THEN
      RETURN kernel.refuse('CONFLICT', 'scope ' || p_parent::text || ' is at depth ' || p_depth_max
        || ', the deepest there is: it cannot have children');
    END IF;
    SELECT s.children, s.child_limit, s.effective_deadline INTO v_children, v_limit, v_above
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_parent FOR NO KEY UPDATE;
    v_now := kernel.kernel_now();
    v_reply := kernel.scope_refusal(p_space, p_parent, v_now);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
    IF v_children >= v_limit THEN
      RETURN kernel.refuse('CONFLICT', 'scope ' || p_parent::text || ' has created its ' || v_limit
        || ' children: its childLimit is reached');
    END IF;
    UPDATE runstate.scopes s SET children = s.children + 1 WHERE s.space_id = p_space AND s.id = p_parent;
  ELSE
    v_now := kernel.kernel_now();
  END IF;
  v_reply := kernel.scope_insert(p_space, p_id, p_name, NULL, p_parent, v_path, v_above, p_deadline,
    p_child_limit, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- The answer when a run of this name is stored ACTIVE: join it, or have its passed deadline written first
-- (AGAIN).
CREATE FUNCTION kernel.run_found(p_space text, p_name text)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_id uuid;
  v_deadline timestamptz;
  v_reply kernel.reply;
BEGIN
  SELECT s.id, s.effective_deadline INTO v_id, v_deadline FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.run_name = p_name AND s.stored = 'ACTIVE';
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_deadline <= v_now THEN
    v_reply := kernel.refuse('AGAIN', 'the run of this name has expired');
    v_reply.expire := v_id;
    RETURN v_reply;
  END IF;
  RETURN kernel.seen(kernel.scope_facts(p_space, v_id, v_now), NULL, NULL);
END $$;

-- Join the one active run of this name, or create it with p_deadline. Locks: idempotency key, the name
-- (advisory).
-- Refuses: AGAIN (internal) when the run found has just expired.
CREATE FUNCTION kernel.run_ensure(p_space text, p_name text, p_id uuid, p_deadline timestamptz,
  p_child_limit int, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_reply := kernel.run_found(p_space, p_name);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('run', p_space, p_name));
  v_reply := kernel.run_found(p_space, p_name);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_insert(p_space, p_id, p_name, p_name, NULL, NULL, NULL, p_deadline, p_child_limit,
    v_now);
  v_reply.status := 200;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Whom the end of a scope wakes: its run, and the lines in which somebody waited for it.
CREATE FUNCTION kernel.scope_wake(p_space text, p_root uuid) RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT kernel.topic('scope', p_space, p_root::text) || kernel.line_topics_of(p_space, p_root)
$$;

-- End what the rooms below hold in these scopes, at most p_limit things; returns how many it ended.
CREATE FUNCTION kernel.scope_end_contents(p_space text, p_path uuid[], p_reason text, p_now timestamptz,
  p_limit int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_depth int := pg_catalog.cardinality(p_path);
  v_ids uuid[];
  v_count int;
BEGIN
  v_ids := ARRAY(SELECT s.id FROM runstate.scopes s
                  WHERE s.space_id = p_space AND s.root_id = p_path[1] AND s.path[v_depth] = p_path[v_depth]);
  v_count := kernel.once_end(p_space, p_path[1], v_ids, p_reason, p_now, p_limit);
  v_count := v_count + kernel.claim_end(p_space, p_path[1], v_ids, p_reason, p_now, p_limit - v_count);
  RETURN v_count + kernel.messages_end(p_space, p_path[1], v_ids, p_reason, p_now, p_limit - v_count);
END $$;

-- Write the end of one scope and its subtree, with its event. The gate is held alone. Small runs end whole in
-- here; what is left of large ones is noted in scope_tidies. Returns false when the scope had ended already.
CREATE FUNCTION kernel.scope_mark(p_space text, p_path uuid[], p_state text, p_now timestamptz)
RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_inline CONSTANT int := 1000;
  v_depth int := pg_catalog.cardinality(p_path);
  v_name text;
  v_ended int;
BEGIN
  UPDATE runstate.scopes s SET stored = p_state, effective = p_state, version = s.version + 1,
    ended_at = p_now
   WHERE s.space_id = p_space AND s.id = p_path[v_depth]
     AND s.effective = 'ACTIVE' RETURNING s.name INTO v_name;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE runstate.scopes s SET effective = p_state
   WHERE s.space_id = p_space AND s.root_id = p_path[1] AND s.effective = 'ACTIVE'
     AND s.path[v_depth] = p_path[v_depth];
  v_ended := kernel.scope_end_contents(p_space, p_path, 'scope_' || pg_catalog.lower(p_state), p_now,
    v_inline);
  IF v_ended >= v_inline THEN
    INSERT INTO runstate.scope_tidies (space_id, scope_id, reason) VALUES
      (p_space, p_path[v_depth], 'scope_' || pg_catalog.lower(p_state)) ON CONFLICT (space_id,
        scope_id) DO NOTHING;
  END IF;
  PERFORM kernel.event(p_space, p_now, 'scope.' || pg_catalog.lower(p_state), p_path, 'scope',
    p_path[v_depth]::text, pg_catalog.json_build_object('name', v_name, 'ended', v_ended),
    kernel.scope_wake(p_space, p_path[1]));
  RETURN true;
END $$;

-- Write every deadline that has passed in a run, the earliest first, so that an expiry nobody had noticed
-- keeps its own event and is not covered by a later end. The gate is held alone. Returns how many scopes
-- expired.
CREATE FUNCTION kernel.scope_mark_due(p_space text, p_root uuid, p_now timestamptz) RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_due uuid[];
  v_count int := 0;
BEGIN
  FOR v_due IN
    SELECT s.path FROM runstate.scopes s
     WHERE s.space_id = p_space AND s.root_id = p_root AND s.effective = 'ACTIVE' AND s.deadline <= p_now
     ORDER BY s.deadline, s.depth
  LOOP
    IF kernel.scope_mark(p_space, v_due, 'EXPIRED', p_now) THEN
      v_count := v_count + 1;
    END IF;
  END LOOP;
  RETURN v_count;
END $$;

-- Cancel or complete a scope and its subtree (p_state). Repeating is a no-op. Locks: gate alone, idempotency
-- key.
-- Refuses: NOT_FOUND, CONFLICT (it has ended another way).
CREATE FUNCTION kernel.scope_end(p_space text, p_id uuid, p_state text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_state text;
  v_version int;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_id;
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_id);
  END IF;
  PERFORM kernel.gate_alone(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  PERFORM kernel.scope_mark_due(p_space, v_path[1], v_now);
  SELECT s.effective, s.version INTO v_state, v_version FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = p_id;
  IF v_state = 'ACTIVE' THEN
    PERFORM kernel.scope_mark(p_space, v_path, p_state, v_now);
    v_reply := kernel.done(200, pg_catalog.json_build_object('id', p_id, 'state', p_state, 'version',
      v_version + 1), kernel.scope_wake(p_space, v_path[1]));
    RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
  ELSIF v_state = p_state THEN
    RETURN kernel.seen(pg_catalog.json_build_object('id', p_id, 'state', v_state, 'version', v_version), NULL,
      NULL);
  END IF;
  RETURN kernel.refuse('CONFLICT', 'scope ' || p_id::text || ' is already ' || v_state);
END $$;

-- Write the deadlines that have passed around one scope: the call that the server makes when another found
-- one passed. The whole run is looked through.
-- Locks: gate alone. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.scope_expire(p_space text, p_id uuid)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_id;
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_id);
  END IF;
  PERFORM kernel.gate_alone(p_space, v_path[1]);
  v_count := kernel.scope_mark_due(p_space, v_path[1], kernel.kernel_now());
  IF v_count = 0 THEN
    RETURN kernel.seen(pg_catalog.json_build_object('expired', 0), NULL, NULL);
  END IF;
  RETURN kernel.done(200, pg_catalog.json_build_object('expired', v_count),
    kernel.scope_wake(p_space, v_path[1]));
END $$;

-- Write at most p_batch deadlines that have passed. Locks: gates alone, only tried. Index: scopes_due.
CREATE FUNCTION kernel.scope_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_path uuid[];
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}';
  FOR v_space, v_path IN
    SELECT s.space_id, s.path FROM runstate.scopes s WHERE s.effective = 'ACTIVE' AND s.deadline <= v_now
     ORDER BY s.deadline LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT pg_catalog.pg_try_advisory_xact_lock(kernel.lock_key('gate', v_space, v_path[1]::text));
    count := count + kernel.scope_mark_due(v_space, v_path[1], kernel.kernel_now());
    wake := wake || kernel.scope_wake(v_space, v_path[1]);
  END LOOP;
END $$;

-- End what an ended scope still holds, p_batch things at most; the scope is the truth until then.
CREATE FUNCTION kernel.scope_tidy_sweep(p_batch int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_space text;
  v_scope uuid;
  v_reason text;
  v_path uuid[];
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT t.space_id, t.scope_id, t.reason INTO v_space, v_scope, v_reason FROM runstate.scope_tidies t
   ORDER BY t.space_id, t.scope_id LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = v_space AND s.id = v_scope;
  v_count := kernel.scope_end_contents(v_space, v_path, v_reason, kernel.kernel_now(), p_batch);
  IF v_count < p_batch THEN
    DELETE FROM runstate.scope_tidies t WHERE t.space_id = v_space AND t.scope_id = v_scope;
  END IF;
  RETURN v_count;
END $$;
