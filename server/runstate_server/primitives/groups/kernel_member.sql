-- Task groups, members: tasks submitted into the group's scope, and outside tasks that it only watches.

-- Why a group takes no more members at p_now; null when it does. Call it after the group's lock. Refuses:
-- SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT.
CREATE FUNCTION kernel.group_refusal(p_space text, p_path uuid[], p_id uuid, p_most int, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_outcome text;
  v_reason text;
  v_deadline timestamptz;
  v_members int;
  v_reply kernel.reply := kernel.scope_refusal(p_space, p_path[pg_catalog.cardinality(p_path)], p_now);
BEGIN
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT g.state, g.outcome, g.outcome_reason, g.deadline, g.members
    INTO v_state, v_outcome, v_reason, v_deadline, v_members
    FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id;
  IF v_state <> 'OPEN' THEN
    RETURN kernel.refuse('CONFLICT', 'task group ' || p_id::text || ' is ' || v_state
      || COALESCE(' (' || v_outcome || COALESCE(', ' || v_reason, '') || ')', '')
      || ': only an OPEN one takes members');
  ELSIF v_deadline <= p_now THEN
    v_reply := kernel.refuse('CONFLICT', 'the deadline of task group ' || p_id::text || ' passed at '
      || kernel.wire_time(v_deadline));
    v_reply.decide := ARRAY[p_id];
    RETURN v_reply;
  ELSIF v_members >= p_most THEN
    RETURN kernel.refuse('CONFLICT', 'task group ' || p_id::text || ' has ' || v_members
      || ' members, the most there can be');
  END IF;
  RETURN NULL;
END $$;

-- Note a task as a member, the group's row locked: it seals itself when all that are expected have joined,
-- and is decided then. Returns the topics to wake.
CREATE FUNCTION kernel.group_enlist(p_space text, p_path uuid[], p_id uuid, p_task uuid, p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_members int;
  v_expected int;
  v_wake text[];
BEGIN
  -- Whoever ends the task writes this row, then looks for groups: it has done so, or waits and finds us.
  PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_task FOR SHARE;
  UPDATE runstate.task_groups g SET members = g.members + 1 WHERE g.space_id = p_space AND g.id = p_id
  RETURNING g.members, g.expected_members INTO v_members, v_expected;
  INSERT INTO runstate.group_members (space_id, task_id, group_id, n, owned)
  SELECT p_space, p_task, p_id, v_members, m.scope_id = p_path[pg_catalog.cardinality(p_path)]
    FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_task;
  IF v_members = v_expected THEN
    PERFORM kernel.group_seal(p_space, p_path, p_id, p_now);
    SELECT s.wake INTO v_wake FROM kernel.group_settle(p_space, p_path, p_id, p_now) s;
  END IF;
  RETURN COALESCE(v_wake, '{}'::text[]);
END $$;

-- Seal a group that is OPEN and locked.
CREATE FUNCTION kernel.group_seal(p_space text, p_path uuid[], p_id uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_members int;
BEGIN
  UPDATE runstate.task_groups g SET state = 'SEALED' WHERE g.space_id = p_space AND g.id = p_id
  RETURNING g.members INTO v_members;
  PERFORM kernel.group_event(p_space, p_now, 'group.sealed', p_path, p_id,
    pg_catalog.json_build_object('members', v_members), NULL);
END $$;

-- The member with this key that was submitted into the group's scope; null when there is none.
CREATE FUNCTION kernel.group_member_of(p_space text, p_path uuid[], p_id uuid, p_mailbox uuid, p_key text)
RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT m.id FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT 1 FROM runstate.group_members g WHERE g.space_id = p_space AND g.task_id = m.id
                           AND g.group_id = p_id OFFSET 0) g
   WHERE m.space_id = p_space AND m.scope_id = p_path[pg_catalog.cardinality(p_path)]
     AND m.mailbox_id = p_mailbox AND m.task_key = p_key
$$;

-- Submit a task into a group. A key that is a member's answers with that one, whatever became of the group.
-- Refuses: NOT_FOUND (group, what is required), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CONFLICT (not OPEN,
-- full), BACKLOG_FULL.
CREATE FUNCTION kernel.group_submit(p_space text, p_id uuid, p_task uuid, p_key text, p_input text,
  p_deadline timestamptz, p_priority int, p_needs text, p_most int, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_mailbox uuid;
  v_first uuid;
  v_sent kernel.reply;
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  v_reply := kernel.task_needs_refusal(p_space, ARRAY[p_needs]);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  SELECT g.mailbox_id INTO v_mailbox FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id;
  v_now := kernel.kernel_now();
  v_reply := kernel.group_refusal(p_space, v_path, p_id, p_most, v_now);
  v_first := kernel.group_member_of(p_space, v_path, p_id, v_mailbox, p_key);
  IF v_first IS NOT NULL AND v_reply.code IS DISTINCT FROM 'SCOPE_CANCELLED'
     AND v_reply.code IS DISTINCT FROM 'DEADLINE_EXCEEDED' THEN
    RETURN kernel.seen(pg_catalog.json_build_object('taskId', v_first, 'replay', true), NULL, NULL);
  ELSIF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.message_key_lock(p_space, v_mailbox,
    v_path[pg_catalog.cardinality(v_path)], 'task', p_key));
  v_sent := kernel.task_submit_locked(p_space, ARRAY[p_task], v_path[pg_catalog.cardinality(v_path):],
    ARRAY[v_mailbox], ARRAY[p_key], ARRAY[p_input], ARRAY[p_deadline], ARRAY[p_priority],
    ARRAY[0::double precision], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[p_needs], true);
  IF v_sent.code IS NOT NULL THEN
    RETURN v_sent;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.done(200, pg_catalog.json_build_object('taskId', v_sent.facts -> 'taskId', 'replay',
    v_sent.facts -> 'replay'), kernel.group_enlist(p_space, v_path, p_id,
      (v_sent.facts ->> 'taskId')::uuid, v_now) || v_sent.wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Watch a task that was submitted elsewhere; again is a no-op. The group never cancels one that is not in its
-- own scope. Refuses as group_submit; NOT_FOUND (task).
CREATE FUNCTION kernel.group_join(p_space text, p_id uuid, p_task uuid, p_most int, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_facts json := pg_catalog.json_build_object('taskId', p_task);
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_task AND m.task_key IS NOT NULL;
  IF NOT FOUND THEN
    RETURN kernel.no_task(p_task);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, v_path[pg_catalog.cardinality(v_path)], v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.group_members g WHERE g.space_id = p_space AND g.task_id = p_task
     AND g.group_id = p_id;
  IF FOUND THEN
    RETURN kernel.seen(v_facts, NULL, NULL);
  END IF;
  v_reply := kernel.group_refusal(p_space, v_path, p_id, p_most, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_reply := kernel.done(200, v_facts, kernel.group_enlist(p_space, v_path, p_id, p_task, v_now));
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
