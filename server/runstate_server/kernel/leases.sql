-- Lease arithmetic that every room with leases shares.

CREATE FUNCTION kernel.lease_end(p_now timestamptz, p_lease_s double precision) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$
  SELECT p_now + pg_catalog.make_interval(secs => p_lease_s)
$$;

-- A renewal never shortens a lease.
CREATE FUNCTION kernel.lease_renewed(p_now timestamptz, p_expires_at timestamptz, p_lease_s double precision)
RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$
  SELECT GREATEST(p_expires_at, kernel.lease_end(p_now, p_lease_s))
$$;

-- Null for an instant that never comes (GREATEST alone would say 0).
CREATE FUNCTION kernel.seconds_until(p_at timestamptz, p_now timestamptz) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN p_at IS NOT NULL THEN GREATEST(EXTRACT(epoch FROM p_at - p_now), 0)::double precision END
$$;
