-- Waiting lines, first come first served: who waits for units of a pool or of an allowance. WAITING ->
-- SIGNALED -> GRANTED (pools), WAITING -> GRANTED (allowances); WAITING, SIGNALED -> CANCELLED, EXPIRED.
-- Table: line_waiters.  Locks: none of its own; a waiter changes only under its resource's row.  A waiter
-- that is gone stays in the line until it is met at its head, or looks; nothing is decided by it before.

-- The topic of one waiter.
CREATE FUNCTION kernel.waiter_topic(p_space text, p_id uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('waiter', p_space, p_id::text)
$$;

-- The topic of all who wait in a line: woken when some end together, as with their scope.
CREATE FUNCTION kernel.line_topic(p_space text, p_resource uuid) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT kernel.topic('line', p_space, p_resource::text)
$$;

-- Join a line; p_ticket is the resource's next. p_path: of the waiter's scope.
CREATE FUNCTION kernel.waiter_insert(p_space text, p_id uuid, p_kind text, p_resource uuid, p_ticket bigint,
  p_units bigint, p_path uuid[], p_holder text, p_ttl_s double precision, p_now timestamptz) RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO runstate.line_waiters (space_id, id, kind, resource_id, ticket, since, state, units, scope_id,
    root_id, holder, ttl_s, seen_at)
  VALUES (p_space, p_id, p_kind, p_resource, p_ticket, p_now, 'WAITING', p_units,
    p_path[pg_catalog.cardinality(p_path)], p_path[1], p_holder, p_ttl_s, p_now)
$$;

-- What time alone has made of a waiter: EXPIRED when nobody looked for its time to live, CANCELLED when its
-- scope has ended or more is wanted than there will ever be (p_most). Null: it waits.
CREATE FUNCTION kernel.waiter_gone(p_space text, p_scope uuid, p_seen_at timestamptz,
  p_ttl_s double precision, p_units bigint, p_most bigint, p_now timestamptz) RETURNS text
LANGUAGE sql VOLATILE AS $$
  SELECT CASE
    WHEN p_seen_at + pg_catalog.make_interval(secs => p_ttl_s) <= p_now THEN 'EXPIRED'
    WHEN p_units > p_most OR (SELECT kernel.effective_at(s.effective, s.effective_deadline, p_now)
      FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = p_scope) <> 'ACTIVE' THEN 'CANCELLED' END
$$;

-- End a waiter as p_state. Returns its topic.
CREATE FUNCTION kernel.waiter_end(p_space text, p_id uuid, p_state text, p_consumption uuid,
  p_now timestamptz) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE runstate.line_waiters w SET state = p_state, ended_at = p_now, hold_until = NULL,
    consumption_id = p_consumption WHERE w.space_id = p_space AND w.id = p_id;
  RETURN kernel.waiter_topic(p_space, p_id);
END $$;

-- Call the head of a line: its units are held for it for ten seconds. Returns its topic.
CREATE FUNCTION kernel.waiter_signal(p_space text, p_id uuid, p_now timestamptz) RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE runstate.line_waiters w SET state = 'SIGNALED', hold_until = p_now + interval '10 seconds'
   WHERE w.space_id = p_space AND w.id = p_id;
  RETURN kernel.waiter_topic(p_space, p_id);
END $$;

-- Send one who was called and did not come to the end of the line.
CREATE FUNCTION kernel.waiter_back(p_space text, p_id uuid, p_ticket bigint, p_now timestamptz) RETURNS void
LANGUAGE sql VOLATILE AS $$
  UPDATE runstate.line_waiters w SET state = 'WAITING', hold_until = NULL, ticket = p_ticket, since = p_now
   WHERE w.space_id = p_space AND w.id = p_id
$$;

-- A waiter's own look, under its resource's row: it keeps its place, or ends if it is gone. One that is
-- SIGNALED ends in its resource's turn, which holds units for it.
CREATE FUNCTION kernel.waiter_seen(p_space text, p_id uuid, p_most bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_gone text;
  v_state text;
BEGIN
  SELECT kernel.waiter_gone(p_space, w.scope_id, w.seen_at, w.ttl_s, w.units, p_most, p_now), w.state
    INTO v_gone, v_state FROM runstate.line_waiters w WHERE w.space_id = p_space AND w.id = p_id;
  IF v_state IN ('WAITING', 'SIGNALED') AND v_gone IS NULL THEN
    UPDATE runstate.line_waiters w SET seen_at = p_now WHERE w.space_id = p_space AND w.id = p_id;
  ELSIF v_state = 'WAITING' THEN
    PERFORM kernel.waiter_end(p_space, p_id, v_gone, NULL, p_now);
  END IF;
END $$;

-- Whether a look has to be written: a quarter of the time to live is over, or the waiter has ended.
CREATE FUNCTION kernel.waiter_unseen(p_space text, p_id uuid, p_most bigint, p_now timestamptz)
RETURNS boolean LANGUAGE sql VOLATILE AS $$
  SELECT w.seen_at + pg_catalog.make_interval(secs => w.ttl_s / 4) <= p_now
      OR kernel.waiter_gone(p_space, w.scope_id, w.seen_at, w.ttl_s, w.units, p_most, p_now) IS NOT NULL
    FROM runstate.line_waiters w
   WHERE w.space_id = p_space AND w.id = p_id AND w.state IN ('WAITING', 'SIGNALED')
$$;

-- The first in the line who is not signalled, and what time alone has made of him.
CREATE FUNCTION kernel.line_head(p_space text, p_resource uuid, p_most bigint, p_now timestamptz, OUT id uuid,
  OUT units bigint, OUT since timestamptz, OUT gone text) LANGUAGE sql VOLATILE AS $$
  SELECT w.id, w.units, w.since,
      kernel.waiter_gone(p_space, w.scope_id, w.seen_at, w.ttl_s, w.units, p_most, p_now)
    FROM runstate.line_waiters w
   WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
     AND w.state = 'WAITING' ORDER BY w.ticket LIMIT 1
$$;

-- How many stand in a line, the missed ones left out.
CREATE FUNCTION kernel.line_length(p_space text, p_resource uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM runstate.line_waiters w
   WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
     AND w.seen_at + pg_catalog.make_interval(secs => w.ttl_s) > p_now
$$;

-- When time alone moves a line next: its head is missed, or one who was signalled did not come. Null: never.
CREATE FUNCTION kernel.line_next(p_space text, p_resource uuid) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT LEAST(
    (SELECT w.seen_at + pg_catalog.make_interval(secs => w.ttl_s) FROM runstate.line_waiters w
      WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
        AND w.state = 'WAITING' ORDER BY w.ticket LIMIT 1),
    (SELECT pg_catalog.min(LEAST(w.hold_until, w.seen_at + pg_catalog.make_interval(secs => w.ttl_s)))
       FROM runstate.line_waiters w
      WHERE w.resource_id = p_resource AND w.space_id = p_space AND w.state = 'SIGNALED'))
$$;

-- A waiter as readers see it; `position` counts from 1. p_id must exist.
CREATE FUNCTION kernel.waiter_position(p_space text, p_id uuid, p_now timestamptz) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM runstate.line_waiters w CROSS JOIN LATERAL (
      SELECT y.id FROM runstate.line_waiters y
       WHERE y.resource_id = w.resource_id AND y.space_id = p_space AND y.state IN ('WAITING', 'SIGNALED')
         AND y.ticket <= w.ticket
         AND (y.id = p_id OR y.seen_at + pg_catalog.make_interval(secs => y.ttl_s) > p_now) OFFSET 0) x
   WHERE w.space_id = p_space AND w.id = p_id AND w.state IN ('WAITING', 'SIGNALED')
  HAVING pg_catalog.count(*) > 0
$$;

-- The lines in which somebody waits for a run: the end of a scope in it moves them.
CREATE FUNCTION kernel.line_topics_of(p_space text, p_root uuid) RETURNS text[]
LANGUAGE sql VOLATILE AS $$
  SELECT ARRAY(SELECT DISTINCT kernel.line_topic(p_space, w.resource_id) FROM runstate.line_waiters w
    WHERE w.root_id = p_root AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED'))
$$;

-- How many wait in active scopes of the subtree that a path leads to. They need no end of their own: who
-- looks, or meets one at the head of a line, sees that its scope is over.
CREATE FUNCTION kernel.waiters_left(p_space text, p_path uuid[]) RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.count(*) FROM kernel.scopes_within(p_space, p_path) i (scopes) CROSS JOIN LATERAL (
      SELECT w.scope_id FROM runstate.line_waiters w WHERE i.scopes IS NULL
         AND w.root_id = p_path[1] AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
      UNION ALL
      SELECT w.scope_id FROM runstate.line_waiters w
       WHERE w.root_id = p_path[1] AND w.space_id = p_space AND w.state IN ('WAITING', 'SIGNALED')
         AND w.scope_id = ANY (i.scopes)) x
    CROSS JOIN LATERAL (SELECT 1 FROM runstate.scopes s WHERE s.space_id = p_space AND s.id = x.scope_id
                           AND s.effective = 'ACTIVE' OFFSET 0) s
$$;
