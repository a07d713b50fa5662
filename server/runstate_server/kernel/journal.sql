-- The journal: a function writes its event into the outbox in its own commit, after its last lock; the
-- sequencer step moves committed rows into the journal and numbers them 1..N per space. The journal is
-- partitioned by day, so that old events are dropped as whole tables. Tables: outbox, sequencer,
-- journal_heads, journal and its partitions. Locks: the sequencer row (one step at a time), then outbox rows,
-- then heads.

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

-- Sleepers on a space's journal.
CREATE FUNCTION kernel.journal_topic(p_space text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('journal', p_space, '')
$$;

-- Make the partition of a day, unless it is there. ATTACH lets readers and writers go on, which CREATE TABLE
-- ... PARTITION OF would not (kernel.md, section 6); the check spares it a scan. The caller holds the
-- sequencer row.
CREATE FUNCTION kernel.journal_day(p_day date) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text := 'journal_' || pg_catalog.to_char(p_day, 'yyyymmdd');
BEGIN
  IF pg_catalog.to_regclass('runstate.' || v_name) IS NULL THEN
    EXECUTE pg_catalog.format('CREATE TABLE runstate.%I (LIKE runstate.journal INCLUDING DEFAULTS, '
      'CONSTRAINT in_its_day CHECK (day >= %L AND day < %L))', v_name, p_day, p_day + 1);
    EXECUTE pg_catalog.format('ALTER TABLE runstate.journal ATTACH PARTITION runstate.%I '
      'FOR VALUES FROM (%L) TO (%L)', v_name, p_day, p_day + 1);
  END IF;
END $$;

-- Today in UTC, the day of the journal.
CREATE FUNCTION kernel.journal_today() RETURNS date LANGUAGE sql VOLATILE AS $$
  SELECT (kernel.kernel_now() AT TIME ZONE 'UTC')::date
$$;

-- Make the partitions of today and p_days more. Waits for nobody: a step under way makes its own.
CREATE FUNCTION kernel.journal_ahead(p_days int) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.sequencer q WHERE q.id = 1 FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    FOR v_n IN 0..p_days LOOP
      PERFORM kernel.journal_day(kernel.journal_today() + v_n);
    END LOOP;
  END IF;
END $$;

-- The partitions whose days are older than p_keep_days, and how each stands: attached, pending (its
-- detachment was interrupted) or loose.
CREATE FUNCTION kernel.journal_outdated(p_keep_days int)
RETURNS TABLE (name text, state text) LANGUAGE sql VOLATILE AS $$
  SELECT c.relname::text, CASE WHEN i.inhrelid IS NULL THEN 'loose' WHEN i.inhdetachpending THEN 'pending'
      ELSE 'attached' END
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'runstate'
    LEFT JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid
   WHERE c.relkind = 'r' AND c.relname ~ '^journal_[0-9]{8}$'
     AND pg_catalog.substr(c.relname::text, 9)
       < pg_catalog.to_char(kernel.journal_today() - p_keep_days, 'yyyymmdd')
   ORDER BY c.relname
$$;

-- Number at most p_batch committed events; the caller holds the sequencer row. Returns how many were moved,
-- the last outbox number seen, and the topics of the journals that grew. p_floor lets the step skip dead rows
-- under a long snapshot elsewhere; 0 looks at all.
CREATE FUNCTION kernel.journal_move(p_batch int, p_floor bigint, OUT moved int, OUT last_seq bigint,
  OUT wake text[]) LANGUAGE plpgsql VOLATILE SET enable_hashjoin = on AS $$
DECLARE
  v_today CONSTANT date := kernel.journal_today();
BEGIN
  PERFORM kernel.journal_day(v_today);
  WITH picked AS MATERIALIZED (
    SELECT o.seq FROM runstate.outbox o WHERE o.seq > p_floor ORDER BY o.seq LIMIT p_batch
  ), gone AS (
    DELETE FROM runstate.outbox o WHERE o.seq = ANY (ARRAY(SELECT p.seq FROM picked p))
    RETURNING o.space_id, o.seq, o.type, o.created_at, o.scope_id, o.root_id, o.depth1_id, o.depth2_id,
      o.aggregate_type, o.aggregate_id, o.payload, o.wake
  ), heads AS (
    INSERT INTO runstate.journal_heads AS h (space_id, num, day)
    SELECT g.space_id, pg_catalog.count(*), v_today FROM gone g GROUP BY g.space_id ORDER BY g.space_id
    ON CONFLICT (space_id) DO UPDATE SET num = h.num + excluded.num, day = GREATEST(h.day, excluded.day)
    RETURNING h.space_id, h.num, h.day
  ), numbered AS (
    SELECT g.space_id, h.num - pg_catalog.count(*) OVER (PARTITION BY g.space_id)
           + pg_catalog.row_number() OVER (PARTITION BY g.space_id ORDER BY g.seq) AS num, h.day, g.seq,
             g.type, g.created_at, g.scope_id, g.root_id, g.depth1_id, g.depth2_id, g.aggregate_type,
               g.aggregate_id, g.payload, g.wake
      FROM gone g JOIN heads h ON h.space_id = g.space_id
  ), written AS (
    INSERT INTO runstate.journal (space_id, num, day, type, created_at, scope_id, root_id, depth1_id,
      depth2_id, aggregate_type, aggregate_id, payload, wake)
    SELECT n.space_id, n.num, n.day, n.type, n.created_at, n.scope_id, n.root_id, n.depth1_id, n.depth2_id,
           n.aggregate_type, n.aggregate_id, n.payload, n.wake
      FROM numbered n ORDER BY n.seq
    RETURNING 1
  )
  SELECT (SELECT pg_catalog.count(*) FROM written),
         COALESCE((SELECT pg_catalog.max(n.seq) FROM numbered n), p_floor),
         ARRAY(SELECT kernel.journal_topic(h.space_id) FROM heads h)
    INTO moved, last_seq, wake;
END $$;

-- One step of the sequencer; as journal_move. -1 moved: another replica is at it.
CREATE FUNCTION kernel.journal_step(p_batch int, p_floor bigint, OUT moved int, OUT last_seq bigint,
  OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.sequencer q WHERE q.id = 1 FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    SELECT m.moved, m.last_seq, m.wake INTO moved, last_seq, wake
      FROM kernel.journal_move(p_batch, p_floor) m;
  ELSE
    moved := -1;
    last_seq := p_floor;
    wake := '{}'::text[];
  END IF;
END $$;

-- Number what a space has committed so far, for a reader who is to find what he wrote. Waits for the
-- sequencer row. Returns the topics of the journals that grew. Bounded: what is left after twenty batches
-- comes with the next look.
CREATE FUNCTION kernel.journal_catch_up(p_space text, p_batch int) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_last bigint;
  v_woken text[];
  v_wake text[] := '{}'::text[];
BEGIN
  SELECT o.seq INTO v_last FROM runstate.outbox o WHERE o.space_id = p_space ORDER BY o.seq DESC LIMIT 1;
  IF NOT FOUND THEN
    RETURN v_wake;
  END IF;
  PERFORM 1 FROM runstate.sequencer q WHERE q.id = 1 FOR UPDATE;
  FOR v_n IN 1..20 LOOP
    EXIT WHEN NOT EXISTS (SELECT 1 FROM runstate.outbox o WHERE o.space_id = p_space AND o.seq <= v_last);
    SELECT m.wake INTO v_woken FROM kernel.journal_move(p_batch, 0) m;
    v_wake := v_wake || v_woken;
  END LOOP;
  RETURN v_wake;
END $$;

-- The slow tick of a replica, one statement for all its sleepers: for each of these spaces the head of its
-- journal and the topics of what came after the number last seen there. More than p_limit new events: topics
-- null, wake everybody. What came since a tick is of the head's day or of the one before.
CREATE FUNCTION kernel.journal_tick(p_spaces text[], p_seen bigint[], p_limit int)
RETURNS TABLE (space_id text, num bigint, topics text[]) LANGUAGE sql VOLATILE AS $$
  SELECT h.space_id, h.num, CASE WHEN h.num - s.seen <= p_limit THEN ARRAY(
      SELECT DISTINCT t.topic FROM runstate.journal j CROSS JOIN LATERAL pg_catalog.unnest(j.wake) t (topic)
       WHERE j.space_id = h.space_id AND j.num > s.seen AND j.num <= h.num AND j.day >= h.day - 1)
       || kernel.journal_topic(h.space_id) END
    FROM ROWS FROM (pg_catalog.unnest(p_spaces), pg_catalog.unnest(p_seen)) s (space, seen)
    JOIN runstate.journal_heads h ON h.space_id = s.space AND h.num > s.seen
$$;
