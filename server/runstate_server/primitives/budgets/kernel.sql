-- Budgets: money in minor units.  Reservations: ACTIVE -> SETTLED (settle), VOIDED (void), STALE (past
-- settleBy); STALE -> ACTIVE (settled in part), SETTLED, VOIDED.  Tables: budgets, budget_reservations,
-- budget_entries (never changed).  Locks: gate shared (reserve), idempotency key, then the budget's row: its
-- sums, reservations and entries change under it alone, the first ones by budget_entry.  Who lacks money
-- sleeps on budget_topic.  This file: definitions and views. Verbs: kernel_reserve, _settle, _stale.sql.

-- Who waits for money of a budget.
CREATE FUNCTION kernel.budget_topic(p_space text, p_id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('budget', p_space, p_id::text)
$$;

CREATE FUNCTION kernel.no_budget(p_id uuid) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.refuse('NOT_FOUND', 'budget ' || p_id::text || ' does not exist in this space')
$$;

-- What the reservations past their time give back, whether or not anybody has noticed.
CREATE FUNCTION kernel.budget_due(p_space text, p_id uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(pg_catalog.sum(r.reserved_minor), 0)::bigint FROM runstate.budget_reservations r
   WHERE r.space_id = p_space AND r.budget_id = p_id AND r.state = 'ACTIVE' AND r.settle_by <= p_now
     AND NOT (SELECT b.hold_stale FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id)
$$;

-- What a budget has at p_now; null when there is none of that id.
CREATE FUNCTION kernel.budget_left(p_space text, p_id uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT b.limit_minor - b.settled_minor - b.reserved_minor + kernel.budget_due(p_space, p_id, p_now)
    FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id
$$;

-- What of it can be taken under the budget's row now: without what budget_write_off has still to write off.
CREATE FUNCTION kernel.budget_free(p_space text, p_id uuid) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT b.limit_minor - b.settled_minor - b.reserved_minor FROM runstate.budgets b
   WHERE b.space_id = p_space AND b.id = p_id
$$;

-- The view of section 9 of the API.
CREATE FUNCTION kernel.budget_facts(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', b.id, 'name', b.name, 'currency', b.currency, 'scale', b.scale,
    'limitMinor', b.limit_minor::text, 'reservedMinor', (b.reserved_minor - d.due)::text,
    'settledMinor', b.settled_minor::text, 'availableMinor',
    (b.limit_minor - b.settled_minor - b.reserved_minor + d.due)::text, 'overrunMinor', b.overrun_minor::text)
    FROM runstate.budgets b CROSS JOIN LATERAL (SELECT kernel.budget_due(p_space, p_id, p_now) AS due) d
   WHERE b.space_id = p_space AND b.id = p_id
$$;

-- The same with its reservations: the open ones, and those that ended in the last 24 h; of either at most the
-- 5,000 latest.
CREATE FUNCTION kernel.budget_seen(p_space text, p_id uuid, p_now timestamptz) RETURNS json
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.json_build_object('id', f.facts -> 'id', 'name', f.facts -> 'name', 'currency',
    f.facts -> 'currency', 'scale', f.facts -> 'scale', 'limitMinor', f.facts -> 'limitMinor',
    'reservedMinor', f.facts -> 'reservedMinor', 'settledMinor', f.facts -> 'settledMinor', 'availableMinor',
    f.facts -> 'availableMinor', 'overrunMinor', f.facts -> 'overrunMinor', 'reservations', COALESCE((
      SELECT pg_catalog.json_agg(pg_catalog.json_build_object('id', r.id, 'scopeId', r.scope_id, 'holder',
          r.holder, 'reservedMinor', CASE WHEN r.late AND NOT f.hold_stale OR NOT r.held THEN '0'
            ELSE r.reserved_minor::text END,
          'state', CASE WHEN r.late THEN 'STALE' ELSE r.state END, 'settleBy', kernel.wire_time(r.settle_by),
          'createdAt', kernel.wire_time(r.created_at)) ORDER BY r.created_at, r.id)
        FROM (SELECT o.id, o.scope_id, o.holder, o.reserved_minor, o.held, o.state, o.settle_by, o.created_at,
                     o.state = 'ACTIVE' AND COALESCE(o.settle_by <= p_now, false) AS late
                FROM runstate.budget_reservations o
               WHERE o.id = ANY (ARRAY(
                 SELECT l.id FROM runstate.budget_reservations l
                  WHERE l.space_id = p_space AND l.budget_id = p_id AND l.ended_at IS NULL
                  ORDER BY l.created_at DESC, l.id DESC LIMIT 5000)) AND o.space_id = p_space
              UNION ALL
              SELECT e.id, e.scope_id, e.holder, e.reserved_minor, e.held, e.state, e.settle_by, e.created_at,
                     false
                FROM runstate.budget_reservations e
               WHERE e.id = ANY (ARRAY(
                 SELECT l.id FROM runstate.budget_reservations l
                  WHERE l.space_id = p_space AND l.budget_id = p_id
                    AND l.ended_at > p_now - interval '24 hours'
                  ORDER BY l.ended_at DESC LIMIT 5000)) AND e.space_id = p_space) r), '[]'::json))
    FROM (SELECT kernel.budget_facts(p_space, p_id, p_now) AS facts, b.hold_stale FROM runstate.budgets b
           WHERE b.space_id = p_space AND b.id = p_id) f
$$;

-- The view of a budget with its reservations. Locks: none. Refuses: NOT_FOUND.
CREATE FUNCTION kernel.budget_view(p_space text, p_id uuid) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_facts json := kernel.budget_seen(p_space, p_id, kernel.kernel_now());
BEGIN
  IF v_facts IS NULL THEN
    RETURN kernel.no_budget(p_id);
  END IF;
  RETURN kernel.seen(v_facts, NULL, NULL);
END $$;

-- Write a new budget and its event; the name is locked and free.
CREATE FUNCTION kernel.budget_insert(p_space text, p_id uuid, p_name text, p_currency text, p_scale int,
  p_limit bigint, p_hold_stale boolean, p_now timestamptz, p_status int) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO runstate.budgets (space_id, id, name, currency, scale, limit_minor, reserved_minor,
    settled_minor, overrun_minor, hold_stale, created_at)
  VALUES (p_space, p_id, p_name, p_currency, p_scale, p_limit, 0, 0, 0, COALESCE(p_hold_stale, false), p_now);
  PERFORM kernel.event(p_space, p_now, 'resource.created', NULL, 'budget', p_id::text,
    pg_catalog.json_build_object('name', p_name, 'currency', p_currency, 'scale', p_scale, 'limitMinor',
      p_limit::text), NULL);
  RETURN kernel.done(p_status, kernel.budget_facts(p_space, p_id, p_now), NULL);
END $$;

-- Create a budget. Refuses: CONFLICT (the name exists).
CREATE FUNCTION kernel.budget_create(p_space text, p_id uuid, p_name text, p_currency text, p_scale int,
  p_limit bigint, p_hold_stale boolean, p_idem text, p_print bytea) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('budget', p_space, p_name));
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.name = p_name;
  IF FOUND THEN
    RETURN kernel.refuse('CONFLICT', 'budget "' || p_name || '" exists already');
  END IF;
  v_now := kernel.kernel_now();
  v_reply := kernel.budget_insert(p_space, p_id, p_name, p_currency, p_scale, p_limit, p_hold_stale, v_now,
    201);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- How the settings of a budget differ from those given, null when they do not or there is none.
CREATE FUNCTION kernel.budget_differs(p_space text, p_id uuid, p_currency text, p_scale int, p_limit bigint,
  p_hold_stale boolean) RETURNS text LANGUAGE sql VOLATILE AS $$
  SELECT 'budget "' || b.name || '" has ' || NULLIF(pg_catalog.concat_ws(' and ',
    CASE WHEN b.currency <> p_currency THEN 'currency ' || b.currency || ', not ' || p_currency END,
    CASE WHEN b.scale <> p_scale THEN 'scale ' || b.scale || ', not ' || p_scale END,
    CASE WHEN b.limit_minor <> p_limit THEN 'limitMinor ' || b.limit_minor || ', not ' || p_limit END,
    CASE WHEN b.hold_stale <> p_hold_stale THEN 'holdStale ' || b.hold_stale || ', not ' || p_hold_stale END),
    '') FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id
$$;

-- Find a budget by name; with currency, scale and limit create it, or check those that are given.
-- p_configure: the caller may create. Refuses: NOT_FOUND (not there, and not all given to create it),
-- CONFLICT (another setting), FORBIDDEN.
CREATE FUNCTION kernel.budget_ensure(p_space text, p_id uuid, p_name text, p_currency text, p_scale int,
  p_limit bigint, p_hold_stale boolean, p_configure boolean, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_id uuid;
  v_differs text;
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  FOR v_turn IN 1..2 LOOP
    SELECT b.id INTO v_id FROM runstate.budgets b WHERE b.space_id = p_space AND b.name = p_name;
    v_differs := kernel.budget_differs(p_space, v_id, p_currency, p_scale, p_limit, p_hold_stale);
    IF v_differs IS NOT NULL THEN
      RETURN kernel.refuse('CONFLICT', v_differs);
    ELSIF v_id IS NOT NULL THEN
      RETURN kernel.seen(kernel.budget_facts(p_space, v_id, kernel.kernel_now()), NULL, NULL);
    ELSIF p_currency IS NULL OR p_scale IS NULL OR p_limit IS NULL THEN
      RETURN kernel.refuse('NOT_FOUND', 'budget "' || p_name || '" does not exist in this space; to create '
        'it, give ''currency'', ''scale'' and ''limitMinor''');
    ELSIF NOT p_configure THEN
      RETURN kernel.refuse('FORBIDDEN', 'this key lacks the permission ''resource_config'' to create budget "'
        || p_name || '"');
    END IF;
    IF v_turn = 1 THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('budget', p_space, p_name));
    END IF;
  END LOOP;
  v_now := kernel.kernel_now();
  v_reply := kernel.budget_insert(p_space, p_id, p_name, p_currency, p_scale, p_limit, p_hold_stale, v_now,
    200);
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;

-- Change the limit. Refuses: NOT_FOUND, CONFLICT (below what is settled and reserved).
CREATE FUNCTION kernel.budget_limit(p_space text, p_id uuid, p_limit bigint, p_idem text, p_print bytea)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_now timestamptz;
  v_name text;
  v_before bigint;
  v_bound bigint;
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  IF NOT FOUND THEN
    RETURN kernel.no_budget(p_id);
  END IF;
  v_reply := kernel.idempotency_look(p_space, p_idem, p_print);
  IF v_reply.changed IS NOT NULL THEN
    RETURN v_reply;
  END IF;
  PERFORM 1 FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id FOR NO KEY UPDATE;
  v_now := kernel.kernel_now();
  SELECT s.wake INTO v_wake FROM kernel.budget_write_off(p_space, p_id, NULL, v_now) s;
  SELECT b.name, b.limit_minor, b.settled_minor + b.reserved_minor INTO v_name, v_before, v_bound
    FROM runstate.budgets b WHERE b.space_id = p_space AND b.id = p_id;
  IF v_bound > p_limit AND kernel.budget_due(p_space, p_id, v_now) > 0 THEN
    v_reply := kernel.budget_again(p_id);
  ELSIF v_bound > p_limit THEN
    v_reply := kernel.refuse('CONFLICT', 'budget "' || v_name || '" has ' || v_bound || ' settled and '
      'reserved: its limitMinor cannot become ' || p_limit);
  ELSIF v_before = p_limit THEN
    v_reply := kernel.seen(kernel.budget_facts(p_space, p_id, v_now), NULL, NULL);
  ELSE
    UPDATE runstate.budgets b SET limit_minor = p_limit WHERE b.space_id = p_space AND b.id = p_id;
    IF p_limit > v_before THEN
      v_wake := v_wake || kernel.budget_topic(p_space, p_id);
    END IF;
    PERFORM kernel.event(p_space, v_now, 'resource.updated', NULL, 'budget', p_id::text,
      pg_catalog.json_build_object('name', v_name, 'limitMinor', p_limit::text, 'before', v_before::text),
      v_wake);
    v_reply := kernel.done(200, kernel.budget_facts(p_space, p_id, v_now), NULL);
  END IF;
  v_reply.wake := v_wake;
  RETURN kernel.idempotency_keep(p_space, p_idem, p_print, v_now, v_reply);
END $$;
