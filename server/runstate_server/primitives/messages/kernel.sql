-- Messages and tasks.  READY -> LEASED (take) -> ACKED (complete) | READY (nack, lapse, hand-back) | DEAD
-- (nack, lapse) ; DEAD -> READY (redrive); any unsettled state -> EXPIRED (deadline) | CANCELLED (task
-- cancel, end of the scope). A task is a message with a task key whose outcome is kept: READY, LEASED, ACKED
-- and DEAD are its QUEUED, RUNNING, SUCCEEDED and FAILED.
-- Tables: messages (wide, one row for good), queue_ready and queue_leased (narrow: exactly one of them has a
-- row while the message is unsettled, and whoever deletes that row decides), queue_lanes, lane_waits,
-- task_subscribers.
-- Locks: gates (sorted), idempotency key, the turn of a mailbox whose tasks need resources (advisory), the
-- line of an INBOX scope (advisory), natural keys (advisory, sorted), then narrow rows, then what they need
-- and hold: pools, allowances, budgets. Nobody locks a mailbox.
-- This file: what all verbs share. Verbs: kernel_send, _take, _admit, _place, _settle, _end.sql.

-- One unsettled message with what its verbs need to know.
CREATE TYPE kernel.queued AS (
  id uuid, seq bigint, mailbox_id uuid, path uuid[], is_task boolean, inbox boolean, max_attempts int,
  lane int, rank smallint, attempt int, deadline timestamptz, started_at timestamptz, need bigint[]
);

CREATE FUNCTION kernel.no_message(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'message ' || p_id::text || ' does not exist in this space')
$$;

-- The message with this id, its narrow row not read yet; null fields when there is none. What is looked up
-- for each row stands behind OFFSET 0, here and elsewhere: so it stays a look-up by the key, whatever the
-- planner thinks of tables that are still small.
CREATE FUNCTION kernel.message_find(p_space text, p_id uuid) RETURNS kernel.queued LANGUAGE sql VOLATILE AS $$
  SELECT ROW(m.id, m.seq, m.mailbox_id, s.path, m.task_key IS NOT NULL, b.mode = 'INBOX', b.max_attempts,
      m.lane, CASE WHEN b.mode = 'INBOX' THEN 0 ELSE -m.priority END,
      m.attempt, LEAST(m.deadline, s.effective_deadline), m.started_at, m.need)::kernel.queued
    FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT c.path, c.effective_deadline FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = m.scope_id OFFSET 0) s
    CROSS JOIN LATERAL (SELECT x.mode, x.max_attempts FROM runstate.mailboxes x
                         WHERE x.space_id = p_space AND x.id = m.mailbox_id OFFSET 0) b
   WHERE m.space_id = p_space AND m.id = p_id
$$;

-- The topic of a poller: of one scope exactly, or of a scope with its descendants; for tasks alone, or for
-- all.
CREATE FUNCTION kernel.poller_topic(p_space text, p_mailbox uuid, p_scope uuid, p_below boolean,
  p_tasks boolean) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('mailbox', p_space, p_mailbox::text || CASE WHEN p_tasks THEN '/tasks' ELSE '/all' END
    || CASE WHEN p_below THEN '/below/' ELSE '/in/' END || p_scope::text)
$$;

-- Whom one available message wakes: one poller whose filter covers it.
CREATE FUNCTION kernel.message_topics(p_space text, p_mailbox uuid, p_path uuid[], p_is_task boolean)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT '+' || pg_catalog.string_agg(t.topic, '|') FROM (
    SELECT kernel.poller_topic(p_space, p_mailbox, p_path[pg_catalog.cardinality(p_path)], false,
      k.tasks) AS topic
      FROM (VALUES (false), (true)) k (tasks) WHERE p_is_task OR NOT k.tasks
    UNION ALL
    SELECT kernel.poller_topic(p_space, p_mailbox, a.id, true, k.tasks)
      FROM pg_catalog.unnest(p_path) a (id) CROSS JOIN (VALUES (false), (true)) k (tasks)
     WHERE p_is_task OR NOT k.tasks) t
$$;

-- The line of one scope in an INBOX: held by whoever adds to it, takes from it for good, or moves its head.
CREATE FUNCTION kernel.line_key(p_space text, p_mailbox uuid, p_scope uuid)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.lock_key('line', p_space, p_mailbox::text || '/' || p_scope::text)
$$;

