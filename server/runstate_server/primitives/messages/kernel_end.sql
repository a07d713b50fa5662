-- Messages, last: what ends them from outside: task cancel, sweeps, the end of a scope.

-- Take an unsettled message out of the queue, whoever holds it. Gate passed, in an INBOX its line is held.
-- Looks again while the row moves between the two tables. Null: it has ended.
CREATE FUNCTION kernel.queue_remove(p_space text, p_q kernel.queued) RETURNS kernel.queued
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  LOOP
    DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = (p_q).seq
    RETURNING r.attempt, r.started_at INTO p_q.attempt, p_q.started_at;
    IF NOT FOUND THEN
      DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (p_q).seq
      RETURNING l.attempt, l.started_at INTO p_q.attempt, p_q.started_at;
    END IF;
    IF FOUND THEN
      RETURN p_q;
    END IF;
    PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.id = (p_q).id AND m.ended IS NOT NULL;
    EXIT WHEN FOUND;
  END LOOP;
  RETURN NULL;
END $$;

-- Cancel those of these messages that are unsettled, and give back what their deliveries hold. Gates passed.
-- Locks in one order, whatever that of the ids: lines, rows, pools, budgets. Returns how many there were,
-- and the topics to wake.
CREATE FUNCTION kernel.messages_cancel(p_space text, p_ids uuid[], p_reason text, OUT cancelled int,
  OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_all kernel.queued[] := ARRAY(SELECT q FROM pg_catalog.unnest(p_ids) i (id)
    CROSS JOIN LATERAL kernel.message_find(p_space, i.id) q ORDER BY q.seq);
  v_out kernel.queued[] := '{}'::kernel.queued[];
  v_q kernel.queued;
  v_line bigint;
  v_now timestamptz;
BEGIN
  wake := '{}'::text[];
  FOR v_line IN
    SELECT DISTINCT kernel.line_key(p_space, q.mailbox_id, q.path[pg_catalog.cardinality(q.path)]) AS line
      FROM pg_catalog.unnest(v_all) q WHERE q.inbox ORDER BY line
  LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock(v_line);
  END LOOP;
  FOREACH v_q IN ARRAY v_all LOOP
    v_q := kernel.queue_remove(p_space, v_q);
    IF (v_q).id IS NOT NULL THEN
      v_out := v_out || v_q;
    END IF;
  END LOOP;
  cancelled := pg_catalog.cardinality(v_out);
  PERFORM kernel.pools_lock_of(p_space, p_ids);
  PERFORM kernel.budgets_lock_of(p_space, p_ids);
  v_now := kernel.kernel_now();
  FOREACH v_q IN ARRAY v_out LOOP
    wake := wake || kernel.message_end(p_space, v_q, 'CANCELLED', p_reason, NULL, NULL, v_now);
  END LOOP;
  FOREACH v_q IN ARRAY v_out LOOP
    wake := wake || kernel.grants_release_of(p_space, (v_q).id) || kernel.budget_void_of(p_space, (v_q).id);
  END LOOP;
END $$;

-- Lapsed leases and passed deadlines, everywhere. Locks: gates and rows, only tried.
-- Indexes: leased_due, ready_deadline, leased_deadline (due_at is never later than the deadline, so leases
-- cover it).
CREATE FUNCTION kernel.message_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_seq bigint;
  v_id uuid;
  v_root uuid;
  v_q kernel.queued;
  v_dropped boolean;
  v_woken text[];
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_seq, v_id, v_root IN
    SELECT l.space_id, l.seq, l.message_id, l.a0 FROM runstate.queue_leased l WHERE l.due_at <= v_now
     ORDER BY l.due_at LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_root);
    PERFORM 1 FROM runstate.queue_leased l WHERE l.space_id = v_space AND l.seq = v_seq AND l.due_at <= v_now
      FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    wake := wake || kernel.delivery_review(v_space, v_seq, v_id, kernel.kernel_now());
    PERFORM 1 FROM runstate.queue_leased l WHERE l.space_id = v_space AND l.seq = v_seq;
    count := count + CASE WHEN FOUND THEN 0 ELSE 1 END;
  END LOOP;
  FOR v_space, v_seq, v_id, v_root IN
    SELECT r.space_id, r.seq, r.message_id, r.a0 FROM runstate.queue_ready r WHERE r.deadline <= v_now
     ORDER BY r.deadline LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_root);
    v_q := kernel.message_find(v_space, v_id);
    SELECT r.attempt, r.started_at INTO v_q.attempt, v_q.started_at FROM runstate.queue_ready r
     WHERE r.space_id = v_space AND r.seq = v_seq FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    SELECT d.dropped, d.wake INTO v_dropped, v_woken FROM kernel.queue_drop(v_space, v_q,
      kernel.kernel_now()) d;
    count := count + CASE WHEN v_dropped THEN 1 ELSE 0 END;
    wake := wake || v_woken;
  END LOOP;
