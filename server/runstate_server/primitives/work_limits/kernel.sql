-- Work limits: how many unfinished tasks a scope and what is below it may have, by name. Table: work_limits;
-- messages carry the limit they count under.  Locks: gate shared, idempotency key, the name in its scope
-- (advisory) to create; a limit's row, in the order of ids, while a submit counts and adds. Nothing that ends
-- a task writes here: what is outstanding is counted over the index messages_limited.

-- What is unfinished under a limit at p_now: not ended, nor its deadline past, nor its scope over.
CREATE FUNCTION kernel.work_outstanding(p_space text, p_id uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT kernel.effective_at(s.effective, s.effective_deadline, p_now) AS effective
                          FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = m.scope_id OFFSET 0) c
   WHERE m.space_id = p_space AND m.work_limit_id = p_id AND m.ended IS NULL AND c.effective = 'ACTIVE'
     AND (m.deadline IS NULL OR m.deadline > p_now)
$$;

-- The view of section 9 of the API.
CREATE FUNCTION kernel.work_limit_facts(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', w.id, 'name', w.name, 'scopeId', w.scope_id, 'maxOutstanding',
    w.max_outstanding, 'outstanding', kernel.work_outstanding(p_space, p_id, p_now))
    FROM runstate.work_limits w WHERE w.space_id = p_space AND w.id = p_id
$$;

-- The nearest limit of a name on a scope's chain; null when there is none.
CREATE FUNCTION kernel.work_limit_near(p_space text, p_path uuid[], p_name text) RETURNS uuid
LANGUAGE sql VOLATILE AS $$
  SELECT w.id FROM pg_catalog.unnest(p_path) WITH ORDINALITY p (id, depth)
    CROSS JOIN LATERAL (SELECT l.id FROM runstate.work_limits l
                         WHERE l.space_id = p_space AND l.scope_id = p.id AND l.name = p_name OFFSET 0) w
   ORDER BY p.depth DESC LIMIT 1
$$;

-- Whether a limit may take p_more tasks; its refusal when not. Locks its row: the caller then adds them.
CREATE FUNCTION kernel.work_limit_refusal(p_space text, p_id uuid, p_more bigint) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_max bigint;
  v_count bigint;
BEGIN
  SELECT w.name, w.max_outstanding INTO v_name, v_max FROM runstate.work_limits w
   WHERE w.space_id = p_space AND w.id = p_id FOR NO KEY UPDATE;
  -- As a rule there is room by the index alone; only where there is not, each task is looked at.
  SELECT pg_catalog.count(*) INTO v_count FROM (
    SELECT 1 FROM runstate.messages m
     WHERE m.space_id = p_space AND m.work_limit_id = p_id AND m.ended IS NULL LIMIT v_max) o;
  IF v_count + p_more > v_max THEN
    v_count := kernel.work_outstanding(p_space, p_id, kernel.kernel_now());
  END IF;
  IF v_count + p_more <= v_max THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('BACKLOG_FULL', 'work limit "' || v_name || '" has ' || v_count
    || ' unfinished tasks; its maxOutstanding is ' || v_max);
END $$;

-- Create a limit. Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (the name exists
-- in the scope).
CREATE FUNCTION kernel.work_limit_create(p_space text, p_id uuid, p_scope uuid, p_name text, p_max bigint,
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
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('work_limit', p_space, p_scope::text || '/'
    || p_name));
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.work_limits w WHERE w.space_id = p_space AND w.scope_id = p_scope
    AND w.name = p_name;
  IF FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'work limit "' || p_name || '" exists already in scope '
      || p_scope::text);
  END IF;
  INSERT INTO runstate.work_limits (space_id, id, scope_id, name, max_outstanding, created_at)
  VALUES (p_space, p_id, p_scope, p_name, p_max, v_now);
  PERFORM kernel.event(p_space, v_now, 'resource.created', v_path, 'work_limit', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'maxOutstanding', p_max), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(201,
    kernel.work_limit_facts(p_space, p_id, v_now), NULL));
END $$;