-- Put a message where fetches find it. In an INBOX only the head of its scope is deliverable; the line is
-- held.
CREATE FUNCTION kernel.queue_put(p_space text, p_q kernel.queued, p_available_at timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := (p_q).path[pg_catalog.cardinality((p_q).path)];
  v_deliverable boolean := true;
BEGIN
  IF (p_q).inbox THEN
    SELECT NOT EXISTS (SELECT 1 FROM runstate.queue_leased l
                        WHERE l.space_id = p_space AND l.mailbox_id = (p_q).mailbox_id
                          AND l.scope_id = v_scope)
       AND NOT EXISTS (SELECT 1 FROM runstate.queue_ready r
                        WHERE r.space_id = p_space AND r.mailbox_id = (p_q).mailbox_id
                          AND r.scope_id = v_scope
                          AND r.deliverable)
      INTO v_deliverable;
  END IF;
  INSERT INTO runstate.queue_lanes (space_id, a0, mailbox_id, lane, rank)
  VALUES (p_space, (p_q).path[1], (p_q).mailbox_id, (p_q).lane, (p_q).rank)
  ON CONFLICT (space_id, a0, mailbox_id, lane, rank) DO NOTHING;
  INSERT INTO runstate.queue_ready (space_id, seq, mailbox_id, scope_id, a0, a1, a2, lane, rank, available_at,
    deadline, attempt, message_id, started_at, need, deliverable)
  VALUES (p_space, (p_q).seq, (p_q).mailbox_id, v_scope, (p_q).path[1], (p_q).path[2], (p_q).path[3],
    (p_q).lane, (p_q).rank, p_available_at, (p_q).deadline, (p_q).attempt, (p_q).id, (p_q).started_at,
    (p_q).need, v_deliverable);
END $$;

-- After the head of an INBOX scope is gone: let the next in order of arrival be delivered. The line is held.
CREATE FUNCTION kernel.line_advance(p_space text, p_mailbox uuid, p_scope uuid) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_seq bigint;
BEGIN
  IF EXISTS (SELECT 1 FROM runstate.queue_leased l
              WHERE l.space_id = p_space AND l.mailbox_id = p_mailbox AND l.scope_id = p_scope)
     OR EXISTS (SELECT 1 FROM runstate.queue_ready r
                 WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = p_scope
                   AND r.deliverable) THEN
    RETURN;
  END IF;
  SELECT r.seq INTO v_seq FROM runstate.queue_ready r
   WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = p_scope AND NOT r.deliverable
   ORDER BY r.seq LIMIT 1;
  UPDATE runstate.queue_ready r SET deliverable = true WHERE r.space_id = p_space AND r.seq = v_seq;
END $$;

-- The event of a message or of the task that it is; null p_message or p_task: that kind has no event here.
CREATE FUNCTION kernel.message_event(p_space text, p_now timestamptz, p_q kernel.queued, p_message text,
  p_task text, p_facts json, p_wake text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF (p_q).is_task AND p_task IS NOT NULL THEN
    PERFORM kernel.event(p_space, p_now, p_task, (p_q).path, 'task', (p_q).id::text, p_facts, p_wake);
  ELSIF NOT (p_q).is_task AND p_message IS NOT NULL THEN
    PERFORM kernel.event(p_space, p_now, p_message, (p_q).path, 'message', (p_q).id::text, p_facts, p_wake);
  END IF;
END $$;

-- Leave a notice to every open group that watches a task which has ended: whoever ends one may hold locks
-- that come after a group's, so a call of its own decides. The messages row is locked: a group that adds the
-- task has done so, or will find it ended. Returns the topics of those groups, to be woken.
CREATE FUNCTION kernel.task_notice(p_space text, p_id uuid) RETURNS text[] LANGUAGE sql VOLATILE AS $$
  WITH noticed AS (
    INSERT INTO runstate.group_notices (space_id, group_id)
    SELECT p_space, g.group_id FROM runstate.group_members g
      CROSS JOIN LATERAL (SELECT 1 FROM runstate.task_groups x WHERE x.space_id = p_space
                             AND x.id = g.group_id AND x.state <> 'FINALIZED' OFFSET 0) x
     WHERE g.space_id = p_space AND g.task_id = p_id
    RETURNING group_id)
  SELECT ARRAY(SELECT kernel.topic('group', p_space, n.group_id::text) FROM noticed n)
$$;

-- The groups that watch a task.
CREATE FUNCTION kernel.groups_of(p_space text, p_id uuid) RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT g.group_id FROM runstate.group_members g
                WHERE g.space_id = p_space AND g.task_id = p_id)
$$;

-- End a message for good: its narrow row is deleted, in an INBOX its line is held. p_reason: of a task that
-- did not succeed; p_outcome: JSON text of one that did. Returns the topics to wake.
CREATE FUNCTION kernel.message_end(p_space text, p_q kernel.queued, p_state text, p_reason text,
  p_outcome text, p_error text, p_now timestamptz) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_wake text[] := '{}'::text[];
BEGIN
  UPDATE runstate.messages m SET ended = p_state, attempt = (p_q).attempt,
    last_error = COALESCE(p_error, m.last_error), outcome = CASE WHEN m.task_key IS NOT NULL
      THEN p_outcome END, outcome_reason = CASE WHEN m.task_key IS NOT NULL THEN p_reason END,
    started_at = (p_q).started_at, finished_at = p_now
   WHERE m.space_id = p_space AND m.id = (p_q).id;
  IF (p_q).is_task THEN
    v_wake := kernel.topic('task', p_space, (p_q).id::text) || kernel.task_notice(p_space, (p_q).id);
  END IF;
  IF (p_q).inbox THEN
    PERFORM kernel.line_advance(p_space, (p_q).mailbox_id, (p_q).path[pg_catalog.cardinality((p_q).path)]);
    v_wake := v_wake || kernel.message_topics(p_space, (p_q).mailbox_id, (p_q).path, true);
  END IF;
  PERFORM kernel.message_event(p_space, p_now, p_q,
    CASE p_state WHEN 'ACKED' THEN 'message.acked' WHEN 'DEAD' THEN 'message.dead' WHEN 'EXPIRED'
      THEN 'message.expired' END, CASE p_state WHEN 'ACKED' THEN 'task.succeeded' WHEN 'DEAD'
        THEN 'task.failed' WHEN 'EXPIRED' THEN 'task.expired'
                 ELSE 'task.cancelled' END,
    pg_catalog.json_build_object('mailboxId', (p_q).mailbox_id, 'attempt', (p_q).attempt,
      'deadline', CASE WHEN p_state = 'EXPIRED' THEN kernel.wire_time((p_q).deadline) END), v_wake);
  RETURN v_wake;
END $$;

-- Put a message back after a delivery: its leased row is deleted, in an INBOX its line is held. p_why goes
-- into the event. Returns the topics to wake.
CREATE FUNCTION kernel.message_requeue(p_space text, p_q kernel.queued, p_event text, p_why text,
  p_available_at timestamptz, p_error text, p_now timestamptz) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_wake text[] := ARRAY[kernel.message_topics(p_space, (p_q).mailbox_id, (p_q).path, (p_q).is_task)];
BEGIN
  PERFORM kernel.queue_put(p_space, p_q, p_available_at);
  IF p_error IS NOT NULL THEN
    UPDATE runstate.messages m SET last_error = p_error WHERE m.space_id = p_space AND m.id = (p_q).id;
  END IF;
  PERFORM kernel.message_event(p_space, p_now, p_q, p_event, 'task.retried', pg_catalog.json_build_object(
    'mailboxId', (p_q).mailbox_id, 'attempt', (p_q).attempt, 'availableAt', kernel.wire_time(p_available_at),
    'reason', p_why), v_wake);
  RETURN v_wake;
END $$;

-- A delivery whose lease has lapsed: back to the queue at once, or DEAD when its attempts are used up. As for
-- requeue.
CREATE FUNCTION kernel.message_lapse(p_space text, p_q kernel.queued, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF (p_q).attempt >= (p_q).max_attempts THEN
    RETURN kernel.message_end(p_space, p_q, 'DEAD', 'lease_expired', NULL, NULL, p_now);
  END IF;
  RETURN kernel.message_requeue(p_space, p_q, 'message.lapsed', 'lease_expired', p_now, NULL, p_now);
END $$;

-- What a message's scope says at p_now: null while it is active, else the reason that ends the message.
CREATE FUNCTION kernel.message_scope_end(p_space text, p_scope uuid, p_now timestamptz) RETURNS text
LANGUAGE sql VOLATILE AS $$
  SELECT CASE kernel.effective_at(s.effective, s.effective_deadline, p_now)
           WHEN 'CANCELLED' THEN 'scope_cancelled' WHEN 'COMPLETED' THEN 'scope_completed' WHEN 'EXPIRED'
             THEN 'deadline' END
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope
$$;
