-- Timers.  PENDING -> FIRED (time) -> ACKED (ack) ; PENDING -> CANCELLED (cancel, end of the scope) ;
-- PENDING -> EXPIRED (the scope's deadline).  A due timer is fired by whoever meets it: a read, a poll, a
-- sweep of any replica. In a scope that has ended nothing fires. The token is made with the timer and told
-- only once it has fired. Table: timers.  Locks: gate shared, idempotency key, the name in its scope
-- (advisory) to create, then the timer's row.

-- Those who wait for one timer.
CREATE FUNCTION kernel.timer_topic(p_space text, p_id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('timer', p_space, p_id::text)
$$;

-- Those who poll a scope for its timers.
CREATE FUNCTION kernel.timers_topic(p_space text, p_scope uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('timers', p_space, p_scope::text)
$$;

CREATE FUNCTION kernel.no_timer(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'timer ' || p_id::text || ' does not exist in this space')
$$;

-- What a stored state is in a scope that is p_effective: the scope is the truth before anybody has written
-- it.
CREATE FUNCTION kernel.timer_state(p_state text, p_effective text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_state <> 'PENDING' OR p_effective = 'ACTIVE' THEN p_state
              WHEN p_effective = 'EXPIRED' THEN 'EXPIRED' ELSE 'CANCELLED' END
$$;

-- How the scope of a timer is at p_now.
CREATE FUNCTION kernel.timer_scope(p_space text, p_scope uuid, p_now timestamptz) RETURNS text
LANGUAGE sql VOLATILE AS $$
  SELECT kernel.effective_at(s.effective, s.effective_deadline, p_now) FROM runstate.scopes s
   WHERE s.space_id = p_space AND s.id = p_scope
$$;

-- The view of section 10 of the API; p_token: with the token, if it has fired. p_id must exist.
CREATE FUNCTION kernel.timer_facts(p_space text, p_id uuid, p_now timestamptz, p_token boolean) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT CASE WHEN p_token AND t.state = 'FIRED' THEN
      pg_catalog.json_build_object('id', t.id, 'name', t.name, 'scopeId', t.scope_id, 'state', t.state,
        'fireAt', kernel.wire_time(t.fire_at), 'firedAt', kernel.wire_time(t.fired_at),
        'now', kernel.wire_time(p_now), 'token', t.token)
    ELSE
      pg_catalog.json_build_object('id', t.id, 'name', t.name, 'scopeId', t.scope_id,
        'state', kernel.timer_state(t.state, kernel.timer_scope(p_space, t.scope_id, p_now)),
        'fireAt', kernel.wire_time(t.fire_at), 'firedAt', kernel.wire_time(t.fired_at),
        'now', kernel.wire_time(p_now)) END
    FROM runstate.timers t WHERE t.space_id = p_space AND t.id = p_id
$$;

-- Fire a timer; its row is locked, it is due, its scope is active. Returns the topics to wake.
CREATE FUNCTION kernel.timer_fire(p_space text, p_id uuid, p_path uuid[], p_now timestamptz) RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_fire_at timestamptz;
  v_wake text[] := ARRAY[kernel.timer_topic(p_space, p_id),
    kernel.timers_topic(p_space, p_path[pg_catalog.cardinality(p_path)])];
BEGIN
  UPDATE runstate.timers t SET state = 'FIRED', fired_at = p_now
   WHERE t.space_id = p_space AND t.id = p_id RETURNING t.name, t.fire_at INTO v_name, v_fire_at;
  PERFORM kernel.event(p_space, p_now, 'timer.fired', p_path, 'timer', p_id::text,
    pg_catalog.json_build_object('name', v_name, 'fireAt', kernel.wire_time(v_fire_at)), v_wake);
  RETURN v_wake;
END $$;

-- End a timer that has not fired, as p_state; its row is locked. Returns the topics to wake.
CREATE FUNCTION kernel.timer_finish(p_space text, p_id uuid, p_state text, p_reason text, p_now timestamptz)
RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_name text;
  v_scope uuid;
  v_wake text[] := ARRAY[kernel.timer_topic(p_space, p_id)];
BEGIN
  UPDATE runstate.timers t SET state = p_state
   WHERE t.space_id = p_space AND t.id = p_id RETURNING t.name, t.scope_id INTO v_name, v_scope;
  PERFORM kernel.event(p_space, p_now, 'timer.cancelled', s.path, 'timer', p_id::text,
      pg_catalog.json_build_object('name', v_name, 'reason', p_reason), v_wake)
    FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = v_scope;
  RETURN v_wake;
END $$;

-- Lock a timer and write what time has made of it: fired, or ended with its scope. Gate passed. Returns the
-- topics to wake, none when there was nothing to write.
CREATE FUNCTION kernel.timer_meet(p_space text, p_id uuid) RETURNS text[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_scope uuid;
  v_path uuid[];
  v_state text;
  v_fire_at timestamptz;
  v_effective text;
BEGIN
  PERFORM 1 FROM runstate.timers t WHERE t.space_id = p_space AND t.id = p_id FOR NO KEY UPDATE;
  SELECT t.scope_id, t.state, t.fire_at INTO v_scope, v_state, v_fire_at FROM runstate.timers t
   WHERE t.space_id = p_space AND t.id = p_id;
  v_now := kernel.kernel_now();
  IF v_state = 'PENDING' THEN
    SELECT s.path, kernel.effective_at(s.effective, s.effective_deadline, v_now) INTO v_path, v_effective
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = v_scope;
    IF v_effective <> 'ACTIVE' THEN
      RETURN kernel.timer_finish(p_space, p_id, kernel.timer_state('PENDING', v_effective),
        CASE WHEN v_effective = 'EXPIRED' THEN 'deadline'
             ELSE 'scope_' || pg_catalog.lower(v_effective) END, v_now);
    ELSIF v_fire_at <= v_now THEN
      RETURN kernel.timer_fire(p_space, p_id, v_path, v_now);
    END IF;
  END IF;
  RETURN '{}'::text[];
END $$;

-- Read a timer; one that is due is fired first, unless the run is just being ended. p_token: as timer_facts.
-- Null when there is none. Locks: none, or gate (only tried) and row of one that is due.
CREATE FUNCTION kernel.timer_read(p_space text, p_id uuid, p_token boolean) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_soon CONSTANT double precision := 0.05;
  v_now timestamptz := kernel.kernel_now();
  v_root uuid;
  v_next timestamptz;
  v_due boolean;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  SELECT t.root_id, LEAST(t.fire_at, s.effective_deadline), t.state = 'PENDING' AND t.fire_at <= v_now
      AND kernel.effective_at(s.effective, s.effective_deadline, v_now) = 'ACTIVE'
    INTO v_root, v_next, v_due FROM runstate.timers t CROSS JOIN LATERAL (
      SELECT x.effective, x.effective_deadline FROM runstate.scopes x
       WHERE x.space_id = p_space AND x.id = t.scope_id OFFSET 0) s
   WHERE t.space_id = p_space AND t.id = p_id;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF v_due AND kernel.gate_tried(p_space, v_root) THEN
    v_wake := kernel.timer_meet(p_space, p_id);
    v_now := kernel.kernel_now();
  END IF;
  v_reply := kernel.seen(kernel.timer_facts(p_space, p_id, v_now, p_token), NULL, NULL);
  v_reply.wake := v_wake;
  IF v_reply.facts ->> 'state' = 'PENDING' THEN
    v_reply.again_s := GREATEST(kernel.seconds_until(v_next, v_now), CASE WHEN v_due THEN v_soon END);
    v_reply.sleep := ARRAY[kernel.timer_topic(p_space, p_id),
      kernel.topic('scope', p_space, v_root::text)];
  END IF;
  RETURN v_reply;
END $$;

-- The view, never the token. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.timer_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.timer_read(p_space, p_id, false);
  IF v_reply.changed IS NULL THEN
    RETURN kernel.no_timer(p_id);
  END IF;
  RETURN v_reply;
END $$;

-- The answer to a name that has its timer in the scope, whatever became of it; null when it has none.
CREATE FUNCTION kernel.timer_named(p_space text, p_scope uuid, p_name text) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_id uuid;
BEGIN
  SELECT t.id INTO v_id FROM runstate.timers t
   WHERE t.space_id = p_space AND t.scope_id = p_scope AND t.name = p_name;
  RETURN kernel.timer_read(p_space, v_id, true);
END $$;
