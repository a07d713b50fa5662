-- Timers, last: what time and the end of a scope do to them.

-- Fire what is due, everywhere; what is due in a scope that has ended ends with it, so that it does not stand
-- before what can fire. Locks: gates and rows, only tried. Index: timers_due.
CREATE FUNCTION kernel.timer_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_space text;
  v_id uuid;
  v_root uuid;
  v_woken text[];
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_id, v_root IN
    SELECT t.space_id, t.id, t.root_id FROM runstate.timers t
     WHERE t.state = 'PENDING' AND t.fire_at <= v_now ORDER BY t.fire_at LIMIT p_batch
  LOOP
    CONTINUE WHEN NOT kernel.gate_tried(v_space, v_root);
    PERFORM 1 FROM runstate.timers t WHERE t.space_id = v_space AND t.id = v_id AND t.state = 'PENDING'
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    v_woken := kernel.timer_meet(v_space, v_id);
    count := count + CASE WHEN pg_catalog.cardinality(v_woken) > 0 THEN 1 ELSE 0 END;
    wake := wake || v_woken;
  END LOOP;
END $$;

-- How many timers are pending in the subtree that a path leads to; as once_left. Index: timers_pending.
CREATE FUNCTION kernel.timer_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT 1 FROM runstate.timers t WHERE i.scopes IS NULL AND t.space_id = p_space
         AND t.root_id = p_path[1] AND t.state = 'PENDING'
      UNION ALL
      SELECT 1 FROM runstate.timers t WHERE t.space_id = p_space AND t.root_id = p_path[1]
         AND t.state = 'PENDING' AND t.scope_id = ANY (i.scopes)) h
$$;

-- End the timers that are pending in the subtree that a path leads to, p_limit at most, for p_reason: as
-- CANCELLED, or as EXPIRED when it expired; as once_end. Index: timers_pending.
CREATE FUNCTION kernel.timer_end(p_space text, p_path uuid[], p_reason text, p_now timestamptz, p_limit int)
RETURNS int LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scopes uuid[] := kernel.scopes_within(p_space, p_path);
  v_expired boolean := p_reason = 'scope_expired';
  v_id uuid;
  v_count int := 0;
BEGIN
  FOR v_id IN
    SELECT h.id FROM (
      SELECT t.id FROM runstate.timers t WHERE v_scopes IS NULL
         AND t.space_id = p_space AND t.root_id = p_path[1] AND t.state = 'PENDING'
      UNION ALL
      SELECT t.id FROM runstate.timers t
       WHERE t.space_id = p_space AND t.root_id = p_path[1] AND t.state = 'PENDING'
         AND t.scope_id = ANY (v_scopes)) h LIMIT p_limit
  LOOP
    v_count := v_count + 1;
    PERFORM 1 FROM runstate.timers t WHERE t.space_id = p_space AND t.id = v_id AND t.state = 'PENDING'
      FOR NO KEY UPDATE;
    CONTINUE WHEN NOT FOUND;  -- a sweep has just ended it
    PERFORM kernel.timer_finish(p_space, v_id, CASE WHEN v_expired THEN 'EXPIRED' ELSE 'CANCELLED' END,
      CASE WHEN v_expired THEN 'deadline' ELSE p_reason END, p_now);
  END LOOP;
  RETURN v_count;
END $$;
