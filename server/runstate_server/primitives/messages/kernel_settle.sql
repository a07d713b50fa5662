-- Messages, third verb: renew, complete, nack, redrive.

-- First steps of renew, complete and nack, on the message that message_find found. Null: p_token holds it,
-- its leased row is locked, in an INBOX its line is held. p_to, p_other, p_work_key: of the message that a
-- completion sends on, its mailbox, its scope if that is another one, its key; null otherwise. Their locks
-- are taken too, before the row's.
-- Refuses: NOT_FOUND, STALE_CLAIM; SCOPE_CANCELLED and DEADLINE_EXCEEDED only once the root run has ended.
CREATE FUNCTION kernel.delivery_enter(p_space text, p_id uuid, p_q kernel.queued, p_token text, p_to uuid,
  p_other uuid, p_work_key text, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_roots uuid[] := ARRAY[(p_q).path[1]];
  v_reply kernel.reply;
BEGIN
  IF (p_q).id IS NULL THEN
    RETURN kernel.no_message(p_id);
  END IF;
  IF p_other IS NOT NULL THEN
    v_roots := v_roots || (SELECT s.root_id FROM runstate.scopes s WHERE s.space_id = p_space
      AND s.id = p_other);
    IF v_roots[2] IS NULL THEN
      RETURN kernel.no_scope(p_other);
    END IF;
  END IF;
  PERFORM kernel.gates_shared(p_space, v_roots);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.delivery_refusal(p_space, p_q, p_token);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM kernel.settle_locks(p_space, p_q, p_to, p_other, p_work_key);
  PERFORM 1 FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (p_q).seq FOR UPDATE;
  RETURN kernel.delivery_refusal(p_space, p_q, p_token);
END $$;

-- The advisory locks of a settle, in the order in which all calls take them: key and backlog of the message
-- that it sends on, then the lines of both mailboxes by number. Two that answer each other would else wait in
-- a circle.
CREATE FUNCTION kernel.settle_locks(p_space text, p_q kernel.queued, p_to uuid, p_other uuid, p_work_key text)
RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_own uuid := (p_q).path[pg_catalog.cardinality((p_q).path)];
  v_scope uuid := COALESCE(p_other, v_own);
  v_inbox boolean;
  v_limit int;
  v_line bigint;
BEGIN
  IF p_work_key IS NOT NULL AND p_to IS NOT NULL THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.message_key_lock(p_space, p_to, v_scope, 'work',
      p_work_key));
  END IF;
  SELECT b.mode = 'INBOX', b.backlog_limit INTO v_inbox, v_limit FROM runstate.mailboxes b
   WHERE b.space_id = p_space AND b.id = p_to;
  IF v_limit IS NOT NULL THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('backlog', p_space, p_to::text));
  END IF;
  FOR v_line IN
    SELECT l.line FROM (VALUES (CASE WHEN (p_q).inbox THEN kernel.line_key(p_space, (p_q).mailbox_id,
      v_own) END), (CASE WHEN v_inbox THEN kernel.line_key(p_space, p_to, v_scope) END)) l (line)
     WHERE l.line IS NOT NULL ORDER BY l.line
  LOOP
    PERFORM pg_catalog.pg_advisory_xact_lock(v_line);
  END LOOP;
END $$;

-- A message as its present delivery has it; the leased row is locked.
CREATE FUNCTION kernel.delivery_read(p_space text, p_q kernel.queued) RETURNS kernel.queued
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  SELECT l.attempt, l.started_at INTO p_q.attempt, p_q.started_at FROM runstate.queue_leased l
   WHERE l.space_id = p_space AND l.seq = (p_q).seq;
  RETURN p_q;
END $$;

-- Why a token does not hold the delivery of a message at this instant, the end of the root run first; null
-- when it does.
CREATE FUNCTION kernel.delivery_refusal(p_space text, p_q kernel.queued, p_token text) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_token text;
  v_holder text;
  v_expires_at timestamptz;
  v_deadline timestamptz;
  v_ended text;
  v_reason text;
  v_end text;
  v_reply kernel.reply;
