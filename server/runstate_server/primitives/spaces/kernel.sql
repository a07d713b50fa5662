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
