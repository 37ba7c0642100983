-- Everything lives in the schema that the session's search_path names first.

CREATE TABLE meta (
    key   text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE partitions (
    partition smallint PRIMARY KEY,
    epoch     bigint NOT NULL,
    owner     text NOT NULL
) WITH (fillfactor = 50);
INSERT INTO partitions SELECT n, 0, '' FROM generate_series(0, 255) n;

-- touched: raised whenever an execution of a watched job is opened, closed or has its turn, and by every edit, so that whoever
-- decided by what it read can tell whether that is still so.
CREATE TABLE jobs (
    tenant        text COLLATE "C" NOT NULL,
    id            uuid NOT NULL,
    revision      integer NOT NULL,
    state         smallint NOT NULL,
    lane          smallint NOT NULL,
    watch         smallint NOT NULL,
    touched       integer NOT NULL DEFAULT 0,
    anchor_ms     bigint NOT NULL,
    created_ms    bigint NOT NULL,
    updated_ms    bigint NOT NULL,
    timeout_sec   float8,
    heartbeat_sec float8,
    deadline_sec  float8,
    type          text NOT NULL,
    pool          text NOT NULL,
    handler       text NOT NULL,
    name          text,
    unique_key    text COLLATE "C",
    trace         text,
    endpoint      text COLLATE "C",
    halted        text,
    spec          text NOT NULL,
    payload       bytea,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX jobs_of_endpoints ON jobs (tenant, id, endpoint) WHERE endpoint IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique_key ON jobs (tenant, unique_key) WHERE unique_key IS NOT NULL;

-- What a job said before it was replaced, for the executions that were fired with it.
CREATE TABLE revisions (
    job_id   uuid NOT NULL,
    revision integer NOT NULL,
    spec     text NOT NULL,
    payload  bytea,
    PRIMARY KEY (job_id, revision)
);

-- key: the job of a fire, the execution of a dispatch; so each has one row at most.
CREATE TABLE timeline (
    key        uuid PRIMARY KEY,
    due_ms     bigint,
    nominal_ms bigint NOT NULL,
    number     integer NOT NULL,
    partition  smallint NOT NULL,
    kind       smallint NOT NULL,
    lane       smallint NOT NULL,
    staged     smallint NOT NULL,
    planned    smallint NOT NULL,
    runs_left  integer,
    tenant     text COLLATE "C" NOT NULL,
    pool       text NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX timeline_due ON timeline (due_ms, key) WHERE due_ms IS NOT NULL;
-- How much a tenant has waiting, and where in the row something of it is.
CREATE INDEX timeline_tenant ON timeline (tenant, due_ms);
CREATE INDEX timeline_planned ON timeline (key) WHERE kind = 0 AND planned = 1;

-- By time: an id begins with the instant of its occurrence, so the id alone finds the partition.
-- watch: 1 overlap is not ALLOW, 2 a concurrency key. Whoever closes a watched execution looks for what waits on it.
-- slots: of what a handed-out execution holds a slot, as JSON: its concurrency key, and caps of its tenant and its pool.
CREATE TABLE executions (
    id          uuid NOT NULL,
    job_id      uuid NOT NULL,
    nominal_ms  bigint NOT NULL,
    due_ms      bigint NOT NULL,
    created_ms  bigint NOT NULL,
    fired_ms    bigint,
    started_ms  bigint,
    finished_ms bigint,
    attempt     integer NOT NULL,
    dispatch    integer NOT NULL,
    revision    integer NOT NULL,
    state       smallint NOT NULL,
    cause       smallint NOT NULL,
    lane        smallint NOT NULL,
    watch       smallint NOT NULL,
    buffered    smallint NOT NULL DEFAULT 0,
    tenant      text COLLATE "C" NOT NULL,
    pool        text NOT NULL,
    handler     text NOT NULL,
    worker_id   text,
    slots       text,
    cancel      text,
    retry_of    uuid,
    moves       text NOT NULL,
    failure     text,
    progress    bytea,
    result      bytea
) PARTITION BY RANGE (id);
CREATE INDEX executions_job ON executions (job_id, id);
-- By job; and what was fired long ago is found by reading it whole, now and then.
CREATE INDEX executions_open ON executions (job_id, fired_ms) WHERE state < 2;
CREATE INDEX executions_running ON executions (worker_id) WHERE state = 1;
-- What was asked to end, by when it did. Those that have not come last.
CREATE INDEX executions_wished ON executions (pool, coalesce(finished_ms, 9000000000000000)) WHERE cancel IS NOT NULL;
-- Last: where the planner believes a partition to be empty, all indexes seem equally good to it, and the newest one wins.
ALTER TABLE executions ADD PRIMARY KEY (id);
CREATE TABLE executions_default PARTITION OF executions DEFAULT;

CREATE TABLE decisions (
    job_id     uuid NOT NULL,
    from_ms    bigint NOT NULL,
    to_ms      bigint NOT NULL,
    count      bigint NOT NULL,
    outcome    text NOT NULL,
    reason     text NOT NULL,
    decided_ms bigint NOT NULL,
    PRIMARY KEY (job_id, from_ms, to_ms)
);
CREATE INDEX decisions_decided ON decisions (decided_ms);

CREATE TABLE batches (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner    text NOT NULL,
    fired_ms bigint NOT NULL,
    members  uuid[] NOT NULL,
    dues     bigint[] NOT NULL
);

-- How many open executions that are handed out count against a concurrency key, or a cap; and the cap. The limit of a key is said
-- by its jobs.
CREATE TABLE slots (
    tenant text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    used   integer NOT NULL,
    cap    integer,
    PRIMARY KEY (tenant, key)
) WITH (fillfactor = 50);

CREATE TABLE dead (
    execution_id uuid PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    job_id       uuid NOT NULL,
    pool         text NOT NULL,
    handler      text NOT NULL,
    died_ms      bigint NOT NULL,
    archived     smallint NOT NULL DEFAULT 0,
    retried_as   uuid
);
CREATE INDEX dead_open ON dead (tenant, execution_id) WHERE archived = 0 AND retried_as IS NULL;

CREATE TABLE places (
    partition integer PRIMARY KEY,
    era       text NOT NULL,
    next      bigint NOT NULL,
    tick_ms   bigint NOT NULL,
    recent    text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE workers (
    id          text COLLATE "C" PRIMARY KEY,
    partition   integer NOT NULL,
    host        text NOT NULL,
    pid         integer NOT NULL,
    concurrency text NOT NULL,
    handlers    text NOT NULL,
    started_ms  bigint NOT NULL,
    seen_ms     bigint NOT NULL,
    state       text NOT NULL,
    stuck       text NOT NULL DEFAULT '[]'
);

CREATE TABLE pools (
    name     text COLLATE "C" PRIMARY KEY,
    settings text NOT NULL
);

CREATE TABLE handlers (
    pool text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    info text NOT NULL,
    PRIMARY KEY (pool, name)
);

CREATE TABLE tenants (
    id         text COLLATE "C" PRIMARY KEY,
    settings   text NOT NULL,
    updated_ms bigint NOT NULL
);
CREATE INDEX tenants_updated ON tenants (updated_ms);

-- What the runs of a tenant used that ended on a day (UTC, counted from 1970-01-01).
CREATE TABLE usage (
    tenant        text COLLATE "C" NOT NULL,
    day           bigint NOT NULL,
    runs          bigint NOT NULL,
    succeeded     bigint NOT NULL,
    failed        bigint NOT NULL,
    run_ms        bigint NOT NULL,
    payload_bytes bigint NOT NULL,
    PRIMARY KEY (tenant, day)
) WITH (fillfactor = 50);
CREATE INDEX usage_day ON usage (day);

-- Ends that a handler has recorded itself and its worker has not reported yet: they count as used when it does.
CREATE TABLE unreported (
    execution_id uuid PRIMARY KEY
);

CREATE TABLE pauses (
    kind     text NOT NULL,
    name     text COLLATE "C" NOT NULL,
    since_ms bigint NOT NULL,
    subject  text NOT NULL,
    PRIMARY KEY (kind, name)
);

CREATE TABLE audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant  text COLLATE "C" NOT NULL,
    at_ms   bigint NOT NULL,
    subject text NOT NULL,
    action  text NOT NULL,
    target  text NOT NULL,
    detail  text NOT NULL
);
CREATE INDEX audit_tenant ON audit (tenant, id);

-- What calls to an endpoint of a tenant (or to all that have none of their own: '') are signed with.
CREATE TABLE secrets (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    endpoint   text COLLATE "C" NOT NULL,
    kind       text NOT NULL,
    sealed     bytea NOT NULL,
    created_ms bigint NOT NULL,
    expires_ms bigint,
    PRIMARY KEY (tenant, id)
);

-- What handlers want to be kept of an attempt.
CREATE TABLE accounts (
    execution_id uuid NOT NULL,
    dispatch     integer NOT NULL,
    started_ms   bigint NOT NULL,
    ended_ms     bigint NOT NULL,
    attempt      integer NOT NULL,
    outcome      smallint NOT NULL,
    account      bytea NOT NULL,
    PRIMARY KEY (execution_id, dispatch, started_ms)
);

-- What happened that somebody has to act upon, until that is done.
CREATE TABLE incidents (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    execution_id uuid NOT NULL,
    job_id       uuid NOT NULL,
    message      text NOT NULL,
    at_ms        bigint NOT NULL
);

CREATE TABLE receipts (
    tenant      text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    at_ms       bigint NOT NULL,
    status      integer NOT NULL,
    body        bytea NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX receipts_age ON receipts (at_ms);