BEGIN
  SELECT l.token, l.holder, l.expires_at, l.deadline INTO v_token, v_holder, v_expires_at, v_deadline
    FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (p_q).seq;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, (p_q).path[1], v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_end := kernel.message_scope_end(p_space, (p_q).path[pg_catalog.cardinality((p_q).path)], v_now);
  IF v_token = p_token AND v_expires_at > v_now AND v_end IS NULL AND (v_deadline IS NULL
    OR v_deadline > v_now) THEN
    RETURN NULL;
  END IF;
  SELECT m.ended, m.outcome_reason INTO v_ended, v_reason FROM runstate.messages m
   WHERE m.space_id = p_space AND m.id = (p_q).id;
  RETURN kernel.refuse('STALE_CLAIM', 'this token no longer holds message ' || (p_q).id::text || ': ' || CASE
    WHEN v_ended IS NOT NULL THEN 'it is ' || v_ended || COALESCE(' (' || v_reason || ')', '')
    WHEN v_end IS NOT NULL THEN 'its scope has ended (' || v_end || ')'
    WHEN v_deadline <= v_now THEN 'its deadline passed at ' || kernel.wire_time(v_deadline)
    WHEN v_token IS NULL THEN 'it is back in the queue'
    WHEN v_token = p_token THEN 'the lease lapsed at ' || kernel.wire_time(v_expires_at)
    ELSE '"' || v_holder || '" holds it until ' || kernel.wire_time(v_expires_at) END);
END $$;

-- Extend a lease that is still alive, and the grants of its delivery with it; never shortens it; without
-- p_lease_s by the lease's own length. No event.
CREATE FUNCTION kernel.message_renew(p_space text, p_id uuid, p_token text, p_lease_s double precision,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.delivery_enter(p_space, p_id, v_q, p_token, NULL, NULL, NULL, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM kernel.grants_lock_of(p_space, p_id);
  v_reply := kernel.delivery_refusal(p_space, v_q, p_token);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_q := kernel.delivery_read(p_space, v_q);
  v_now := kernel.kernel_now();
  UPDATE runstate.queue_leased l
     SET expires_at = kernel.lease_renewed(v_now, l.expires_at, COALESCE(p_lease_s, l.lease_s))
   WHERE l.space_id = p_space AND l.seq = (v_q).seq RETURNING l.expires_at INTO v_expires_at;
  PERFORM kernel.grants_renew_of(p_space, p_id, v_expires_at);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('leaseExpiresAt', kernel.wire_time(v_expires_at)), NULL));
END $$;

