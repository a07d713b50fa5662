-- Messages, first verb: send, and the submit of tasks.

-- Whether a mailbox may take p_more messages; its refusal when not. Counted over the index, under a lock of
-- its own.
CREATE FUNCTION kernel.backlog_refusal(p_space text, p_mailbox uuid, p_more int) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_limit int;
  v_name text;
  v_count int;
BEGIN
  SELECT b.backlog_limit, b.name INTO v_limit, v_name FROM runstate.mailboxes b
   WHERE b.space_id = p_space AND b.id = p_mailbox;
  IF v_limit IS NULL THEN
    RETURN NULL;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('backlog', p_space, p_mailbox::text));
  -- Two halves, since each partial index covers one.
  SELECT pg_catalog.count(*) INTO v_count FROM (
    SELECT 1 FROM runstate.queue_ready r
     WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.deliverable
    UNION ALL
    SELECT 1 FROM runstate.queue_ready r
     WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND NOT r.deliverable LIMIT v_limit) w;
  IF v_count + p_more <= v_limit THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('BACKLOG_FULL', 'mailbox "' || v_name || '" has ' || v_count
    || ' messages waiting; its backlogLimit is ' || v_limit);
END $$;

-- Write one new message or task: gates passed, scope active, key free and locked. Returns the topics to wake.
CREATE FUNCTION kernel.message_insert(p_space text, p_id uuid, p_mailbox uuid, p_path uuid[], p_task_key text,
  p_work_key text, p_payload text, p_priority int, p_deadline timestamptz, p_delay_s double precision,
  p_work_limit uuid, p_requirements text, p_now timestamptz) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_available_at timestamptz := p_now + pg_catalog.make_interval(secs => COALESCE(p_delay_s, 0));
  v_inbox boolean;
  v_seq bigint;
  v_above timestamptz;
  v_lane int;
  v_need bigint[];
  v_q kernel.queued;
  v_wake text[];
BEGIN
  SELECT b.mode = 'INBOX' INTO v_inbox FROM runstate.mailboxes b WHERE b.space_id = p_space
    AND b.id = p_mailbox;
  IF v_inbox THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.line_key(p_space, p_mailbox, v_scope));
  END IF;
  SELECT s.effective_deadline INTO v_above FROM runstate.scopes s WHERE s.space_id = p_space
    AND s.id = v_scope;
  IF p_requirements IS NOT NULL THEN
    SELECT l.lane, l.need INTO v_lane, v_need FROM kernel.lane_of(p_space, p_requirements::json) l;
  END IF;
  v_lane := COALESCE(v_lane, CASE WHEN p_task_key IS NULL THEN 0 ELSE 1 END);
  INSERT INTO runstate.messages (space_id, id, mailbox_id, scope_id, root_id, task_key, work_key, payload,
    priority, deadline, attempt, work_limit_id, requirements, lane, need, created_at)
  VALUES (p_space, p_id, p_mailbox, v_scope, p_path[1], p_task_key, p_work_key, p_payload, p_priority,
    p_deadline, 0, p_work_limit, p_requirements, v_lane, v_need, p_now)
  RETURNING seq INTO v_seq;
  v_q := ROW(p_id, v_seq, p_mailbox, p_path, p_task_key IS NOT NULL, v_inbox, NULL,
    v_lane, CASE WHEN v_inbox THEN 0 ELSE -p_priority END, 0, LEAST(p_deadline, v_above), NULL,
    v_need)::kernel.queued;
  PERFORM kernel.queue_put(p_space, v_q, v_available_at);
  v_wake := ARRAY[kernel.message_topics(p_space, p_mailbox, p_path, p_task_key IS NOT NULL)];
  PERFORM kernel.message_event(p_space, p_now, v_q, 'message.sent', 'task.submitted',
    pg_catalog.json_build_object(
    'mailboxId', p_mailbox, 'key', COALESCE(p_task_key, p_work_key), 'priority', p_priority,
    'availableAt', kernel.wire_time(v_available_at)), v_wake);
  RETURN v_wake;
END $$;

