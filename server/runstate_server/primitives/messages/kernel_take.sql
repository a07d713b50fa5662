-- Messages, second verb: take (recv and admit). A fetch takes back what has lapsed in its run, settles what
-- has expired at the head, then delivers: by rank, within it by the time available, then by arrival.

-- Lock the first available row of one lane and rank. p_level: -1 exactly the scope p_anchor; 0, 1, 2 the
-- subtree of the scope p_anchor at that depth, by its own index; deeper subtrees merge the heads of their
-- scopes. p_live: rows past their deadline are stepped over.
CREATE FUNCTION kernel.queue_head(p_space text, p_mailbox uuid, p_level int, p_anchor uuid, p_root uuid,
  p_lane int, p_rank smallint, p_now timestamptz, p_live boolean, OUT seq bigint,
  OUT available_at timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  CASE p_level
    WHEN -1 THEN
      SELECT r.seq, r.available_at INTO seq, available_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = p_anchor AND r.deliverable
         AND r.lane = p_lane AND r.rank = p_rank AND r.available_at <= p_now
         AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
       ORDER BY r.available_at, r.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    WHEN 0 THEN
      SELECT r.seq, r.available_at INTO seq, available_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a0 = p_anchor AND r.deliverable
         AND r.lane = p_lane AND r.rank = p_rank AND r.available_at <= p_now
         AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
       ORDER BY r.available_at, r.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    WHEN 1 THEN
      SELECT r.seq, r.available_at INTO seq, available_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a1 = p_anchor AND r.deliverable
         AND r.lane = p_lane AND r.rank = p_rank AND r.available_at <= p_now
         AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
       ORDER BY r.available_at, r.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    WHEN 2 THEN
      SELECT r.seq, r.available_at INTO seq, available_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a2 = p_anchor AND r.deliverable
         AND r.lane = p_lane AND r.rank = p_rank AND r.available_at <= p_now
         AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
       ORDER BY r.available_at, r.seq LIMIT 1 FOR UPDATE SKIP LOCKED;
    ELSE
      SELECT h.seq, h.available_at INTO seq, available_at
        FROM kernel.queue_head_deep(p_space, p_mailbox, p_level, p_anchor, p_root, p_lane, p_rank, p_now,
          p_live) h;
  END CASE;
END $$;

-- The same below depth 2: the heads of the subtree's scopes, the earliest that can be locked.
CREATE FUNCTION kernel.queue_head_deep(p_space text, p_mailbox uuid, p_level int, p_anchor uuid, p_root uuid,
  p_lane int, p_rank smallint, p_now timestamptz, p_live boolean, OUT seq bigint,
  OUT available_at timestamptz)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_seq bigint;
BEGIN
  FOR v_seq IN
    SELECT h.seq FROM runstate.scopes s CROSS JOIN LATERAL (
      SELECT r.seq, r.available_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = s.id AND r.deliverable
         AND r.lane = p_lane AND r.rank = p_rank AND r.available_at <= p_now
         AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
       ORDER BY r.available_at, r.seq LIMIT 10) h
     WHERE s.space_id = p_space AND s.root_id = p_root AND s.path[p_level + 1] = p_anchor
     ORDER BY h.available_at, h.seq
  LOOP
    SELECT r.seq, r.available_at INTO seq, available_at FROM runstate.queue_ready r
     WHERE r.space_id = p_space AND r.seq = v_seq FOR UPDATE SKIP LOCKED;
    EXIT WHEN FOUND;
  END LOOP;
END $$;

-- Those of p_lanes that have something available at one rank, the one with the earliest head first, and the
-- heads. Locks nothing: a row that is locked and left behind would be missed by whoever looks meanwhile.
CREATE FUNCTION kernel.queue_turns(p_space text, p_mailbox uuid, p_level int, p_anchor uuid, p_root uuid,
  p_lanes int[], p_rank smallint, p_now timestamptz, p_live boolean, OUT lanes int[], OUT seqs bigint[])
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.array_agg(d.lane ORDER BY h.available_at, h.seq),
      pg_catalog.array_agg(h.seq ORDER BY h.available_at, h.seq) FROM runstate.queue_lanes d
    CROSS JOIN LATERAL (
      (SELECT r.available_at, r.seq FROM runstate.queue_ready r
        WHERE p_level = -1 AND r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = p_anchor
          AND r.deliverable AND r.lane = d.lane AND r.rank = p_rank AND r.available_at <= p_now
          AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
        ORDER BY r.available_at, r.seq LIMIT 1)
      UNION ALL
      (SELECT r.available_at, r.seq FROM runstate.queue_ready r
        WHERE p_level = 0 AND r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a0 = p_anchor
          AND r.deliverable AND r.lane = d.lane AND r.rank = p_rank AND r.available_at <= p_now
          AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
        ORDER BY r.available_at, r.seq LIMIT 1)
      UNION ALL
      (SELECT r.available_at, r.seq FROM runstate.queue_ready r
        WHERE p_level = 1 AND r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a1 = p_anchor
          AND r.deliverable AND r.lane = d.lane AND r.rank = p_rank AND r.available_at <= p_now
          AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
        ORDER BY r.available_at, r.seq LIMIT 1)
      UNION ALL
      (SELECT r.available_at, r.seq FROM runstate.queue_ready r
        WHERE p_level = 2 AND r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.a2 = p_anchor
          AND r.deliverable AND r.lane = d.lane AND r.rank = p_rank AND r.available_at <= p_now
          AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
        ORDER BY r.available_at, r.seq LIMIT 1)
      UNION ALL
      (SELECT f.available_at, f.seq FROM runstate.scopes s CROSS JOIN LATERAL (
         SELECT r.available_at, r.seq FROM runstate.queue_ready r
          WHERE r.space_id = p_space AND r.mailbox_id = p_mailbox AND r.scope_id = s.id AND r.deliverable
            AND r.lane = d.lane AND r.rank = p_rank AND r.available_at <= p_now
            AND (NOT p_live OR r.deadline IS NULL OR r.deadline > p_now)
          ORDER BY r.available_at, r.seq LIMIT 1) f
        WHERE p_level > 2 AND s.space_id = p_space AND s.root_id = p_root AND s.path[p_level + 1] = p_anchor
        ORDER BY f.available_at, f.seq LIMIT 1)) h
   WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox AND d.rank = p_rank
     AND d.lane = ANY (p_lanes)
$$;

-- Lock the next row to deliver of those that need nothing: the highest rank, in it the earliest of its
-- lanes. Null: nothing is available.
CREATE FUNCTION kernel.queue_pick(p_space text, p_mailbox uuid, p_level int, p_anchor uuid, p_root uuid,
  p_tasks_only boolean, p_now timestamptz, p_live boolean) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_rank smallint;
  v_lanes int[];
  v_lane int;
  v_seq bigint;
  v_tasks boolean := NOT EXISTS (SELECT 1 FROM runstate.mailboxes b
    WHERE b.space_id = p_space AND b.id = p_mailbox AND b.lane IS NOT NULL);
BEGIN
  FOR v_rank, v_lanes IN
    SELECT d.rank, pg_catalog.array_agg(d.lane) FROM runstate.queue_lanes d
     WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox
       AND ((d.lane = 1 AND v_tasks) OR (d.lane = 0 AND NOT p_tasks_only)) GROUP BY d.rank ORDER BY d.rank
  LOOP
    IF pg_catalog.cardinality(v_lanes) > 1 THEN
      SELECT t.lanes INTO v_lanes FROM kernel.queue_turns(p_space, p_mailbox, p_level, p_anchor, p_root,
        v_lanes, v_rank, p_now, p_live) t;
    END IF;
    FOREACH v_lane IN ARRAY COALESCE(v_lanes, '{}'::int[]) LOOP
      SELECT h.seq INTO v_seq FROM kernel.queue_head(p_space, p_mailbox, p_level, p_anchor, p_root, v_lane,
        v_rank, p_now, p_live) h;
      IF v_seq IS NOT NULL THEN
        RETURN v_seq;
      END IF;
    END LOOP;
  END LOOP;
  RETURN NULL;
END $$;

-- Take back at most p_limit lapsed or expired deliveries of a run in a mailbox; renewed ones are put off.
-- Returns the topics to wake. Waits for nothing.
CREATE FUNCTION kernel.queue_reclaim(p_space text, p_mailbox uuid, p_root uuid, p_now timestamptz,
  p_limit int) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_seq bigint;
  v_id uuid;
  v_wake text[] := '{}'::text[];
BEGIN
  FOR v_seq, v_id IN
    SELECT l.seq, l.message_id FROM runstate.queue_leased l
     WHERE l.space_id = p_space AND l.mailbox_id = p_mailbox AND l.a0 = p_root AND l.due_at <= p_now
     ORDER BY l.due_at LIMIT p_limit FOR UPDATE SKIP LOCKED
  LOOP
    v_wake := v_wake || kernel.delivery_review(p_space, v_seq, v_id, p_now);
  END LOOP;
  RETURN v_wake;
END $$;

-- What becomes of a delivery whose row is locked and whose due time has come: lapsed, expired, or put off to
-- its end.
CREATE FUNCTION kernel.delivery_review(p_space text, p_seq bigint, p_id uuid, p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_scope uuid := (v_q).path[pg_catalog.cardinality((v_q).path)];
  v_expires_at timestamptz;
  v_deadline timestamptz;
  v_end text := kernel.message_scope_end(p_space, v_scope, p_now);
  v_own boolean := v_end IS NULL;
  v_wake text[];
BEGIN
  SELECT l.expires_at, l.deadline, l.attempt, l.started_at INTO v_expires_at, v_deadline, v_q.attempt,
    v_q.started_at
    FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = p_seq;
  IF v_end IS NULL AND v_deadline <= p_now THEN
    v_end := 'deadline';
  END IF;
  IF v_expires_at > p_now AND v_end IS NULL THEN
    UPDATE runstate.queue_leased l SET due_at = LEAST(v_expires_at, COALESCE(v_deadline, v_expires_at))
     WHERE l.space_id = p_space AND l.seq = p_seq;
    RETURN '{}'::text[];
  END IF;
  IF (v_q).inbox AND NOT pg_catalog.pg_try_advisory_xact_lock(kernel.line_key(p_space, (v_q).mailbox_id,
    v_scope)) THEN
    RETURN '{}'::text[];
  END IF;
  IF v_own AND NOT kernel.budgets_tried_of(p_space, p_id) THEN
    RETURN '{}'::text[];  -- its money is in the hands of another call: a later look ends it
  END IF;
  DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = p_seq;
  IF v_end IS NULL THEN
    RETURN kernel.message_lapse(p_space, v_q, p_now) || kernel.budget_void_of(p_space, p_id);
  END IF;
  v_wake := kernel.message_end(p_space, v_q, CASE WHEN v_end = 'deadline' THEN 'EXPIRED' ELSE 'CANCELLED' END,
    v_end, NULL, NULL, p_now);
  IF v_own THEN  -- what a scope leaves behind is kept by its holder: the browser is still open
    v_wake := v_wake || kernel.grants_lapse_of(p_space, p_id, p_now) || kernel.budget_void_of(p_space, p_id);
  ELSE
    PERFORM kernel.budget_outlive(p_space, p_id, p_now + interval '1 hour');
  END IF;
  RETURN v_wake;
END $$;

-- Deliver one locked ready row: move it to queue_leased. Returns the message as it is now held.
CREATE FUNCTION kernel.queue_lease(p_space text, p_q kernel.queued, p_holder text, p_session text,
  p_lease_s double precision, p_token text, p_now timestamptz)
RETURNS kernel.queued LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_expires_at timestamptz := kernel.lease_end(p_now, p_lease_s);
BEGIN
  p_q.attempt := (p_q).attempt + 1;
  p_q.started_at := COALESCE((p_q).started_at, p_now);
  DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = (p_q).seq;
  INSERT INTO runstate.queue_leased (space_id, seq, mailbox_id, scope_id, a0, a1, a2, lane, rank, deadline,
    attempt, message_id, started_at, token, holder, session, lease_s, expires_at, due_at)
  VALUES (p_space, (p_q).seq, (p_q).mailbox_id, (p_q).path[pg_catalog.cardinality((p_q).path)], (p_q).path[1],
    (p_q).path[2], (p_q).path[3], (p_q).lane, (p_q).rank, (p_q).deadline, (p_q).attempt, (p_q).id,
      (p_q).started_at, p_token, p_holder, p_session, p_lease_s, v_expires_at,
        LEAST(v_expires_at, COALESCE((p_q).deadline, v_expires_at)));
  PERFORM kernel.message_event(p_space, p_now, p_q, 'message.delivered', 'task.started',
    pg_catalog.json_build_object(
    'mailboxId', (p_q).mailbox_id, 'holder', p_holder, 'attempt', (p_q).attempt,
    'leaseExpiresAt', kernel.wire_time(v_expires_at)), NULL);
  RETURN p_q;
END $$;

-- Settle a locked ready row that may not be delivered any more (deadline, ended scope below the run). Null:
-- it may be.
-- Returns the topics to wake. An INBOX line that is busy is left to its holder: the row stays, found = false.
CREATE FUNCTION kernel.queue_drop(p_space text, p_q kernel.queued, p_now timestamptz, OUT dropped boolean,
  OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := (p_q).path[pg_catalog.cardinality((p_q).path)];
  v_end text := kernel.message_scope_end(p_space, v_scope, p_now);
BEGIN
  wake := '{}'::text[];
  IF v_end IS NULL AND (p_q).deadline <= p_now THEN
    v_end := 'deadline';
  END IF;
  dropped := v_end IS NOT NULL;
  IF NOT dropped THEN
    RETURN;
  END IF;
  IF (p_q).inbox AND NOT pg_catalog.pg_try_advisory_xact_lock(kernel.line_key(p_space, (p_q).mailbox_id,
    v_scope)) THEN
    -- Out of sight for this call and a moment longer: whoever holds the line, or the next fetch, settles it.
    UPDATE runstate.queue_ready r SET available_at = p_now + interval '50 milliseconds'
     WHERE r.space_id = p_space AND r.seq = (p_q).seq;
    RETURN;
  END IF;
  DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = (p_q).seq;
  wake := kernel.message_end(p_space, p_q, CASE WHEN v_end = 'deadline' THEN 'EXPIRED' ELSE 'CANCELLED' END,
    v_end, NULL, NULL, p_now);
END $$;
