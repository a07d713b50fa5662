-- The only clock of the system. Read it after the last lock, into a variable, and never in a WHERE clause.
CREATE FUNCTION kernel.kernel_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
  SELECT pg_catalog.clock_timestamp()
$$;
