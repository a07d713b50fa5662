-- Messages: recv and admit, the calls. Both take what needs nothing through queue_take, and differ in what
-- they answer; admit takes what has needs through admit_take.

-- Deliver messages of a mailbox to one holder, as many as there are tokens. A hundred that have expired are
-- settled on the way; then the rest of them is stepped over, and left to sweeps and to the next call. more:
-- yet a hundred of ended scopes were settled and none delivered, so the call should be repeated.
CREATE FUNCTION kernel.queue_take(p_space text, p_mailbox uuid, p_path uuid[], p_below boolean,
  p_tasks_only boolean, p_holder text, p_session text, p_lease_s double precision, p_tokens text[],
  p_now timestamptz, OUT ids uuid[], OUT wake text[], OUT more boolean) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_drops_max CONSTANT int := 100;
  v_depth int := pg_catalog.cardinality(p_path);
  v_level int := CASE WHEN p_below THEN v_depth - 1 ELSE -1 END;
  v_drops int := 0;
  v_seq bigint;
  v_id uuid;
  v_q kernel.queued;
  v_dropped boolean;
  v_woken text[];
BEGIN
  ids := '{}'::uuid[];
  wake := kernel.queue_reclaim(p_space, p_mailbox, p_path[1], p_now, 10);
  WHILE pg_catalog.cardinality(ids) < pg_catalog.cardinality(p_tokens) AND v_drops < 2 * v_drops_max LOOP
    v_seq := kernel.queue_pick(p_space, p_mailbox, v_level, p_path[v_depth], p_path[1], p_tasks_only, p_now,
      v_drops >= v_drops_max);
    EXIT WHEN v_seq IS NULL;
    SELECT r.message_id INTO v_id FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = v_seq;
    v_q := kernel.message_find(p_space, v_id);
    SELECT r.attempt, r.started_at, r.deadline INTO v_q.attempt, v_q.started_at, v_q.deadline
      FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = v_seq;
    SELECT d.dropped, d.wake INTO v_dropped, v_woken FROM kernel.queue_drop(p_space, v_q, p_now) d;
    IF v_dropped THEN
      v_drops := v_drops + 1;
      wake := wake || v_woken;
      CONTINUE;
    END IF;
    PERFORM kernel.queue_lease(p_space, v_q, p_holder, p_session, p_lease_s,
      p_tokens[pg_catalog.cardinality(ids) + 1], p_now);
    ids := ids || v_id;
  END LOOP;
  more := v_drops >= 2 * v_drops_max AND pg_catalog.cardinality(ids) = 0;
END $$;

-- When an empty-handed poller of a scope should look again by itself: the first delay that ends and the first
-- delivery that comes due in the run, the deadline above the scope.
CREATE FUNCTION kernel.queue_again_s(p_space text, p_mailbox uuid, p_root uuid, p_scope uuid,
  p_now timestamptz) RETURNS double precision LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_ready timestamptz;
  v_leased timestamptz;
  v_deadline timestamptz;
BEGIN
  SELECT pg_catalog.min(h.available_at) INTO v_ready FROM runstate.queue_lanes d CROSS JOIN LATERAL (
    SELECT r.available_at FROM runstate.queue_ready r
     WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a0 = p_root AND r.deliverable
       AND r.lane = d.lane
       AND r.rank = d.rank AND r.available_at > p_now ORDER BY r.available_at, r.seq LIMIT 1) h
   WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox;
  SELECT l.due_at INTO v_leased FROM runstate.queue_leased l
   WHERE l.space_id = p_space AND l.mailbox_id = p_mailbox AND l.a0 = p_root ORDER BY l.due_at LIMIT 1;
  SELECT s.effective_deadline INTO v_deadline FROM runstate.scopes s WHERE s.space_id = p_space
    AND s.id = p_scope;
  RETURN kernel.seconds_until(LEAST(v_ready, v_leased, v_deadline), p_now);
END $$;

