-- Task groups.  OPEN -> SEALED (close, or all that are expected have joined) -> FINALIZED (decide).
-- What decides: verdicts, members that end, the deadline; and the end of the scope. The outcome is SUCCESS or
-- FAILURE, once and for good; so is the verdict of a member.
-- Tables: task_groups, group_members (which tasks, in the order of joining), group_notices (a member of that
-- group has ended: look at it), and the one scope that a group owns.
-- Locks: gate shared, idempotency key, the group's row, then what tasks and messages take. Whoever ends a
-- member may hold locks that come after a group's: it leaves a notice, and the deciding call comes after it.
-- This file: create and look. Others: kernel_decide, _member, _verdict.sql.

CREATE FUNCTION kernel.no_group(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'task group ' || p_id::text || ' does not exist in this space')
$$;

CREATE FUNCTION kernel.group_topic(p_space text, p_id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('group', p_space, p_id::text)
$$;

-- The path of a group's scope; null when there is no such group.
CREATE FUNCTION kernel.group_path(p_space text, p_id uuid) RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT (SELECT s.path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = g.scope_id)
    FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id
$$;

-- What a group is at this instant: as it is stored, or finalized by the end of its scope, whoever writes
-- that.
CREATE FUNCTION kernel.group_state(p_space text, p_id uuid, p_now timestamptz, OUT state text,
  OUT outcome text, OUT reason text) LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN e.reason IS NOT NULL THEN 'FINALIZED' ELSE g.state END,
      CASE WHEN g.state <> 'FINALIZED' AND e.reason IS NOT NULL THEN 'FAILURE' ELSE g.outcome END,
      CASE WHEN g.state <> 'FINALIZED' AND e.reason IS NOT NULL THEN e.reason ELSE g.outcome_reason END
    FROM runstate.task_groups g
    CROSS JOIN LATERAL (SELECT kernel.message_scope_end(p_space, g.scope_id, p_now) AS reason) e
   WHERE g.space_id = p_space AND g.id = p_id
$$;

-- {state, outcome, outcomeReason}, as close answers it.
CREATE FUNCTION kernel.group_facts(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('state', g.state, 'outcome', g.outcome, 'outcomeReason', g.reason)
    FROM kernel.group_state(p_space, p_id, p_now) g
$$;

CREATE FUNCTION kernel.group_event(p_space text, p_now timestamptz, p_type text, p_path uuid[], p_id uuid,
  p_facts json, p_wake text[]) RETURNS void LANGUAGE sql VOLATILE AS $$
  SELECT kernel.event(p_space, p_now, p_type, p_path, 'group', p_id::text, p_facts, p_wake)
$$;

-- Create a group with a scope of its own: a child of p_parent, which its childLimit does not count, or a
-- root. Locks: parent's gate, idempotency key. Refuses: NOT_FOUND (mailbox, parent), SCOPE_CANCELLED,
-- DEADLINE_EXCEEDED (parent ended), CONFLICT (parent at the greatest depth).
CREATE FUNCTION kernel.group_create(p_space text, p_id uuid, p_scope uuid, p_mailbox uuid, p_condition text,
  p_threshold int, p_expected int, p_deadline timestamptz, p_parent uuid, p_child_limit int, p_depth_max int,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_above uuid[];
  v_path uuid[];
  v_until timestamptz;
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = p_mailbox;
  IF NOT FOUND THEN
    RETURN kernel.no_mailbox(p_mailbox);
  END IF;
  IF p_parent IS NOT NULL THEN
    v_above := kernel.gate_pass(p_space, p_parent);
    IF v_above IS NULL THEN
      RETURN kernel.no_scope(p_parent);
    END IF;
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  IF p_parent IS NOT NULL THEN
    v_reply := kernel.scope_refusal(p_space, p_parent, v_now);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    ELSIF pg_catalog.cardinality(v_above) > p_depth_max THEN
      RETURN kernel.refuse('CONFLICT', 'scope ' || p_parent::text || ' is at depth ' || p_depth_max
        || ', the deepest there is: it cannot have a group''s scope below it');
    END IF;
    SELECT s.effective_deadline INTO v_until FROM runstate.scopes s
     WHERE s.space_id = p_space AND s.id = p_parent;
  END IF;
  v_path := kernel.scope_write(p_space, p_scope, NULL, NULL, v_above, v_until, NULL, p_child_limit, v_now);
  INSERT INTO runstate.task_groups (space_id, id, scope_id, root_id, mailbox_id, condition, threshold,
    expected_members, members, state, deadline, created_at)
  VALUES (p_space, p_id, p_scope, v_path[1], p_mailbox, p_condition, p_threshold, p_expected, 0, 'OPEN',
    p_deadline, v_now);
  PERFORM kernel.group_event(p_space, v_now, 'group.created', v_path, p_id, pg_catalog.json_build_object(
    'mailboxId', p_mailbox, 'condition', p_condition, 'threshold', p_threshold, 'expectedMembers', p_expected,
    'deadline', kernel.wire_time(p_deadline)), NULL);
  v_reply := kernel.done(201, pg_catalog.json_build_object('groupId', p_id, 'scopeId', p_scope, 'state',
    'OPEN'), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- The members in the order of joining, the counts of verdicts, and when the next of them ends by its own
-- deadline.
CREATE FUNCTION kernel.group_members_facts(p_space text, p_id uuid, p_now timestamptz, OUT accepted bigint,
  OUT rejected bigint, OUT members json, OUT next_end timestamptz) LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FILTER (WHERE m.verdict = 'ACCEPTED'),
      pg_catalog.count(*) FILTER (WHERE m.verdict = 'REJECTED'),
      COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object('taskId', m.task_id, 'taskKey', t.task_key,
        'state', kernel.task_state(p_space, m.task_id, p_now), 'verdict', m.verdict) ORDER BY m.n),
        '[]'::json),
      pg_catalog.min(t.deadline) FILTER (WHERE t.ended IS NULL AND t.deadline > p_now)
    FROM runstate.group_members m
    CROSS JOIN LATERAL (SELECT x.task_key, x.ended, x.deadline FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.id = m.task_id OFFSET 0) t
   WHERE m.group_id = p_id AND m.space_id = p_space
$$;

-- When a group was finalized: as it is written, or when its scope ended, whoever writes that. Null: it is
-- not.
CREATE FUNCTION kernel.group_over_at(p_space text, p_id uuid, p_now timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(g.finalized_at, (
      SELECT COALESCE(pg_catalog.min(a.ended_at), s.effective_deadline)
        FROM runstate.scopes s CROSS JOIN LATERAL (
          SELECT x.ended_at FROM pg_catalog.unnest(s.path) p (id) CROSS JOIN LATERAL (
            SELECT c.ended_at FROM runstate.scopes c WHERE c.space_id = p_space AND c.id = p.id OFFSET 0) x) a
       WHERE s.space_id = p_space AND s.id = g.scope_id
         AND kernel.effective_at(s.effective, s.effective_deadline, p_now) <> 'ACTIVE'
       GROUP BY s.effective_deadline))
    FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id
$$;

-- The view of section 6 of the API in one piece: read again when the state has changed meanwhile. next_at:
-- when time alone may change it. p_id must exist.
CREATE FUNCTION kernel.group_seen(p_space text, p_id uuid, p_now timestamptz, OUT facts json, OUT state text,
  OUT next_at timestamptz) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_again text;
BEGIN
  FOR n IN 1..3 LOOP
    SELECT st.state INTO state FROM kernel.group_state(p_space, p_id, p_now) st;
    SELECT pg_catalog.json_build_object('id', g.id, 'scopeId', g.scope_id, 'mailboxId', g.mailbox_id,
        'condition', g.condition, 'threshold', g.threshold, 'expectedMembers', g.expected_members, 'state',
        st.state, 'outcome', st.outcome, 'outcomeReason', st.reason, 'accepted', m.accepted, 'rejected',
        m.rejected, 'members', m.members, 'deadline', kernel.wire_time(g.deadline), 'createdAt',
        kernel.wire_time(g.created_at), 'finalizedAt',
        kernel.wire_time(kernel.group_over_at(p_space, p_id, p_now))), LEAST(g.deadline, m.next_end)
      INTO facts, next_at FROM runstate.task_groups g
      CROSS JOIN LATERAL kernel.group_state(p_space, p_id, p_now) st
      CROSS JOIN LATERAL kernel.group_members_facts(p_space, p_id, p_now) m
     WHERE g.space_id = p_space AND g.id = p_id;
    SELECT st.state INTO v_again FROM kernel.group_state(p_space, p_id, p_now) st;
    EXIT WHEN state = v_again;
  END LOOP;
  state := facts ->> 'state';
END $$;

-- Read a group; a long poll sleeps until it is FINALIZED. One whose outcome is reached is decided first: the
-- reply asks the server for it. Locks: none. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.group_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_facts json;
  v_state text;
  v_next timestamptz;
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_until timestamptz;
  v_reply kernel.reply;
BEGIN
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  SELECT g.facts, g.state, g.next_at INTO v_facts, v_state, v_next FROM kernel.group_seen(p_space, p_id,
    v_now) g;
  SELECT s.effective_deadline INTO v_until FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = v_path[pg_catalog.cardinality(v_path)];
  v_reply := kernel.seen(v_facts, NULL, kernel.seconds_until(LEAST(v_next, v_until), v_now));
  v_reply.sleep := ARRAY[kernel.group_topic(p_space, p_id), kernel.topic('scope', p_space,
    v_path[1]::text)];
  IF v_state <> 'FINALIZED' THEN
    SELECT ARRAY[p_id] INTO v_reply.decide FROM kernel.group_reached(p_space, p_id, v_now) r
     WHERE r.outcome IS NOT NULL;
  END IF;
  RETURN v_reply;
END $$;
