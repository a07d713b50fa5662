-- Today's tables, to be read; made by `make schema`, never edited. Functions: each room's kernel.sql.
-- PostgreSQL database dump

-- Name: runstate; Type: SCHEMA; Schema: -; Owner: -

CREATE SCHEMA runstate;

-- Name: alembic_version; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.alembic_version (
    version_num character varying(32) NOT NULL
);

-- Name: allowances; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.allowances (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    units_limit bigint NOT NULL,
    window_s bigint NOT NULL,
    window_start timestamp with time zone NOT NULL,
    consumed bigint NOT NULL,
    cooldown_until timestamp with time zone,
    waited boolean NOT NULL,
    next_ticket bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT consumed_counts CHECK ((consumed >= 0)),
    CONSTRAINT limit_is_positive CHECK ((units_limit > 0)),
    CONSTRAINT window_is_positive CHECK ((window_s > 0))
)
WITH (fillfactor='20');

-- Name: api_key_spaces; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.api_key_spaces (
    space_id text NOT NULL COLLATE pg_catalog."C",
    key_id uuid NOT NULL
);

-- Name: api_keys; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.api_keys (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    label text NOT NULL,
    hash bytea NOT NULL,
    permissions text[] NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT hash_is_sha256 CHECK ((length(hash) = 32)),
    CONSTRAINT permissions_known CHECK ((permissions <@ '{runtime,observe,resource_config,space_admin}'::text[]))
);

-- Name: barrier_arrivals; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.barrier_arrivals (
    space_id text NOT NULL COLLATE pg_catalog."C",
    barrier_id uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    arrived_at timestamp with time zone NOT NULL
);

-- Name: barriers; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.barriers (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    name text COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    target integer NOT NULL,
    arrivals integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT arrivals_fit CHECK (((arrivals >= 0) AND (arrivals <= target))),
    CONSTRAINT epoch_counts CHECK ((epoch > 0)),
    CONSTRAINT released_is_full CHECK (((state = 'RELEASED'::text) = (arrivals = target))),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['WAITING'::text, 'RELEASED'::text, 'CANCELLED'::text])))
)
WITH (fillfactor='80');

-- Name: budget_entries; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.budget_entries (
    space_id text NOT NULL COLLATE pg_catalog."C",
    budget_id uuid NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    reservation_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    kind text NOT NULL,
    work_key text COLLATE pg_catalog."C",
    amount_minor bigint NOT NULL,
    asked_minor bigint NOT NULL,
    left_minor bigint NOT NULL,
    state text NOT NULL,
    reserved_change bigint NOT NULL,
    settled_change bigint NOT NULL,
    overrun_change bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT amount_counts CHECK ((amount_minor >= 0)),
    CONSTRAINT kind_known CHECK ((kind = ANY (ARRAY['reserve'::text, 'settle'::text, 'overrun'::text, 'void'::text, 'stale'::text])))
);

-- Name: budget_entries_seq_seq; Type: SEQUENCE; Schema: runstate; Owner: -

ALTER TABLE runstate.budget_entries ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME runstate.budget_entries_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: budget_reservations; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.budget_reservations (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    budget_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    message_id uuid,
    holder text NOT NULL,
    reserved_minor bigint NOT NULL,
    held boolean NOT NULL,
    state text NOT NULL,
    settle_by timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT active_is_held CHECK (((state <> 'ACTIVE'::text) OR held)),
    CONSTRAINT ended_has_time CHECK (((state = ANY (ARRAY['SETTLED'::text, 'VOIDED'::text])) = (ended_at IS NOT NULL))),
    CONSTRAINT ended_is_empty CHECK (((ended_at IS NULL) OR (reserved_minor = 0))),
    CONSTRAINT reserved_bounded CHECK (((reserved_minor >= 0) AND (reserved_minor <= '1000000000000000000'::bigint))),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['ACTIVE'::text, 'SETTLED'::text, 'VOIDED'::text, 'STALE'::text])))
)
WITH (fillfactor='80');

-- Name: budgets; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.budgets (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    currency text NOT NULL COLLATE pg_catalog."C",
    scale smallint NOT NULL,
    limit_minor bigint NOT NULL,
    reserved_minor bigint NOT NULL,
    settled_minor bigint NOT NULL,
    overrun_minor numeric(38,0) NOT NULL,
    hold_stale boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT books_balance CHECK ((reserved_minor <= (limit_minor - settled_minor))),
    CONSTRAINT currency_is_capitals CHECK ((currency ~ '^[A-Z]{3}$'::text)),
    CONSTRAINT limit_bounded CHECK (((limit_minor >= 0) AND (limit_minor <= '1000000000000000000'::bigint))),
    CONSTRAINT overrun_counts CHECK ((overrun_minor >= (0)::numeric)),
    CONSTRAINT reserved_counts CHECK ((reserved_minor >= 0)),
    CONSTRAINT scale_bounded CHECK (((scale >= 0) AND (scale <= 9))),
    CONSTRAINT settled_counts CHECK ((settled_minor >= 0))
)
WITH (fillfactor='20');

