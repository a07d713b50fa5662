-- Tasks: messages whose outcome is kept. Submit, view, cancel, subscribers; delivery and settling are
-- messages' verbs.
-- Tables: task_subscribers here, the rest is messages'.  Locks: gates (sorted), idempotency key, task keys
-- (advisory, sorted by number), backlogs (advisory) and work limits (rows, by id), then what message_insert
-- takes.

CREATE FUNCTION kernel.no_task(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'task ' || p_id::text || ' does not exist in this space')
$$;

-- Submit tasks, aligned arrays, all or none; a key that exists in its scope and mailbox answers with its
-- first task, and costs its work limit nothing. p_single: the answer is that of one task.
-- Refuses: NOT_FOUND (scope, mailbox, work limit), SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL.
CREATE FUNCTION kernel.task_submit(p_space text, p_ids uuid[], p_scopes uuid[], p_mailboxes uuid[],
  p_keys text[], p_inputs text[], p_deadlines timestamptz[], p_priorities int[], p_delays double precision[],
  p_subscribers text[], p_limits text[], p_needs text[], p_single boolean, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_number bigint;
  v_reply kernel.reply;
  v_missing uuid;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT i.id INTO v_missing FROM pg_catalog.unnest(p_scopes) WITH ORDINALITY i (id, n)
   WHERE NOT EXISTS (SELECT 1 FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = i.id) ORDER BY i.n
     LIMIT 1;
  IF FOUND THEN
    RETURN kernel.no_scope(v_missing);
  END IF;
  SELECT i.id INTO v_missing FROM pg_catalog.unnest(p_mailboxes) WITH ORDINALITY i (id, n)
   WHERE NOT EXISTS (SELECT 1 FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = i.id)
     ORDER BY i.n LIMIT 1;
  IF FOUND THEN
    RETURN kernel.no_mailbox(v_missing);
  END IF;
  v_reply := kernel.task_limits_missing(p_space, p_scopes, p_limits);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.task_needs_refusal(p_space, p_needs);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM kernel.gates_shared(p_space, ARRAY(
    SELECT s.root_id FROM pg_catalog.unnest(p_scopes) x (id) CROSS JOIN LATERAL (
      SELECT c.root_id FROM runstate.scopes c WHERE c.space_id = p_space AND c.id = x.id OFFSET 0) s));
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  FOR v_number IN SELECT DISTINCT kernel.message_key_lock(p_space, k.mailbox, k.scope, 'task',
    k.key) AS number
                    FROM ROWS FROM (pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_mailboxes),
                      pg_catalog.unnest(p_keys)) k (scope, mailbox, key) ORDER BY number LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock(v_number);
  END LOOP;
  v_reply := kernel.task_submit_locked(p_space, p_ids, p_scopes, p_mailboxes, p_keys, p_inputs, p_deadlines,
    p_priorities, p_delays, p_subscribers, p_limits, p_needs, p_single);
  v_now := kernel.kernel_now();
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- The refusal of the first work limit that no scope on its task's chain has; null when all are known.
CREATE FUNCTION kernel.task_limits_missing(p_space text, p_scopes uuid[], p_limits text[])
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid;
  v_name text;
BEGIN
  IF pg_catalog.num_nonnulls(VARIADIC p_limits) = 0 THEN
    RETURN NULL;
  END IF;
  SELECT k.scope, k.name INTO v_scope, v_name FROM ROWS FROM (pg_catalog.unnest(p_scopes),
    pg_catalog.unnest(p_limits)) WITH ORDINALITY k (scope, name, n)
    CROSS JOIN LATERAL (SELECT c.path FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = k.scope OFFSET 0) s
   WHERE k.name IS NOT NULL AND kernel.work_limit_near(p_space, s.path, k.name) IS NULL
   ORDER BY k.n LIMIT 1;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('NOT_FOUND', 'work limit "' || v_name || '" does not exist in scope ' || v_scope::text
    || ' or above it');
END $$;

-- The refusal of the first requirements that cannot be; null when all can.
CREATE FUNCTION kernel.task_needs_refusal(p_space text, p_needs text[]) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_need text;
  v_reply kernel.reply;
BEGIN
  FOR v_need IN SELECT n.need FROM pg_catalog.unnest(p_needs) WITH ORDINALITY n (need, n)
                 WHERE n.need IS NOT NULL GROUP BY n.need ORDER BY pg_catalog.min(n.n) LOOP
    v_reply := kernel.needs_refusal(p_space, v_need::json);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- The refusal of the first work limit, in the order of ids, that has no room for those of the tasks that are
