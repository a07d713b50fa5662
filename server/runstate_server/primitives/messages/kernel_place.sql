-- Messages, admission: the places of blocked heads in the lines of what they lack. A head stands there with
-- the time at which it became ready, and only while a call that could take it is waiting. It keeps units for
-- itself (holds) where they are all that it lacks; where it lacks several pools it could keep one idle for
-- another, so there it holds only after having been passed over for 30 s, and then stands first. It keeps no
-- pool while a quota or a budget is what it lacks.

-- Since when the head of a lane stands in lines: since it became ready, or first of all when it has aged.
CREATE FUNCTION kernel.place_since(p_space text, p_mailbox uuid, p_root uuid, p_lane int, p_seq bigint,
  p_now timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN EXISTS (
      SELECT 1 FROM runstate.lane_waits w
       WHERE w.mailbox_id = p_mailbox AND w.root_id = p_root AND w.lane = p_lane AND w.space_id = p_space
         AND w.seq = p_seq AND w.holds AND w.since = '-infinity' AND w.seen_until > p_now)
      THEN '-infinity'::timestamptz ELSE r.available_at END
    FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = p_seq
$$;

-- Leave the lines: the head of a lane has been taken, or is another one now.
CREATE FUNCTION kernel.places_leave(p_space text, p_mailbox uuid, p_root uuid, p_lane int) RETURNS void
LANGUAGE sql VOLATILE AS $$
  DELETE FROM runstate.lane_waits w
   WHERE w.mailbox_id = p_mailbox AND w.root_id = p_root AND w.lane = p_lane AND w.space_id = p_space
$$;

-- Forget the places of heads that wait no more: they ended, or others took them.
CREATE FUNCTION kernel.places_tidy(p_space text, p_mailbox uuid, p_root uuid) RETURNS void
LANGUAGE sql VOLATILE AS $$
  DELETE FROM runstate.lane_waits w
   WHERE w.mailbox_id = p_mailbox AND w.root_id = p_root AND w.space_id = p_space
     AND NOT EXISTS (SELECT 1 FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = w.seq)
$$;

-- Write the place of one blocked head in the lines of what it lacks, until p_until. The mailbox's turn is
-- taken, so nobody else writes these rows.
CREATE FUNCTION kernel.place_take(p_space text, p_mailbox uuid, p_root uuid, p_seq bigint, p_holder text,
  p_until timestamptz, p_now timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_lane int;
  v_scope uuid;
  v_ready_at timestamptz;
  v_blocked_at timestamptz;
  v_since timestamptz;
  v_need bigint[];
  v_own bigint[];
  v_kinds int[];
  v_resources uuid[];
  v_lacks boolean[];
  v_count int;
  v_pools boolean;
  v_holds boolean;
  v_wake text;
BEGIN
  SELECT r.lane, r.scope_id, r.available_at, r.need,
      kernel.place_since(p_space, p_mailbox, p_root, r.lane, p_seq, p_now)
    INTO v_lane, v_scope, v_ready_at, v_need, v_since FROM runstate.queue_ready r
   WHERE r.space_id = p_space AND r.seq = p_seq;
  IF NOT FOUND THEN
    RETURN;
  END IF;
  SELECT n.kinds, n.resources, n.need INTO v_kinds, v_resources, v_own
    FROM kernel.lane_needs(p_space, p_mailbox, v_lane) n;
  v_need := COALESCE(v_need, v_own);
  v_lacks := kernel.needs_lacking(p_space, v_kinds, v_resources, v_need, v_since, p_now);
  SELECT pg_catalog.count(*), COALESCE(pg_catalog.bool_and(k.kind = 1), false) INTO v_count, v_pools
    FROM ROWS FROM (pg_catalog.unnest(v_kinds), pg_catalog.unnest(v_lacks)) k (kind, lacks) WHERE k.lacks;
  SELECT pg_catalog.min(w.blocked_at) INTO v_blocked_at FROM runstate.lane_waits w
   WHERE w.mailbox_id = p_mailbox AND w.root_id = p_root AND w.lane = v_lane AND w.space_id = p_space
     AND w.seq = p_seq;
  v_blocked_at := COALESCE(v_blocked_at, p_now);
  v_holds := v_count = 1 OR (v_pools AND v_blocked_at + interval '30 seconds' <= p_now);
  SELECT kernel.message_topics(p_space, p_mailbox, s.path, true) INTO v_wake FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = v_scope;
  PERFORM kernel.places_leave(p_space, p_mailbox, p_root, v_lane);
  INSERT INTO runstate.lane_waits (space_id, resource_id, mailbox_id, root_id, lane, kind, units, seq,
    scope_id, holder, since, ready_at, blocked_at, holds, wake, seen_until)
  SELECT p_space, k.id, p_mailbox, p_root, v_lane, k.kind, k.amount, p_seq, v_scope, p_holder,
      CASE WHEN v_count > 1 AND v_holds THEN '-infinity' ELSE v_ready_at END, v_ready_at, v_blocked_at,
      v_holds AND k.kind < 3, v_wake, p_until
    FROM ROWS FROM (pg_catalog.unnest(v_kinds), pg_catalog.unnest(v_resources), pg_catalog.unnest(v_need),
      pg_catalog.unnest(v_lacks)) k (kind, id, amount, lacks) WHERE k.lacks ORDER BY k.id;
END $$;

-- Write the places of blocked heads for a call that goes on waiting for p_wait_s: each when it is not there,
-- or is about to run out. Returns whether it wrote.
CREATE FUNCTION kernel.places_take(p_space text, p_mailbox uuid, p_root uuid, p_seqs bigint[], p_holder text,
  p_wait_s double precision, p_now timestamptz) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_until timestamptz := p_now + pg_catalog.make_interval(secs => LEAST(GREATEST(p_wait_s, 0), 6));
  v_seq bigint;
  v_wrote boolean := false;
BEGIN
  FOR v_seq IN
    SELECT s.seq FROM pg_catalog.unnest(p_seqs) s (seq) WHERE NOT EXISTS (
      SELECT 1 FROM runstate.lane_waits w
        JOIN runstate.queue_ready r ON r.space_id = p_space AND r.seq = s.seq
       WHERE w.mailbox_id = p_mailbox AND w.root_id = p_root AND w.lane = r.lane AND w.space_id = p_space
         AND CASE WHEN p_wait_s > 0
           THEN w.seq = s.seq AND w.seen_until >= LEAST(v_until, p_now + interval '3 seconds')
           ELSE w.seen_until > p_now OR (w.seq = s.seq AND w.seen_until > p_now - interval '3 seconds') END)
  LOOP
    PERFORM kernel.place_take(p_space, p_mailbox, p_root, v_seq, p_holder, v_until, p_now);
    v_wrote := true;
  END LOOP;
  RETURN v_wrote;
END $$;

-- When time alone may give a blocked head what it lacks, and the topics of what no turn wakes it for.
CREATE FUNCTION kernel.places_next(p_space text, p_mailbox uuid, p_root uuid, p_seqs bigint[],
  p_now timestamptz, OUT at timestamptz, OUT topics text[]) LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.min(CASE k.kind WHEN 1 THEN kernel.permit_next(p_space, k.id)
      WHEN 2 THEN (SELECT GREATEST(n.cooldown_until, CASE WHEN n.consumed > 0 THEN n.window_end END)
        FROM kernel.allowance_now(p_space, k.id, p_now) n) END),
    pg_catalog.array_agg(DISTINCT kernel.budget_topic(p_space, k.id)) FILTER (WHERE k.kind = 3)
    FROM pg_catalog.unnest(p_seqs) s (seq)
   CROSS JOIN LATERAL (SELECT r.lane FROM runstate.queue_ready r
                        WHERE r.space_id = p_space AND r.seq = s.seq OFFSET 0) r
   CROSS JOIN LATERAL kernel.lane_needs(p_space, p_mailbox, r.lane) n
   CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(n.kinds), pg_catalog.unnest(n.resources)) k (kind, id)
$$;

-- Forget places that nobody kept up, p_batch at most.
CREATE FUNCTION kernel.places_sweep(p_batch int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_before timestamptz := kernel.kernel_now() - interval '1 minute';
  v_count int;
BEGIN
  PERFORM kernel.kernel_enter();
  WITH dead AS MATERIALIZED (
    SELECT w.space_id, w.resource_id, w.mailbox_id, w.root_id, w.lane FROM runstate.lane_waits w
     WHERE w.seen_until < v_before ORDER BY w.seen_until LIMIT p_batch
       FOR UPDATE SKIP LOCKED)
  DELETE FROM runstate.lane_waits w USING dead d
   WHERE w.space_id = d.space_id AND w.resource_id = d.resource_id AND w.mailbox_id = d.mailbox_id
     AND w.root_id = d.root_id AND w.lane = d.lane;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
