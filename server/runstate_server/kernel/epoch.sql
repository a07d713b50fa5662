-- The epoch: the high part of generations and cursors. 0 on a new database; raised when an older copy of the
-- database may stand in its place, so that a number is never handed out twice for different things. Table:
-- epoch.

-- The smallest generation of the present epoch, less one.
CREATE FUNCTION kernel.generation_floor() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT e.epoch << 31 FROM runstate.epoch e WHERE e.id = 1
$$;
