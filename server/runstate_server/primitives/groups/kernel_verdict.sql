-- Task groups, verdicts and closing.

-- The answer of a verdict. p_late: the group was finalized before it, and nothing was changed.
CREATE FUNCTION kernel.verdict_facts(p_space text, p_id uuid, p_verdict text, p_late boolean,
  p_now timestamptz) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('verdict', p_verdict, 'late', p_late, 'groupState', g.state, 'outcome',
    g.outcome, 'outcomeReason', g.reason) FROM kernel.group_state(p_space, p_id, p_now) g
$$;

-- What a verdict comes to at p_now without being written: repeated, contradicted, late, of a task that is not
-- done; null when it is to be written. The group's row may be locked or not.
CREATE FUNCTION kernel.verdict_given(p_space text, p_id uuid, p_task uuid, p_verdict text, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text;
  v_given text;
  v_task text;
BEGIN
  SELECT g.state INTO v_state FROM kernel.group_state(p_space, p_id, p_now) g;
  SELECT m.verdict INTO v_given FROM runstate.group_members m
   WHERE m.space_id = p_space AND m.task_id = p_task AND m.group_id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.refuse('NOT_FOUND', 'task ' || p_task::text || ' is no member of task group '
      || p_id::text);
  ELSIF v_given = p_verdict THEN
    RETURN kernel.seen(kernel.verdict_facts(p_space, p_id, p_verdict, false, p_now), NULL, NULL);
  ELSIF v_given IS NOT NULL THEN
    RETURN kernel.refuse('CONFLICT', 'task ' || p_task::text || ' is already ' || v_given
      || ': a verdict is given once');
  ELSIF v_state = 'FINALIZED' THEN
    RETURN kernel.seen(kernel.verdict_facts(p_space, p_id, p_verdict, true, p_now), NULL, NULL);
  END IF;
  v_task := kernel.task_state(p_space, p_task, p_now);
  IF p_verdict = 'ACCEPTED' AND v_task <> 'SUCCEEDED' THEN
    RETURN kernel.refuse('CONFLICT', 'task ' || p_task::text || ' is ' || v_task
      || ': only a SUCCEEDED one can be accepted');
  END IF;
  RETURN NULL;
END $$;

-- Accept or reject the result of a member; the verdict that reaches the threshold finalizes the group in the
-- same commit. Again is a no-op. Refuses: NOT_FOUND (group, member), CONFLICT (the opposite was given, or
-- accepted before it is SUCCEEDED).
CREATE FUNCTION kernel.group_judge(p_space text, p_id uuid, p_task uuid, p_verdict text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_deadline timestamptz;
  v_now timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.verdict_given(p_space, p_id, p_task, p_verdict, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  SELECT g.deadline INTO v_deadline FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id;
  v_now := kernel.kernel_now();
  v_reply := kernel.verdict_given(p_space, p_id, p_task, p_verdict, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  ELSIF v_deadline <= v_now THEN  -- it came first: the server writes that, then this is late
    v_reply := kernel.refuse('AGAIN', 'the deadline of task group ' || p_id::text || ' has passed');
    v_reply.decide := ARRAY[p_id];
    RETURN v_reply;
  END IF;
  UPDATE runstate.group_members m SET verdict = p_verdict
   WHERE m.space_id = p_space AND m.task_id = p_task AND m.group_id = p_id;
  PERFORM kernel.group_event(p_space, v_now, 'group.' || pg_catalog.lower(p_verdict), v_path, p_id,
    pg_catalog.json_build_object('taskId', p_task), NULL);
  SELECT s.wake INTO v_wake FROM kernel.group_settle(p_space, v_path, p_id, v_now) s;
  v_reply := kernel.done(200, kernel.verdict_facts(p_space, p_id, p_verdict, false, v_now), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Take no more members, and decide with those there are. p_strict (seal): a group that is FINALIZED is
-- refused (CONFLICT), else (close) it answers its outcome. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.group_close(p_space text, p_id uuid, p_strict boolean, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_state text;
  v_now timestamptz;
  v_finalized boolean;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT g.state INTO v_state FROM kernel.group_state(p_space, p_id, v_now) g;
  IF v_state = 'FINALIZED' AND p_strict THEN
    RETURN kernel.refuse('CONFLICT', 'task group ' || p_id::text || ' is FINALIZED');
  ELSIF v_state = 'FINALIZED' THEN
    RETURN kernel.seen(kernel.group_facts(p_space, p_id, v_now), NULL, NULL);
  ELSIF v_state = 'OPEN' THEN
    PERFORM kernel.group_seal(p_space, v_path, p_id, v_now);
  END IF;
  SELECT s.finalized, s.wake INTO v_finalized, v_wake
    FROM kernel.group_settle(p_space, v_path, p_id, v_now) s;
  v_reply := kernel.done(200, kernel.group_facts(p_space, p_id, v_now), v_wake);
  v_reply.changed := v_finalized OR v_state = 'OPEN';
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
