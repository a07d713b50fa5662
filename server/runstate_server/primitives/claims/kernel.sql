-- Claims.  FREE -> HELD (acquire) -> FREE (release, lapse, end of the scope).  generation grows by one with
-- every owner. A lapsed lease reads as FREE at once. A free key keeps its last token and holder, so that a
-- late caller learns what became of its lease. Table: claims.  Locks: gate shared, idempotency key, then the
-- key: its row, or an advisory lock while there is none.

CREATE FUNCTION kernel.claim_topic(p_space text, p_scope uuid, p_key text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('claim', p_space, p_scope::text || '/' || p_key)
$$;

-- The refusal of a key that is held at p_now, null when it is free. A waiting caller may sleep on it, in
-- turns with others, until the lease lapses or the scope does.
CREATE FUNCTION kernel.claim_held(p_space text, p_path uuid[], p_key text, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_holder text;
  v_expires_at timestamptz;
  v_deadline timestamptz;
  v_reply kernel.reply;
BEGIN
  SELECT c.holder, c.expires_at INTO v_holder, v_expires_at FROM runstate.claims c
   WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = p_key AND c.held;
  IF NOT FOUND OR v_expires_at <= p_now THEN
    RETURN NULL;
  END IF;
  v_reply := kernel.refuse('CLAIM_HELD', 'claim "' || p_key || '" is held by "' || v_holder || '" until '
    || kernel.wire_time(v_expires_at));
  v_reply.facts := pg_catalog.json_build_object('message', v_reply.facts ->> 'message', 'retryAfter',
    kernel.seconds_until(v_expires_at, p_now));
  SELECT s.effective_deadline INTO v_deadline FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = v_scope;
  v_reply.again_s := kernel.seconds_until(LEAST(v_expires_at, v_deadline), p_now);
  v_reply.sleep := ARRAY['+' || kernel.claim_topic(p_space, v_scope, p_key),
    kernel.topic('scope', p_space, p_path[1]::text)];
  RETURN v_reply;
END $$;

-- Take a key. Not re-entrant. Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED, CLAIM_HELD.
CREATE FUNCTION kernel.claim_acquire(p_space text, p_scope uuid, p_key text, p_holder text, p_session text,
  p_lease_s double precision, p_token text, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[];
  v_now timestamptz;
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
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.claim_held(p_space, v_path, p_key, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.claims c WHERE c.space_id = p_space AND c.scope_id = p_scope AND c.key = p_key
    FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('claim', p_space, p_scope::text || '/'
      || p_key));
    PERFORM 1 FROM runstate.claims c WHERE c.space_id = p_space AND c.scope_id = p_scope AND c.key = p_key
      FOR NO KEY UPDATE;
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, p_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.claim_held(p_space, v_path, p_key, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_reply := kernel.claim_grant(p_space, v_path, p_key, p_holder, p_session, p_lease_s, p_token, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Write the new holder with the next generation, and the events of it; the key is locked and free.
CREATE FUNCTION kernel.claim_grant(p_space text, p_path uuid[], p_key text, p_holder text, p_session text,
  p_lease_s double precision, p_token text, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_expires_at timestamptz := kernel.lease_end(p_now, p_lease_s);
  v_topic text := kernel.claim_topic(p_space, v_scope, p_key);
  v_lapsed text;
  v_generation bigint;
  v_reply kernel.reply;
BEGIN
  SELECT CASE WHEN c.held THEN c.holder END, c.generation INTO v_lapsed, v_generation FROM runstate.claims c
   WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = p_key;
  v_generation := GREATEST(COALESCE(v_generation, 0), kernel.generation_floor()) + 1;
  INSERT INTO runstate.claims AS c (space_id, scope_id, key, root_id, held, generation, token, holder,
    session, lease_s, expires_at, due_at, created_at)
  VALUES (p_space, v_scope, p_key, p_path[1], true, v_generation, p_token, p_holder, p_session, p_lease_s,
    v_expires_at, v_expires_at, p_now)
  ON CONFLICT (space_id, scope_id, key) DO UPDATE SET held = true, generation = excluded.generation,
    token = excluded.token, holder = excluded.holder, session = excluded.session, lease_s = excluded.lease_s,
    expires_at = excluded.expires_at, due_at = excluded.due_at;
  IF v_lapsed IS NOT NULL THEN
    PERFORM kernel.event(p_space, p_now, 'claim.lapsed', p_path, 'claim', p_key, pg_catalog.json_build_object(
      'key', p_key, 'holder', v_lapsed, 'reason', 'lease_expired'), ARRAY['+' || v_topic]);
  END IF;
  PERFORM kernel.event(p_space, p_now, 'claim.acquired', p_path, 'claim', p_key, pg_catalog.json_build_object(
    'key', p_key, 'holder', p_holder, 'generation', v_generation::text,
    'leaseExpiresAt', kernel.wire_time(v_expires_at)), NULL);
  v_reply := kernel.done(201, pg_catalog.json_build_object('key', p_key, 'scopeId', v_scope,
    'generation', v_generation::text, 'token', p_token, 'leaseExpiresAt', kernel.wire_time(v_expires_at)),
      NULL);
  v_reply.again_s := p_lease_s;
  v_reply.sleep := ARRAY['+' || v_topic];
  RETURN v_reply;
END $$;

-- The path of the scope whose claim this token was last given; null when there is none. The token alone picks
-- the claim among the scopes that hold the key.
CREATE FUNCTION kernel.claim_find(p_space text, p_key text, p_token text)
RETURNS uuid[] LANGUAGE sql VOLATILE AS $$
  SELECT (SELECT s.path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = c.scope_id)
    FROM runstate.claims c WHERE c.space_id = p_space AND c.token = p_token AND c.key = p_key
$$;

-- First steps of renew and release, on the path that claim_find found. Null: the token holds the claim, its
-- row is locked. p_tell_end: a scope that has ended is refused as such (renew), else as STALE_CLAIM
-- (release).
-- Refuses: STALE_CLAIM (never NOT_FOUND), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
CREATE FUNCTION kernel.claim_enter(p_space text, p_path uuid[], p_key text, p_token text, p_tell_end boolean,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_scope uuid := p_path[pg_catalog.cardinality(p_path)];
  v_held boolean;
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  IF p_path IS NOT NULL THEN
    PERFORM kernel.gate_shared(p_space, p_path[1]);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.claims c WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = p_key
    AND c.token = p_token AND c.held FOR NO KEY UPDATE;
  SELECT c.held, c.expires_at INTO v_held, v_expires_at FROM runstate.claims c
   WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = p_key AND c.token = p_token;
  v_now := kernel.kernel_now();
  IF v_scope IS NOT NULL THEN
    v_reply := kernel.scope_refusal(p_space, v_scope, v_now);
    IF v_reply.changed IS NOT NULL AND p_tell_end THEN
      RETURN v_reply;
    END IF;
  END IF;
  IF v_held AND v_expires_at > v_now AND v_reply.changed IS NULL THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('STALE_CLAIM', 'this token no longer holds claim "' || p_key || '": ' || CASE
    WHEN v_held IS NULL THEN 'it was never given, or another has taken the key over'
    WHEN v_held AND v_expires_at <= v_now THEN 'the lease lapsed at ' || kernel.wire_time(v_expires_at)
    WHEN v_held THEN 'its scope has ended'
    ELSE 'it was released, or its lease has ended' END);
END $$;

-- Extend a lease that is still alive; never shortens it; without p_lease_s by the lease's own length. No
-- event.
CREATE FUNCTION kernel.claim_renew(p_space text, p_key text, p_token text, p_lease_s double precision,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_path uuid[];
  v_expires_at timestamptz;
  v_generation bigint;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.claim_find(p_space, p_key, p_token);
  v_reply := kernel.claim_enter(p_space, v_path, p_key, p_token, true, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  UPDATE runstate.claims c
     SET expires_at = kernel.lease_renewed(v_now, c.expires_at, COALESCE(p_lease_s, c.lease_s))
   WHERE c.space_id = p_space AND c.scope_id = v_path[pg_catalog.cardinality(v_path)] AND c.key = p_key
  RETURNING c.expires_at, c.generation INTO v_expires_at, v_generation;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object(
    'leaseExpiresAt', kernel.wire_time(v_expires_at), 'generation', v_generation::text), NULL));
END $$;

-- Give a key up. p_observation, JSON text, stays for the next owner to read; null leaves the last one.
CREATE FUNCTION kernel.claim_release(p_space text, p_key text, p_token text, p_observation text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_path uuid[];
  v_scope uuid;
  v_holder text;
  v_generation bigint;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_path := kernel.claim_find(p_space, p_key, p_token);
  v_reply := kernel.claim_enter(p_space, v_path, p_key, p_token, false, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  v_scope := v_path[pg_catalog.cardinality(v_path)];
  UPDATE runstate.claims c SET held = false, expires_at = NULL, due_at = NULL,
    observation = COALESCE(p_observation, c.observation)
   WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = p_key
  RETURNING c.holder, c.generation INTO v_holder, v_generation;
  v_wake := ARRAY['+' || kernel.claim_topic(p_space, v_scope, p_key)];
  PERFORM kernel.event(p_space, v_now, 'claim.released', v_path, 'claim', p_key, pg_catalog.json_build_object(
    'key', p_key, 'holder', v_holder, 'generation', v_generation::text), v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('released', true), v_wake));
END $$;

-- Read a key, never its token. Locks: none. Refuses: NOT_FOUND (scope).
CREATE FUNCTION kernel.claim_view(p_space text, p_scope uuid, p_key text) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_active boolean;
  v_held boolean;
  v_holder text;
  v_generation bigint;
  v_expires_at timestamptz;
  v_observation text;
BEGIN
  SELECT kernel.effective_at(s.effective, s.effective_deadline, v_now) = 'ACTIVE' INTO v_active
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF NOT FOUND THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  SELECT c.held AND c.expires_at > v_now AND v_active, c.holder, c.generation, c.expires_at, c.observation
    INTO v_held, v_holder, v_generation, v_expires_at, v_observation FROM runstate.claims c
   WHERE c.space_id = p_space AND c.scope_id = p_scope AND c.key = p_key;
  RETURN kernel.seen(pg_catalog.json_build_object('key', p_key, 'scopeId', p_scope,
    'state', CASE WHEN v_held THEN 'HELD' ELSE 'FREE' END, 'holder', CASE WHEN v_held THEN v_holder END,
    'generation', v_generation::text, 'leaseExpiresAt', CASE WHEN v_held
      THEN kernel.wire_time(v_expires_at) END, 'observation', kernel.payload_here(0)),
        ARRAY[COALESCE(v_observation, 'null')], NULL);
END $$;

-- Free keys whose lease lapsed; as once_sweep. Index: claims_due.
CREATE FUNCTION kernel.claim_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
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
    SELECT c.space_id, c.scope_id, c.key, c.root_id FROM runstate.claims c
     WHERE c.held AND c.due_at <= v_due ORDER BY c.due_at LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_root);
    SELECT c.holder, c.expires_at INTO v_holder, v_expires_at FROM runstate.claims c
     WHERE c.space_id = v_space AND c.scope_id = v_scope AND c.key = v_key AND c.held
       FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_now := kernel.kernel_now();
    IF v_expires_at > v_now THEN
      UPDATE runstate.claims c SET due_at = v_expires_at
       WHERE c.space_id = v_space AND c.scope_id = v_scope AND c.key = v_key;
      CONTINUE;
    END IF;
    UPDATE runstate.claims c SET held = false, expires_at = NULL, due_at = NULL
     WHERE c.space_id = v_space AND c.scope_id = v_scope AND c.key = v_key;
    v_topic := '+' || kernel.claim_topic(v_space, v_scope, v_key);
    PERFORM kernel.event(v_space, v_now, 'claim.lapsed', s.path, 'claim', v_key, pg_catalog.json_build_object(
      'key', v_key, 'holder', v_holder, 'reason', 'lease_expired'), ARRAY[v_topic])
      FROM runstate.scopes s WHERE s.space_id = v_space AND s.id = v_scope;
    count := count + 1;
    wake := wake || v_topic;
  END LOOP;
END $$;

-- How many claims are held in the subtree that a path leads to; as once_left.
CREATE FUNCTION kernel.claim_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT 1 FROM runstate.claims c WHERE i.scopes IS NULL AND c.space_id = p_space
         AND c.root_id = p_path[1] AND c.held
      UNION ALL
      SELECT 1 FROM runstate.claims c WHERE c.space_id = p_space AND c.root_id = p_path[1] AND c.held
         AND c.scope_id = ANY (i.scopes)) h
$$;

-- End the claims held in the subtree that a path leads to, p_limit at most; as once_end.
CREATE FUNCTION kernel.claim_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz, p_limit int)
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
      SELECT c.scope_id, c.key, c.holder FROM runstate.claims c WHERE v_scopes IS NULL
         AND c.space_id = p_space AND c.root_id = p_path[1] AND c.held
      UNION ALL
      SELECT c.scope_id, c.key, c.holder FROM runstate.claims c
       WHERE c.space_id = p_space AND c.root_id = p_path[1] AND c.held
         AND c.scope_id = ANY (v_scopes)) h LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    UPDATE runstate.claims c SET held = false, expires_at = NULL, due_at = NULL
     WHERE c.space_id = p_space AND c.scope_id = v_scope AND c.key = v_key AND c.held;
    CONTINUE WHEN NOT FOUND;  -- a sweep has just ended it
    PERFORM kernel.event(p_space, p_now, 'claim.lapsed', s.path, 'claim', v_key, pg_catalog.json_build_object(
      'key', v_key, 'holder', v_holder, 'reason', p_reason), NULL)
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = v_scope;
  END LOOP;
  RETURN v_count;
END $$;
