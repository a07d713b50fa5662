-- Scopes, last: cancel, complete, expire. The rooms below end what they hold (once_end, claim_end, …).

-- Whom the end of a scope wakes: its run, and the lines in which somebody waited for it.
CREATE FUNCTION kernel.scope_wake(p_space text, p_root uuid) RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT kernel.topic('scope', p_space, p_root::text) || kernel.line_topics_of(p_space, p_root)
$$;

-- End what the rooms below hold in the subtree that a path leads to, at most p_limit things. met: how many of
-- each, in the order of scope_ended_facts.
CREATE FUNCTION kernel.scope_end_contents(p_space text, p_path uuid[], p_reason text, p_now timestamptz,
  p_limit int, OUT met int[], OUT total int) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_messages int;
  v_tasks int;
BEGIN
  met := ARRAY[kernel.once_end(p_space, p_path, p_reason, p_now, p_limit)];
  total := met[1];
  met := met || kernel.claim_end(p_space, p_path, p_reason, p_now, p_limit - total);
  total := total + met[2];
  met := met || kernel.barriers_end(p_space, p_path, p_reason, p_now, p_limit - total);
  total := total + met[3];
  met := met || kernel.timer_end(p_space, p_path, p_reason, p_now, p_limit - total);
  total := total + met[4];
  met := met || kernel.groups_end(p_space, p_path, p_reason, p_now, p_limit - total);
  total := total + met[5];
  SELECT e.messages, e.tasks INTO v_messages, v_tasks
    FROM kernel.messages_end(p_space, p_path, p_reason, p_now, p_limit - total) e;
  met := met || v_messages || v_tasks;
  total := total + v_messages + v_tasks;
END $$;

-- How many of each are still to be ended, in the same order.
CREATE FUNCTION kernel.scope_contents_left(p_space text, p_path uuid[]) RETURNS bigint[]
LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY[kernel.once_left(p_space, p_path), kernel.claim_left(p_space, p_path),
      kernel.barriers_left(p_space, p_path), kernel.timer_left(p_space, p_path),
      kernel.groups_left(p_space, p_path), m.messages, m.tasks]
    FROM kernel.messages_left(p_space, p_path) m
$$;

-- What the end of a scope has ended: scopes of the subtree, and how many of each in them.
CREATE FUNCTION kernel.scope_ended_facts(p_scopes bigint, p_met bigint[], p_waiters bigint) RETURNS json
LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.json_build_object('scopes', p_scopes, 'once', p_met[1], 'claims', p_met[2],
    'barriers', p_met[3], 'timers', p_met[4], 'groups', p_met[5], 'messages', p_met[6], 'tasks', p_met[7],
    'waiters', p_waiters)
$$;

-- Write the end of one scope and its subtree, with its event. The gate is held alone. Small runs end whole in
-- here; what is left of large ones is counted, and noted in scope_tidies. Returns how much of each has ended,
-- null when the scope had ended already.
CREATE FUNCTION kernel.scope_mark(p_space text, p_path uuid[], p_state text, p_now timestamptz)
RETURNS json LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_inline CONSTANT int := 1000;
  v_depth int := pg_catalog.cardinality(p_path);
  v_reason text := 'scope_' || pg_catalog.lower(p_state);
  v_name text;
  v_scopes bigint;
  v_waiters bigint := kernel.waiters_left(p_space, p_path);
  v_met bigint[];
  v_total int;
  v_ended json;
