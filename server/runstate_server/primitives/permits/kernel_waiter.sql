-- Permits: a waiter's own calls: look, cancel.

-- A waiter's own look, which keeps it in the line: its time is written at most four times a ttl. Takes the
-- turn if something is due. The first two look again soon: no event tells that one before them has left.
-- Refuses: NOT_FOUND.
CREATE FUNCTION kernel.waiter_look(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_pool uuid;
  v_root uuid;
  v_total bigint;
  v_ttl_s double precision;
  v_deadline timestamptz;
  v_live boolean;
  v_now timestamptz := kernel.kernel_now();
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT w.resource_id, w.root_id, w.state IN ('WAITING', 'SIGNALED'), w.ttl_s, s.effective_deadline,
      b.units_total
    INTO v_pool, v_root, v_live, v_ttl_s, v_deadline, v_total
    FROM runstate.line_waiters w CROSS JOIN LATERAL (
      SELECT x.effective_deadline FROM runstate.scopes x
       WHERE x.space_id = p_space AND x.id = w.scope_id OFFSET 0) s CROSS JOIN LATERAL (
      SELECT x.units_total FROM runstate.pools x
       WHERE x.space_id = p_space AND x.id = w.resource_id OFFSET 0) b
   WHERE w.space_id = p_space AND w.id = p_id AND w.kind = 'permit';
  IF NOT FOUND THEN
    RETURN kernel.no_waiter(p_id);
  END IF;
  IF v_live AND (kernel.waiter_unseen(p_space, p_id, v_total, v_now)
    OR kernel.permit_due(p_space, v_pool, v_now)) THEN
    PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool FOR NO KEY UPDATE;
    v_now := kernel.kernel_now();
    SELECT b.units_total INTO v_total FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool;
    PERFORM kernel.waiter_seen(p_space, p_id, v_total, v_now);
    v_wake := kernel.permit_turn(p_space, v_pool, v_now);
  END IF;
  v_reply := kernel.seen(kernel.waiter_facts(p_space, p_id, true), NULL, NULL);
  v_reply.again_s := LEAST(v_ttl_s / 4,
    kernel.seconds_until(LEAST(kernel.permit_next(p_space, v_pool), v_deadline), v_now),
    CASE WHEN (v_reply.facts ->> 'position')::bigint <= 2 THEN 2 END);
  v_reply.wake := v_wake;
  v_reply.sleep := ARRAY[kernel.waiter_topic(p_space, p_id), kernel.line_topic(p_space, v_pool),
    kernel.topic('scope', p_space, v_root::text)];
  RETURN v_reply;
END $$;

-- Leave the line; one that has ended answers its state. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.waiter_cancel(p_space text, p_id uuid, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_pool uuid;
  v_total bigint;
  v_state text;
  v_units bigint;
  v_now timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  SELECT w.resource_id INTO v_pool FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_id AND w.kind = 'permit';
  IF NOT FOUND THEN
    RETURN kernel.no_waiter(p_id);
  END IF;
  PERFORM 1 FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT b.units_total INTO v_total FROM runstate.pools b WHERE b.space_id = p_space AND b.id = v_pool;
  PERFORM kernel.waiter_seen(p_space, p_id, v_total, v_now);
  v_wake := kernel.permit_turn(p_space, v_pool, v_now);
  SELECT w.state, w.units INTO v_state, v_units FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_id;
  IF v_state NOT IN ('WAITING', 'SIGNALED') THEN
    v_reply := kernel.seen(pg_catalog.json_build_object('state', v_state), NULL, NULL);
    v_reply.wake := v_wake;
    RETURN v_reply;
  END IF;
  v_wake := v_wake || kernel.waiter_end(p_space, p_id, 'CANCELLED', NULL, v_now);
  UPDATE runstate.pools b SET units_signaled = b.units_signaled - CASE WHEN v_state = 'SIGNALED' THEN v_units
    ELSE 0 END WHERE b.space_id = p_space AND b.id = v_pool;
  v_wake := v_wake || kernel.permit_turn(p_space, v_pool, v_now);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
    pg_catalog.json_build_object('state', 'CANCELLED'), v_wake));
END $$;
