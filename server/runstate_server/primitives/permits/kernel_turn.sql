-- Permits: the turn of a pool, through which everything goes that frees or holds units.

-- Write off grants of a pool whose lease has lapsed; the pool's row is locked. One that is locked is being
-- renewed, and lives. Returns the units that came free. A grant counts until it is written off here, under
-- its own lock: so a renewal never revives one whose units were given away.
CREATE FUNCTION kernel.grants_written_off(p_space text, p_pool uuid, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid;
  v_scope uuid;
  v_units bigint;
  v_holder text;
  v_expires_at timestamptz;
  v_free bigint := 0;
BEGIN
  FOR v_id, v_scope, v_units, v_holder, v_expires_at IN
    SELECT g.id, g.scope_id, g.units, g.holder, g.expires_at FROM runstate.grants g
     WHERE g.pool_id = p_pool AND g.space_id = p_space AND g.ended IS NULL AND g.due_at <= p_now
     ORDER BY g.due_at LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED
  LOOP
    IF v_expires_at > p_now THEN
      UPDATE runstate.grants g SET due_at = v_expires_at WHERE g.space_id = p_space AND g.id = v_id;
      CONTINUE;
    END IF;
    UPDATE runstate.grants g SET ended = 'LAPSED', ended_at = p_now
     WHERE g.space_id = p_space AND g.id = v_id;
    v_free := v_free + v_units;
    PERFORM kernel.permit_event(p_space, p_now, 'permit.lapsed', p_pool, v_scope, v_id, v_units, v_holder,
      ARRAY[kernel.line_topic(p_space, p_pool)]);
  END LOOP;
  RETURN v_free;
END $$;

-- The event of a grant; p_wake: see event.
CREATE FUNCTION kernel.permit_event(p_space text, p_now timestamptz, p_type text, p_pool uuid, p_scope uuid,
  p_grant uuid, p_units bigint, p_holder text, p_wake text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_path uuid[];
BEGIN
  SELECT b.name INTO v_name FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_pool;
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  PERFORM kernel.event(p_space, p_now, p_type, v_path, 'permit', p_pool::text, pg_catalog.json_build_object(
    'name', v_name, 'grantId', p_grant, 'units', p_units, 'holder', p_holder), p_wake);
END $$;

-- Those whom the line had signalled and who are gone, or did not come: gone ones end, the others go back to
-- the end of the line. Returns the units that were held for them, the next ticket, and whom to wake.
CREATE FUNCTION kernel.permit_unsignal(p_space text, p_pool uuid, p_total bigint, p_now timestamptz,
  INOUT ticket bigint, OUT units bigint, OUT wake text[]) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid;
  v_units bigint;
  v_gone text;
BEGIN
  units := 0;
  wake := '{}'::text[];
  FOR v_id, v_units, v_gone IN
    SELECT x.id, x.units, x.gone FROM (
      SELECT w.id, w.units, w.ticket, w.hold_until,
          kernel.waiter_gone(p_space, w.scope_id, w.seen_at, w.ttl_s, w.units, p_total, p_now) AS gone
        FROM runstate.line_waiters w
       WHERE w.resource_id = p_pool AND w.space_id = p_space AND w.state = 'SIGNALED') x
     WHERE x.gone IS NOT NULL OR x.hold_until <= p_now ORDER BY x.ticket
  LOOP
    units := units + v_units;
    IF v_gone IS NOT NULL THEN
      wake := wake || kernel.waiter_end(p_space, v_id, v_gone, NULL, p_now);
    ELSE
      PERFORM kernel.waiter_back(p_space, v_id, ticket, p_now);
      ticket := ticket + 1;
    END IF;
  END LOOP;
END $$;

-- One turn: write off what has lapsed, take back what was held for those who did not come, and signal the
-- heads whose units are there and not kept for a task that stands before them. The pool's row is locked.
-- Returns the topics to wake.
CREATE FUNCTION kernel.permit_turn(p_space text, p_pool uuid, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_freed bigint := kernel.grants_written_off(p_space, p_pool, p_now);
  v_total bigint;
  v_used bigint;
  v_signaled bigint;
  v_held bigint;
  v_before bigint;
  v_ticket bigint;
  v_id uuid;
  v_units bigint;
  v_gone text;
  v_free bigint;
  v_wake text[];
BEGIN
  SELECT b.units_total, b.units_used - v_freed, b.units_signaled, b.next_ticket
    INTO v_total, v_used, v_before, v_ticket FROM runstate.pools b
   WHERE b.space_id = p_space AND b.id = p_pool;
  SELECT u.ticket, u.units, u.wake INTO v_ticket, v_held, v_wake
    FROM kernel.permit_unsignal(p_space, p_pool, v_total, p_now, v_ticket) u;
  v_signaled := v_before - v_held;
  LOOP
    SELECT h.id, h.units, h.gone, v_total - v_used - v_signaled
        - kernel.line_holds(p_space, p_pool, h.since, p_now) INTO v_id, v_units, v_gone, v_free
      FROM kernel.line_head(p_space, p_pool, v_total, p_now) h;
    EXIT WHEN v_id IS NULL OR (v_gone IS NULL AND v_units > v_free);
    IF v_gone IS NOT NULL THEN
      v_wake := v_wake || kernel.waiter_end(p_space, v_id, v_gone, NULL, p_now);
      CONTINUE;
    END IF;
    v_signaled := v_signaled + v_units;
    v_wake := v_wake || kernel.waiter_signal(p_space, v_id, p_now);
  END LOOP;
  IF v_freed > 0 OR v_held > 0 OR v_signaled <> v_before THEN
    UPDATE runstate.pools b SET units_used = v_used, units_signaled = v_signaled, next_ticket = v_ticket
     WHERE b.space_id = p_space AND b.id = p_pool;
  END IF;
  RETURN v_wake || kernel.line_wakes(p_space, p_pool, v_total - v_used - v_signaled, p_now);
END $$;

-- When time alone changes what a pool has: a lease lapses, or its line moves. Null: never.
CREATE FUNCTION kernel.permit_next(p_space text, p_pool uuid) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(
    (SELECT g.due_at FROM runstate.grants g WHERE g.pool_id = p_pool AND g.space_id = p_space
        AND g.ended IS NULL ORDER BY g.due_at LIMIT 1),
    kernel.line_next(p_space, p_pool))
$$;

-- Whether a turn would change something at this instant.
CREATE FUNCTION kernel.permit_due(p_space text, p_pool uuid, p_now timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(kernel.permit_next(p_space, p_pool) <= p_now, false) OR EXISTS (
    SELECT 1 FROM runstate.pools b
     CROSS JOIN LATERAL kernel.line_head(p_space, p_pool, b.units_total, p_now) h
     WHERE b.space_id = p_space AND b.id = p_pool AND h.id IS NOT NULL
       AND (h.gone IS NOT NULL OR h.units <= b.units_total - b.units_used - b.units_signaled
         - kernel.line_holds(p_space, p_pool, h.since, p_now)))
$$;

-- Take the turns of pools in which something is due, p_batch of them at most. Waits for nobody.
CREATE FUNCTION kernel.permit_sweep(p_batch int, OUT count int, OUT wake text[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_due timestamptz := kernel.kernel_now();
  v_space text;
  v_pool uuid;
BEGIN
  PERFORM kernel.kernel_enter();
  count := 0;
  wake := '{}'::text[];
  FOR v_space, v_pool IN
    SELECT DISTINCT d.space_id, d.pool_id FROM (
      (SELECT g.space_id, g.pool_id FROM runstate.grants g WHERE g.ended IS NULL AND g.due_at <= v_due
        ORDER BY g.due_at LIMIT p_batch)
      UNION ALL
      (SELECT w.space_id, w.resource_id FROM runstate.line_waiters w
        WHERE w.state = 'SIGNALED' AND w.hold_until <= v_due ORDER BY w.hold_until LIMIT p_batch)) d
  LOOP
    PERFORM 1 FROM runstate.pools b WHERE b.space_id = v_space AND b.id = v_pool
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    wake := wake || kernel.permit_turn(v_space, v_pool, kernel.kernel_now());
    count := count + 1;
  END LOOP;
END $$;
