-- Task groups, the decision: by verdicts, by how many members can still be accepted, by the deadline.

-- How the members of a group stand: accepted, those that may still be, and those that are not over.
CREATE FUNCTION kernel.group_tally(p_space text, p_id uuid, p_now timestamptz, OUT accepted bigint,
  OUT undecided bigint, OUT unfinished bigint) LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FILTER (WHERE m.verdict = 'ACCEPTED'),
      pg_catalog.count(*) FILTER (WHERE m.verdict IS NULL AND m.state IN ('QUEUED', 'RUNNING', 'SUCCEEDED')),
      pg_catalog.count(*) FILTER (WHERE m.state IN ('QUEUED', 'RUNNING'))
    FROM (SELECT x.verdict, kernel.task_state(p_space, x.task_id, p_now) AS state
            FROM runstate.group_members x WHERE x.group_id = p_id AND x.space_id = p_space) m
$$;

-- The outcome that a group has reached at p_now; null: none yet.
CREATE FUNCTION kernel.group_reached(p_space text, p_id uuid, p_now timestamptz, OUT outcome text,
  OUT reason text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_condition text;
  v_threshold int;
  v_sealed boolean;
  v_deadline timestamptz;
  v_accepted bigint;
  v_undecided bigint;
  v_unfinished bigint;
BEGIN
  SELECT g.condition, g.threshold, g.state = 'SEALED', g.deadline
    INTO v_condition, v_threshold, v_sealed, v_deadline
    FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id;
  IF v_deadline <= p_now THEN
    outcome := 'FAILURE';
    reason := 'deadline';
    RETURN;
  END IF;
  SELECT t.accepted, t.undecided, t.unfinished INTO v_accepted, v_undecided, v_unfinished
    FROM kernel.group_tally(p_space, p_id, p_now) t;
  IF v_condition = 'ALL_TERMINAL' THEN
    outcome := CASE WHEN v_sealed AND v_unfinished = 0 THEN 'SUCCESS' END;
  ELSIF v_accepted >= v_threshold THEN
    outcome := 'SUCCESS';
  ELSIF v_sealed AND v_accepted + v_undecided < v_threshold THEN
    outcome := 'FAILURE';
    reason := 'threshold_unreachable';
  END IF;
END $$;

-- Decide a group whose row is locked and that is not FINALIZED: when an outcome is reached its own members
-- that are not over are cancelled, and give back what they hold. Clears its notices. Returns the topics to
-- wake.
CREATE FUNCTION kernel.group_settle(p_space text, p_path uuid[], p_id uuid, p_now timestamptz,
  OUT finalized boolean, OUT cancelled int, OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_outcome text;
  v_reason text;
BEGIN
  wake := '{}'::text[];
  cancelled := 0;
  DELETE FROM runstate.group_notices n WHERE n.group_id = p_id AND n.space_id = p_space;
  SELECT r.outcome, r.reason INTO v_outcome, v_reason FROM kernel.group_reached(p_space, p_id, p_now) r;
  finalized := v_outcome IS NOT NULL;
  IF NOT finalized THEN
    RETURN;
  END IF;
  UPDATE runstate.task_groups g SET state = 'FINALIZED', outcome = v_outcome, outcome_reason = v_reason,
    finalized_at = p_now WHERE g.space_id = p_space AND g.id = p_id;
  SELECT c.cancelled, c.wake INTO cancelled, wake FROM kernel.messages_cancel(p_space, ARRAY(
    SELECT m.task_id FROM runstate.group_members m
     WHERE m.group_id = p_id AND m.space_id = p_space AND m.owned
       AND kernel.task_state(p_space, m.task_id, p_now) IN ('QUEUED', 'RUNNING')), 'group_finalized') c;
  wake := wake || kernel.group_topic(p_space, p_id);
  PERFORM kernel.group_event(p_space, p_now, 'group.finalized', p_path, p_id, pg_catalog.json_build_object(
    'outcome', v_outcome, 'outcomeReason', v_reason, 'cancelled', cancelled), wake);
END $$;

-- The deciding call, which the server makes when a member has ended or the deadline has passed. Locks: gate,
-- the group's row, then what messages_cancel takes.
CREATE FUNCTION kernel.group_decide(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_path uuid[] := kernel.group_path(p_space, p_id);
  v_state text;
  v_now timestamptz;
  v_finalized boolean;
  v_wake text[];
BEGIN
  PERFORM kernel.kernel_enter();
  IF v_path IS NULL THEN
    RETURN kernel.no_group(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_path[1]);
  PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT g.state INTO v_state FROM kernel.group_state(p_space, p_id, v_now) g;
  IF v_state = 'FINALIZED' THEN
    DELETE FROM runstate.group_notices n WHERE n.group_id = p_id AND n.space_id = p_space;
    RETURN kernel.seen(kernel.group_facts(p_space, p_id, v_now), NULL, NULL);
  END IF;
  SELECT s.finalized, s.wake INTO v_finalized, v_wake
    FROM kernel.group_settle(p_space, v_path, p_id, v_now) s;
  IF NOT v_finalized THEN
    RETURN kernel.seen(kernel.group_facts(p_space, p_id, v_now), NULL, NULL);
  END IF;
  RETURN kernel.done(200, kernel.group_facts(p_space, p_id, v_now), v_wake);
END $$;

-- Decide what has notices or a deadline behind it. Locks: gates and groups, only tried. Each group that
-- cancels members is the last of its step: what those held is locked, and comes after any group. Indexes:
-- notices_order, groups_due.
CREATE FUNCTION kernel.group_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_id uuid;
  v_path uuid[];
  v_state text;
  v_cancelled int;
  v_woken text[];
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_id IN
    (SELECT DISTINCT o.space_id, o.group_id FROM (
       SELECT n.space_id, n.group_id FROM runstate.group_notices n ORDER BY n.seq LIMIT p_batch) o)
    UNION ALL
    (SELECT g.space_id, g.id FROM runstate.task_groups g WHERE g.state <> 'FINALIZED' AND g.deadline <= v_now
      ORDER BY g.deadline LIMIT p_batch)
  LOOP
    v_path := kernel.group_path(v_space, v_id);
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_path[1]);
    PERFORM 1 FROM runstate.task_groups g WHERE g.space_id = v_space AND g.id = v_id
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_now := kernel.kernel_now();
    count := count + 1;
    SELECT g.state INTO v_state FROM kernel.group_state(v_space, v_id, v_now) g;
    IF v_state = 'FINALIZED' THEN
      DELETE FROM runstate.group_notices n WHERE n.group_id = v_id AND n.space_id = v_space;
      CONTINUE;
    END IF;
    SELECT s.cancelled, s.wake INTO v_cancelled, v_woken
      FROM kernel.group_settle(v_space, v_path, v_id, v_now) s;
    wake := wake || v_woken;
    IF v_cancelled > 0 THEN
      count := p_batch;  -- go on with another step
      RETURN;
    END IF;
  END LOOP;
END $$;

-- How many groups are still open in the subtree that a path leads to; as once_left.
CREATE FUNCTION kernel.groups_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT 1 FROM runstate.task_groups g WHERE i.scopes IS NULL AND g.space_id = p_space
         AND g.root_id = p_path[1] AND g.state <> 'FINALIZED'
      UNION ALL
      SELECT 1 FROM runstate.task_groups g WHERE g.space_id = p_space AND g.root_id = p_path[1]
         AND g.state <> 'FINALIZED' AND g.scope_id = ANY (i.scopes)) x
$$;

-- Finalize the groups in the subtree that a path leads to, p_limit at most; as once_end. Their members end
-- with their scopes. A deadline of its own that passed before, unnoticed, is what decided a group.
CREATE FUNCTION kernel.groups_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz, p_limit int)
RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scopes uuid[] := kernel.scopes_within(p_space, p_path);
  v_id uuid;
  v_reason text;
  v_count int := 0;
