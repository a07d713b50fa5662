-- Events: the journal as readers see it. Reads only, but for the first look, which numbers what the space has
-- committed, so that a reader finds what he wrote. Tables: journal and journal_heads (the floor's), scopes.

-- The facts of one event. Its id holds its instant too: a number may be given again after an older copy of
-- the database has taken this one's place.
CREATE FUNCTION kernel.event_facts(p_num bigint, p_day date, p_type text, p_at timestamptz, p_scope uuid,
  p_path uuid[], p_kind text, p_id text, p_payload text) RETURNS json LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.json_build_object('num', p_num, 'day', p_day, 'path', p_path,
    'eventId', p_num::text || '-'
      || pg_catalog.to_hex((EXTRACT(epoch FROM p_at) * 1000000)::bigint), 'type', p_type, 'createdAt',
    kernel.wire_time(p_at), 'scopeId', p_scope, 'aggregate', pg_catalog.json_build_object('type', p_kind,
      'id', p_id), 'payload', p_payload::json)
$$;

-- Why a cursor cannot be read on from; null when it can. p_head: the last number of the space.
CREATE FUNCTION kernel.cursor_refusal(p_space text, p_epoch bigint, p_num bigint, p_head bigint)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_epoch bigint;
  v_oldest bigint;
BEGIN
  SELECT e.epoch INTO v_epoch FROM runstate.epoch e WHERE e.id = 1;
  IF p_epoch <> v_epoch THEN
    RETURN kernel.refuse('CURSOR_EXPIRED', 'this cursor is of epoch ' || p_epoch::text
      || ', the database is in epoch ' || v_epoch::text
      || ': an older copy may have taken its place; begin again without a cursor');
  ELSIF p_num > p_head THEN
    RETURN kernel.refuse('CURSOR_EXPIRED', 'this cursor stands after event ' || p_num::text
      || ', the journal ends at ' || p_head::text || ': begin again without a cursor');
  END IF;
  SELECT j.num INTO v_oldest FROM runstate.journal j WHERE j.space_id = p_space ORDER BY j.num LIMIT 1;
  IF p_num + 1 < COALESCE(v_oldest, p_head + 1) THEN
    RETURN kernel.refuse('CURSOR_EXPIRED', 'events after this cursor are no longer kept; the oldest is '
      || COALESCE(v_oldest, p_head + 1)::text || ', the cursor stands after ' || p_num::text
      || ': begin again without a cursor');
  END IF;
  RETURN NULL;
END $$;

-- The next at most p_limit events after a cursor (p_epoch null: from the oldest kept) up to number p_head.
-- Reads at most p_scan rows: with filters the cursor moves on past what they hide. done: the end was reached.
CREATE FUNCTION kernel.events_scan(p_space text, p_num bigint, p_day date, p_types text[], p_kind text,
  p_id text, p_path uuid[], p_limit int, p_scan int, p_head bigint, OUT events json[], OUT num bigint,
  OUT day date, OUT done boolean) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_scope CONSTANT uuid := p_path[pg_catalog.cardinality(p_path)];
  v_depth CONSTANT int := COALESCE(pg_catalog.cardinality(p_path), 0);
  v_rows int := 0;
  v_found int := 0;
  v_type text;
  v_at timestamptz;
  v_in uuid;
  v_root uuid;
  v_d1 uuid;
  v_d2 uuid;
  v_kind text;
  v_id text;
  v_payload text;
BEGIN
  events := '{}'::json[];
  num := p_num;
  day := p_day;
  FOR num, day, v_type, v_at, v_in, v_root, v_d1, v_d2, v_kind, v_id, v_payload IN
    SELECT j.num, j.day, j.type, j.created_at, j.scope_id, j.root_id, j.depth1_id, j.depth2_id,
           j.aggregate_type, j.aggregate_id, j.payload
      FROM kernel.events_rows(p_space, p_num, p_day, p_kind, p_id, p_path[1], p_scan, p_head) j
  LOOP
    v_rows := v_rows + 1;
    CONTINUE WHEN v_type <> ALL (p_types)
      OR (v_depth = 2 AND v_d1 IS DISTINCT FROM v_scope) OR (v_depth = 3 AND v_d2 IS DISTINCT FROM v_scope);
    CONTINUE WHEN v_depth > 3 AND NOT EXISTS (SELECT 1 FROM runstate.scopes s
      WHERE s.space_id = p_space AND s.id = v_in AND s.path[v_depth] = v_scope);
    events := events || kernel.event_facts(num, day, v_type, v_at, v_in, ARRAY[v_root, v_d1, v_d2], v_kind,
      v_id, v_payload);
    v_found := v_found + 1;
    EXIT WHEN v_found >= p_limit;
  END LOOP;
  done := v_found < p_limit AND v_rows < p_scan;
END $$;

-- The rows of a scan, by the index that serves it: of one aggregate, of one run, or all.
CREATE FUNCTION kernel.events_rows(p_space text, p_num bigint, p_day date, p_kind text, p_id text,
  p_root uuid, p_scan int, p_head bigint)
RETURNS TABLE (num bigint, day date, type text, created_at timestamptz, scope_id uuid, root_id uuid,
  depth1_id uuid, depth2_id uuid, aggregate_type text, aggregate_id text, payload text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF p_kind IS NOT NULL THEN
    RETURN QUERY SELECT j.num, j.day, j.type, j.created_at, j.scope_id, j.root_id, j.depth1_id, j.depth2_id,
        j.aggregate_type, j.aggregate_id, j.payload FROM runstate.journal j
     WHERE j.aggregate_id = p_id AND j.aggregate_type = p_kind AND j.space_id = p_space AND j.num > p_num
       AND j.num <= p_head AND j.day >= p_day AND (p_root IS NULL OR j.root_id = p_root)
     ORDER BY j.num LIMIT p_scan;
  ELSIF p_root IS NOT NULL THEN
    RETURN QUERY SELECT j.num, j.day, j.type, j.created_at, j.scope_id, j.root_id, j.depth1_id, j.depth2_id,
        j.aggregate_type, j.aggregate_id, j.payload FROM runstate.journal j
     WHERE j.root_id = p_root AND j.num > p_num AND j.num <= p_head AND j.day >= p_day
       AND j.space_id = p_space
     ORDER BY j.num LIMIT p_scan;
  ELSE
    RETURN QUERY SELECT j.num, j.day, j.type, j.created_at, j.scope_id, j.root_id, j.depth1_id, j.depth2_id,
        j.aggregate_type, j.aggregate_id, j.payload FROM runstate.journal j
     WHERE j.space_id = p_space AND j.num > p_num AND j.num <= p_head AND j.day >= p_day
     ORDER BY j.num LIMIT p_scan;
  END IF;
END $$;

-- One look at a space's journal. p_epoch null: from the oldest kept event. p_types null: all. p_scope null:
-- the whole space. Refuses: NOT_FOUND (scope), CURSOR_EXPIRED.
CREATE FUNCTION kernel.events_read(p_space text, p_epoch bigint, p_num bigint, p_day date, p_types text[],
  p_kind text, p_id text, p_scope uuid, p_limit int, p_scan int)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_head bigint;
  v_head_day date;
  v_path uuid[];
  v_events json[];
  v_num bigint;
  v_day date;
  v_done boolean;
  v_reply kernel.reply;
BEGIN
  IF p_scope IS NOT NULL THEN
    SELECT s.path INTO v_path FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope;
    IF NOT FOUND THEN
      RETURN kernel.no_scope(p_scope);
    END IF;
  END IF;
  SELECT h.num, h.day INTO v_head, v_head_day FROM runstate.journal_heads h WHERE h.space_id = p_space;
  v_head := COALESCE(v_head, 0);
  v_head_day := COALESCE(v_head_day, kernel.journal_today());
  IF p_epoch IS NOT NULL THEN
    v_reply := kernel.cursor_refusal(p_space, p_epoch, p_num, v_head);
    IF v_reply.changed IS NOT NULL THEN
      RETURN v_reply;
    END IF;
  END IF;
  SELECT x.events, x.num, x.day, x.done INTO v_events, v_num, v_day, v_done
    FROM kernel.events_scan(p_space, COALESCE(p_num, 0), COALESCE(p_day, '-infinity'::date), p_types, p_kind,
      p_id, v_path, p_limit, CASE WHEN p_types IS NULL AND COALESCE(pg_catalog.cardinality(v_path), 1) = 1
        THEN p_limit ELSE p_scan END, v_head) x;
  v_reply := kernel.seen(pg_catalog.json_build_object('events', pg_catalog.array_to_json(v_events),
    'epoch', (SELECT e.epoch FROM runstate.epoch e WHERE e.id = 1),
    'num', CASE WHEN v_done THEN v_head ELSE v_num END,
    'day', CASE WHEN v_done THEN v_head_day ELSE v_day END, 'done', v_done,
    'depth', COALESCE(pg_catalog.cardinality(v_path), 1) - 1), NULL, NULL);
  v_reply.sleep := ARRAY[kernel.journal_topic(p_space)];
  RETURN v_reply;
END $$;

-- The first look of a reader: numbers what the space has committed, then reads. As events_read.
CREATE FUNCTION kernel.events_first(p_space text, p_epoch bigint, p_num bigint, p_day date, p_types text[],
  p_kind text, p_id text, p_scope uuid, p_limit int, p_scan int)
RETURNS kernel.reply LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_wake text[];
  v_reply kernel.reply;
BEGIN
  PERFORM kernel.kernel_enter();
  v_wake := kernel.journal_catch_up(p_space, 500);
  v_reply := kernel.events_read(p_space, p_epoch, p_num, p_day, p_types, p_kind, p_id, p_scope, p_limit,
    p_scan);
  v_reply.wake := v_wake;
  RETURN v_reply;
END $$;
