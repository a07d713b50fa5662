-- Scopes.  stored: ACTIVE -> CANCELLED | COMPLETED | EXPIRED, for good.  effective: what the whole chain
-- says, written for the subtree by the end of any scope above; a deadline that has passed is EXPIRED before
-- anybody wrote it.
-- Tables: scopes, scope_tidies.  Locks: gate (alone to end, shared to create a child), idempotency key, then
-- the advisory lock of a run's name, or the parent's row.  Ends are in kernel_end.sql.

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
  PERFORM kernel.scope_write(p_space, p_id, p_name, NULL, v_path, v_above, p_deadline, p_child_limit, v_now);
  v_reply := kernel.done(201, kernel.scope_facts(p_space, p_id, v_now), NULL);
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
  PERFORM kernel.scope_write(p_space, p_id, p_name, p_name, NULL, NULL, p_deadline, p_child_limit, v_now);
  v_reply := kernel.done(200, kernel.scope_facts(p_space, p_id, v_now), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
