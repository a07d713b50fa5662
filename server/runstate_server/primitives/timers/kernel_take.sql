-- Timers: what is done with one that is set: poll, ack, cancel.

-- First steps of ack and cancel: gate, idempotency key. Null: go on. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.timer_enter(p_space text, p_id uuid, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_root uuid;
BEGIN
  SELECT t.root_id INTO v_root FROM runstate.timers t WHERE t.space_id = p_space AND t.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_timer(p_id);
  END IF;
  PERFORM kernel.gate_shared(p_space, v_root);
  RETURN kernel.idempotency_look(p_space, p_idem, p_print);
END $$;

-- Whether a timer of one scope is due and not fired. Index: timers_pending.
CREATE FUNCTION kernel.timers_due(p_space text, p_path uuid[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
BEGIN
  RETURN EXISTS (SELECT 1 FROM runstate.timers t
    WHERE t.space_id = p_space AND t.root_id = p_path[1] AND t.state = 'PENDING'
      AND t.scope_id = p_path[pg_catalog.cardinality(p_path)] AND t.fire_at <= v_now);
END $$;

-- The fired timers of exactly this scope that nobody has acknowledged, the first fired first, p_limit at
-- most; those that are due are fired first. Changes nothing by itself, so its answer is not kept under a key.
-- Refuses: NOT_FOUND (scope), SCOPE_CANCELLED, DEADLINE_EXCEEDED.
CREATE FUNCTION kernel.timers_poll(p_space text, p_scope uuid, p_limit int, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_soon CONSTANT double precision := 0.05;
  v_path uuid[];
  v_now timestamptz;
  v_next timestamptz;
  v_deadline timestamptz;
  v_due boolean;
  v_timers json;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
  IF v_path IS NULL THEN
    RETURN kernel.no_scope(p_scope);
  END IF;
  v_due := kernel.timers_due(p_space, v_path);
  IF v_due THEN  -- a look that fires nothing passes no gate
    PERFORM kernel.gate_shared(p_space, v_path[1]);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NULL THEN
    v_reply := kernel.scope_refusal(p_space, p_scope, kernel.kernel_now());
  END IF;
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  IF v_due THEN
    v_wake := kernel.timers_meet(p_space, v_path, p_limit);
  END IF;
  SELECT COALESCE(pg_catalog.json_agg(pg_catalog.json_build_object('id', f.id, 'name', f.name, 'token',
      f.token, 'firedAt', kernel.wire_time(f.fired_at)) ORDER BY f.fired_at, f.id), '[]') INTO v_timers
    FROM (SELECT t.id, t.name, t.token, t.fired_at FROM runstate.timers t
           WHERE t.space_id = p_space AND t.root_id = v_path[1] AND t.scope_id = p_scope AND t.state = 'FIRED'
           ORDER BY t.fired_at, t.id LIMIT p_limit) f;
  v_reply := kernel.seen(pg_catalog.json_build_object('timers', v_timers), NULL, NULL);
  v_reply.wake := v_wake;
  v_now := kernel.kernel_now();
  SELECT t.fire_at INTO v_next FROM runstate.timers t
   WHERE t.space_id = p_space AND t.root_id = v_path[1] AND t.scope_id = p_scope AND t.state = 'PENDING'
   ORDER BY t.fire_at LIMIT 1;
  SELECT s.effective_deadline INTO v_deadline FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = p_scope;
  v_reply.again_s := GREATEST(kernel.seconds_until(LEAST(v_next, v_deadline), v_now),
    CASE WHEN v_next <= v_now THEN v_soon END);
  v_reply.sleep := ARRAY[kernel.timers_topic(p_space, p_scope), kernel.topic('scope', p_space,
    v_path[1]::text)];
  RETURN v_reply;
END $$;

-- Fire what is due in one scope, p_limit at most, but for what another is firing. Gate passed. Returns the
-- topics to wake. Index: timers_pending.
CREATE FUNCTION kernel.timers_meet(p_space text, p_path uuid[], p_limit int) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz := kernel.kernel_now();
  v_id uuid;
  v_wake text[] := '{}'::text[];
BEGIN
  FOR v_id IN
    SELECT t.id FROM runstate.timers t
     WHERE t.space_id = p_space AND t.root_id = p_path[1] AND t.state = 'PENDING'
       AND t.scope_id = p_path[pg_catalog.cardinality(p_path)] AND t.fire_at <= v_now
     ORDER BY t.fire_at LIMIT p_limit
  LOOP
    PERFORM 1 FROM runstate.timers t WHERE t.space_id = p_space AND t.id = v_id AND t.state = 'PENDING'
      FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      v_wake := v_wake || kernel.timer_meet(p_space, v_id);
    END IF;
  END LOOP;
  RETURN v_wake;
END $$;

-- Take note of a timer that has fired, also in a scope that has ended. Repeating is a no-op. Refuses:
-- NOT_FOUND, CONFLICT (not its token, or it has not fired).
CREATE FUNCTION kernel.timer_ack(p_space text, p_id uuid, p_token text, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_name text;
  v_state text;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.timer_enter(p_space, p_id, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  UPDATE runstate.timers t SET state = 'ACKED'
   WHERE t.space_id = p_space AND t.id = p_id AND t.state = 'FIRED' AND t.token = p_token
  RETURNING t.name INTO v_name;
  IF FOUND THEN
    v_now := kernel.kernel_now();
    PERFORM kernel.event(p_space, v_now, 'timer.acked', s.path, 'timer', p_id::text,
        pg_catalog.json_build_object('name', v_name), NULL)
      FROM runstate.timers t CROSS JOIN LATERAL (SELECT x.path FROM runstate.scopes x
       WHERE x.space_id = p_space AND x.id = t.scope_id OFFSET 0) s
     WHERE t.space_id = p_space AND t.id = p_id;
    RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
      pg_catalog.json_build_object('state', 'ACKED'), NULL));
  END IF;
  PERFORM 1 FROM runstate.timers t WHERE t.space_id = p_space AND t.id = p_id AND t.state = 'ACKED'
    AND t.token = p_token;
  IF FOUND THEN
    RETURN kernel.seen(pg_catalog.json_build_object('state', 'ACKED'), NULL, NULL);
  END IF;
  SELECT t.state INTO v_state FROM runstate.timers t WHERE t.space_id = p_space AND t.id = p_id;
  RETURN kernel.refuse('CONFLICT', CASE WHEN v_state IN ('FIRED', 'ACKED')
    THEN 'this is not the token of timer ' || p_id::text
    ELSE 'timer ' || p_id::text || ' has not fired: there is nothing to acknowledge' END);
END $$;

-- Cancel a timer that has not fired; one that has ended otherwise is answered as it is, also in a scope that
-- has ended. Refuses: NOT_FOUND, CONFLICT (it has fired; one that is due fires first).
CREATE FUNCTION kernel.timer_cancel(p_space text, p_id uuid, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_state text;
  v_fired_at timestamptz;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.timer_enter(p_space, p_id, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  v_wake := kernel.timer_meet(p_space, p_id);
  SELECT t.state, t.fired_at INTO v_state, v_fired_at FROM runstate.timers t
   WHERE t.space_id = p_space AND t.id = p_id;
  v_now := kernel.kernel_now();
  IF v_state = 'PENDING' THEN
    v_wake := v_wake || kernel.timer_finish(p_space, p_id, 'CANCELLED', 'cancelled', v_now);
    RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, kernel.done(200,
      kernel.timer_facts(p_space, p_id, v_now, false), v_wake));
  ELSIF v_state IN ('FIRED', 'ACKED') THEN
    v_reply := kernel.refuse('CONFLICT', 'timer ' || p_id::text || ' fired at '
      || kernel.wire_time(v_fired_at) || ': it cannot be cancelled any more');
  ELSE
    v_reply := kernel.seen(kernel.timer_facts(p_space, p_id, v_now, false), NULL, NULL);
  END IF;
  v_reply.wake := v_wake;
  RETURN v_reply;
END $$;
