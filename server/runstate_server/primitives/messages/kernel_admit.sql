-- Messages, admission: a task with all that it needs, or nothing. One call takes the mailbox's turn, finds
-- without row locks the first head of a lane whose whole set can be had, locks that one task and its
-- resources in order, looks again, and takes all.

-- Whether tasks of a mailbox may need resources here: it says so, or lanes of the run do.
CREATE FUNCTION kernel.admit_needs(p_space text, p_mailbox uuid, p_root uuid) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT EXISTS (SELECT 1 FROM runstate.mailboxes b
                  WHERE b.space_id = p_space AND b.id = p_mailbox AND b.lane IS NOT NULL)
      OR EXISTS (SELECT 1 FROM runstate.queue_lanes d
                  WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox AND d.lane >= 2)
$$;

-- What the tasks of a lane need in a mailbox: lane 1 what the mailbox says, the others what they are interned
-- for. Empty: nothing. need: the mailbox's amounts, of lane 1 alone.
CREATE FUNCTION kernel.lane_needs(p_space text, p_mailbox uuid, p_lane int, OUT kinds int[],
  OUT resources uuid[], OUT need bigint[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_lane int := p_lane;
BEGIN
  IF p_lane = 1 THEN
    SELECT b.lane, b.need INTO v_lane, need FROM runstate.mailboxes b
     WHERE b.space_id = p_space AND b.id = p_mailbox;
  END IF;
  SELECT l.kinds, l.resources INTO kinds, resources FROM runstate.lanes l
   WHERE l.space_id = p_space AND l.lane = v_lane;
  kinds := COALESCE(kinds, '{}'::int[]);
  resources := COALESCE(resources, '{}'::uuid[]);
END $$;

-- Which of these resources do not have what is needed by one who stands in their lines since p_since.
CREATE FUNCTION kernel.needs_lacking(p_space text, p_kinds int[], p_resources uuid[], p_need bigint[],
  p_since timestamptz, p_now timestamptz) RETURNS boolean[] LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(pg_catalog.array_agg(COALESCE(k.amount > CASE k.kind
      WHEN 1 THEN kernel.pool_left(p_space, k.id, p_since, p_now)
      WHEN 2 THEN kernel.allowance_left(p_space, k.id, p_since, p_now)
      ELSE kernel.budget_left(p_space, k.id, p_now) END, true) ORDER BY k.n), '{}'::boolean[])
    FROM ROWS FROM (pg_catalog.unnest(p_kinds), pg_catalog.unnest(p_resources), pg_catalog.unnest(p_need))
      WITH ORDINALITY k (kind, id, amount, n)
$$;

-- Take the turns of pools and allowances of a mailbox's lanes in which something is due, by kind and id.
-- Returns null when nothing came of it (what is due may be in the hands of another call). Else the call has
-- done something, and is repeated, so that it does not lock in two orders.
CREATE FUNCTION kernel.admit_turns(p_space text, p_mailbox uuid, p_root uuid, p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_kind int;
  v_id uuid;
  v_now timestamptz;
  v_turn text[];
  v_wake text[];
BEGIN
  FOR v_kind, v_id IN
    SELECT DISTINCT k.kind, k.id FROM (
        SELECT DISTINCT d.lane FROM runstate.queue_lanes d
         WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox AND d.lane >= 1) d
      CROSS JOIN LATERAL kernel.lane_needs(p_space, p_mailbox, d.lane) n
      CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(n.kinds), pg_catalog.unnest(n.resources)) k (kind, id)
     WHERE k.kind < 3 ORDER BY k.kind, k.id
  LOOP
    IF v_kind = 1 AND kernel.permit_due(p_space, v_id, p_now) THEN
      PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_id
        FOR NO KEY UPDATE SKIP LOCKED;
      CONTINUE WHEN NOT FOUND;
      v_now := kernel.kernel_now();
      v_turn := kernel.permit_turn(p_space, v_id, v_now);
      IF pg_catalog.cardinality(v_turn) > 0 OR NOT kernel.permit_due(p_space, v_id, v_now) THEN
        v_wake := COALESCE(v_wake, '{}'::text[]) || v_turn;
      END IF;
    ELSIF v_kind = 2 AND kernel.allowance_due(p_space, v_id, p_now) THEN
      PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.id = v_id
        FOR NO KEY UPDATE SKIP LOCKED;
      CONTINUE WHEN NOT FOUND;
      v_wake := COALESCE(v_wake, '{}'::text[])
        || kernel.allowance_turn(p_space, v_id, kernel.kernel_now());
    END IF;
  END LOOP;
  RETURN v_wake;
END $$;

-- Lock resources in the order of kinds and ids, and bring them up to date. Returns the topics to wake.
CREATE FUNCTION kernel.needs_lock(p_space text, p_kinds int[], p_resources uuid[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_wake text[] := '{}'::text[];
BEGIN
  FOR v_n IN 1..pg_catalog.cardinality(p_kinds) LOOP
    CASE p_kinds[v_n]
      WHEN 1 THEN
        PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_resources[v_n]
          FOR NO KEY UPDATE;
      WHEN 2 THEN
        PERFORM 1 FROM runstate.allowances a WHERE a.space_id = p_space AND a.id = p_resources[v_n]
          FOR NO KEY UPDATE;
      ELSE
        PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_resources[v_n]
          FOR NO KEY UPDATE;
        v_wake := v_wake || kernel.budget_stale(p_space, p_resources[v_n], kernel.kernel_now());
    END CASE;
  END LOOP;
  RETURN v_wake;
END $$;

-- Take what a task needs: locked, looked at, and there. p_tokens: one for each grant. Returns what of quotas
-- was consumed, as the answer tells it.
CREATE FUNCTION kernel.needs_take(p_space text, p_q kernel.queued, p_kinds int[], p_resources uuid[],
  p_need bigint[], p_holder text, p_session text, p_lease_s double precision, p_tokens text[],
  p_now timestamptz) RETURNS json LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope uuid := (p_q).path[pg_catalog.cardinality((p_q).path)];
  v_consumed json[] := '{}'::json[];
  v_id uuid;
  v_name text;
BEGIN
  FOR v_n IN 1..pg_catalog.cardinality(p_kinds) LOOP
    CASE p_kinds[v_n]
      WHEN 1 THEN
        PERFORM kernel.pool_take(p_space, p_resources[v_n], (p_q).path, p_need[v_n], p_holder, p_session,
          p_lease_s, p_tokens[v_n], (p_q).id, p_now);
      WHEN 2 THEN
        v_id := kernel.allowance_take(p_space, p_resources[v_n], v_scope, p_need[v_n], p_holder, p_now, NULL);
        SELECT a.name INTO v_name FROM runstate.allowances a
         WHERE a.space_id = p_space AND a.id = p_resources[v_n];
        v_consumed := v_consumed || pg_catalog.json_build_object('consumptionId', v_id, 'allowance', v_name,
          'units', p_need[v_n]);
      ELSE
        PERFORM kernel.budget_reserve_locked(p_space, p_resources[v_n], pg_catalog.gen_random_uuid(), v_scope,
          p_holder, p_need[v_n], NULL, (p_q).id, p_now);
    END CASE;
  END LOOP;
  RETURN pg_catalog.array_to_json(v_consumed);
END $$;

-- The first head that can be had, rank by rank, in each by the time available. p_lane: of this lane alone;
-- p_but: lanes to leave alone. blocked: the heads met before it that cannot be had, a hundred at most; what
-- they lack is looked at once more by those who write of it.
CREATE FUNCTION kernel.admit_pick(p_space text, p_mailbox uuid, p_level int, p_anchor uuid, p_root uuid,
  p_lane int, p_but int[], p_now timestamptz, OUT lane int, OUT seq bigint, OUT blocked bigint[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_rank smallint;
  v_lanes int[];
  v_seqs bigint[];
  v_since timestamptz;
  v_need bigint[];
  v_kinds int[];
  v_resources uuid[];
  v_own bigint[];
BEGIN
  blocked := '{}'::bigint[];
  FOR v_rank, v_lanes IN
    SELECT d.rank, pg_catalog.array_agg(d.lane) FROM runstate.queue_lanes d
     WHERE d.space_id = p_space AND d.a0 = p_root AND d.mailbox_id = p_mailbox AND d.lane >= 1
       AND (p_lane IS NULL OR d.lane = p_lane) AND d.lane <> ALL (p_but) GROUP BY d.rank ORDER BY d.rank
  LOOP
    SELECT t.lanes, t.seqs INTO v_lanes, v_seqs FROM kernel.queue_turns(p_space, p_mailbox, p_level, p_anchor,
      p_root, v_lanes, v_rank, p_now, false) t;
    FOR v_n IN 1..COALESCE(pg_catalog.cardinality(v_lanes), 0) LOOP
      SELECT n.kinds, n.resources, n.need INTO v_kinds, v_resources, v_own
        FROM kernel.lane_needs(p_space, p_mailbox, v_lanes[v_n]) n;
      v_since := kernel.place_since(p_space, p_mailbox, p_root, v_lanes[v_n], v_seqs[v_n], p_now);
      SELECT COALESCE(r.need, v_own) INTO v_need FROM runstate.queue_ready r
       WHERE r.space_id = p_space AND r.seq = v_seqs[v_n];
      IF NOT true = ANY (kernel.needs_lacking(p_space, v_kinds, v_resources, v_need, v_since, p_now)) THEN
        lane := v_lanes[v_n];
        seq := v_seqs[v_n];
        RETURN;
      ELSIF pg_catalog.cardinality(blocked) < 100 THEN
        blocked := blocked || v_seqs[v_n];
      END IF;
    END LOOP;
  END LOOP;
END $$;

-- Lock one head and what it needs, look again, and take all. outcome: 'taken'; 'dropped' (it had ended, and
-- is settled); 'gone' (others were quicker); 'locked' (another call has it in hand).
CREATE FUNCTION kernel.admit_one(p_space text, p_mailbox uuid, p_lane int, p_seq bigint, p_holder text,
  p_session text, p_lease_s double precision, p_token text, p_grants text[], p_now timestamptz,
  OUT outcome text, OUT id uuid, OUT consumed json, OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_q kernel.queued;
  v_kinds int[];
  v_resources uuid[];
  v_need bigint[];
  v_now timestamptz;
  v_dropped boolean;
BEGIN
  outcome := 'gone';
  wake := '{}'::text[];
  SELECT r.message_id INTO id FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = p_seq
    FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    PERFORM 1 FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = p_seq;
    outcome := CASE WHEN FOUND THEN 'locked' ELSE 'gone' END;
    RETURN;
  END IF;
  v_q := kernel.message_find(p_space, id);
  SELECT r.attempt, r.started_at, r.deadline INTO v_q.attempt, v_q.started_at, v_q.deadline
    FROM runstate.queue_ready r WHERE r.space_id = p_space AND r.seq = p_seq;
  SELECT d.dropped, d.wake INTO v_dropped, wake FROM kernel.queue_drop(p_space, v_q, p_now) d;
  IF v_dropped THEN
    outcome := 'dropped';
    RETURN;
  END IF;
  SELECT n.kinds, n.resources, COALESCE((v_q).need, n.need) INTO v_kinds, v_resources, v_need
    FROM kernel.lane_needs(p_space, p_mailbox, p_lane) n;
  wake := kernel.needs_lock(p_space, v_kinds, v_resources);
  v_now := kernel.kernel_now();
  IF (v_q).deadline <= v_now OR true = ANY (kernel.needs_lacking(p_space, v_kinds, v_resources, v_need,
    kernel.place_since(p_space, p_mailbox, (v_q).path[1], p_lane, p_seq, v_now), v_now)) THEN
    RETURN;
  END IF;
  consumed := kernel.needs_take(p_space, v_q, v_kinds, v_resources, v_need, p_holder, p_session, p_lease_s,
    p_grants, v_now);
  PERFORM kernel.queue_lease(p_space, v_q, p_holder, p_session, p_lease_s, p_token, v_now);
  PERFORM kernel.places_leave(p_space, p_mailbox, (v_q).path[1], p_lane);
  outcome := 'taken';
END $$;

-- Admit at most as many tasks as there are tokens, all of one lane: its resources are locked then. again: the
-- call has done something else, or was too late, and is to be repeated. Else, with nothing admitted: next_s,
-- when it may be worth looking again, topics, what more to sleep on; for a call that waits p_wait_s more the
-- heads that it met take their places in lines, and for one that does not they are told of in reports.
CREATE FUNCTION kernel.admit_take(p_space text, p_mailbox uuid, p_path uuid[], p_below boolean,
  p_holder text, p_session text, p_lease_s double precision, p_tokens text[], p_grants text[],
  p_wait_s double precision, p_now timestamptz, OUT ids uuid[], OUT consumed json[], OUT wake text[],
  OUT again boolean, OUT next_s double precision, OUT topics text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_depth int := pg_catalog.cardinality(p_path);
  v_lane int;
  v_next int;
  v_but int[] := '{}'::int[];
  v_seq bigint;
  v_heads bigint[];
  v_blocked bigint[];
  v_outcome text;
  v_id uuid;
  v_consumed json;
  v_woken text[];
  v_n int := 0;
BEGIN
  ids := '{}'::uuid[];
  consumed := '{}'::json[];
  wake := kernel.queue_reclaim(p_space, p_mailbox, p_path[1], p_now, 10);
  again := pg_catalog.cardinality(wake) > 0;
  IF NOT again THEN
    PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('admit', p_space, p_mailbox::text));
    v_woken := kernel.admit_turns(p_space, p_mailbox, p_path[1], p_now);
    wake := COALESCE(v_woken, '{}'::text[]);
    again := v_woken IS NOT NULL;
    PERFORM kernel.places_tidy(p_space, p_mailbox, p_path[1]);
  END IF;
  WHILE NOT again AND pg_catalog.cardinality(ids) < pg_catalog.cardinality(p_tokens) LOOP
    SELECT k.lane, k.seq, k.blocked INTO v_next, v_seq, v_blocked FROM kernel.admit_pick(p_space, p_mailbox,
      CASE WHEN p_below THEN v_depth - 1 ELSE -1 END, p_path[v_depth], p_path[1], v_lane, v_but, p_now) k;
    v_heads := COALESCE(v_heads, v_blocked);
    EXIT WHEN v_seq IS NULL;
    v_n := pg_catalog.cardinality(ids);
    SELECT o.outcome, o.id, o.consumed, o.wake INTO v_outcome, v_id, v_consumed, v_woken
      FROM kernel.admit_one(p_space, p_mailbox, v_next, v_seq, p_holder, p_session, p_lease_s,
        p_tokens[v_n + 1], p_grants[v_n * 4 + 1 : v_n * 4 + 4], p_now) o;
    wake := wake || v_woken;
    IF v_outcome = 'taken' THEN
      ids := ids || v_id;
      consumed := consumed || v_consumed;
      v_lane := v_next;
    ELSIF v_outcome = 'locked' THEN
      v_but := v_but || v_next;
    ELSE
      again := v_n = 0;
      EXIT;
    END IF;
  END LOOP;
  IF NOT again AND pg_catalog.cardinality(ids) = 0 THEN
    SELECT kernel.seconds_until(n.at, p_now), COALESCE(n.topics, '{}'::text[]) INTO next_s, topics
      FROM kernel.places_next(p_space, p_mailbox, p_path[1], v_heads, p_now) n;
    IF pg_catalog.cardinality(v_heads) > 0 THEN
      PERFORM kernel.places_take(p_space, p_mailbox, p_path[1], v_heads, p_holder, p_wait_s, p_now);
      next_s := LEAST(next_s, 3);
    END IF;
    IF pg_catalog.cardinality(v_but) > 0 THEN
      next_s := LEAST(next_s, 0.1);
    END IF;
  END IF;
END $$;