END $$;

-- The scopes in which messages may stand behind the head of an INBOX: none of another mailbox.
CREATE FUNCTION kernel.inbox_scopes(p_space text, p_path uuid[], p_mailbox uuid, p_scopes uuid[])
RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN b.mode <> 'INBOX' THEN '{}'::uuid[]
      WHEN p_scopes IS NOT NULL THEN p_scopes
      ELSE ARRAY(SELECT s.id FROM runstate.scopes s WHERE s.space_id = p_space AND s.root_id = p_path[1]) END
    FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = p_mailbox
$$;

-- How many messages and tasks are unsettled in the subtree that a path leads to.
CREATE FUNCTION kernel.messages_left(p_space text, p_path uuid[], OUT messages bigint, OUT tasks bigint)
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FILTER (WHERE w.lane = 0), pg_catalog.count(*) FILTER (WHERE w.lane > 0)
    FROM kernel.scopes_within(p_space, p_path) i (scopes)
    CROSS JOIN LATERAL (
      SELECT DISTINCT d.mailbox_id AS id FROM runstate.queue_lanes d
       WHERE d.space_id = p_space AND d.a0 = p_path[1]) b
    CROSS JOIN LATERAL (
      SELECT l.lane FROM runstate.queue_leased l WHERE i.scopes IS NULL AND l.space_id = p_space
         AND l.mailbox_id = b.id AND l.a0 = p_path[1]
      UNION ALL
      SELECT r.lane FROM runstate.queue_ready r WHERE i.scopes IS NULL AND r.space_id = p_space
         AND r.mailbox_id = b.id AND r.a0 = p_path[1] AND r.deliverable
      UNION ALL
      SELECT l.lane FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.mailbox_id = b.id
         AND l.scope_id = ANY (i.scopes)
      UNION ALL
      SELECT r.lane FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.mailbox_id = b.id
         AND r.scope_id = ANY (i.scopes) AND r.deliverable
      UNION ALL
      SELECT r.lane FROM kernel.inbox_scopes(p_space, p_path, b.id, i.scopes) s (ids)
        CROSS JOIN LATERAL (SELECT q.lane FROM runstate.queue_ready q WHERE q.space_id = p_space
          AND q.mailbox_id = b.id AND q.scope_id = ANY (s.ids) AND NOT q.deliverable OFFSET 0) r) w
$$;

-- End what is unsettled in the subtree that a path leads to, p_limit at most, for p_reason; as once_end. A
-- deadline of its own that passed before, unnoticed, is what ended a message. Rows that are left are settled
-- by later steps, and by fetches that meet them. The lanes of a run go with its root.
CREATE FUNCTION kernel.messages_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz,
  p_limit int, OUT messages int, OUT tasks int) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scopes uuid[] := kernel.scopes_within(p_space, p_path);
  v_id uuid;
  v_q kernel.queued;
