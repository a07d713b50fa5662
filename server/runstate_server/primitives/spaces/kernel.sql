-- Spaces and keys.  A space is a tenant; a key covers one or more of them. Only the SHA-256 of a key is
-- stored.
-- Tables: spaces, api_keys, api_key_spaces.  Locks: none beyond the rows written.

-- Find the key with this hash. Facts: {id, label, permissions, expiresInSeconds, spaces: [{id, suspended}]}.
-- Notes its use at most once a minute. Refuses: UNAUTHENTICATED (unknown, revoked or expired: one answer for
-- all).
CREATE FUNCTION kernel.key_find(p_hash bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_id uuid;
  v_home text;
  v_label text;
  v_permissions text[];
  v_expires_at timestamptz;
  v_used_at timestamptz;
  v_spaces json;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT k.id, k.space_id, k.label, k.permissions, k.expires_at, k.last_used_at
    INTO v_id, v_home, v_label, v_permissions, v_expires_at, v_used_at FROM runstate.api_keys k
   WHERE k.hash = p_hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > v_now);
  IF NOT FOUND THEN
    RETURN kernel.refuse('UNAUTHENTICATED', 'this API key is not valid');
  END IF;
  IF v_used_at IS NULL OR v_used_at < v_now - interval '1 minute' THEN
    UPDATE runstate.api_keys k SET last_used_at = v_now WHERE k.space_id = v_home AND k.id = v_id;
  END IF;
  SELECT pg_catalog.json_agg(pg_catalog.json_build_object('id', s.id, 'suspended', s.suspended) ORDER BY s.id)
    INTO v_spaces FROM runstate.api_key_spaces c JOIN runstate.spaces s ON s.id = c.space_id
   WHERE c.key_id = v_id;
  RETURN kernel.seen(pg_catalog.json_build_object('id', v_id, 'label', v_label,
    'permissions', pg_catalog.array_to_json(v_permissions),
    'expiresInSeconds', kernel.seconds_until(v_expires_at, v_now), 'spaces', COALESCE(v_spaces, '[]')), NULL,
      NULL);
END $$;

-- Create a space and a key with all permissions if they are missing: the bootstrap variables and `runstate
-- dev`. A key that exists already covers the space from now on. Facts: {createdSpace, createdKey}.
CREATE FUNCTION kernel.space_bootstrap(p_space text, p_key_id uuid, p_hash bytea, p_label text)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space boolean;
  v_key boolean;
  v_id uuid;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('bootstrap', '', ''));
  INSERT INTO runstate.spaces (id, name, suspended, created_at) VALUES (p_space, p_space, false, v_now)
  ON CONFLICT (id) DO NOTHING;
  v_space := FOUND;
  INSERT INTO runstate.api_keys (space_id, id, label, hash, permissions, created_at)
  VALUES (p_space, p_key_id, p_label, p_hash, '{runtime,observe,resource_config,space_admin}', v_now)
  ON CONFLICT (hash) DO NOTHING;
  v_key := FOUND;
  SELECT k.id INTO v_id FROM runstate.api_keys k WHERE k.hash = p_hash;
  INSERT INTO runstate.api_key_spaces (space_id, key_id) VALUES (p_space, v_id) ON CONFLICT (space_id,
    key_id) DO NOTHING;
  IF v_key THEN
    PERFORM kernel.event(p_space, v_now, 'key.created', NULL, 'key', v_id::text,
      pg_catalog.json_build_object('label', p_label), NULL);
  END IF;
  RETURN kernel.done(200, pg_catalog.json_build_object('createdSpace', v_space, 'createdKey', v_key), NULL);
END $$;

CREATE FUNCTION kernel.space_facts(p_id text) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', s.id, 'name', s.name, 'suspended', s.suspended,
    'limits', COALESCE(s.limits, '{}')::json, 'createdAt', kernel.wire_time(s.created_at))
  FROM runstate.spaces s WHERE s.id = p_id
$$;

CREATE FUNCTION kernel.no_space(p_id text) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'space ' || p_id || ' does not exist')
$$;

