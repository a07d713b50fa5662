-- The epoch: the high part of generations and cursors. 0 on a new database; raised when an older copy of the
-- database may stand in its place, so that a number is never handed out twice for different things. Table:
-- epoch.

-- The smallest generation of the present epoch, less one.
CREATE FUNCTION kernel.generation_floor() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT e.epoch << 31 FROM runstate.epoch e WHERE e.id = 1
$$;

-- Raise the epoch, never to less than the seconds since 2026: an older copy of the database, which knows
-- nothing of this, would raise it to something else. Returns the new one.
CREATE FUNCTION kernel.epoch_raise() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_epoch bigint;
BEGIN
  PERFORM kernel.kernel_enter();
  UPDATE runstate.epoch e SET epoch = GREATEST(e.epoch + 1, EXTRACT(epoch FROM kernel.kernel_now()
      - '2026-01-01T00:00:00Z'::timestamptz)::bigint) WHERE e.id = 1 RETURNING e.epoch INTO v_epoch;
  RETURN v_epoch;
END $$;

-- The look of a new connection: a database with another system identifier, or on another timeline of the
-- write-ahead log, than the recorded one is a restored copy or a promoted standby, which may lack the last
-- commits. Then the epoch is raised. The timeline is read from the file's name: after a promotion the control
-- file tells the old one for a while (kernel.md, section 12). Returns the epoch if it was raised.
CREATE FUNCTION kernel.epoch_guard() RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  v_system bigint;
  v_timeline text;
  v_known_system bigint;
  v_known_timeline text;
BEGIN
  PERFORM kernel.kernel_enter();
  IF pg_catalog.pg_is_in_recovery() THEN
    RETURN NULL;
  END IF;
  SELECT c.system_identifier INTO v_system FROM pg_catalog.pg_control_system() c;
  v_timeline := pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8);
  SELECT e.system_id, e.timeline INTO v_known_system, v_known_timeline FROM runstate.epoch e WHERE e.id = 1;
  IF v_known_system = v_system AND v_known_timeline = v_timeline THEN
    RETURN NULL;
  END IF;
  SELECT e.system_id, e.timeline INTO v_known_system, v_known_timeline FROM runstate.epoch e WHERE e.id = 1
    FOR UPDATE;
  UPDATE runstate.epoch e SET system_id = v_system, timeline = v_timeline WHERE e.id = 1;
  IF v_known_system <> v_system OR v_known_timeline <> v_timeline THEN
    RETURN kernel.epoch_raise();
  END IF;
  RETURN NULL;
END $$;