-- Settle a message as done; a task keeps p_outcome. With p_mailbox the outcome is sent on as a new message
-- (p_reply_id) in p_scope, by default the message's own, in the same transaction.
-- Refuses as delivery_enter; NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED, BACKLOG_FULL of what it sends on.
CREATE FUNCTION kernel.message_complete(p_space text, p_id uuid, p_token text, p_outcome text,
  p_reply_id uuid, p_mailbox uuid, p_scope uuid, p_work_key text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_path uuid[];
  v_wake text[];
  v_sent kernel.reply;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF p_mailbox IS NOT NULL THEN
    PERFORM 1 FROM runstate.mailboxes b WHERE b.space_id = p_space AND b.id = p_mailbox;
    IF NOT FOUND THEN
      RETURN kernel.no_mailbox(p_mailbox);
    END IF;
  END IF;
  v_reply := kernel.delivery_enter(p_space, p_id, v_q, p_token, p_mailbox, p_scope, p_work_key,
    p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_q := kernel.delivery_read(p_space, v_q);
  v_now := kernel.kernel_now();
  IF p_mailbox IS NOT NULL THEN
    SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space
       AND s.id = COALESCE(p_scope, (v_q).path[pg_catalog.cardinality((v_q).path)]);
    v_sent := kernel.message_post(p_space, p_reply_id, p_mailbox, v_path, COALESCE(p_outcome, 'null'),
      p_work_key, NULL, 0, 0);
    IF v_sent.code IS NOT NULL THEN
      RETURN v_sent;
    END IF;
    v_now := kernel.kernel_now();
  END IF;
  DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (v_q).seq;
  v_wake := kernel.message_end(p_space, v_q, 'ACKED', NULL, COALESCE(p_outcome, 'null'), NULL, v_now)
    || kernel.grants_release_of(p_space, p_id);
  PERFORM kernel.budget_settle_by(p_space, p_id, v_now + interval '1 hour');
  v_reply := kernel.done(200, CASE WHEN p_mailbox IS NULL THEN pg_catalog.json_build_object('state', 'ACKED')
    ELSE pg_catalog.json_build_object('state', 'ACKED', 'replyId', v_sent.facts ->> 'id') END, v_wake
      || v_sent.wake);
  v_reply.decide := kernel.groups_of(p_space, p_id);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Exponential backoff after the n-th attempt: 0.5 s doubling, give or take 20 %, never more than 60 s.
CREATE FUNCTION kernel.backoff_s(p_attempt int) RETURNS double precision LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(LEAST(0.5 * pg_catalog.power(2, LEAST(p_attempt, 10) - 1), 60)
    * (0.8 + 0.4 * pg_catalog.random()), 60)
$$;

-- Give a delivery back: to be retried after p_delay_s (null: backoff) while attempts are left, else DEAD;
-- p_hand_back: at once and without counting the attempt. Refuses as delivery_enter.
CREATE FUNCTION kernel.message_nack(p_space text, p_id uuid, p_token text, p_retry boolean, p_error text,
  p_delay_s double precision, p_hand_back boolean, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_at timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.delivery_enter(p_space, p_id, v_q, p_token, NULL, NULL, NULL, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_q := kernel.delivery_read(p_space, v_q);
  v_now := kernel.kernel_now();
  DELETE FROM runstate.queue_leased l WHERE l.space_id = p_space AND l.seq = (v_q).seq;
  IF p_hand_back THEN
    v_at := v_now;
    v_q.attempt := (v_q).attempt - 1;
    v_wake := kernel.message_requeue(p_space, v_q, 'message.retried', 'handed_back', v_at, NULL, v_now);
  ELSIF p_retry AND (v_q).attempt < (v_q).max_attempts THEN
    v_at := v_now + pg_catalog.make_interval(secs => COALESCE(p_delay_s, kernel.backoff_s((v_q).attempt)));
    v_wake := kernel.message_requeue(p_space, v_q, 'message.retried', 'nack', v_at, p_error, v_now);
  ELSE
    v_wake := kernel.message_end(p_space, v_q, 'DEAD', CASE WHEN p_error IS NOT NULL THEN 'handler_error: '
      || p_error
      WHEN p_retry THEN 'attempts_exhausted' ELSE 'rejected' END, NULL, p_error, v_now);
  END IF;
  v_wake := v_wake || kernel.grants_release_of(p_space, p_id) || kernel.budget_void_of(p_space, p_id);
  v_reply := kernel.done(200, CASE WHEN v_at IS NULL
    THEN pg_catalog.json_build_object('state', 'DEAD', 'attempt', (v_q).attempt)
    ELSE pg_catalog.json_build_object('state', 'READY', 'attempt', (v_q).attempt, 'availableAt',
      kernel.wire_time(v_at))
    END, v_wake);
  IF v_at IS NULL THEN
    v_reply.decide := kernel.groups_of(p_space, p_id);
  END IF;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Give a DEAD message a fresh set of attempts. Refuses: NOT_FOUND, SCOPE_CANCELLED, DEADLINE_EXCEEDED,
-- CONFLICT.
CREATE FUNCTION kernel.message_redrive(p_space text, p_id uuid, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_q kernel.queued := kernel.message_find(p_space, p_id);
  v_scope uuid := (v_q).path[pg_catalog.cardinality((v_q).path)];
  v_ended text;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  IF (v_q).id IS NULL THEN
    RETURN kernel.no_message(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, (v_q).path[1]);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.scope_refusal(p_space, v_scope, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF (v_q).inbox THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.line_key(p_space, (v_q).mailbox_id, v_scope));
  END IF;
  PERFORM 1 FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_id FOR NO KEY UPDATE;
  SELECT m.ended INTO v_ended FROM runstate.messages m WHERE m.space_id = p_space AND m.id = p_id;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, v_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  ELSIF v_ended IS DISTINCT FROM 'DEAD' THEN
    RETURN kernel.refuse('CONFLICT', 'message ' || p_id::text || ' is ' || COALESCE(v_ended, 'not settled')
      || ': only a DEAD one can be redriven');
  END IF;
  UPDATE runstate.messages m SET ended = NULL, finished_at = NULL, outcome_reason = NULL, attempt = 0
   WHERE m.space_id = p_space AND m.id = p_id;
  v_q.attempt := 0;
  v_wake := kernel.message_requeue(p_space, v_q, 'message.retried', 'redriven', v_now, NULL, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('state', 'READY'), v_wake));
END $$;