-- What many inserts of tasks into these mailboxes and scopes would else lock one by one in the order of the
-- request: the lines of INBOX scopes, and lanes that are new. Sorted.
CREATE FUNCTION kernel.queue_prepare(p_space text, p_mailboxes uuid[], p_scopes uuid[], p_priorities int[],
  p_lanes int[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_line bigint;
BEGIN
  FOR v_line IN
    SELECT DISTINCT kernel.line_key(p_space, k.mailbox, k.scope) AS line
      FROM ROWS FROM (pg_catalog.unnest(p_mailboxes), pg_catalog.unnest(p_scopes)) k (mailbox, scope)
      CROSS JOIN LATERAL (SELECT 1 FROM runstate.mailboxes x WHERE x.space_id = p_space AND x.id = k.mailbox
                             AND x.mode = 'INBOX' OFFSET 0) b ORDER BY line
  LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock(v_line);
  END LOOP;
  INSERT INTO runstate.queue_lanes (space_id, a0, mailbox_id, lane, rank)
  SELECT DISTINCT p_space, s.root_id, k.mailbox, k.lane, CASE b.mode WHEN 'INBOX' THEN 0
    ELSE -k.priority END AS rank
    FROM ROWS FROM (pg_catalog.unnest(p_mailboxes), pg_catalog.unnest(p_scopes),
      pg_catalog.unnest(p_priorities), pg_catalog.unnest(p_lanes)) k (mailbox, scope, priority, lane)
    CROSS JOIN LATERAL (SELECT c.root_id FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = k.scope OFFSET 0) s
    CROSS JOIN LATERAL (SELECT x.mode FROM runstate.mailboxes x
                         WHERE x.space_id = p_space AND x.id = k.mailbox OFFSET 0) b
   ORDER BY s.root_id, k.mailbox, k.lane, rank
  ON CONFLICT (space_id, a0, mailbox_id, lane, rank) DO NOTHING;
END $$;

-- The lock of a natural key in a mailbox and scope; taken before the insert, since a unique index would wait
-- unbounded.
CREATE FUNCTION kernel.message_key_lock(p_space text, p_mailbox uuid, p_scope uuid, p_kind text, p_key text)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.lock_key(p_kind, p_space, p_mailbox::text || '/' || p_scope::text || '/' || p_key)
$$;

-- Send a message. The same p_work_key in the scope and mailbox answers with the first one.
-- Refuses: NOT_FOUND (scope, mailbox), SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL.
CREATE FUNCTION kernel.message_send(p_space text, p_id uuid, p_mailbox uuid, p_scope uuid, p_payload text,
  p_work_key text, p_deadline timestamptz, p_priority int, p_delay_s double precision, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = p_mailbox;
  IF NOT FOUND THEN
    RETURN kernel.no_mailbox(p_mailbox);
  END IF;
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.scope_refusal(p_space, p_scope, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.message_post(p_space, p_id, p_mailbox, v_path, p_payload, p_work_key, p_deadline,
      p_priority, p_delay_s);
    v_now := kernel.kernel_now();
    v_reply := kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
  END IF;
  RETURN v_reply;
END $$;

-- Send behind the checks of gate and scope; also for the reply that a completion sends on.
CREATE FUNCTION kernel.message_post(p_space text, p_id uuid, p_mailbox uuid, p_path uuid[], p_payload text,
  p_work_key text, p_deadline timestamptz, p_priority int, p_delay_s double precision) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_now timestamptz;
  v_first uuid;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  IF p_work_key IS NOT NULL THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.message_key_lock(p_space, p_mailbox, v_scope, 'work',
      p_work_key));
    SELECT m.id INTO v_first FROM runstate.messages m WHERE m.space_id = p_space AND m.scope_id = v_scope
       AND m.mailbox_id = p_mailbox AND m.work_key = p_work_key;
    IF FOUND THEN
      v_reply := kernel.seen(pg_catalog.json_build_object('id', v_first, 'replay', true), NULL, NULL);
      v_reply.status := 201;
      RETURN v_reply;
    END IF;
  END IF;
  v_reply := kernel.backlog_refusal(p_space, p_mailbox, 1);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, v_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_wake := kernel.message_insert(p_space, p_id, p_mailbox, p_path, NULL, p_work_key, p_payload, p_priority,
    p_deadline, p_delay_s, NULL, NULL, v_now);
  RETURN kernel.done(201, pg_catalog.json_build_object('id', p_id, 'replay', false), v_wake);
END $$;
