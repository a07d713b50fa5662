-- Permits: what admission takes for a delivery, and how it comes back: with the lease, or with what ends it.
-- Such a grant has the end of its delivery's lease, which moves both: so neither outlives the other.

-- What a pool has for one who stands in its line since p_since: less what those before him keep. Nothing
-- while one who waits stands before him.
CREATE FUNCTION kernel.pool_left(p_space text, p_pool uuid, p_since timestamptz, p_now timestamptz)
RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN h.id IS NOT NULL AND h.gone IS NULL AND h.since <= p_since THEN 0
      ELSE b.units_total - b.units_used - b.units_signaled
        - kernel.line_holds(p_space, p_pool, p_since, p_now) END
    FROM runstate.pools b CROSS JOIN LATERAL kernel.line_head(p_space, p_pool, b.units_total, p_now) h
   WHERE b.space_id = p_space AND b.id = p_pool
$$;

-- Take units for a delivery; the pool's row is locked and has them.
CREATE FUNCTION kernel.pool_take(p_space text, p_pool uuid, p_path uuid[], p_units bigint, p_holder text,
  p_session text, p_lease_s double precision, p_token text, p_message uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE runstate.pools b SET units_used = b.units_used + p_units
   WHERE b.space_id = p_space AND b.id = p_pool;
  PERFORM kernel.grant_insert(p_space, pg_catalog.gen_random_uuid(), p_pool, p_path, p_units, p_holder,
    p_session, p_lease_s, p_token, p_message, p_now);
END $$;

-- Lock the pools in which these deliveries hold units, in their order: what a call that ends several locks
-- before it gives the first one's back.
CREATE FUNCTION kernel.pools_lock_of(p_space text, p_messages uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_pool uuid;
BEGIN
  FOR v_pool IN
    WITH held AS MATERIALIZED (
      SELECT g.pool_id FROM pg_catalog.unnest(p_messages) m (id) CROSS JOIN LATERAL (
        SELECT x.pool_id FROM runstate.grants x
         WHERE x.message_id = m.id AND x.space_id = p_space AND x.ended IS NULL OFFSET 0) g)
    SELECT DISTINCT h.pool_id FROM held h ORDER BY h.pool_id
  LOOP
    PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool FOR NO KEY UPDATE;
  END LOOP;
END $$;

-- Lock the grants of a delivery, before the clock is read: a turn that writes one off has done so, or waits.
CREATE FUNCTION kernel.grants_lock_of(p_space text, p_message uuid) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM 1 FROM runstate.grants g WHERE g.message_id = p_message AND g.space_id = p_space
     AND g.ended IS NULL ORDER BY g.pool_id, g.id FOR NO KEY UPDATE;
END $$;

-- Move the end of a delivery's grants to that of its lease. They are locked.
CREATE FUNCTION kernel.grants_renew_of(p_space text, p_message uuid, p_expires_at timestamptz) RETURNS void
LANGUAGE sql VOLATILE AS $$
  UPDATE runstate.grants g SET expires_at = GREATEST(g.expires_at, p_expires_at)
   WHERE g.message_id = p_message AND g.space_id = p_space AND g.ended IS NULL
$$;

-- Give back what a delivery holds; its pools are locked, in their order. Returns the topics to wake.
CREATE FUNCTION kernel.grants_release_of(p_space text, p_message uuid) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_pool uuid;
  v_id uuid;
  v_scope uuid;
  v_units bigint;
  v_holder text;
  v_now timestamptz;
  v_turn text[];
  v_wake text[] := '{}'::text[];
BEGIN
  PERFORM kernel.pools_lock_of(p_space, ARRAY[p_message]);
  PERFORM kernel.grants_lock_of(p_space, p_message);
  v_now := kernel.kernel_now();
  FOR v_pool, v_id, v_scope, v_units, v_holder IN
    SELECT g.pool_id, g.id, g.scope_id, g.units, g.holder FROM runstate.grants g
     WHERE g.message_id = p_message AND g.space_id = p_space AND g.ended IS NULL ORDER BY g.pool_id, g.id
  LOOP
    UPDATE runstate.grants g SET ended = 'RELEASED', ended_at = v_now
     WHERE g.space_id = p_space AND g.id = v_id;
    UPDATE runstate.pools b SET units_used = b.units_used - v_units
     WHERE b.space_id = p_space AND b.id = v_pool;
    v_turn := kernel.permit_turn(p_space, v_pool, v_now);
    PERFORM kernel.permit_event(p_space, v_now, 'permit.released', v_pool, v_scope, v_id, v_units, v_holder,
      v_turn);
    v_wake := v_wake || v_turn;
  END LOOP;
  RETURN v_wake;
END $$;

-- Let the grants of a delivery that a sweep ends lapse at once: their pools' turns, which lock, take them
-- back. One that is in the hands of another call lapses with its lease. Returns the topics to wake.
CREATE FUNCTION kernel.grants_lapse_of(p_space text, p_message uuid, p_now timestamptz) RETURNS text[]
LANGUAGE sql VOLATILE AS $$
  WITH lapsed AS (
    UPDATE runstate.grants g SET expires_at = p_now, due_at = p_now
     WHERE g.space_id = p_space AND g.id = ANY (ARRAY(
       SELECT y.id FROM runstate.grants y WHERE y.message_id = p_message AND y.space_id = p_space
          AND y.ended IS NULL FOR NO KEY UPDATE SKIP LOCKED)) RETURNING g.pool_id)
  SELECT COALESCE(pg_catalog.array_agg(DISTINCT kernel.line_topic(p_space, l.pool_id)), '{}'::text[])
    FROM lapsed l
$$;

-- The grants of a delivery as its admission answers them.
CREATE FUNCTION kernel.grants_facts_of(p_space text, p_message uuid) RETURNS json LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object('grantId', g.id, 'token', g.token,
      'permit', b.name, 'units', g.units) ORDER BY b.name), '[]'::json)
    FROM runstate.grants g CROSS JOIN LATERAL (
      SELECT x.name FROM runstate.pools x WHERE x.space_id = p_space AND x.id = g.pool_id OFFSET 0) b
   WHERE g.message_id = p_message AND g.space_id = p_space AND g.ended IS NULL
$$;