-- new. Locks the limits.
CREATE FUNCTION kernel.task_limits_refusal(p_space text, p_scopes uuid[], p_mailboxes uuid[], p_keys text[],
  p_limits text[]) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_limit uuid;
  v_more bigint;
  v_reply kernel.reply;
BEGIN
  IF pg_catalog.num_nonnulls(VARIADIC p_limits) = 0 THEN
    RETURN NULL;
  END IF;
  FOR v_limit, v_more IN
    SELECT w.id, pg_catalog.count(DISTINCT (k.scope, k.mailbox, k.key))
      FROM ROWS FROM (pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_mailboxes), pg_catalog.unnest(p_keys),
        pg_catalog.unnest(p_limits)) k (scope, mailbox, key, name)
      CROSS JOIN LATERAL (SELECT kernel.work_limit_near(p_space, c.path, k.name) AS id
                            FROM runstate.scopes c
                           WHERE c.space_id = p_space AND c.id = k.scope OFFSET 0) w
     WHERE w.id IS NOT NULL AND NOT EXISTS (
       SELECT 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.scope_id = k.scope
          AND m.mailbox_id = k.mailbox AND m.task_key = k.key)
     GROUP BY w.id ORDER BY w.id
  LOOP
    v_reply := kernel.work_limit_refusal(p_space, v_limit, v_more);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- The same behind its locks.
CREATE FUNCTION kernel.task_submit_locked(p_space text, p_ids uuid[], p_scopes uuid[], p_mailboxes uuid[],
  p_keys text[], p_inputs text[], p_deadlines timestamptz[], p_priorities int[], p_delays double precision[],
  p_subscribers text[], p_limits text[], p_needs text[], p_single boolean) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_box uuid;
  v_scope uuid;
  v_n int;
  v_wake text[] := '{}'::text[];
  v_changed boolean := false;
  v_path uuid[];
  v_answers json;
  v_reply kernel.reply;
BEGIN
  FOR v_scope IN SELECT DISTINCT i.id FROM pg_catalog.unnest(p_scopes) i (id) ORDER BY i.id LOOP
    v_reply := kernel.scope_refusal(p_space, v_scope, v_now);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END LOOP;
  FOR v_box, v_n IN
    SELECT k.mailbox, pg_catalog.count(DISTINCT (k.scope, k.key)) FROM ROWS
      FROM (pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_mailboxes), pg_catalog.unnest(p_keys)) k (scope,
        mailbox, key)
     WHERE NOT EXISTS (SELECT 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.scope_id = k.scope
                          AND m.mailbox_id = k.mailbox AND m.task_key = k.key)
     GROUP BY k.mailbox ORDER BY k.mailbox
  LOOP
    v_reply := kernel.backlog_refusal(p_space, v_box, v_n);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END LOOP;
  v_reply := kernel.task_limits_refusal(p_space, p_scopes, p_mailboxes, p_keys, p_limits);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM kernel.queue_prepare(p_space, p_mailboxes, p_scopes, p_priorities, ARRAY(
    SELECT COALESCE((SELECT l.lane FROM kernel.lane_of(p_space, n.need::json) l), 1)
      FROM pg_catalog.unnest(p_needs) WITH ORDINALITY n (need, n) ORDER BY n.n));
  v_now := kernel.kernel_now();
  FOR v_n IN 1..pg_catalog.cardinality(p_ids) LOOP
    PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.scope_id = p_scopes[v_n]
        AND m.mailbox_id = p_mailboxes[v_n] AND m.task_key = p_keys[v_n];
    CONTINUE WHEN FOUND;
    SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scopes[v_n];
    v_wake := v_wake || kernel.message_insert(p_space, p_ids[v_n], p_mailboxes[v_n], v_path, p_keys[v_n],
      NULL, p_inputs[v_n], p_priorities[v_n], p_deadlines[v_n], p_delays[v_n],
      CASE WHEN p_limits[v_n] IS NOT NULL THEN kernel.work_limit_near(p_space, v_path, p_limits[v_n]) END,
      p_needs[v_n], v_now);
    v_changed := true;
  END LOOP;
  SELECT pg_catalog.json_agg(pg_catalog.json_build_object('taskId', m.id, 'replay', m.id <> p_ids[k.n],
      'state', kernel.task_state(p_space, m.id, v_now)) ORDER BY k.n) INTO v_answers
    FROM ROWS FROM (pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_mailboxes),
      pg_catalog.unnest(p_keys)) WITH ORDINALITY k (scope, mailbox, key, n)
    CROSS JOIN LATERAL (SELECT x.id FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.scope_id = k.scope
                           AND x.mailbox_id = k.mailbox AND x.task_key = k.key OFFSET 0) m;
  v_changed := kernel.subscribers_add(p_space, p_scopes, p_mailboxes, p_keys, p_subscribers, v_now)
    OR v_changed;
  v_reply := kernel.done(CASE WHEN p_single THEN 201 ELSE 200 END, CASE WHEN p_single THEN v_answers -> 0
    ELSE pg_catalog.json_build_object('tasks', v_answers) END, v_wake);
  v_reply.changed := v_changed;
  RETURN v_reply;
