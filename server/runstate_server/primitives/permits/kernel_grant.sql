-- Permits: the life of a grant: renew and release.

-- Why a token no longer holds a grant; null when it does, and its row is locked. p_id must exist.
CREATE FUNCTION kernel.grant_refusal(p_space text, p_id uuid, p_token text, p_now timestamptz)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_token text;
  v_ended text;
  v_expires_at timestamptz;
BEGIN
  SELECT g.token, g.ended, g.expires_at INTO v_token, v_ended, v_expires_at FROM runstate.grants g
   WHERE g.space_id = p_space AND g.id = p_id;
  IF v_token = p_token AND v_ended IS NULL AND v_expires_at > p_now THEN
    RETURN NULL;
  END IF;
  RETURN kernel.refuse('STALE_CLAIM', 'this token does not hold grant ' || p_id::text || ': ' || CASE
    WHEN v_token <> p_token THEN 'it was never given'
    WHEN v_ended = 'RELEASED' THEN 'it was released'
    ELSE 'the lease lapsed at ' || kernel.wire_time(v_expires_at) END);
END $$;

CREATE FUNCTION kernel.no_grant(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('STALE_CLAIM', 'this token holds no grant: there is no grant ' || p_id::text
    || ' in this space')
$$;

-- Extend a grant that is still alive; never shortens it. No event. Refuses: STALE_CLAIM, SCOPE_CANCELLED,
-- DEADLINE_EXCEEDED.
CREATE FUNCTION kernel.grant_renew(p_space text, p_id uuid, p_token text, p_lease_s double precision,
  p_idem text, p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid;
  v_root uuid;
  v_now timestamptz;
  v_expires_at timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT g.scope_id, g.root_id INTO v_scope, v_root FROM runstate.grants g
   WHERE g.space_id = p_space AND g.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_grant(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_root);
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.grants g WHERE g.space_id = p_space AND g.id = p_id AND g.token = p_token
    AND g.ended IS NULL FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.scope_refusal(p_space, v_scope, v_now);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.grant_refusal(p_space, p_id, p_token, v_now);
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.grants g SET expires_at = kernel.lease_renewed(v_now, g.expires_at, COALESCE(p_lease_s,
    g.lease_s)) WHERE g.space_id = p_space AND g.id = p_id RETURNING g.expires_at INTO v_expires_at;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('leaseExpiresAt', kernel.wire_time(v_expires_at)), NULL));
END $$;

-- Give units back, also in a scope that has ended. Refuses: STALE_CLAIM.
CREATE FUNCTION kernel.grant_release(p_space text, p_id uuid, p_token text, p_observation text, p_idem text,
  p_print bytea) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_pool uuid;
  v_scope uuid;
  v_units bigint;
  v_holder text;
  v_now timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT g.pool_id INTO v_pool FROM runstate.grants g WHERE g.space_id = p_space AND g.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_grant(p_id);
  END IF;
  v_reply := kernel.grant_refusal(p_space, p_id, p_token, kernel.kernel_now());
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool FOR NO KEY UPDATE;
  PERFORM 1 FROM runstate.grants g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  v_reply := kernel.grant_refusal(p_space, p_id, p_token, v_now);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.grants g SET ended = 'RELEASED', ended_at = v_now, observation = p_observation
   WHERE g.space_id = p_space AND g.id = p_id
  RETURNING g.scope_id, g.units, g.holder INTO v_scope, v_units, v_holder;
  UPDATE runstate.pools b SET units_used = b.units_used - v_units
   WHERE b.space_id = p_space AND b.id = v_pool;
  v_wake := kernel.permit_turn(p_space, v_pool, v_now);
  PERFORM kernel.permit_event(p_space, v_now, 'permit.released', v_pool, v_scope, p_id, v_units, v_holder,
    v_wake);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('released', true), v_wake));
END $$;