-- Create a space. Locks: idempotency key. Refuses: CONFLICT (the id exists).
CREATE FUNCTION kernel.space_create(p_id text, p_name text, p_limits text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_id, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  INSERT INTO runstate.spaces (id, name, suspended, limits, created_at) VALUES (p_id, p_name, false, p_limits,
    v_now)
  ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'space ' || p_id || ' exists already');
  END IF;
  RETURN kernel.idempotency_keep(p_id, p_idem, p_print, v_now, kernel.done(201, kernel.space_facts(p_id),
    NULL));
END $$;

-- Suspend or resume a space, change its limits (whole, JSON text); null leaves a thing as it is.
-- Locks: the row. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.space_change(p_id text, p_suspended boolean, p_limits text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_id, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.spaces s SET suspended = COALESCE(p_suspended, s.suspended),
    limits = COALESCE(p_limits, s.limits)
   WHERE s.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_space(p_id);
  END IF;
  RETURN kernel.idempotency_keep(p_id, p_idem, p_print, kernel.kernel_now(),
    kernel.done(200, kernel.space_facts(p_id), NULL));
END $$;

-- A key as its administrators see it; never its hash.
CREATE FUNCTION kernel.key_facts(p_space text, p_id uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', k.id, 'label', k.label,
    'permissions', pg_catalog.array_to_json(k.permissions),
    'spaces', (SELECT pg_catalog.json_agg(c.space_id ORDER BY c.space_id) FROM runstate.api_key_spaces c
                WHERE c.key_id = k.id),
    'createdAt', kernel.wire_time(k.created_at), 'expiresAt', kernel.wire_time(k.expires_at),
    'lastUsedAt', kernel.wire_time(k.last_used_at), 'revokedAt', kernel.wire_time(k.revoked_at))
  FROM runstate.api_keys k WHERE k.space_id = p_space AND k.id = p_id
$$;

-- Create a key of a space that covers p_also too. Locks: idempotency key. Refuses: NOT_FOUND (any of the
-- spaces).
CREATE FUNCTION kernel.key_create(p_space text, p_id uuid, p_hash bytea, p_label text, p_permissions text[],
  p_expires_at timestamptz, p_also text[], p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_missing text;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT a.id INTO v_missing FROM pg_catalog.unnest(p_space || p_also) WITH ORDINALITY a (id, n)
   WHERE NOT EXISTS (SELECT 1 FROM runstate.spaces s WHERE s.id = a.id) ORDER BY a.n LIMIT 1;
  IF FOUND THEN
    RETURN kernel.no_space(v_missing);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  INSERT INTO runstate.api_keys (space_id, id, label, hash, permissions, created_at, expires_at)
  VALUES (p_space, p_id, p_label, p_hash, p_permissions, v_now, p_expires_at);
  INSERT INTO runstate.api_key_spaces (space_id, key_id)
  SELECT DISTINCT a.id, p_id FROM pg_catalog.unnest(p_space || p_also) a (id);
  PERFORM kernel.event(p_space, v_now, 'key.created', NULL, 'key', p_id::text, pg_catalog.json_build_object(
    'label', p_label, 'permissions', pg_catalog.array_to_json(p_permissions)), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now,
    kernel.done(201, kernel.key_facts(p_space, p_id), NULL));
END $$;

-- Revoke a key of a space; repeating is a no-op. Locks: the row. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.key_revoke(p_space text, p_id uuid, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_facts json;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_facts := kernel.key_facts(p_space, p_id);
  IF v_facts IS NULL THEN
    RETURN kernel.refuse('NOT_FOUND', 'key ' || p_id::text || ' does not exist in this space');
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_now := kernel.kernel_now();
  UPDATE runstate.api_keys k SET revoked_at = v_now WHERE k.space_id = p_space AND k.id = p_id
    AND k.revoked_at IS NULL;
  IF NOT FOUND THEN
    RETURN kernel.seen(kernel.key_facts(p_space, p_id), NULL, NULL);
  END IF;
  PERFORM kernel.event(p_space, v_now, 'key.revoked', NULL, 'key', p_id::text, pg_catalog.json_build_object(
    'label', v_facts ->> 'label'), NULL);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now,
    kernel.done(200, kernel.key_facts(p_space, p_id), NULL));
END $$;
