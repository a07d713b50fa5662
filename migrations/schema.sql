-- Today's tables, to be read; made by `make schema`, never edited. Functions: each room's kernel.sql.
-- PostgreSQL database dump

-- Name: runstate; Type: SCHEMA; Schema: -; Owner: -

CREATE SCHEMA runstate;

-- Name: alembic_version; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.alembic_version (
    version_num character varying(32) NOT NULL
);

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
);

-- Name: journal_heads; Type: TABLE; Schema: runstate; Owner: -

CREATE TABLE runstate.journal_heads (
    space_id text NOT NULL COLLATE pg_catalog."C",
    num bigint NOT NULL,
    CONSTRAINT num_is_positive CHECK ((num > 0))
)
WITH (fillfactor='20', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

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

-- Name: api_key_spaces api_key_spaces_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.api_key_spaces
    ADD CONSTRAINT api_key_spaces_pkey PRIMARY KEY (space_id, key_id);

-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (space_id, id);

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
    ADD CONSTRAINT journal_pkey PRIMARY KEY (space_id, num);

-- Name: once once_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.once
    ADD CONSTRAINT once_pkey PRIMARY KEY (space_id, scope_id, key);

-- Name: outbox outbox_pkey; Type: CONSTRAINT; Schema: runstate; Owner: -

ALTER TABLE ONLY runstate.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (space_id, seq);

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

-- Name: api_key_spaces_key; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX api_key_spaces_key ON runstate.api_key_spaces USING btree (key_id);

-- Name: api_keys_hash; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX api_keys_hash ON runstate.api_keys USING btree (hash);

-- Name: journal_created; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX journal_created ON runstate.journal USING btree (created_at);

-- Name: once_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX once_due ON runstate.once USING btree (due_at) WHERE (state = 'HELD'::text);

-- Name: once_held; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX once_held ON runstate.once USING btree (space_id, root_id, scope_id, key) WHERE (state = 'HELD'::text);

-- Name: outbox_seq; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX outbox_seq ON runstate.outbox USING btree (seq);

-- Name: scopes_children_newest; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_children_newest ON runstate.scopes USING btree (space_id, parent_id, created_at DESC, id DESC);

-- Name: scopes_due; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_due ON runstate.scopes USING btree (deadline) WHERE ((effective = 'ACTIVE'::text) AND (deadline IS NOT NULL));

-- Name: scopes_root; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_root ON runstate.scopes USING btree (space_id, root_id);

-- Name: scopes_roots_newest; Type: INDEX; Schema: runstate; Owner: -

CREATE INDEX scopes_roots_newest ON runstate.scopes USING btree (space_id, created_at DESC, id DESC) WHERE (depth = 0);

-- Name: scopes_run_name; Type: INDEX; Schema: runstate; Owner: -

CREATE UNIQUE INDEX scopes_run_name ON runstate.scopes USING btree (space_id, run_name) WHERE ((run_name IS NOT NULL) AND (stored = 'ACTIVE'::text));

-- Name: idempotency_0_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_0_pkey;

-- Name: idempotency_1_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_1_pkey;

-- Name: idempotency_2_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_2_pkey;

-- Name: idempotency_3_pkey; Type: INDEX ATTACH; Schema: runstate; Owner: -

ALTER INDEX runstate.idempotency_pkey ATTACH PARTITION runstate.idempotency_3_pkey;

-- PostgreSQL database dump complete