-- Name: claims; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.claims (
    space_id text NOT NULL COLLATE pg_catalog."C",
    scope_id uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    root_id uuid NOT NULL,
    held boolean NOT NULL,
    generation bigint NOT NULL,
    token text NOT NULL,
    holder text NOT NULL,
    session text NOT NULL,
    lease_s double precision NOT NULL,
    expires_at timestamp with time zone,
    due_at timestamp with time zone,
    observation text,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT generation_counts CHECK ((generation > 0)),
    CONSTRAINT held_has_lease CHECK (((held = (expires_at IS NOT NULL)) AND (held = (due_at IS NOT NULL))))
)
WITH (fillfactor='80');

-- Name: epoch; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.epoch (
    id integer NOT NULL,
    epoch bigint NOT NULL,
    system_id bigint,
    timeline text,
    CONSTRAINT epoch_fits CHECK (((epoch >= 0) AND (epoch <= '4294967295'::bigint))),
    CONSTRAINT one_row CHECK ((id = 1))
);

-- Name: grants; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.grants (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    pool_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    units bigint NOT NULL,
    token text NOT NULL,
    holder text NOT NULL,
    session text NOT NULL,
    lease_s double precision NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    observation text,
    ended text,
    ended_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    message_id uuid,
    CONSTRAINT ended_has_time CHECK (((ended IS NULL) = (ended_at IS NULL))),
    CONSTRAINT ended_known CHECK ((ended = ANY (ARRAY['RELEASED'::text, 'LAPSED'::text]))),
    CONSTRAINT units_are_positive CHECK ((units > 0))
)
WITH (fillfactor='70');

-- Name: group_members; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.group_members (
    space_id text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL,
    group_id uuid NOT NULL,
    n integer NOT NULL,
    owned boolean NOT NULL,
    verdict text,
    CONSTRAINT verdict_known CHECK ((verdict = ANY (ARRAY['ACCEPTED'::text, 'REJECTED'::text])))
)
WITH (fillfactor='80');

-- Name: group_notices; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.group_notices (
    space_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    group_id uuid NOT NULL
);

-- Name: group_notices_seq_seq; Type: SEQUENCE; Schema: runstate; Owner: -

ALTER TABLE runstate.group_notices ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME runstate.group_notices_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: idempotency; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.idempotency (
    slot smallint NOT NULL,
    space_id text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    status smallint NOT NULL,
    facts text NOT NULL,
    kept_at timestamp with time zone NOT NULL
)
PARTITION BY LIST (slot);

-- Name: idempotency_0; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.idempotency_0 (
    slot smallint CONSTRAINT idempotency_slot_not_null NOT NULL,
    space_id text CONSTRAINT idempotency_space_id_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT idempotency_key_not_null NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea CONSTRAINT idempotency_fingerprint_not_null NOT NULL,
    status smallint CONSTRAINT idempotency_status_not_null NOT NULL,
    facts text CONSTRAINT idempotency_facts_not_null NOT NULL,
    kept_at timestamp with time zone CONSTRAINT idempotency_kept_at_not_null NOT NULL
);

-- Name: idempotency_1; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.idempotency_1 (
    slot smallint CONSTRAINT idempotency_slot_not_null NOT NULL,
    space_id text CONSTRAINT idempotency_space_id_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT idempotency_key_not_null NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea CONSTRAINT idempotency_fingerprint_not_null NOT NULL,
    status smallint CONSTRAINT idempotency_status_not_null NOT NULL,
    facts text CONSTRAINT idempotency_facts_not_null NOT NULL,
    kept_at timestamp with time zone CONSTRAINT idempotency_kept_at_not_null NOT NULL
);

-- Name: idempotency_2; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.idempotency_2 (
    slot smallint CONSTRAINT idempotency_slot_not_null NOT NULL,
    space_id text CONSTRAINT idempotency_space_id_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT idempotency_key_not_null NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea CONSTRAINT idempotency_fingerprint_not_null NOT NULL,
    status smallint CONSTRAINT idempotency_status_not_null NOT NULL,
    facts text CONSTRAINT idempotency_facts_not_null NOT NULL,
    kept_at timestamp with time zone CONSTRAINT idempotency_kept_at_not_null NOT NULL
);

-- Name: idempotency_3; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.idempotency_3 (
    slot smallint CONSTRAINT idempotency_slot_not_null NOT NULL,
    space_id text CONSTRAINT idempotency_space_id_not_null NOT NULL COLLATE pg_catalog."C",
    key text CONSTRAINT idempotency_key_not_null NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea CONSTRAINT idempotency_fingerprint_not_null NOT NULL,
    status smallint CONSTRAINT idempotency_status_not_null NOT NULL,
    facts text CONSTRAINT idempotency_facts_not_null NOT NULL,
    kept_at timestamp with time zone CONSTRAINT idempotency_kept_at_not_null NOT NULL
);

-- Name: journal; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.journal (
    space_id text NOT NULL COLLATE pg_catalog."C",
    num bigint NOT NULL,
    day date NOT NULL,
    type text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scope_id uuid,
    root_id uuid,
    depth1_id uuid,
    depth2_id uuid,
    aggregate_type text NOT NULL,
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    payload text NOT NULL,
    wake text[]
)
PARTITION BY RANGE (day);

