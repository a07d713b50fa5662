-- The journal: a function writes its event into the outbox in its own commit, after its last lock; the
-- sequencer step moves committed rows into the journal and numbers them 1..N per space. Tables: outbox,
-- sequencer, journal_heads, journal. Locks: the sequencer row (one step at a time, nobody waits for it), then
-- outbox rows, then heads.

-- Write one event. p_path: the scope's path, null for an event of the whole space. p_wake: the topics that a
-- replica which missed the wake-up finds here. Returns the outbox number.
CREATE FUNCTION kernel.event(p_space text, p_now timestamptz, p_type text, p_path uuid[], p_aggregate text,
  p_id text, p_payload json, p_wake text[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  INSERT INTO runstate.outbox (space_id, type, created_at, scope_id, root_id, depth1_id, depth2_id,
    aggregate_type, aggregate_id, payload, wake)
  VALUES (p_space, p_type, p_now, p_path[pg_catalog.cardinality(p_path)], p_path[1], p_path[2], p_path[3],
    p_aggregate, p_id, p_payload::text, p_wake)
  RETURNING seq
$$;

-- Number at most p_batch committed events. Returns how many were moved and the last outbox number seen; -1
-- moved when another replica is at it. p_floor lets the step skip dead rows under a long snapshot elsewhere;
-- 0 looks at all.
CREATE FUNCTION kernel.journal_step(p_batch int, p_floor bigint, OUT moved int, OUT last_seq bigint)
LANGUAGE plpgsql VOLATILE SET enable_hashjoin = on AS $$
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.sequencer q WHERE q.id = 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    moved := -1;
    last_seq := p_floor;
    RETURN;
  END IF;
  WITH picked AS MATERIALIZED (
    SELECT o.seq FROM runstate.outbox o WHERE o.seq > p_floor ORDER BY o.seq LIMIT p_batch
  ), gone AS (
    DELETE FROM runstate.outbox o WHERE o.seq = ANY (ARRAY(SELECT p.seq FROM picked p))
    RETURNING o.space_id, o.seq, o.type, o.created_at, o.scope_id, o.root_id, o.depth1_id, o.depth2_id,
      o.aggregate_type, o.aggregate_id, o.payload, o.wake
  ), heads AS (
    INSERT INTO runstate.journal_heads AS h (space_id, num)
    SELECT g.space_id, pg_catalog.count(*) FROM gone g GROUP BY g.space_id ORDER BY g.space_id
    ON CONFLICT (space_id) DO UPDATE SET num = h.num + excluded.num
    RETURNING h.space_id, h.num
  ), numbered AS (
    SELECT g.space_id, h.num - pg_catalog.count(*) OVER (PARTITION BY g.space_id)
           + pg_catalog.row_number() OVER (PARTITION BY g.space_id ORDER BY g.seq) AS num, g.seq, g.type,
             g.created_at, g.scope_id, g.root_id, g.depth1_id, g.depth2_id, g.aggregate_type, g.aggregate_id,
               g.payload, g.wake
      FROM gone g JOIN heads h ON h.space_id = g.space_id
  ), written AS (
    INSERT INTO runstate.journal (space_id, num, type, created_at, scope_id, root_id, depth1_id, depth2_id,
      aggregate_type, aggregate_id, payload, wake)
    SELECT n.space_id, n.num, n.type, n.created_at, n.scope_id, n.root_id, n.depth1_id, n.depth2_id,
           n.aggregate_type, n.aggregate_id, n.payload, n.wake
      FROM numbered n ORDER BY n.seq
    RETURNING 1
  )
  SELECT (SELECT pg_catalog.count(*) FROM written), COALESCE((SELECT pg_catalog.max(n.seq) FROM numbered n),
    p_floor)
    INTO moved, last_seq;
END $$;

-- The slow tick of a replica, one statement for all its sleepers: for each of these spaces the head of its
-- journal and the topics of what came after the number last seen there. More than p_limit new events: topics
-- null, wake everybody.
CREATE FUNCTION kernel.journal_tick(p_spaces text[], p_seen bigint[], p_limit int)
RETURNS TABLE (space_id text, num bigint, topics text[]) LANGUAGE sql VOLATILE AS $$
  SELECT h.space_id, h.num, CASE WHEN h.num - s.seen <= p_limit THEN ARRAY(
      SELECT DISTINCT t.topic FROM runstate.journal j CROSS JOIN LATERAL pg_catalog.unnest(j.wake) t (topic)
       WHERE j.space_id = h.space_id AND j.num > s.seen AND j.num <= h.num) END
    FROM ROWS FROM (pg_catalog.unnest(p_spaces), pg_catalog.unnest(p_seen)) s (space, seen)
    JOIN runstate.journal_heads h ON h.space_id = s.space AND h.num > s.seen
$$;

-- Forget events older than p_keep_days; at most p_batch at a time.
CREATE FUNCTION kernel.journal_sweep(p_batch int, p_keep_days int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_before timestamptz := kernel.kernel_now() - pg_catalog.make_interval(days => p_keep_days);
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  WITH old AS MATERIALIZED (
    SELECT j.space_id, j.num FROM runstate.journal j WHERE j.created_at < v_before
     ORDER BY j.created_at LIMIT p_batch FOR UPDATE SKIP LOCKED
  )
  DELETE FROM runstate.journal j USING old o WHERE j.space_id = o.space_id AND j.num = o.num;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