END $$;

-- Note the subscribers that submits name; returns whether any is new.
CREATE FUNCTION kernel.subscribers_add(p_space text, p_scopes uuid[], p_mailboxes uuid[], p_keys text[],
  p_subscribers text[], p_now timestamptz) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO runstate.task_subscribers (space_id, task_id, subscriber_id, scope_id, joined_at)
  SELECT DISTINCT ON (m.id, k.subscriber) p_space, m.id, k.subscriber, k.scope, p_now
    FROM ROWS FROM (pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_mailboxes), pg_catalog.unnest(p_keys),
      pg_catalog.unnest(p_subscribers)) k (scope, mailbox, key, subscriber)
    CROSS JOIN LATERAL (SELECT x.id FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.scope_id = k.scope
                           AND x.mailbox_id = k.mailbox AND x.task_key = k.key OFFSET 0) m
   WHERE k.subscriber IS NOT NULL ORDER BY m.id, k.subscriber
  ON CONFLICT (space_id, task_id, subscriber_id) DO NOTHING;
  RETURN FOUND;
END $$;

-- The state of a task from the facts of one look at it; p_over: why its scope has ended, p_leased: whether a
-- lease on it is alive.
CREATE FUNCTION kernel.task_state_of(p_ended text, p_over text, p_deadline timestamptz, p_leased boolean,
  p_now timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
      WHEN p_ended = 'ACKED' THEN 'SUCCEEDED' WHEN p_ended = 'DEAD' THEN 'FAILED' WHEN p_ended IS NOT NULL
        THEN p_ended
      WHEN p_over = 'deadline' OR p_deadline <= p_now THEN 'EXPIRED' WHEN p_over IS NOT NULL
        THEN 'CANCELLED'
      WHEN p_leased THEN 'RUNNING' ELSE 'QUEUED' END
$$;

-- A task's state at p_now: its end, else what its scope and deadline say, else RUNNING while a lease is
-- alive.
CREATE FUNCTION kernel.task_state(p_space text, p_id uuid, p_now timestamptz)
RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT kernel.task_state_of(m.ended, kernel.message_scope_end(p_space, m.scope_id, p_now), m.deadline,
      EXISTS (SELECT 1 FROM runstate.queue_leased l
               WHERE l.space_id = p_space AND l.seq = m.seq AND l.expires_at > p_now), p_now)
    FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_id
$$;

-- The view of section 5 of the API; payload 0 is the input, payload 1 the outcome. p_first: the number of the
-- first.
CREATE FUNCTION kernel.task_facts(p_space text, p_id uuid, p_now timestamptz, p_first int) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', m.id, 'scopeId', m.scope_id, 'mailboxId', m.mailbox_id, 'taskKey',
    m.task_key, 'state', st.state, 'attempt', COALESCE(n.attempt, m.attempt), 'maxAttempts', b.max_attempts,
      'input', kernel.payload_here(p_first),
      'outcome', CASE WHEN m.outcome IS NOT NULL THEN kernel.payload_here(p_first + 1) END,
      'outcomeReason', CASE WHEN m.ended IS NOT NULL THEN m.outcome_reason WHEN st.state = 'EXPIRED'
        THEN 'deadline'
                            WHEN st.state = 'CANCELLED' THEN kernel.message_scope_end(p_space, m.scope_id,
                              p_now) END, 'priority', m.priority, 'deadline', kernel.wire_time(m.deadline),
                                'requirements', m.requirements::json, 'subscribers',
                                  (SELECT pg_catalog.count(*) FROM runstate.task_subscribers u
                       WHERE u.space_id = p_space AND u.task_id = m.id),
      'groupIds', pg_catalog.array_to_json(kernel.groups_of(p_space, m.id)), 'messageId', m.id,
      'createdAt', kernel.wire_time(m.created_at),
      'startedAt', kernel.wire_time(COALESCE(n.started_at, m.started_at)), 'finishedAt',
        kernel.wire_time(m.finished_at))
    FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT x.max_attempts FROM runstate.mailboxes x
                         WHERE x.space_id = p_space AND x.id = m.mailbox_id OFFSET 0) b
    -- Not by task_state(): that would look later than the row was read, and find an end without its outcome.
    CROSS JOIN LATERAL (SELECT kernel.task_state_of(m.ended,
      kernel.message_scope_end(p_space, m.scope_id, p_now), m.deadline, EXISTS (
        SELECT 1 FROM runstate.queue_leased l
         WHERE l.space_id = p_space AND l.seq = m.seq AND l.expires_at > p_now), p_now) AS state) st
    LEFT JOIN LATERAL (
      SELECT l.attempt, l.started_at FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = m.seq
      UNION ALL
      SELECT r.attempt, r.started_at FROM runstate.queue_ready r WHERE r.space_id = p_space
        AND r.seq = m.seq) n ON true
   WHERE m.space_id = p_space AND m.id = p_id AND m.task_key IS NOT NULL