-- Name: journal_heads; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.journal_heads (
    space_id text NOT NULL COLLATE pg_catalog."C",
    num bigint NOT NULL,
    day date NOT NULL,
    CONSTRAINT num_is_positive CHECK ((num > 0))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

-- Name: lane_waits; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.lane_waits (
    space_id text NOT NULL COLLATE pg_catalog."C",
    resource_id uuid NOT NULL,
    mailbox_id uuid NOT NULL,
    root_id uuid NOT NULL,
    lane integer NOT NULL,
    kind integer NOT NULL,
    units bigint NOT NULL,
    seq bigint NOT NULL,
    scope_id uuid NOT NULL,
    holder text NOT NULL,
    since timestamp with time zone NOT NULL,
    ready_at timestamp with time zone NOT NULL,
    blocked_at timestamp with time zone NOT NULL,
    holds boolean NOT NULL,
    wake text NOT NULL,
    seen_until timestamp with time zone NOT NULL
)
WITH (fillfactor='50');

-- Name: lanes; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.lanes (
    space_id text NOT NULL COLLATE pg_catalog."C",
    lane integer NOT NULL,
    kinds integer[] NOT NULL,
    resources uuid[] NOT NULL,
    CONSTRAINT lane_has_needs CHECK ((lane >= 2)),
    CONSTRAINT needs_aligned CHECK ((cardinality(kinds) = cardinality(resources)))
);

-- Name: line_waiters; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.line_waiters (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    kind text NOT NULL,
    resource_id uuid NOT NULL,
    ticket bigint NOT NULL,
    since timestamp with time zone NOT NULL,
    state text NOT NULL,
    units bigint NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    holder text NOT NULL,
    ttl_s double precision NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    hold_until timestamp with time zone,
    consumption_id uuid,
    ended_at timestamp with time zone,
    CONSTRAINT kind_known CHECK ((kind = ANY (ARRAY['permit'::text, 'allowance'::text]))),
    CONSTRAINT signaled_is_held CHECK (((state = 'SIGNALED'::text) = (hold_until IS NOT NULL))),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['WAITING'::text, 'SIGNALED'::text, 'GRANTED'::text, 'CANCELLED'::text, 'EXPIRED'::text]))),
    CONSTRAINT units_are_positive CHECK ((units > 0))
)
WITH (fillfactor='70');

-- Name: mailboxes; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.mailboxes (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    mode text NOT NULL,
    backlog_limit integer,
    max_attempts smallint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    requirements text,
    lane integer,
    need bigint[],
    CONSTRAINT backlog_limit_counts CHECK ((backlog_limit >= 1)),
    CONSTRAINT max_attempts_bounded CHECK (((max_attempts >= 1) AND (max_attempts <= 100))),
    CONSTRAINT mode_known CHECK ((mode = ANY (ARRAY['WORK'::text, 'INBOX'::text])))
);

-- Name: messages; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.messages (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    seq bigint NOT NULL,
    mailbox_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    task_key text COLLATE pg_catalog."C",
    work_key text COLLATE pg_catalog."C",
    payload text NOT NULL,
    priority smallint NOT NULL,
    deadline timestamp with time zone,
    ended text,
    attempt smallint NOT NULL,
    last_error text,
    outcome text,
    outcome_reason text,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    work_limit_id uuid,
    requirements text,
    lane integer DEFAULT 0 NOT NULL,
    need bigint[],
    CONSTRAINT attempt_counts CHECK ((attempt >= 0)),
    CONSTRAINT ended_has_time CHECK (((ended IS NULL) = (finished_at IS NULL))),
    CONSTRAINT ended_known CHECK ((ended = ANY (ARRAY['ACKED'::text, 'DEAD'::text, 'EXPIRED'::text, 'CANCELLED'::text]))),
    CONSTRAINT outcome_of_done_task CHECK (((outcome IS NULL) OR ((ended = 'ACKED'::text) AND (task_key IS NOT NULL)))),
    CONSTRAINT priority_bounded CHECK (((priority >= '-100'::integer) AND (priority <= 100))),
    CONSTRAINT task_or_message CHECK (((task_key IS NULL) OR (work_key IS NULL)))
)
WITH (fillfactor='80');

-- Name: messages_seq_seq; Type: SEQUENCE; Schema: runstate; Owner: -

ALTER TABLE runstate.messages ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME runstate.messages_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: once; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.once (
    space_id text NOT NULL COLLATE pg_catalog."C",
    scope_id uuid NOT NULL,
    key text NOT NULL COLLATE pg_catalog."C",
    root_id uuid NOT NULL,
    state text NOT NULL,
    attempts integer NOT NULL,
    holder text,
    session text,
    token text,
    expires_at timestamp with time zone,
    due_at timestamp with time zone,
    last_error text,
    result text,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT attempts_counted CHECK ((attempts >= 0)),
    CONSTRAINT done_has_result CHECK (((state = 'DONE'::text) = (result IS NOT NULL))),
    CONSTRAINT failed_has_error CHECK (((state <> 'FAILED'::text) OR (last_error IS NOT NULL))),
    CONSTRAINT held_has_holder CHECK (((state = 'HELD'::text) = (holder IS NOT NULL))),
    CONSTRAINT held_has_lease CHECK (((state = 'HELD'::text) = ((expires_at IS NOT NULL) AND (due_at IS NOT NULL)))),
    CONSTRAINT held_has_token CHECK (((state = 'HELD'::text) = (token IS NOT NULL))),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['OPEN'::text, 'HELD'::text, 'DONE'::text, 'FAILED'::text])))
)
WITH (fillfactor='80');

