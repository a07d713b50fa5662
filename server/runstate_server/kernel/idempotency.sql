-- Idempotency keys: the first outcome that changed something is kept in the transaction of its effect and
-- told again for 24 h. Locks: an advisory lock on the key, after the gates and before everything else. Table:
-- idempotency, in a ring of four slots by day (two are read, one is being filled ahead, one is emptied whole
-- by idempotency_sweep).

CREATE FUNCTION kernel.idempotency_slot(p_at timestamptz) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
  SELECT (pg_catalog.floor(EXTRACT(epoch FROM p_at) / 86400)::bigint % 4)::smallint
$$;

-- Lock the key and look. Null: first time (or no key given), go on. Else: answer with what comes back.
CREATE FUNCTION kernel.idempotency_look(p_space text, p_key text, p_fingerprint bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_today smallint;
  v_yesterday smallint;
  v_fingerprint bytea;
  v_status smallint;
  v_facts text;
BEGIN
  IF p_key IS NULL THEN
    RETURN NULL;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('idempotency', p_space, p_key));
  v_now := kernel.kernel_now();
  v_today := kernel.idempotency_slot(v_now);
  v_yesterday := kernel.idempotency_slot(v_now - interval '1 day');
  SELECT i.fingerprint, i.status, i.facts INTO v_fingerprint, v_status, v_facts FROM runstate.idempotency i
   WHERE i.slot IN (v_today, v_yesterday) AND i.space_id = p_space AND i.key = p_key
     AND i.kept_at > v_now - interval '24 hours';
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_fingerprint <> p_fingerprint THEN
    RETURN kernel.refuse('IDEMPOTENCY_CONFLICT',
      'this Idempotency-Key was used before with another method, path or body');
  END IF;
  RETURN ROW(v_status, NULL, v_facts::json, NULL, NULL, NULL, false, true, NULL, NULL, NULL)::kernel.reply;
END $$;

-- Keep the outcome of a call and pass it through. Only what changed something is kept; a row left over from
-- an earlier turn of the ring is overwritten.
CREATE FUNCTION kernel.idempotency_keep(p_space text, p_key text, p_fingerprint bytea, p_now timestamptz,
  p_reply kernel.reply) RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF p_key IS NOT NULL AND p_reply.changed THEN
    INSERT INTO runstate.idempotency AS i (slot, space_id, key, fingerprint, status, facts, kept_at)
    VALUES (kernel.idempotency_slot(p_now), p_space, p_key, p_fingerprint, p_reply.status,
      p_reply.facts::text, p_now)
    ON CONFLICT (slot, space_id, key) DO UPDATE SET fingerprint = excluded.fingerprint,
      status = excluded.status, facts = excluded.facts, kept_at = excluded.kept_at;
  END IF;
  RETURN p_reply;
END $$;

-- Empty the slot that tomorrow fills; its youngest row is two days old. TRUNCATE wants the slot alone, and
-- every call stands behind it while it waits: it waits 50 ms, enough for calls under way. While a reader (a
-- dump) holds the slot the sweep fails, and comes again.
CREATE FUNCTION kernel.idempotency_sweep(p_batch int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_slot smallint := kernel.idempotency_slot(kernel.kernel_now() + interval '1 day');
BEGIN
  PERFORM kernel.kernel_enter();
  IF p_batch < 1 OR NOT EXISTS (SELECT 1 FROM runstate.idempotency i WHERE i.slot = v_slot) THEN
    RETURN 0;
  END IF;
  PERFORM pg_catalog.set_config('lock_timeout', '50ms', true);
  CASE v_slot
    WHEN 0 THEN TRUNCATE runstate.idempotency_0;
    WHEN 1 THEN TRUNCATE runstate.idempotency_1;
    WHEN 2 THEN TRUNCATE runstate.idempotency_2;
    ELSE TRUNCATE runstate.idempotency_3;
  END CASE;
  RETURN 1;
END $$;