BEGIN
  FOR v_id IN
    SELECT x.id FROM (
      SELECT g.id FROM runstate.task_groups g WHERE v_scopes IS NULL AND g.space_id = p_space
         AND g.root_id = p_path[1] AND g.state <> 'FINALIZED'
      UNION ALL
      SELECT g.id FROM runstate.task_groups g WHERE g.space_id = p_space AND g.root_id = p_path[1]
         AND g.state <> 'FINALIZED' AND g.scope_id = ANY (v_scopes)) x LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    UPDATE runstate.task_groups g SET state = 'FINALIZED', outcome = 'FAILURE', finalized_at = p_now,
      outcome_reason = CASE WHEN g.deadline <= p_now OR p_reason = 'scope_expired' THEN 'deadline'
        ELSE p_reason END
     WHERE g.space_id = p_space AND g.id = v_id AND g.state <> 'FINALIZED'
    RETURNING g.outcome_reason INTO v_reason;
    CONTINUE WHEN NOT FOUND;
    PERFORM kernel.group_event(p_space, p_now, 'group.finalized', kernel.group_path(p_space, v_id), v_id,
      pg_catalog.json_build_object('outcome', 'FAILURE', 'outcomeReason', v_reason), ARRAY[
      kernel.group_topic(p_space, v_id)]);
  END LOOP;
  RETURN v_count;
END $$;