BEGIN
  UPDATE runstate.scopes s SET stored = p_state, effective = p_state, version = s.version + 1,
    ended_at = p_now
   WHERE s.space_id = p_space AND s.id = p_path[v_depth]
     AND s.effective = 'ACTIVE' RETURNING s.name INTO v_name;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE runstate.scopes s SET effective = p_state
   WHERE s.space_id = p_space AND s.root_id = p_path[1] AND s.effective = 'ACTIVE'
     AND s.path[v_depth] = p_path[v_depth];
  GET DIAGNOSTICS v_scopes = ROW_COUNT;
  SELECT e.met, e.total INTO v_met, v_total
    FROM kernel.scope_end_contents(p_space, p_path, v_reason, p_now, v_inline) e;
  IF v_total >= v_inline THEN
    v_met := ARRAY(SELECT x.ended + x.unended FROM ROWS FROM (pg_catalog.unnest(v_met),
      pg_catalog.unnest(kernel.scope_contents_left(p_space, p_path))) WITH ORDINALITY x (ended, unended, n)
      ORDER BY x.n);
    INSERT INTO runstate.scope_tidies (space_id, scope_id, reason)
    VALUES (p_space, p_path[v_depth], v_reason) ON CONFLICT (space_id, scope_id) DO NOTHING;
  END IF;
  v_ended := kernel.scope_ended_facts(v_scopes + 1, v_met, v_waiters);
  UPDATE runstate.scopes s SET contents = v_ended::text WHERE s.space_id = p_space AND s.id = p_path[v_depth];
  PERFORM kernel.event(p_space, p_now, 'scope.' || pg_catalog.lower(p_state), p_path, 'scope',
    p_path[v_depth]::text, pg_catalog.json_build_object('name', v_name, 'ended', v_ended),
    kernel.scope_wake(p_space, p_path[1]));
  RETURN v_ended;
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
    IF kernel.scope_mark(p_space, v_due, 'EXPIRED', p_now) IS NOT NULL THEN
      v_count := v_count + 1;
    END IF;
  END LOOP;
  RETURN v_count;
END $$;

-- The answer of the end of a scope: ended is absent where a scope above it ended it.
CREATE FUNCTION kernel.scope_end_facts(p_space text, p_id uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN s.contents IS NULL
      THEN pg_catalog.json_build_object('id', s.id, 'state', s.effective, 'version', s.version)
      ELSE pg_catalog.json_build_object('id', s.id, 'state', s.effective, 'version', s.version,
        'ended', s.contents::json) END
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_id
$$;

-- Cancel or complete a scope and its subtree (p_state). Repeating is a no-op. Locks: gate alone, idempotency
-- key.
-- Refuses: NOT_FOUND, CONFLICT (it has ended another way).
CREATE FUNCTION kernel.scope_end(p_space text, p_id uuid, p_state text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_state text;
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
  SELECT s.effective INTO v_state FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_id;
  IF v_state = 'ACTIVE' THEN
    PERFORM kernel.scope_mark(p_space, v_path, p_state, v_now);
    v_reply := kernel.done(200, kernel.scope_end_facts(p_space, p_id), kernel.scope_wake(p_space, v_path[1]));
    RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
  ELSIF v_state = p_state THEN
    RETURN kernel.seen(kernel.scope_end_facts(p_space, p_id), NULL, NULL);
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

-- End what an ended scope still holds, p_batch things at most; the scope is the truth until then, and its end
-- is the instant by which deadlines of their own are judged, however long that was ago.
CREATE FUNCTION kernel.scope_tidy_sweep(p_batch int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_space text;
  v_scope uuid;
  v_reason text;
  v_path uuid[];
  v_ended_at timestamptz;
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT t.space_id, t.scope_id, t.reason INTO v_space, v_scope, v_reason FROM runstate.scope_tidies t
   ORDER BY t.space_id, t.scope_id LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  SELECT s.path, s.ended_at INTO v_path, v_ended_at FROM runstate.scopes s
   WHERE s.space_id = v_space AND s.id = v_scope;
  SELECT e.total INTO v_count
    FROM kernel.scope_end_contents(v_space, v_path, v_reason, v_ended_at, p_batch) e;
  IF v_count < p_batch THEN
    DELETE FROM runstate.scope_tidies t WHERE t.space_id = v_space AND t.scope_id = v_scope;
  END IF;
  RETURN v_count;
END $$;