-- Name: outbox; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.outbox (
    space_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    type text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scope_id uuid,
    root_id uuid,
    depth1_id uuid,
    depth2_id uuid,
    aggregate_type text NOT NULL,
    aggregate_id text NOT NULL COLLATE pg_catalog."C",
    payload text NOT NULL,
    wake text[]
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

-- Name: outbox_seq_seq; Type: SEQUENCE; Schema: runstate; Owner: -

ALTER TABLE runstate.outbox ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME runstate.outbox_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

-- Name: pools; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.pools (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    units_total bigint NOT NULL,
    units_used bigint NOT NULL,
    units_signaled bigint NOT NULL,
    next_ticket bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT signaled_counts CHECK ((units_signaled >= 0)),
    CONSTRAINT total_is_positive CHECK ((units_total > 0)),
    CONSTRAINT used_counts CHECK ((units_used >= 0))
)
WITH (fillfactor='20');

-- Name: queue_lanes; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.queue_lanes (
    space_id text NOT NULL COLLATE pg_catalog."C",
    a0 uuid NOT NULL,
    mailbox_id uuid NOT NULL,
    lane integer NOT NULL,
    rank smallint NOT NULL
);

-- Name: queue_leased; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.queue_leased (
    space_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    mailbox_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    a0 uuid NOT NULL,
    a1 uuid,
    a2 uuid,
    lane integer NOT NULL,
    rank smallint NOT NULL,
    deadline timestamp with time zone,
    attempt smallint NOT NULL,
    message_id uuid NOT NULL,
    started_at timestamp with time zone NOT NULL,
    token text NOT NULL,
    holder text NOT NULL,
    session text NOT NULL,
    lease_s double precision NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    CONSTRAINT due_before_end CHECK ((due_at <= expires_at))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

-- Name: queue_ready; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.queue_ready (
    space_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    mailbox_id uuid NOT NULL,
    scope_id uuid NOT NULL,
    a0 uuid NOT NULL,
    a1 uuid,
    a2 uuid,
    lane integer NOT NULL,
    rank smallint NOT NULL,
    available_at timestamp with time zone NOT NULL,
    deadline timestamp with time zone,
    attempt smallint NOT NULL,
    message_id uuid NOT NULL,
    started_at timestamp with time zone,
    deliverable boolean NOT NULL,
    need bigint[]
)
WITH (fillfactor='90', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0');

-- Name: replicas; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.replicas (
    id uuid NOT NULL,
    build text NOT NULL,
    seen_at timestamp with time zone NOT NULL
);

-- Name: scope_tidies; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.scope_tidies (
    space_id text NOT NULL COLLATE pg_catalog."C",
    scope_id uuid NOT NULL,
    reason text NOT NULL
);

-- Name: scopes; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.scopes (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    name text COLLATE pg_catalog."C",
    run_name text COLLATE pg_catalog."C",
    parent_id uuid,
    root_id uuid NOT NULL,
    path uuid[] NOT NULL,
    depth smallint NOT NULL,
    stored text NOT NULL,
    effective text NOT NULL,
    deadline timestamp with time zone,
    effective_deadline timestamp with time zone,
    child_limit integer NOT NULL,
    children integer NOT NULL,
    version integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    contents text,
    CONSTRAINT children_bounded CHECK (((children >= 0) AND (children <= child_limit))),
    CONSTRAINT effective_known CHECK ((effective = ANY (ARRAY['ACTIVE'::text, 'CANCELLED'::text, 'COMPLETED'::text, 'EXPIRED'::text]))),
    CONSTRAINT ended_has_time CHECK (((stored = 'ACTIVE'::text) = (ended_at IS NULL))),
    CONSTRAINT own_end_is_effective CHECK (((stored = 'ACTIVE'::text) OR (effective = stored))),
    CONSTRAINT path_leads_here CHECK (((path[1] = root_id) AND (path[cardinality(path)] = id) AND (cardinality(path) = (depth + 1)))),
    CONSTRAINT runs_are_roots CHECK (((run_name IS NULL) OR (depth = 0))),
    CONSTRAINT stored_known CHECK ((stored = ANY (ARRAY['ACTIVE'::text, 'CANCELLED'::text, 'COMPLETED'::text, 'EXPIRED'::text])))
)
WITH (fillfactor='80');

-- Name: sequencer; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.sequencer (
    id integer NOT NULL,
    CONSTRAINT one_row CHECK ((id = 1))
);

-- Name: spaces; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.spaces (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    suspended boolean NOT NULL,
    limits text,
    created_at timestamp with time zone NOT NULL
);

-- Name: task_groups; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.task_groups (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    mailbox_id uuid NOT NULL,
    condition text NOT NULL,
    threshold integer,
    expected_members integer,
    members integer NOT NULL,
    state text NOT NULL,
    outcome text,
    outcome_reason text,
    deadline timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    finalized_at timestamp with time zone,
    CONSTRAINT condition_known CHECK ((condition = ANY (ARRAY['FIRST_ACCEPTED'::text, 'N_ACCEPTED'::text, 'ALL_TERMINAL'::text]))),
    CONSTRAINT failure_has_reason CHECK (((outcome = 'FAILURE'::text) = (outcome_reason IS NOT NULL))),
    CONSTRAINT finalized_has_outcome CHECK (((state = 'FINALIZED'::text) = (outcome IS NOT NULL))),
    CONSTRAINT finalized_has_time CHECK (((state = 'FINALIZED'::text) = (finalized_at IS NOT NULL))),
    CONSTRAINT members_counted CHECK ((members >= 0)),
    CONSTRAINT outcome_known CHECK ((outcome = ANY (ARRAY['SUCCESS'::text, 'FAILURE'::text]))),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['OPEN'::text, 'SEALED'::text, 'FINALIZED'::text]))),
    CONSTRAINT threshold_of_accepted CHECK (((condition = 'ALL_TERMINAL'::text) = (threshold IS NULL)))
)
WITH (fillfactor='50');

