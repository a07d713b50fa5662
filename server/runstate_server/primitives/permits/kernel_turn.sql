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
    PERFORM kernel.permit_event(p_space, p_now, 'permit.lapsed', p_pool, v_scope, v_id, v_units, v_holder);
  END LOOP;
  RETURN v_free;
END $$;

CREATE FUNCTION kernel.permit_event(p_space text, p_now timestamptz, p_type text, p_pool uuid, p_scope uuid,
  p_grant uuid, p_units bigint, p_holder text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_path uuid[];
BEGIN
  SELECT b.name INTO v_name FROM runstate.pools b WHERE b.space_id = p_space AND b.id = p_pool;
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  PERFORM kernel.event(p_space, p_now, p_type, v_path, 'permit', p_pool::text, pg_catalog.json_build_object(
    'name', v_name, 'grantId', p_grant, 'units', p_units, 'holder', p_holder),
    ARRAY[kernel.pool_topic(p_space, p_pool)]);
END $$;

-- One turn: write off what has lapsed, drop waiters that are gone, put a signalled one that did not come to
-- the end of the line, signal the heads whose units are there. The pool's row is locked. Returns the topics
-- to wake.
CREATE FUNCTION kernel.permit_turn(p_space text, p_pool uuid, p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_hold CONSTANT interval := interval '10 seconds';
  v_freed bigint := kernel.grants_written_off(p_space, p_pool, p_now);
  v_total bigint;
  v_used bigint;
  v_signaled bigint;
  v_ticket bigint;
  v_id uuid;
  v_units bigint;
  v_state text;
  v_gone text;
  v_late boolean;
  v_changed boolean := v_freed > 0;
BEGIN
  SELECT b.units_total, b.units_used - v_freed, b.units_signaled, b.next_ticket
    INTO v_total, v_used, v_signaled, v_ticket FROM runstate.pools b
   WHERE b.space_id = p_space AND b.id = p_pool;
  FOR v_id, v_units, v_state, v_gone, v_late IN
    SELECT w.id, w.units, w.state, CASE WHEN w.seen_at + pg_catalog.make_interval(secs => w.ttl_s) <= p_now
        THEN 'EXPIRED' WHEN kernel.effective_at(s.effective, s.effective_deadline, p_now) <> 'ACTIVE'
        THEN 'CANCELLED' END, w.hold_until <= p_now
      FROM runstate.pool_waiters w CROSS JOIN LATERAL (
        SELECT x.effective, x.effective_deadline FROM runstate.scopes x
         WHERE x.space_id = p_space AND x.id = w.scope_id OFFSET 0) s
     WHERE w.pool_id = p_pool AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
     ORDER BY w.ticket
  LOOP
    IF v_state = 'SIGNALED' AND (v_gone IS NOT NULL OR v_late) THEN
      v_signaled := v_signaled - v_units;
    END IF;
    IF v_gone IS NOT NULL THEN
      UPDATE runstate.pool_waiters w SET state = v_gone, ended_at = p_now, hold_until = NULL
       WHERE w.space_id = p_space AND w.id = v_id;
      v_changed := true;
    ELSIF v_state = 'SIGNALED' AND v_late THEN
      UPDATE runstate.pool_waiters w SET state = 'WAITING', hold_until = NULL, ticket = v_ticket
       WHERE w.space_id = p_space AND w.id = v_id;
      v_ticket := v_ticket + 1;
      v_changed := true;
    END IF;
  END LOOP;
  FOR v_id, v_units IN
    SELECT w.id, w.units FROM runstate.pool_waiters w
     WHERE w.pool_id = p_pool AND w.space_id = p_space AND w.state = 'WAITING' ORDER BY w.ticket
  LOOP
    EXIT WHEN v_units > v_total - v_used - v_signaled;
    UPDATE runstate.pool_waiters w SET state = 'SIGNALED', hold_until = p_now + v_hold
     WHERE w.space_id = p_space AND w.id = v_id;
    v_signaled := v_signaled + v_units;
    v_changed := true;
  END LOOP;
  IF NOT v_changed THEN
    RETURN '{}'::text[];
  END IF;
  UPDATE runstate.pools b SET units_used = v_used, units_signaled = v_signaled, next_ticket = v_ticket
   WHERE b.space_id = p_space AND b.id = p_pool;
  RETURN ARRAY[kernel.pool_topic(p_space, p_pool)];
END $$;

-- When time alone changes a pool's line next: a lease lapses, a signalled waiter's time ends, a waiter is
-- missed. Null: never.
CREATE FUNCTION kernel.permit_next(p_space text, p_pool uuid) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(
    (SELECT g.due_at FROM runstate.grants g WHERE g.pool_id = p_pool AND g.space_id = p_space
        AND g.ended IS NULL ORDER BY g.due_at LIMIT 1),
    (SELECT pg_catalog.min(LEAST(w.hold_until, w.seen_at + pg_catalog.make_interval(secs => w.ttl_s)))
       FROM runstate.pool_waiters w
      WHERE w.pool_id = p_pool AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')))
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
      (SELECT w.space_id, w.pool_id FROM runstate.pool_waiters w
        WHERE w.state = 'SIGNALED' AND w.hold_until <= v_due ORDER BY w.hold_until LIMIT p_batch)) d
  LOOP
    PERFORM 1 FROM runstate.pools b WHERE b.space_id = v_space AND b.id = v_pool
      FOR NO KEY UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    wake := wake || kernel.permit_turn(v_space, v_pool, kernel.kernel_now());
    count := count + 1;
  END LOOP;
END $$;
