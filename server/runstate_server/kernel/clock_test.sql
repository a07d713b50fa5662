-- The clock of the test build: moved by one row, so that tests shift time instead of sleeping. Installed in
-- place of clock.sql, it gives the build another hash, and `serve` does not run it unless RUNSTATE_TEST_CLOCK
-- is set.
CREATE TABLE kernel.test_clock (shift interval NOT NULL);
INSERT INTO kernel.test_clock (shift) VALUES ('0');
CREATE FUNCTION kernel.kernel_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.clock_timestamp() + (SELECT c.shift FROM kernel.test_clock c)
$$;