-- The answer of recv (p_form 'message') or admit ('task', 'tasks'): facts of what was delivered, payloads
-- aligned. p_consumed: what of quotas was consumed for each.
CREATE FUNCTION kernel.take_facts(p_space text, p_form text, p_ids uuid[], p_tokens text[],
  p_consumed json[]) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT CASE p_form
    WHEN 'message' THEN pg_catalog.json_build_object('message', (pg_catalog.array_agg(f.message))[1],
      'token', p_tokens[1], 'leaseExpiresAt', (pg_catalog.array_agg(f.ends))[1])
    WHEN 'task' THEN (pg_catalog.array_agg(f.task))[1]
    ELSE pg_catalog.json_build_object('admitted', pg_catalog.json_agg(f.task ORDER BY f.n)) END
  FROM (
    SELECT i.n, pg_catalog.json_build_object('id', m.id, 'payload', kernel.payload_here((i.n - 1)::int),
        'attempt', l.attempt, 'scopeId', m.scope_id, 'deadline', kernel.wire_time(m.deadline),
        'taskId', CASE WHEN m.task_key IS NOT NULL THEN m.id END) AS message,
      pg_catalog.json_build_object('taskId', m.id, 'taskKey', m.task_key, 'messageId', m.id, 'scopeId',
        m.scope_id, 'payload', kernel.payload_here((i.n - 1)::int), 'attempt', l.attempt, 'token',
          p_tokens[i.n], 'leaseExpiresAt', kernel.wire_time(l.expires_at), 'grants',
          kernel.grants_facts_of(p_space, m.id),
          'consumptions', COALESCE(p_consumed[i.n], '[]'::json), 'reservations',
          kernel.reservations_of(p_space, m.id)) AS task,
      kernel.wire_time(l.expires_at) AS ends
    FROM pg_catalog.unnest(p_ids) WITH ORDINALITY i (id, n)
    CROSS JOIN LATERAL (SELECT x.id, x.seq, x.scope_id, x.task_key, x.deadline FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.id = i.id OFFSET 0) m
    CROSS JOIN LATERAL (SELECT q.attempt, q.expires_at FROM runstate.queue_leased q
                         WHERE q.space_id = p_space AND q.seq = m.seq OFFSET 0) l) f
$$;

-- The payloads of the messages that a kept answer names: they never change, so the answer does not keep them.
CREATE FUNCTION kernel.take_payloads(p_space text, p_form text, p_facts json)
RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.array_agg(m.payload ORDER BY i.n) FROM (
      SELECT ((p_facts -> 'message') ->> 'id')::uuid AS id, 1::bigint AS n WHERE p_form = 'message'
      UNION ALL SELECT (p_facts ->> 'messageId')::uuid, 1 WHERE p_form = 'task'
      UNION ALL SELECT (a.task ->> 'messageId')::uuid, a.n
        FROM pg_catalog.json_array_elements(CASE WHEN p_form = 'tasks' THEN p_facts -> 'admitted'
          ELSE '[]' END) WITH ORDINALITY a (task, n)) i
    CROSS JOIN LATERAL (SELECT x.payload FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.id = i.id OFFSET 0) m
$$;

-- Whom the lapse of these deliveries would wake.
CREATE FUNCTION kernel.take_topics(p_space text, p_ids uuid[]) RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.array_agg(DISTINCT kernel.message_topics(p_space, m.mailbox_id, s.path,
      m.task_key IS NOT NULL))
    FROM pg_catalog.unnest(p_ids) i (id)
    CROSS JOIN LATERAL (SELECT x.mailbox_id, x.scope_id, x.task_key FROM runstate.messages x
                         WHERE x.space_id = p_space AND x.id = i.id OFFSET 0) m
    CROSS JOIN LATERAL (SELECT c.path FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = m.scope_id OFFSET 0) s
$$;

