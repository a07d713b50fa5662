-- Ops: who waits, as the replicas tell of their own long polls. A report: nothing decides by it.
-- Table: waits.  Locks: only the rows that are written, each by its one replica, or by a sweep that tries.

-- Take back the waits of this replica that are over (p_gone_spaces, p_gone), and write those that have begun,
-- aligned arrays, p_ages in seconds. May be repeated.
CREATE FUNCTION kernel.waits_publish(p_replica uuid, p_gone_spaces text[], p_gone bigint[], p_spaces text[],
  p_ids bigint[], p_kinds text[], p_resources text[], p_scopes uuid[], p_units bigint[], p_holders text[],
  p_sessions text[], p_ages double precision[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
BEGIN
  PERFORM kernel.kernel_enter();
  DELETE FROM runstate.waits w
   USING ROWS FROM (pg_catalog.unnest(p_gone_spaces), pg_catalog.unnest(p_gone)) g (space, id)
   WHERE w.space_id = g.space AND w.replica = p_replica AND w.id = g.id;
  INSERT INTO runstate.waits (space_id, replica, id, kind, resource, scope_id, root_id, units, holder,
    session, since)
  SELECT c.space, p_replica, c.id, c.kind, c.resource, c.scope, s.root_id, c.units, c.holder, c.session,
         v_now - pg_catalog.make_interval(secs => c.age)
    FROM ROWS FROM (pg_catalog.unnest(p_spaces), pg_catalog.unnest(p_ids), pg_catalog.unnest(p_kinds),
      pg_catalog.unnest(p_resources), pg_catalog.unnest(p_scopes), pg_catalog.unnest(p_units),
      pg_catalog.unnest(p_holders), pg_catalog.unnest(p_sessions),
      pg_catalog.unnest(p_ages)) c (space, id, kind, resource, scope, units, holder, session, age)
    CROSS JOIN LATERAL (SELECT x.root_id FROM runstate.scopes x
                         WHERE x.space_id = c.space AND x.id = c.scope OFFSET 0) s
  ON CONFLICT (space_id, replica, id) DO NOTHING;
END $$;

-- Forget the waits of replicas that have not shown themselves for a minute, p_batch at most.
CREATE FUNCTION kernel.waits_sweep(p_batch int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_before timestamptz := kernel.kernel_now() - interval '1 minute';
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  WITH dead AS MATERIALIZED (
    SELECT w.space_id, w.replica, w.id FROM runstate.waits w
     WHERE NOT EXISTS (SELECT 1 FROM runstate.replicas r WHERE r.id = w.replica AND r.seen_at > v_before)
     ORDER BY w.space_id, w.replica, w.id LIMIT p_batch FOR UPDATE SKIP LOCKED
  )
  DELETE FROM runstate.waits w USING dead d
   WHERE w.space_id = d.space_id AND w.replica = d.replica AND w.id = d.id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- How many events of a space were written after p_since. Numbers have no gaps and times go up with them, but
-- for what was under way at once, so a few look-ups find the place, however long the journal is. What was
-- written since stands in the partitions of the days since.
CREATE FUNCTION kernel.events_since(p_space text, p_since timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_day date := (p_since AT TIME ZONE 'UTC')::date;
  v_head bigint;
  v_older bigint;
  v_last bigint;
  v_middle bigint;
  v_at timestamptz;
BEGIN
  SELECT h.num INTO v_head FROM runstate.journal_heads h WHERE h.space_id = p_space;
  SELECT j.num - 1 INTO v_older FROM runstate.journal j WHERE j.space_id = p_space AND j.day >= v_day
   ORDER BY j.num LIMIT 1;
  IF v_head IS NULL OR v_older IS NULL THEN
    RETURN 0;
  END IF;
  v_last := v_head;
  WHILE v_older < v_last LOOP
    v_middle := v_older + (v_last - v_older + 1) / 2;
    SELECT j.created_at INTO v_at FROM runstate.journal j
     WHERE j.space_id = p_space AND j.num >= v_middle AND j.day >= v_day ORDER BY j.num LIMIT 1;
    IF v_at < p_since THEN
      v_older := v_middle;
    ELSE
      v_last := v_middle - 1;
    END IF;
  END LOOP;
  RETURN v_head - v_older;
END $$;
