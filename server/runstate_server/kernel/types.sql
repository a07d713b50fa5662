-- The floor's words: the reply that every kernel function returns, and what builds one.
-- In these files `kernel.` stands for the versioned schema of the functions; install.py writes its real name.
-- Tables are in `runstate`.

CREATE TYPE kernel.reply AS (
  -- HTTP status of a success; null in a refusal, whose status the error table knows
  status   smallint,
  -- null in a success; a code of the error table in a refusal; AGAIN: repeat the call
  code     text,
  facts    json,              -- small: the body of a success, {message, retryAfter?} of a refusal
  -- user JSON as it came; the server splices it in where facts say kernel.payload_here(n)
  payloads text[],
  wake     text[],            -- topics whose sleepers should look again; '+a|b' wakes one sleeper of a or b
  sleep    text[],            -- topics to sleep on before looking again, when this is not yet the answer
  changed  boolean,           -- whether anything was written
  replayed boolean,           -- the first outcome of an idempotency key, told again
  again_s  double precision,  -- seconds until time alone changes this answer; null: never
  expire   uuid,              -- a scope found past its deadline: the server makes the expiring call
  -- task groups that a member's end, or their deadline, may decide: the server makes the deciding call
  decide   uuid[]
);

-- First line of every mutating function: the look after a lock must be a new snapshot, which only READ
-- COMMITTED gives.
CREATE FUNCTION kernel.kernel_enter() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'kernel functions need READ COMMITTED, not %',
      pg_catalog.current_setting('transaction_isolation');
  END IF;
END $$;

CREATE FUNCTION kernel.done(p_status int, p_facts json, p_wake text[])
RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(p_status, NULL, p_facts, NULL, p_wake, NULL, true, false, NULL, NULL, NULL)::kernel.reply
$$;

-- An answer that changed nothing; p_again_s says after how many seconds a sleeper should look again by
-- itself.
CREATE FUNCTION kernel.seen(p_facts json, p_payloads text[], p_again_s double precision) RETURNS kernel.reply
LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(200, NULL, p_facts, p_payloads, NULL, NULL, false, false, p_again_s, NULL, NULL)::kernel.reply
$$;

CREATE FUNCTION kernel.refuse(p_code text, p_message text) RETURNS kernel.reply LANGUAGE sql IMMUTABLE AS $$
  SELECT ROW(NULL, p_code, pg_catalog.json_build_object('message', p_message), NULL, NULL, NULL, false, false,
    NULL, NULL, NULL)::kernel.reply $$;

-- The place of payload n (from 0) in facts. User payloads never pass through json here, they would be parsed
-- again.
CREATE FUNCTION kernel.payload_here(p_n int) RETURNS json LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.json_build_object('$payload', p_n)
$$;

-- RFC 3339 in UTC, cut (never rounded up) to milliseconds: a lease is never shown longer than it is.
CREATE FUNCTION kernel.wire_time(p_at timestamptz) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT pg_catalog.to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
$$;

-- The name of a wake-up topic. Hashed, for keys may be long and NOTIFY may not.
CREATE FUNCTION kernel.topic(p_kind text, p_space text, p_id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
  SELECT p_kind || ':' || pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(
    pg_catalog.convert_to(p_space || E'\x1f' || p_id, 'UTF8')), 'hex'), 24)
$$;

-- Advisory locks: one 64-bit number per (kind, space, id). A collision costs a false wait, never a wrong
-- answer.
CREATE FUNCTION kernel.lock_key(p_kind text, p_space text, p_id text)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT pg_catalog.hashtextextended(p_kind || E'\x1f' || p_space || E'\x1f' || p_id, 0)
$$;