-- Take through queue_take or, for tasks with needs, through admit_take; what only one of them answers is
-- empty from the other.
CREATE FUNCTION kernel.take_some(p_space text, p_mailbox uuid, p_path uuid[], p_below boolean,
  p_tasks_only boolean, p_holder text, p_session text, p_lease_s double precision, p_tokens text[],
  p_grants text[], p_wait_s double precision, p_now timestamptz, OUT ids uuid[], OUT consumed json[],
  OUT wake text[], OUT again boolean, OUT next_s double precision, OUT topics text[])
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF p_tasks_only AND kernel.admit_needs(p_space, p_mailbox, p_path[1]) THEN
    SELECT t.ids, t.consumed, t.wake, t.again, t.next_s, t.topics
      INTO ids, consumed, wake, again, next_s, topics
      FROM kernel.admit_take(p_space, p_mailbox, p_path, p_below, p_holder, p_session, p_lease_s, p_tokens,
        p_grants, p_wait_s, p_now) t;
    RETURN;
  END IF;
  consumed := '{}'::json[];
  topics := '{}'::text[];
  SELECT t.ids, t.wake, t.more INTO ids, wake, again FROM kernel.queue_take(p_space, p_mailbox, p_path,
    p_below, p_tasks_only, p_holder, p_session, p_lease_s, p_tokens, p_now) t;
END $$;

-- Take messages (recv) or tasks (admit): at most as many as tokens are given. p_below: descendants of the
-- scope too. p_grants: four tokens for the grants of each; p_wait_s: how long the caller goes on waiting.
-- Nothing to deliver: status 204, with what to sleep on.
-- Refuses: NOT_FOUND (scope, mailbox), SCOPE_CANCELLED, DEADLINE_EXCEEDED; AGAIN (internal).
CREATE FUNCTION kernel.message_take(p_space text, p_mailbox uuid, p_scope uuid, p_below boolean, p_form text,
  p_holder text, p_session text, p_lease_s double precision, p_tokens text[], p_grants text[],
  p_wait_s double precision, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_tasks_only CONSTANT boolean := p_form <> 'message';
  v_path uuid[];
  v_now timestamptz;
  v_ids uuid[];
  v_consumed json[];
  v_wake text[];
  v_again boolean;
  v_next_s double precision;
  v_topics text[];
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
  IF v_reply.changed IS NOT NULL THEN
    IF v_reply.replayed THEN
      v_reply.payloads := kernel.take_payloads(p_space, p_form, v_reply.facts);
    END IF;
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT t.ids, t.consumed, t.wake, t.again, t.next_s, t.topics
    INTO v_ids, v_consumed, v_wake, v_again, v_next_s, v_topics
    FROM kernel.take_some(p_space, p_mailbox, v_path, p_below, v_tasks_only, p_holder, p_session, p_lease_s,
      p_tokens, p_grants, p_wait_s, v_now) t;
  IF v_again THEN
    v_reply := kernel.refuse('AGAIN', 'what stood in the way was settled, or others were quicker');
    v_reply.wake := v_wake;
    RETURN v_reply;
  ELSIF pg_catalog.cardinality(v_ids) = 0 THEN
    v_reply := kernel.seen('{}', NULL, LEAST(v_next_s,
      kernel.queue_again_s(p_space, p_mailbox, v_path[1], p_scope, v_now)));
    v_reply.status := 204;
    v_reply.wake := v_wake;
    v_reply.sleep := ARRAY['+' || kernel.poller_topic(p_space, p_mailbox, p_scope, p_below, v_tasks_only),
      kernel.topic('scope', p_space, v_path[1]::text)] || v_topics;
    RETURN v_reply;
  END IF;
  v_reply := kernel.done(200, kernel.take_facts(p_space, p_form, v_ids, p_tokens, v_consumed), v_wake);
  v_reply.payloads := kernel.take_payloads(p_space, p_form, v_reply.facts);
  v_reply.again_s := p_lease_s;
  v_reply.sleep := kernel.take_topics(p_space, v_ids);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
