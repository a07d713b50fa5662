-- Lanes: what a task needs. A lane is an interned set of resources, without amounts, so that tasks which wait
-- for the same things stand in one line whatever their amounts; the amounts ride on the task, aligned. Lane 0
-- is a message, 1 a task without requirements of its own, 2 and up tasks with. lane_waits: the places of
-- blocked heads of lanes in the lines of what they lack, while an admit call that could take them is waiting.
-- Tables: lanes (here); lane_waits is messages'.  Locks: the space's lanes (advisory) when one is new.

-- Kinds of resources, in the order in which they are locked.
CREATE FUNCTION kernel.kind_word(p_kind int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE p_kind WHEN 1 THEN 'permit pool' WHEN 2 THEN 'allowance' WHEN 3 THEN 'budget' END
$$;

-- What requirements (JSON as on the wire) name, in the order of locks. id is null for a name that does not
-- exist; most: the largest amount that can ever be had, null for a budget, whose limit may rise.
CREATE FUNCTION kernel.needs_of(p_space text, p_requirements json, OUT kind int, OUT name text, OUT id uuid,
  OUT amount bigint, OUT most bigint) RETURNS SETOF record LANGUAGE sql VOLATILE AS $$
  SELECT n.kind, n.name, COALESCE(p.id, a.id, b.id), n.amount, COALESCE(p.units_total, a.units_limit) FROM (
    SELECT 1 AS kind, e ->> 'name' AS name, (e ->> 'units')::bigint AS amount
      FROM pg_catalog.json_array_elements(p_requirements -> 'pools') e
    UNION ALL SELECT 2, e ->> 'name', (e ->> 'units')::bigint
      FROM pg_catalog.json_array_elements(p_requirements -> 'quotas') e
    UNION ALL SELECT 3, e ->> 'name', (e ->> 'reserveMinor')::bigint
      FROM pg_catalog.json_array_elements(p_requirements -> 'budgets') e) n
  LEFT JOIN LATERAL (SELECT x.id, x.units_total FROM runstate.pools x
                      WHERE n.kind = 1 AND x.name = n.name AND x.space_id = p_space OFFSET 0) p ON true
  LEFT JOIN LATERAL (SELECT x.id, x.units_limit FROM runstate.allowances x
                      WHERE n.kind = 2 AND x.name = n.name AND x.space_id = p_space OFFSET 0) a ON true
  LEFT JOIN LATERAL (SELECT x.id FROM runstate.budgets x
                      WHERE n.kind = 3 AND x.name = n.name AND x.space_id = p_space OFFSET 0) b ON true
  ORDER BY n.kind, COALESCE(p.id, a.id, b.id)
$$;

-- Why requirements cannot be: NOT_FOUND names what does not exist, VALIDATION_FAILED what can never be had.
-- Null: they can.
CREATE FUNCTION kernel.needs_refusal(p_space text, p_requirements json) RETURNS kernel.reply
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_kind int;
  v_name text;
  v_id uuid;
  v_amount bigint;
  v_most bigint;
BEGIN
  SELECT n.kind, n.name, n.id, n.amount, n.most INTO v_kind, v_name, v_id, v_amount, v_most
    FROM kernel.needs_of(p_space, p_requirements) n WHERE n.id IS NULL OR n.amount > n.most LIMIT 1;
  IF NOT FOUND THEN
    RETURN NULL;
  ELSIF v_id IS NULL THEN
    RETURN kernel.refuse('NOT_FOUND', kernel.kind_word(v_kind) || ' "' || v_name
      || '" does not exist in this space');
  END IF;
  RETURN kernel.refuse('VALIDATION_FAILED', '''requirements'': ' || v_amount::text || ' are more than the '
    || v_most::text || CASE v_kind WHEN 1 THEN ' units of ' ELSE ' units per window of ' END
    || kernel.kind_word(v_kind) || ' "' || v_name || '"');
END $$;

-- The lane of requirements that can be, and their amounts in its order. Null or empty requirements: none.
CREATE FUNCTION kernel.lane_of(p_space text, p_requirements json, OUT lane int, OUT need bigint[])
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_kinds int[];
  v_ids uuid[];
BEGIN
  SELECT pg_catalog.array_agg(n.kind ORDER BY n.kind, n.id), pg_catalog.array_agg(n.id ORDER BY n.kind, n.id),
      pg_catalog.array_agg(n.amount ORDER BY n.kind, n.id) INTO v_kinds, v_ids, need
    FROM kernel.needs_of(p_space, p_requirements) n;
  IF v_ids IS NULL THEN
    RETURN;
  END IF;
  FOR v_turn IN 1..2 LOOP
    SELECT l.lane INTO lane FROM runstate.lanes l
     WHERE l.resources = v_ids AND l.kinds = v_kinds AND l.space_id = p_space;
    EXIT WHEN FOUND;
    IF v_turn = 1 THEN
      PERFORM pg_catalog.pg_advisory_xact_lock(kernel.lock_key('lanes', p_space, ''));
    ELSE
      SELECT COALESCE(pg_catalog.max(l.lane), 1) + 1 INTO lane FROM runstate.lanes l
       WHERE l.space_id = p_space;
      INSERT INTO runstate.lanes (space_id, lane, kinds, resources) VALUES (p_space, lane, v_kinds, v_ids);
    END IF;
  END LOOP;
END $$;

-- What the blocked heads of lanes keep of a resource for themselves, those that stand before p_before (null:
-- all). A place is held only while somebody waits to take the head.
CREATE FUNCTION kernel.line_holds(p_space text, p_resource uuid, p_before timestamptz, p_now timestamptz)
RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT COALESCE(pg_catalog.sum(w.units), 0)::bigint FROM runstate.lane_waits w
   WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.holds AND w.seen_until > p_now
     AND (p_before IS NULL OR w.since < p_before)
$$;

-- How many lanes hold a place.
CREATE FUNCTION kernel.line_holders(p_space text, p_resource uuid, p_now timestamptz)
RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM runstate.lane_waits w
   WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.holds AND w.seen_until > p_now
$$;

-- Whom p_units of a resource wake: of each lane whose head they would do for, one who could take it.
CREATE FUNCTION kernel.line_wakes(p_space text, p_resource uuid, p_units bigint, p_now timestamptz)
RETURNS text[] LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT w.wake FROM runstate.lane_waits w
    WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.seen_until > p_now
      AND w.units <= p_units ORDER BY w.since)
$$;