$$;

-- Read a task; a long poll sleeps until it is terminal. Locks: none. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.task_view(p_space text, p_id uuid) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_facts json := kernel.task_facts(p_space, p_id, v_now, 0);
  v_payloads text[];
  v_root uuid;
  v_deadline timestamptz;
  v_reply kernel.reply;
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_task(p_id);
  END IF;
  SELECT ARRAY[m.payload, m.outcome], m.root_id, LEAST(m.deadline, s.effective_deadline)
    INTO v_payloads, v_root, v_deadline FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT c.effective_deadline FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = m.scope_id OFFSET 0) s
   WHERE m.space_id = p_space AND m.id = p_id;
  v_reply := kernel.seen(v_facts, v_payloads, kernel.seconds_until(v_deadline, v_now));
  v_reply.sleep := ARRAY[kernel.topic('task', p_space, p_id::text),
    kernel.topic('scope', p_space, v_root::text)];
  RETURN v_reply;
END $$;

-- Cancel a task that is not terminal; a terminal one is answered as it is. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.task_cancel(p_space text, p_id uuid, p_reason text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_now timestamptz;
  v_cancelled boolean;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF (v_q).id IS NULL OR NOT (v_q).is_task THEN
    RETURN kernel.no_task(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, (v_q).path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL AND v_reply.code IS NULL THEN
    v_now := kernel.kernel_now();
    IF kernel.task_state(p_space, p_id, v_now) IN ('QUEUED', 'RUNNING') THEN
      SELECT c.cancelled > 0, c.wake INTO v_cancelled, v_wake
        FROM kernel.messages_cancel(p_space, ARRAY[p_id], COALESCE(p_reason, 'cancelled')) c;
    END IF;
    v_now := kernel.kernel_now();
    v_reply := kernel.done(200, kernel.task_facts(p_space, p_id, v_now, 0), v_wake);
    v_reply.changed := COALESCE(v_cancelled, false);
    v_reply.decide := CASE WHEN v_cancelled THEN kernel.groups_of(p_space, p_id) END;
    v_reply := kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
  END IF;
  IF v_reply.code IS NULL THEN
    v_reply.payloads := ARRAY(SELECT p.body FROM runstate.messages m,
      LATERAL (VALUES (1, m.payload), (2, m.outcome)) p (n, body)
                               WHERE m.space_id = p_space AND m.id = p_id ORDER BY p.n);
  END IF;
  RETURN v_reply;
END $$;

-- Join (p_scope given) or detach a subscriber; both are no-ops when repeated. Refuses: NOT_FOUND (task,
-- scope).
CREATE FUNCTION kernel.task_subscribe(p_space text, p_id uuid, p_subscriber text, p_scope uuid, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_changed boolean;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_id AND m.task_key IS NOT NULL;
  IF NOT FOUND THEN
    RETURN kernel.no_task(p_id);
  END IF;
  PERFORM 1 FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF NOT FOUND AND p_scope IS NOT NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  IF p_scope IS NULL THEN
    DELETE FROM runstate.task_subscribers u
     WHERE u.space_id = p_space AND u.task_id = p_id AND u.subscriber_id = p_subscriber;
  ELSE
    INSERT INTO runstate.task_subscribers (space_id, task_id, subscriber_id, scope_id, joined_at)
    VALUES (p_space, p_id, p_subscriber, p_scope, v_now) ON CONFLICT (space_id, task_id,
      subscriber_id) DO NOTHING;
  END IF;
  v_changed := FOUND;
  v_reply := kernel.done(200, pg_catalog.json_build_object('subscribers', (SELECT pg_catalog.count(*)
    FROM runstate.task_subscribers u WHERE u.space_id = p_space AND u.task_id = p_id)), NULL);
  v_reply.changed := v_changed;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