BEGIN
  messages := 0;
  tasks := 0;
  FOR v_id, v_q.seq, v_q.lane, v_q.attempt, v_q.started_at IN
    SELECT w.message_id, w.seq, w.lane, w.attempt, w.started_at FROM (
      SELECT DISTINCT d.mailbox_id AS id FROM runstate.queue_lanes d
       WHERE d.space_id = p_space AND d.a0 = p_path[1]) b
    CROSS JOIN LATERAL (
      SELECT l.message_id, l.seq, l.lane, l.attempt, l.started_at FROM runstate.queue_leased l
       WHERE v_scopes IS NULL AND l.space_id = p_space AND l.mailbox_id = b.id AND l.a0 = p_path[1]
      UNION ALL
      SELECT r.message_id, r.seq, r.lane, r.attempt, r.started_at FROM runstate.queue_ready r
       WHERE v_scopes IS NULL AND r.space_id = p_space AND r.mailbox_id = b.id AND r.a0 = p_path[1]
         AND r.deliverable
      UNION ALL
      SELECT l.message_id, l.seq, l.lane, l.attempt, l.started_at FROM runstate.queue_leased l
       WHERE l.space_id = p_space AND l.mailbox_id = b.id AND l.scope_id = ANY (v_scopes)
      UNION ALL
      SELECT r.message_id, r.seq, r.lane, r.attempt, r.started_at FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.mailbox_id = b.id AND r.scope_id = ANY (v_scopes) AND r.deliverable
      UNION ALL
      SELECT r.message_id, r.seq, r.lane, r.attempt, r.started_at
        FROM kernel.inbox_scopes(p_space, p_path, b.id, v_scopes) s (ids)
        CROSS JOIN LATERAL (
          SELECT q.message_id, q.seq, q.lane, q.attempt, q.started_at FROM runstate.queue_ready q
           WHERE q.space_id = p_space AND q.mailbox_id = b.id AND q.scope_id = ANY (s.ids)
             AND NOT q.deliverable OFFSET 0) r) w LIMIT p_limit
  LOOP
    messages := messages + CASE WHEN v_q.lane = 0 THEN 1 ELSE 0 END;
    tasks := tasks + CASE WHEN v_q.lane = 0 THEN 0 ELSE 1 END;
    PERFORM kernel.message_end_with_scope(p_space, v_id, v_q, p_reason, p_now);
  END LOOP;
  IF messages + tasks < p_limit AND v_scopes IS NULL THEN
    DELETE FROM runstate.queue_lanes d WHERE d.space_id = p_space AND d.a0 = p_path[1];
  END IF;
END $$;

-- End one message of a scope that ends for p_reason, unless a fetch or sweep has just settled it.
CREATE FUNCTION kernel.message_end_with_scope(p_space text, p_id uuid, p_q kernel.queued, p_reason text,
  p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text := CASE WHEN p_reason = 'scope_expired' THEN 'EXPIRED' ELSE 'CANCELLED' END;
  v_reason text := CASE WHEN p_reason = 'scope_expired' THEN 'deadline' ELSE p_reason END;
BEGIN
  DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = (p_q).seq;
  IF NOT FOUND THEN
    DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (p_q).seq;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    PERFORM kernel.budget_outlive(p_space, p_id, kernel.kernel_now() + interval '1 hour');
  END IF;
  PERFORM kernel.message_end(p_space, ROW(p_id, (p_q).seq, m.mailbox_id, s.path, m.task_key IS NOT NULL,
    false, NULL, 0, 0, (p_q).attempt, LEAST(m.deadline, s.effective_deadline), (p_q).started_at,
      NULL)::kernel.queued,
      CASE WHEN m.deadline <= p_now THEN 'EXPIRED' ELSE v_state END,
      CASE WHEN m.deadline <= p_now THEN 'deadline' ELSE v_reason END, NULL, NULL, p_now)
    FROM runstate.messages m
    CROSS JOIN LATERAL (SELECT c.path, c.effective_deadline FROM runstate.scopes c
                         WHERE c.space_id = p_space AND c.id = m.scope_id OFFSET 0) s
   WHERE m.space_id = p_space AND m.id = p_id;
END $$;