-- Name: task_subscribers; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.task_subscribers (
    space_id text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL,
    subscriber_id text NOT NULL COLLATE pg_catalog."C",
    scope_id uuid NOT NULL,
    joined_at timestamp with time zone NOT NULL
);

-- Name: timers; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.timers (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    name text COLLATE pg_catalog."C",
    state text NOT NULL,
    fire_at timestamp with time zone NOT NULL,
    fired_at timestamp with time zone,
    token text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT fired_has_time CHECK (((state = ANY (ARRAY['FIRED'::text, 'ACKED'::text])) = (fired_at IS NOT NULL))),
    CONSTRAINT never_early CHECK ((fired_at >= fire_at)),
    CONSTRAINT state_known CHECK ((state = ANY (ARRAY['PENDING'::text, 'FIRED'::text, 'ACKED'::text, 'CANCELLED'::text, 'EXPIRED'::text])))
)
WITH (fillfactor='80');

-- Name: waits; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.waits (
    space_id text NOT NULL COLLATE pg_catalog."C",
    replica uuid NOT NULL,
    id bigint NOT NULL,
    kind text NOT NULL,
    resource text NOT NULL COLLATE pg_catalog."C",
    scope_id uuid NOT NULL,
    root_id uuid NOT NULL,
    units bigint,
    holder text,
    session text,
    since timestamp with time zone NOT NULL,
    CONSTRAINT kind_is_a_word CHECK ((kind <> ''::text))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000');

-- Name: work_limits; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.work_limits (
    space_id text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL,
    scope_id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    max_outstanding bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT max_is_positive CHECK ((max_outstanding > 0))
);

-- Name: idempotency_0; Type: TABLE ATTACH; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency ATTACH PARTITION runstate.idempotency_0 FOR VALUES IN ('0');

-- Name: idempotency_1; Type: TABLE ATTACH; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency ATTACH PARTITION runstate.idempotency_1 FOR VALUES IN ('1');

-- Name: idempotency_2; Type: TABLE ATTACH; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency ATTACH PARTITION runstate.idempotency_2 FOR VALUES IN ('2');

-- Name: idempotency_3; Type: TABLE ATTACH; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency ATTACH PARTITION runstate.idempotency_3 FOR VALUES IN ('3');

-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

-- Name: allowances allowances_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.allowances
    ADD CONSTRAINT allowances_pkey PRIMARY KEY (space_id, id);

-- Name: api_key_spaces api_key_spaces_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.api_key_spaces
    ADD CONSTRAINT api_key_spaces_pkey PRIMARY KEY (space_id, key_id);

-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (space_id, id);

-- Name: barrier_arrivals barrier_arrivals_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.barrier_arrivals
    ADD CONSTRAINT barrier_arrivals_pkey PRIMARY KEY (space_id, barrier_id, key);

-- Name: barriers barriers_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.barriers
    ADD CONSTRAINT barriers_pkey PRIMARY KEY (space_id, id);

-- Name: budget_entries budget_entries_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.budget_entries
    ADD CONSTRAINT budget_entries_pkey PRIMARY KEY (space_id, id);

-- Name: budget_reservations budget_reservations_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.budget_reservations
    ADD CONSTRAINT budget_reservations_pkey PRIMARY KEY (space_id, id);

-- Name: budgets budgets_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.budgets
    ADD CONSTRAINT budgets_pkey PRIMARY KEY (space_id, id);

-- Name: claims claims_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (space_id, scope_id, key);

-- Name: epoch epoch_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (id);

-- Name: grants grants_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.grants
    ADD CONSTRAINT grants_pkey PRIMARY KEY (space_id, id);

-- Name: group_members group_members_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.group_members
    ADD CONSTRAINT group_members_pkey PRIMARY KEY (space_id, task_id, group_id);

-- Name: group_notices group_notices_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.group_notices
    ADD CONSTRAINT group_notices_pkey PRIMARY KEY (space_id, seq);

-- Name: idempotency idempotency_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (slot, space_id, key);

-- Name: idempotency_0 idempotency_0_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency_0
    ADD CONSTRAINT idempotency_0_pkey PRIMARY KEY (slot, space_id, key);

-- Name: idempotency_1 idempotency_1_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency_1
    ADD CONSTRAINT idempotency_1_pkey PRIMARY KEY (slot, space_id, key);

-- Name: idempotency_2 idempotency_2_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency_2
    ADD CONSTRAINT idempotency_2_pkey PRIMARY KEY (slot, space_id, key);

-- Name: idempotency_3 idempotency_3_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.idempotency_3
    ADD CONSTRAINT idempotency_3_pkey PRIMARY KEY (slot, space_id, key);

-- Name: journal_heads journal_heads_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.journal_heads
    ADD CONSTRAINT journal_heads_pkey PRIMARY KEY (space_id);

-- Name: journal journal_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.journal
    ADD CONSTRAINT journal_pkey PRIMARY KEY (space_id, num, day);

-- Name: lane_waits lane_waits_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.lane_waits
    ADD CONSTRAINT lane_waits_pkey PRIMARY KEY (space_id, resource_id, mailbox_id, root_id, lane);

-- Name: lanes lanes_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (space_id, lane);

-- Name: line_waiters line_waiters_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.line_waiters
    ADD CONSTRAINT line_waiters_pkey PRIMARY KEY (space_id, id);

-- Name: mailboxes mailboxes_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.mailboxes
    ADD CONSTRAINT mailboxes_pkey PRIMARY KEY (space_id, id);

-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (space_id, id);

-- Name: once once_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.once
    ADD CONSTRAINT once_pkey PRIMARY KEY (space_id, scope_id, key);

-- Name: outbox outbox_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (space_id, seq);

-- Name: pools pools_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.pools
    ADD CONSTRAINT pools_pkey PRIMARY KEY (space_id, id);

-- Name: queue_lanes queue_lanes_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.queue_lanes
    ADD CONSTRAINT queue_lanes_pkey PRIMARY KEY (space_id, a0, mailbox_id, lane, rank);

-- Name: queue_leased queue_leased_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.queue_leased
    ADD CONSTRAINT queue_leased_pkey PRIMARY KEY (space_id, seq);

-- Name: queue_ready queue_ready_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.queue_ready
    ADD CONSTRAINT queue_ready_pkey PRIMARY KEY (space_id, seq);

-- Name: replicas replicas_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (id);

-- Name: scope_tidies scope_tidies_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.scope_tidies
    ADD CONSTRAINT scope_tidies_pkey PRIMARY KEY (space_id, scope_id);

-- Name: scopes scopes_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.scopes
    ADD CONSTRAINT scopes_pkey PRIMARY KEY (space_id, id);

-- Name: sequencer sequencer_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.sequencer
    ADD CONSTRAINT sequencer_pkey PRIMARY KEY (id);

-- Name: spaces spaces_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.spaces
    ADD CONSTRAINT spaces_pkey PRIMARY KEY (id);

-- Name: task_groups task_groups_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.task_groups
    ADD CONSTRAINT task_groups_pkey PRIMARY KEY (space_id, id);

-- Name: task_subscribers task_subscribers_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.task_subscribers
    ADD CONSTRAINT task_subscribers_pkey PRIMARY KEY (space_id, task_id, subscriber_id);

-- Name: timers timers_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.timers
    ADD CONSTRAINT timers_pkey PRIMARY KEY (space_id, id);

-- Name: waits waits_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (space_id, replica, id);

-- Name: work_limits work_limits_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.work_limits
    ADD CONSTRAINT work_limits_pkey PRIMARY KEY (space_id, id);

-- Name: allowances_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX allowances_name ON runstate.allowances USING btree (name, space_id);

-- Name: allowances_waited; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX allowances_waited ON runstate.allowances USING btree (space_id, id) WHERE waited;

-- Name: api_key_spaces_key; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX api_key_spaces_key ON runstate.api_key_spaces USING btree (key_id);

-- Name: api_keys_hash; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX api_keys_hash ON runstate.api_keys USING btree (hash);

-- Name: barriers_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX barriers_name ON runstate.barriers USING btree (scope_id, name, space_id) WHERE (name IS NOT NULL);

-- Name: barriers_waiting; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX barriers_waiting ON runstate.barriers USING btree (root_id, scope_id, id) WHERE (state = 'WAITING'::text);

-- Name: budgets_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX budgets_name ON runstate.budgets USING btree (name, space_id);

-- Name: claims_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX claims_due ON runstate.claims USING btree (due_at) WHERE held;

-- Name: claims_held; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX claims_held ON runstate.claims USING btree (root_id, scope_id, key) WHERE held;

-- Name: claims_in_space; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX claims_in_space ON runstate.claims USING btree ((
CASE
    WHEN held THEN space_id
    ELSE NULL::text
END)) WHERE (
CASE
    WHEN held THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: claims_token; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX claims_token ON runstate.claims USING btree (token, space_id);

-- Name: entries_of_budget; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX entries_of_budget ON runstate.budget_entries USING btree (budget_id, seq);

-- Name: entries_work_key; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX entries_work_key ON runstate.budget_entries USING btree (budget_id, kind, work_key, space_id) WHERE (work_key IS NOT NULL);

-- Name: grants_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX grants_due ON runstate.grants USING btree (due_at) WHERE (ended IS NULL);

-- Name: grants_in_space; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX grants_in_space ON runstate.grants USING btree ((
CASE
    WHEN (ended IS NULL) THEN space_id
    ELSE NULL::text
END), root_id) WHERE (
CASE
    WHEN (ended IS NULL) THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: grants_observed; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX grants_observed ON runstate.grants USING btree (pool_id, ended_at) WHERE (observation IS NOT NULL);

-- Name: grants_of_message; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX grants_of_message ON runstate.grants USING btree (message_id) WHERE ((message_id IS NOT NULL) AND (ended IS NULL));

-- Name: grants_of_pool; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX grants_of_pool ON runstate.grants USING btree (pool_id, due_at) WHERE (ended IS NULL);

-- Name: groups_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX groups_due ON runstate.task_groups USING btree (deadline) WHERE ((state <> 'FINALIZED'::text) AND (deadline IS NOT NULL));

-- Name: groups_of_run; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX groups_of_run ON runstate.task_groups USING btree (root_id, scope_id) WHERE (state <> 'FINALIZED'::text);

-- Name: journal_aggregate; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX journal_aggregate ON ONLY runstate.journal USING btree (aggregate_id, aggregate_type, space_id, num);

-- Name: journal_run; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX journal_run ON ONLY runstate.journal USING btree (root_id, num);

-- Name: lane_waits_lane; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX lane_waits_lane ON runstate.lane_waits USING btree (mailbox_id, root_id, lane);

-- Name: lane_waits_line; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX lane_waits_line ON runstate.lane_waits USING btree (resource_id);

-- Name: lane_waits_over; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX lane_waits_over ON runstate.lane_waits USING btree (seen_until);

-- Name: lanes_resources; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX lanes_resources ON runstate.lanes USING btree (resources, kinds, space_id);

-- Name: leased_deadline; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX leased_deadline ON runstate.queue_leased USING btree (deadline) WHERE (deadline IS NOT NULL);

-- Name: leased_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX leased_due ON runstate.queue_leased USING btree (due_at);

-- Name: leased_of_run; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX leased_of_run ON runstate.queue_leased USING btree (mailbox_id, a0, due_at);

-- Name: leased_of_scope; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX leased_of_scope ON runstate.queue_leased USING btree (mailbox_id, scope_id);

-- Name: mailboxes_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX mailboxes_name ON runstate.mailboxes USING btree (space_id, name);

-- Name: mailboxes_newest; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX mailboxes_newest ON runstate.mailboxes USING btree (space_id, created_at, id);

-- Name: members_of_group; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX members_of_group ON runstate.group_members USING btree (group_id, n);

-- Name: messages_dead; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_dead ON runstate.messages USING btree (mailbox_id, root_id, scope_id, space_id) WHERE (ended = 'DEAD'::text);

-- Name: messages_failed; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_failed ON runstate.messages USING btree (root_id, scope_id, space_id) WHERE ((task_key IS NOT NULL) AND (ended = 'DEAD'::text));

-- Name: messages_finished; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_finished ON runstate.messages USING btree (root_id, finished_at, ended, scope_id, space_id) WHERE ((task_key IS NOT NULL) AND (ended <> 'DEAD'::text));

-- Name: messages_limited; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_limited ON runstate.messages USING btree (work_limit_id) WHERE ((work_limit_id IS NOT NULL) AND (ended IS NULL));

-- Name: messages_of_mailbox; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_of_mailbox ON runstate.messages USING btree (mailbox_id, seq);

-- Name: messages_of_scope; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_of_scope ON runstate.messages USING btree (scope_id, seq);

-- Name: messages_task_key; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX messages_task_key ON runstate.messages USING btree (scope_id, mailbox_id, task_key, space_id) WHERE (task_key IS NOT NULL);

-- Name: messages_tasks; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX messages_tasks ON runstate.messages USING btree ((
CASE
    WHEN (task_key IS NOT NULL) THEN space_id
    ELSE NULL::text
END), seq) WHERE (
CASE
    WHEN (task_key IS NOT NULL) THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: messages_work_key; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX messages_work_key ON runstate.messages USING btree (scope_id, mailbox_id, work_key, space_id) WHERE (work_key IS NOT NULL);

-- Name: notices_of_group; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX notices_of_group ON runstate.group_notices USING btree (group_id);

-- Name: notices_order; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX notices_order ON runstate.group_notices USING btree (seq);

-- Name: once_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX once_due ON runstate.once USING btree (due_at) WHERE (state = 'HELD'::text);

-- Name: once_held; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX once_held ON runstate.once USING btree (root_id, scope_id, key) WHERE (state = 'HELD'::text);

-- Name: once_in_space; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX once_in_space ON runstate.once USING btree ((
CASE
    WHEN (state = 'HELD'::text) THEN space_id
    ELSE NULL::text
END)) WHERE (
CASE
    WHEN (state = 'HELD'::text) THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: outbox_seq; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX outbox_seq ON runstate.outbox USING btree (seq);

-- Name: pools_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX pools_name ON runstate.pools USING btree (name, space_id);

-- Name: ready_a1; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_a1 ON runstate.queue_ready USING btree (mailbox_id, a1, lane, rank, available_at, seq) WHERE (deliverable AND (a1 IS NOT NULL));

-- Name: ready_a2; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_a2 ON runstate.queue_ready USING btree (mailbox_id, a2, lane, rank, available_at, seq) WHERE (deliverable AND (a2 IS NOT NULL));

-- Name: ready_behind; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_behind ON runstate.queue_ready USING btree (mailbox_id, scope_id, seq) WHERE (NOT deliverable);

-- Name: ready_deadline; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_deadline ON runstate.queue_ready USING btree (deadline) WHERE (deadline IS NOT NULL);

-- Name: ready_run; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_run ON runstate.queue_ready USING btree (mailbox_id, a0, lane, rank, available_at, seq) WHERE deliverable;

-- Name: ready_scope; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX ready_scope ON runstate.queue_ready USING btree (mailbox_id, scope_id, lane, rank, available_at, seq) WHERE deliverable;

-- Name: reservations_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX reservations_due ON runstate.budget_reservations USING btree (settle_by) WHERE ((state = 'ACTIVE'::text) AND (settle_by IS NOT NULL));

-- Name: reservations_due_in_budget; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX reservations_due_in_budget ON runstate.budget_reservations USING btree (budget_id, settle_by) WHERE ((state = 'ACTIVE'::text) AND (settle_by IS NOT NULL));

-- Name: reservations_ended; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX reservations_ended ON runstate.budget_reservations USING btree (budget_id, ended_at) WHERE (ended_at IS NOT NULL);

-- Name: reservations_of_message; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX reservations_of_message ON runstate.budget_reservations USING btree (message_id) WHERE ((message_id IS NOT NULL) AND (ended_at IS NULL));

-- Name: reservations_open; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX reservations_open ON runstate.budget_reservations USING btree (budget_id, created_at, id) WHERE (ended_at IS NULL);

-- Name: scopes_active; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_active ON runstate.scopes USING btree ((
CASE
    WHEN (effective = 'ACTIVE'::text) THEN space_id
    ELSE NULL::text
END)) WHERE (
CASE
    WHEN (effective = 'ACTIVE'::text) THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: scopes_children_newest; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_children_newest ON runstate.scopes USING btree (parent_id, created_at DESC, id DESC);

-- Name: scopes_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_due ON runstate.scopes USING btree (deadline) WHERE ((effective = 'ACTIVE'::text) AND (deadline IS NOT NULL));

-- Name: scopes_root; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_root ON runstate.scopes USING btree (root_id);

-- Name: scopes_roots_newest; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_roots_newest ON runstate.scopes USING btree (space_id, created_at DESC, id DESC) WHERE (depth = 0);

-- Name: scopes_run_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX scopes_run_name ON runstate.scopes USING btree (space_id, run_name) WHERE ((run_name IS NOT NULL) AND (stored = 'ACTIVE'::text));

-- Name: timers_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX timers_due ON runstate.timers USING btree (fire_at) WHERE (state = 'PENDING'::text);

-- Name: timers_fired; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX timers_fired ON runstate.timers USING btree (root_id, scope_id, fired_at, id) WHERE (state = 'FIRED'::text);

-- Name: timers_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX timers_name ON runstate.timers USING btree (scope_id, name, space_id) WHERE (name IS NOT NULL);

-- Name: timers_pending; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX timers_pending ON runstate.timers USING btree (root_id, scope_id, fire_at) WHERE (state = 'PENDING'::text);

-- Name: waiters_held; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX waiters_held ON runstate.line_waiters USING btree (hold_until) WHERE (state = 'SIGNALED'::text);

-- Name: waiters_in_space; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX waiters_in_space ON runstate.line_waiters USING btree ((
CASE
    WHEN (state = ANY (ARRAY['WAITING'::text, 'SIGNALED'::text])) THEN space_id
    ELSE NULL::text
END), since) WHERE (
CASE
    WHEN (state = ANY (ARRAY['WAITING'::text, 'SIGNALED'::text])) THEN space_id
    ELSE NULL::text
END IS NOT NULL);

-- Name: waiters_line; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX waiters_line ON runstate.line_waiters USING btree (resource_id, ticket, space_id) WHERE (state = ANY (ARRAY['WAITING'::text, 'SIGNALED'::text]));

-- Name: waiters_of_run; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX waiters_of_run ON runstate.line_waiters USING btree (root_id, scope_id) WHERE (state = ANY (ARRAY['WAITING'::text, 'SIGNALED'::text]));

-- Name: waiters_signaled; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX waiters_signaled ON runstate.line_waiters USING btree (resource_id) WHERE (state = 'SIGNALED'::text);

-- Name: work_limits_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX work_limits_name ON runstate.work_limits USING btree (scope_id, name, space_id);

-- Name: idempotency_0_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_0_pkey;

-- Name: idempotency_1_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_1_pkey;

-- Name: idempotency_2_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_2_pkey;

-- Name: idempotency_3_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_3_pkey;

-- PostgreSQL database dump complete
