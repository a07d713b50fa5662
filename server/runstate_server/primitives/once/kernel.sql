-- Once.  OPEN -> HELD (acquire) -> DONE (complete) | FAILED (fail, last attempt) | OPEN (fail, lapse, end of
-- the scope). DONE and FAILED are for good.  A lapsed lease reads as OPEN at once, whether or not anybody has
-- written it.
-- Table: once.  Locks: gate shared, idempotency key, then the key itself: its row, or an advisory lock while
-- there is none.

CREATE FUNCTION kernel.once_topic(p_space text, p_scope uuid, p_key text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('once', p_space, p_scope::text || '/' || p_key)
$$;

-- What a caller who does not get the key is told; null when the key can be taken at p_now.
CREATE FUNCTION kernel.once_answer(p_state text, p_attempts int, p_result text, p_error text,
  p_expires_at timestamptz, p_now timestamptz) RETURNS kernel.reply LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  CASE
    WHEN p_state = 'DONE' THEN
      RETURN kernel.seen(pg_catalog.json_build_object('state', 'DONE', 'attempts', p_attempts,
        'result', kernel.payload_here(0)), ARRAY[p_result], NULL);
    WHEN p_state = 'FAILED' THEN
      RETURN kernel.seen(pg_catalog.json_build_object('state', 'FAILED', 'attempts', p_attempts,
        'lastError', p_error), NULL, NULL);
    WHEN p_state = 'HELD' AND p_expires_at > p_now THEN
      RETURN kernel.seen(pg_catalog.json_build_object('state', 'HELD', 'attempts', p_attempts,
        'leaseExpiresAt', kernel.wire_time(p_expires_at)), NULL, kernel.seconds_until(p_expires_at, p_now));
    ELSE
      RETURN NULL;
  END CASE;
END $$;

-- Take the key, or learn who has it or what came of it. Not re-entrant.
-- Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED. HELD, DONE and FAILED are answers.
CREATE FUNCTION kernel.once_acquire(p_space text, p_scope uuid, p_key text, p_holder text, p_session text,
  p_lease_s double precision, p_token text, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_found boolean;
  v_state text;
  v_attempts int;
  v_result text;
  v_error text;
  v_expires_at timestamptz;
  v_old_holder text;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT o.state, o.attempts, o.result, o.last_error, o.expires_at
    INTO v_state, v_attempts, v_result, v_error, v_expires_at
    FROM runstate.once o WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  v_found := FOUND;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.once_answer(v_state, v_attempts, v_result, v_error, v_expires_at, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF NOT v_found THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('once', p_space, p_scope::text || '/' || p_key));
  END IF;
  SELECT o.state, o.attempts, o.result, o.last_error, o.expires_at, o.holder
    INTO v_state, v_attempts, v_result, v_error, v_expires_at, v_old_holder
    FROM runstate.once o WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key
      FOR NO KEY UPDATE;
  v_found := FOUND;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.once_answer(v_state, v_attempts, v_result, v_error, v_expires_at, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  RETURN kernel.once_grant(p_space, v_path, p_key, p_holder, p_session, p_lease_s, p_token, p_idem, p_print,
    v_now, v_attempts, CASE WHEN v_state = 'HELD' THEN v_old_holder END);
END $$;

-- Write the new holder and the events of it; the key is locked and free. p_lapsed: the holder whose lease had
-- lapsed. p_attempts is null when the key has no row yet.
CREATE FUNCTION kernel.once_grant(p_space text, p_path uuid[], p_key text, p_holder text, p_session text,
  p_lease_s double precision, p_token text, p_idem text, p_print bytea, p_now timestamptz, p_attempts int,
  p_lapsed text) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_expires_at timestamptz := kernel.lease_end(p_now, p_lease_s);
  v_wake text[] := ARRAY[kernel.once_topic(p_space, v_scope, p_key)];
  v_attempts int := COALESCE(p_attempts, 0);
BEGIN
  IF p_attempts IS NULL THEN
    INSERT INTO runstate.once (space_id, scope_id, key, root_id, state, attempts, holder, session, token,
      expires_at, due_at, created_at)
    VALUES (p_space, v_scope, p_key, p_path[1], 'HELD', 0, p_holder, p_session, p_token, v_expires_at,
      v_expires_at, p_now);
  ELSE
    UPDATE runstate.once o SET state = 'HELD', holder = p_holder, session = p_session, token = p_token,
      expires_at = v_expires_at, due_at = v_expires_at
     WHERE o.space_id = p_space AND o.scope_id = v_scope AND o.key = p_key;
  END IF;
  IF p_lapsed IS NOT NULL THEN
    PERFORM kernel.event(p_space, p_now, 'once.lapsed', p_path, 'once', p_key,
      pg_catalog.json_build_object('key', p_key, 'holder', p_lapsed, 'reason', 'lease_expired'), v_wake);
  END IF;
  PERFORM kernel.event(p_space, p_now, 'once.acquired', p_path, 'once', p_key,
    pg_catalog.json_build_object('key', p_key, 'holder', p_holder, 'attempts', v_attempts,
      'leaseExpiresAt', kernel.wire_time(v_expires_at)), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, p_now, kernel.done(200,
    pg_catalog.json_build_object('state', 'ACQUIRED', 'attempts', v_attempts, 'token', p_token,
      'leaseExpiresAt', kernel.wire_time(v_expires_at)), v_wake));
END $$;

-- Read a key. In a scope that has ended a lease reads as OPEN. Locks: none. Refuses: NOT_FOUND (scope).
CREATE FUNCTION kernel.once_view(p_space text, p_scope uuid, p_key text) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_effective text;
  v_deadline timestamptz;
  v_root uuid;
  v_state text := 'OPEN';
  v_attempts int := 0;
  v_result text;
  v_error text;
  v_holder text;
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  SELECT kernel.effective_at(s.effective, s.effective_deadline, v_now), s.effective_deadline, s.root_id
    INTO v_effective, v_deadline, v_root
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF NOT FOUND THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  SELECT o.state, o.attempts, o.result, o.last_error, o.holder, o.expires_at
    INTO v_state, v_attempts, v_result, v_error, v_holder, v_expires_at
    FROM runstate.once o WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  IF v_effective <> 'ACTIVE' THEN
    v_expires_at := NULL;
  END IF;
  v_reply := kernel.once_answer(v_state, v_attempts, v_result, v_error, v_expires_at, v_now);
  IF v_reply.changed IS NULL THEN
    RETURN kernel.seen(pg_catalog.json_strip_nulls(pg_catalog.json_build_object('state', 'OPEN',
      'attempts', COALESCE(v_attempts, 0), 'lastError', v_error)), NULL, NULL);
  ELSIF v_state = 'HELD' THEN
    v_reply.facts := pg_catalog.json_strip_nulls(pg_catalog.json_build_object('state', 'HELD', 'attempts',
      v_attempts, 'holder', v_holder, 'leaseExpiresAt', kernel.wire_time(v_expires_at), 'lastError',
        v_error));
    v_reply.again_s := LEAST(v_reply.again_s, kernel.seconds_until(v_deadline, v_now));
    v_reply.sleep := ARRAY[kernel.once_topic(p_space, p_scope, p_key),
      kernel.topic('scope', p_space, v_root::text)];
  END IF;
  RETURN v_reply;
END $$;

-- Lock the key and check that p_token still holds it, before renew, complete and fail. Looks before it locks.
-- Null: it does. Refuses: SCOPE_CANCELLED, DEADLINE_EXCEEDED, STALE_CLAIM (never NOT_FOUND for a key).
CREATE FUNCTION kernel.once_fence(p_space text, p_scope uuid, p_key text, p_token text, p_lock boolean)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_state text;
  v_token text;
  v_holder text;
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  IF p_lock THEN
    PERFORM 1 FROM runstate.once o
      WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key FOR NO KEY UPDATE;
  END IF;
  SELECT o.state, o.token, o.holder, o.expires_at INTO v_state, v_token, v_holder, v_expires_at
    FROM runstate.once o WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF v_state = 'HELD' AND v_token = p_token AND v_expires_at > v_now THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('STALE_CLAIM', 'this token no longer holds once key "' || p_key || '": ' || CASE
    WHEN v_state IS NULL THEN 'nobody has acquired it in this scope'
    WHEN v_state <> 'HELD' THEN 'it is ' || v_state
    WHEN v_token = p_token THEN 'the lease lapsed at ' || kernel.wire_time(v_expires_at)
    WHEN v_expires_at <= v_now THEN 'it is OPEN'
    ELSE '"' || v_holder || '" holds it until ' || kernel.wire_time(v_expires_at) END);
END $$;

-- First steps of renew, complete and fail: gate, idempotency key, look, lock, look again. Null: the token
-- holds the key.
CREATE FUNCTION kernel.once_enter(p_space text, p_path uuid[], p_key text, p_token text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_reply kernel.reply;
BEGIN
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.once_fence(p_space, v_scope, p_key, p_token, false);
  END IF;
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.once_fence(p_space, v_scope, p_key, p_token, true);
  END IF;
  RETURN v_reply;
END $$;

-- Extend a lease that is still alive; never shortens it. No event.
-- Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, STALE_CLAIM (also lapsed with no new
-- owner).
CREATE FUNCTION kernel.once_renew(p_space text, p_scope uuid, p_key text, p_token text,
  p_lease_s double precision, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.once_enter(p_space, v_path, p_key, p_token, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  UPDATE runstate.once o SET expires_at = kernel.lease_renewed(v_now, o.expires_at, p_lease_s)
   WHERE o.space_id = p_space AND o.scope_id = p_scope
     AND o.key = p_key RETURNING o.expires_at INTO v_expires_at;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('leaseExpiresAt', kernel.wire_time(v_expires_at)), NULL));
END $$;

-- Record the one result. Refuses as renew.
CREATE FUNCTION kernel.once_complete(p_space text, p_scope uuid, p_key text, p_token text, p_result text,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_holder text;
  v_attempts int;
  v_wake text[] := ARRAY[kernel.once_topic(p_space, p_scope, p_key)];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.once_enter(p_space, v_path, p_key, p_token, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  SELECT o.holder INTO v_holder FROM runstate.once o
   WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  UPDATE runstate.once o SET state = 'DONE', result = p_result, last_error = NULL, holder = NULL,
    session = NULL, token = NULL, expires_at = NULL, due_at = NULL, ended_at = v_now
   WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key RETURNING o.attempts INTO v_attempts;
  PERFORM kernel.event(p_space, v_now, 'once.completed', v_path, 'once', p_key,
    pg_catalog.json_build_object('key', p_key, 'holder', v_holder, 'attempts', v_attempts), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('state', 'DONE'), v_wake));
END $$;

-- Record a failed attempt; the key opens again, or is FAILED for good when this was the last one allowed.
-- Refuses as renew.
CREATE FUNCTION kernel.once_fail(p_space text, p_scope uuid, p_key text, p_token text, p_error text,
  p_max_attempts int, p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
  v_holder text;
  v_attempts int;
  v_state text;
  v_wake text[] := ARRAY[kernel.once_topic(p_space, p_scope, p_key)];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.gate_pass(p_space, p_scope);
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_reply := kernel.once_enter(p_space, v_path, p_key, p_token, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  SELECT o.holder, o.attempts + 1 INTO v_holder, v_attempts FROM runstate.once o
   WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  v_state := CASE WHEN v_attempts >= p_max_attempts THEN 'FAILED' ELSE 'OPEN' END;
  UPDATE runstate.once o SET state = v_state, attempts = v_attempts, last_error = p_error, holder = NULL,
    session = NULL, token = NULL, expires_at = NULL, due_at = NULL,
    ended_at = CASE WHEN v_state = 'FAILED' THEN v_now END
   WHERE o.space_id = p_space AND o.scope_id = p_scope AND o.key = p_key;
  PERFORM kernel.event(p_space, v_now, 'once.failed', v_path, 'once', p_key,
    pg_catalog.json_build_object('key', p_key, 'holder', v_holder, 'attempts', v_attempts, 'state', v_state),
      v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('state', v_state, 'attempts', v_attempts), v_wake));
END $$;

-- Open keys whose lease lapsed, so that sleepers wake and the journal says so. due_at is the coarse index of
-- expires_at: renewals leave it alone (they stay HOT), and a row found renewed is put off until its new end.
-- Locks: gates and rows, only tried. Index: once_due.
CREATE FUNCTION kernel.once_sweep(p_batch int, OUT count int, OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_due timestamptz := kernel.kernel_now();
  v_now timestamptz;
  v_space text;
  v_scope uuid;
  v_key text;
  v_root uuid;
  v_holder text;
  v_expires_at timestamptz;
  v_topic text;
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}';
  FOR v_space, v_scope, v_key, v_root IN
    SELECT o.space_id, o.scope_id, o.key, o.root_id FROM runstate.once o
     WHERE o.state = 'HELD' AND o.due_at <= v_due ORDER BY o.due_at LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_root);
    SELECT o.holder, o.expires_at INTO v_holder, v_expires_at FROM runstate.once o
     WHERE o.space_id = v_space AND o.scope_id = v_scope AND o.key = v_key AND o.state = 'HELD'
       FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_now := kernel.kernel_now();
    IF v_expires_at > v_now THEN
      UPDATE runstate.once o SET due_at = v_expires_at
       WHERE o.space_id = v_space AND o.scope_id = v_scope AND o.key = v_key;
      CONTINUE;
    END IF;
    UPDATE runstate.once o SET state = 'OPEN', holder = NULL, session = NULL, token = NULL, expires_at = NULL,
      due_at = NULL WHERE o.space_id = v_space AND o.scope_id = v_scope AND o.key = v_key;
    v_topic := kernel.once_topic(v_space, v_scope, v_key);
    PERFORM kernel.event(v_space, v_now, 'once.lapsed', s.path, 'once', v_key, pg_catalog.json_build_object(
      'key', v_key, 'holder', v_holder, 'reason', 'lease_expired'), ARRAY[v_topic])
      FROM runstate.scopes s WHERE s.space_id = v_space AND s.id = v_scope;
    count := count + 1;
    wake := wake || v_topic;
  END LOOP;
END $$;

-- How many leases are held in the subtree that a path leads to, lapsed ones too while nobody ended them.
CREATE FUNCTION kernel.once_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT 1 FROM runstate.once o WHERE i.scopes IS NULL AND o.space_id = p_space
         AND o.root_id = p_path[1] AND o.state = 'HELD'
      UNION ALL
      SELECT 1 FROM runstate.once o WHERE o.space_id = p_space AND o.root_id = p_path[1]
         AND o.state = 'HELD' AND o.scope_id = ANY (i.scopes)) h
$$;

-- End the leases held in the subtree that a path leads to, p_limit at most: called by the end of a scope,
-- with the gate held alone or the scope ended. Returns how many it met.
CREATE FUNCTION kernel.once_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz, p_limit int)
RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scopes uuid[] := kernel.scopes_within(p_space, p_path);
  v_scope uuid;
  v_key text;
  v_holder text;
  v_count int := 0;
BEGIN
  FOR v_scope, v_key, v_holder IN
    SELECT h.scope_id, h.key, h.holder FROM (
      SELECT o.scope_id, o.key, o.holder FROM runstate.once o WHERE v_scopes IS NULL
         AND o.space_id = p_space AND o.root_id = p_path[1] AND o.state = 'HELD'
      UNION ALL
      SELECT o.scope_id, o.key, o.holder FROM runstate.once o
       WHERE o.space_id = p_space AND o.root_id = p_path[1] AND o.state = 'HELD'
         AND o.scope_id = ANY (v_scopes)) h LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    UPDATE runstate.once o SET state = 'OPEN', holder = NULL, session = NULL, token = NULL, expires_at = NULL,
      due_at = NULL WHERE o.space_id = p_space AND o.scope_id = v_scope AND o.key = v_key
        AND o.state = 'HELD';
    CONTINUE WHEN NOT FOUND;  -- a sweep has just ended it
    PERFORM kernel.event(p_space, p_now, 'once.lapsed', s.path, 'once', v_key, pg_catalog.json_build_object(
      'key', v_key, 'holder', v_holder, 'reason', p_reason),
      ARRAY[kernel.once_topic(p_space, v_scope, v_key)])
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = v_scope;
  END LOOP;
  RETURN v_count;
END $$;
