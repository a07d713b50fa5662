-- Replicas say that they are alive and which build of the functions they call. Table: replicas.
-- Returns how many are alive: the pace of NOTIFY grows with it, and contracting migrations wait for old
-- builds to leave.
CREATE FUNCTION kernel.replica_seen(p_id uuid, p_build text) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
BEGIN
  PERFORM kernel.kernel_enter();
  INSERT INTO runstate.replicas AS r (id, build, seen_at) VALUES (p_id, p_build, v_now)
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at;
  DELETE FROM runstate.replicas r WHERE r.id = ANY (ARRAY(
    SELECT o.id FROM runstate.replicas o WHERE o.seen_at < v_now - interval '1 minute' ORDER BY o.id
      FOR UPDATE SKIP LOCKED));
  RETURN (SELECT pg_catalog.count(*) FROM runstate.replicas r
    WHERE r.seen_at > v_now - interval '20 seconds');
END $$;

CREATE FUNCTION kernel.replica_gone(p_id uuid) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM kernel.kernel_enter();
  DELETE FROM runstate.replicas r WHERE r.id = p_id;
END $$;
