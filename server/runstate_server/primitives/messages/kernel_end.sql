-- Messages, last: what ends them from outside: task cancel, sweeps, the end of a scope.

-- Cancel an unsettled message, whoever holds it. Gate passed. Looks again while the row moves between the two
-- tables.
-- Returns whether it was unsettled, and the topics to wake.
CREATE FUNCTION kernel.message_cancel(p_space text, p_q kernel.queued, p_reason text, OUT cancelled boolean,
  OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := (p_q).path[pg_catalog.cardinality((p_q).path)];
  v_ended text;
BEGIN
  cancelled := false;
  wake := '{}'::text[];
  IF (p_q).inbox THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.line_key(p_space, (p_q).mailbox_id, v_scope));
  END IF;
  LOOP
    DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = (p_q).seq
    RETURNING r.attempt, r.started_at INTO p_q.attempt, p_q.started_at;
    IF NOT FOUND THEN
      DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (p_q).seq
      RETURNING l.attempt, l.started_at INTO p_q.attempt, p_q.started_at;
    END IF;
    IF FOUND THEN
      cancelled := true;
      wake := kernel.message_end(p_space, p_q, 'CANCELLED', p_reason, NULL, NULL, kernel.kernel_now())
        || kernel.grants_release_of(p_space, (p_q).id) || kernel.budget_void_of(p_space, (p_q).id);
      RETURN;
    END IF;
    SELECT m.ended INTO v_ended FROM runstate.messages m WHERE m.space_id = p_space AND m.id = (p_q).id;
    EXIT WHEN v_ended IS NOT NULL;
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

-- End what is unsettled in these scopes of a run, p_limit at most, for p_reason; as once_end. A deadline of
-- its own that passed before, unnoticed, is what ended a message. Rows that are left are settled by later
-- steps, and by fetches that meet them. The lanes of a run go with its root.
CREATE FUNCTION kernel.messages_end(p_space text, p_root uuid, p_scopes uuid[], p_reason text,
  p_now timestamptz, p_limit int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_state text := CASE WHEN p_reason = 'scope_expired' THEN 'EXPIRED' ELSE 'CANCELLED' END;
  v_reason text := CASE WHEN p_reason = 'scope_expired' THEN 'deadline' ELSE p_reason END;
  v_mailboxes uuid[];
  v_id uuid;
  v_q kernel.queued;
  v_count int := 0;
BEGIN
  v_mailboxes := ARRAY(SELECT DISTINCT d.mailbox_id FROM runstate.queue_lanes d
                        WHERE d.space_id = p_space AND d.a0 = p_root ORDER BY d.mailbox_id);
  FOR v_id, v_q.seq, v_q.attempt, v_q.started_at IN
    SELECT w.message_id, w.seq, w.attempt, w.started_at FROM pg_catalog.unnest(v_mailboxes) b (id) CROSS
      JOIN LATERAL (
      SELECT l.message_id, l.seq, l.attempt, l.started_at FROM runstate.queue_leased l
       WHERE l.space_id = p_space AND l.mailbox_id = b.id AND l.a0 = p_root AND l.scope_id = ANY (p_scopes)
      UNION ALL
      SELECT r.message_id, r.seq, r.attempt, r.started_at FROM pg_catalog.unnest(p_scopes) s (id)
        CROSS JOIN LATERAL (
          SELECT q.message_id, q.seq, q.attempt, q.started_at FROM runstate.queue_ready q
           WHERE q.space_id = p_space AND q.mailbox_id = b.id AND q.scope_id = s.id AND q.deliverable
          OFFSET 0) r
      UNION ALL
      SELECT r.message_id, r.seq, r.attempt, r.started_at FROM pg_catalog.unnest(p_scopes) s (id)
        CROSS JOIN LATERAL (
          SELECT q.message_id, q.seq, q.attempt, q.started_at FROM runstate.queue_ready q
           WHERE q.space_id = p_space AND q.mailbox_id = b.id AND q.scope_id = s.id AND NOT q.deliverable
          OFFSET 0) r) w
    LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    DELETE FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = v_q.seq;
    IF NOT FOUND THEN
      DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = v_q.seq;
    END IF;
    CONTINUE WHEN NOT FOUND;  -- a fetch or sweep has just settled it
    PERFORM kernel.message_end(p_space, ROW(v_id, v_q.seq, m.mailbox_id, s.path, m.task_key IS NOT NULL,
      false, NULL, 0, 0, v_q.attempt, LEAST(m.deadline, s.effective_deadline), v_q.started_at,
        NULL)::kernel.queued,
        CASE WHEN m.deadline <= p_now THEN 'EXPIRED' ELSE v_state END,
        CASE WHEN m.deadline <= p_now THEN 'deadline' ELSE v_reason END, NULL, NULL, p_now)
      FROM runstate.messages m
      CROSS JOIN LATERAL (SELECT c.path, c.effective_deadline FROM runstate.scopes c
                           WHERE c.space_id = p_space AND c.id = m.scope_id OFFSET 0) s
     WHERE m.space_id = p_space AND m.id = v_id;
  END LOOP;
  IF v_count < p_limit AND p_root = ANY (p_scopes) THEN
    DELETE FROM runstate.queue_lanes d WHERE d.space_id = p_space AND d.a0 = p_root;
  END IF;
  RETURN v_count;
END $$;
