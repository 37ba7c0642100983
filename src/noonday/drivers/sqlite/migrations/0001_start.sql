-- Ciphertext (payload, progress, result) is base64 text, so that whole batches travel as one JSON parameter or answer.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE partitions (
    partition INTEGER PRIMARY KEY,
    epoch     INTEGER NOT NULL,
    owner     TEXT NOT NULL
);

CREATE TABLE jobs (
    tenant        TEXT NOT NULL,
    id            TEXT NOT NULL,
    revision      INTEGER NOT NULL,
    state         INTEGER NOT NULL,
    name          TEXT,
    type          TEXT NOT NULL,
    pool          TEXT NOT NULL,
    handler       TEXT NOT NULL,
    lane          INTEGER NOT NULL,
    unique_key    TEXT,
    timeout_sec   REAL,
    heartbeat_sec REAL,
    deadline_sec  REAL,
    watch         INTEGER NOT NULL,
    anchor_ms     INTEGER NOT NULL,
    created_ms    INTEGER NOT NULL,
    updated_ms    INTEGER NOT NULL,
    trace         TEXT,
    endpoint      TEXT,
    halted        TEXT,
    spec          TEXT NOT NULL,
    payload       TEXT,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX jobs_of_endpoints ON jobs (tenant, id, endpoint) WHERE endpoint IS NOT NULL;
CREATE UNIQUE INDEX jobs_unique_key ON jobs (tenant, unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX jobs_cancelled ON jobs (updated_ms) WHERE state = 2;

-- What a job said before it was replaced, for the executions that were fired with it.
CREATE TABLE revisions (
    job_id   TEXT NOT NULL,
    revision INTEGER NOT NULL,
    spec     TEXT NOT NULL,
    payload  TEXT,
    PRIMARY KEY (job_id, revision)
) WITHOUT ROWID;

-- key: the job of a fire, the execution of a dispatch; so each has one row at most.
CREATE TABLE timeline (
    key        TEXT PRIMARY KEY,
    due_ms     INTEGER,
    kind       INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    nominal_ms INTEGER NOT NULL,
    partition  INTEGER NOT NULL,
    tenant     TEXT NOT NULL,
    pool       TEXT NOT NULL,
    lane       INTEGER NOT NULL,
    staged     INTEGER NOT NULL,
    planned    INTEGER NOT NULL,
    runs_left  INTEGER
) WITHOUT ROWID;
CREATE INDEX timeline_due ON timeline (due_ms, key) WHERE due_ms IS NOT NULL;

-- watch: 1 overlap is not ALLOW, 2 a concurrency key. Whoever closes a watched execution looks for what waits on it.
-- slots: of what a handed-out execution holds a slot, as JSON: its concurrency key, and caps of its tenant and its pool.
CREATE TABLE executions (
    job_id      TEXT NOT NULL,
    id          TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    nominal_ms  INTEGER NOT NULL,
    due_ms      INTEGER NOT NULL,
    state       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    dispatch    INTEGER NOT NULL,
    revision    INTEGER NOT NULL,
    cause       INTEGER NOT NULL,
    pool        TEXT NOT NULL,
    handler     TEXT NOT NULL,
    lane        INTEGER NOT NULL,
    watch       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    fired_ms    INTEGER,
    buffered    INTEGER NOT NULL DEFAULT 0,
    slots       TEXT,
    worker_id   TEXT,
    started_ms  INTEGER,
    finished_ms INTEGER,
    cancel      TEXT,
    failure     TEXT,
    progress    TEXT,
    result      TEXT,
    retry_of    TEXT,
    moves       TEXT NOT NULL,
    PRIMARY KEY (job_id, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX executions_id ON executions (id);
CREATE INDEX executions_open ON executions (job_id, id) WHERE state < 2;
CREATE INDEX executions_running ON executions (worker_id) WHERE state = 1;

CREATE TABLE decisions (
    job_id     TEXT NOT NULL,
    from_ms    INTEGER NOT NULL,
    to_ms      INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    outcome    TEXT NOT NULL,
    reason     TEXT NOT NULL,
    decided_ms INTEGER NOT NULL,
    PRIMARY KEY (job_id, from_ms, to_ms)
) WITHOUT ROWID;
CREATE INDEX decisions_decided ON decisions (decided_ms);

CREATE TABLE batches (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    owner    TEXT NOT NULL,
    fired_ms INTEGER NOT NULL,
    members  TEXT NOT NULL
);

-- How many open executions that are handed out count against a concurrency key, or a cap; and the cap. The limit of a key is said
-- by its jobs.
CREATE TABLE slots (
    tenant TEXT NOT NULL,
    key    TEXT NOT NULL,
    used   INTEGER NOT NULL,
    cap    INTEGER,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE TABLE dead (
    execution_id TEXT PRIMARY KEY,
    tenant       TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    pool         TEXT NOT NULL,
    handler      TEXT NOT NULL,
    died_ms      INTEGER NOT NULL,
    archived     INTEGER NOT NULL DEFAULT 0,
    retried_as   TEXT
) WITHOUT ROWID;
CREATE INDEX dead_open ON dead (tenant, execution_id) WHERE archived = 0 AND retried_as IS NULL;

CREATE TABLE places (
    partition INTEGER PRIMARY KEY,
    era       TEXT NOT NULL,
    next      INTEGER NOT NULL,
    tick_ms   INTEGER NOT NULL,
    recent    TEXT NOT NULL
);

CREATE TABLE workers (
    id          TEXT PRIMARY KEY,
    partition   INTEGER NOT NULL,
    host        TEXT NOT NULL,
    pid         INTEGER NOT NULL,
    concurrency TEXT NOT NULL,
    handlers    TEXT NOT NULL,
    started_ms  INTEGER NOT NULL,
    seen_ms     INTEGER NOT NULL,
    state       TEXT NOT NULL,
    stuck       TEXT NOT NULL DEFAULT '[]'
) WITHOUT ROWID;

CREATE TABLE pools (
    name     TEXT PRIMARY KEY,
    settings TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE handlers (
    pool TEXT NOT NULL,
    name TEXT NOT NULL,
    info TEXT NOT NULL,
    PRIMARY KEY (pool, name)
) WITHOUT ROWID;

CREATE TABLE tenants (
    id         TEXT PRIMARY KEY,
    settings   TEXT NOT NULL,
    updated_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tenants_updated ON tenants (updated_ms);

-- What the runs of a tenant used that ended on a day (UTC, counted from 1970-01-01).
CREATE TABLE usage (
    tenant        TEXT NOT NULL,
    day           INTEGER NOT NULL,
    runs          INTEGER NOT NULL,
    succeeded     INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    run_ms        INTEGER NOT NULL,
    payload_bytes INTEGER NOT NULL,
    PRIMARY KEY (tenant, day)
) WITHOUT ROWID;
CREATE INDEX usage_day ON usage (day);

CREATE TABLE pauses (
    kind     TEXT NOT NULL,
    name     TEXT NOT NULL,
    since_ms INTEGER NOT NULL,
    subject  TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant  TEXT NOT NULL,
    at_ms   INTEGER NOT NULL,
    subject TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    detail  TEXT NOT NULL
);
CREATE INDEX audit_tenant ON audit (tenant, id);

-- What calls to an endpoint of a tenant (or to all that have none of their own: '') are signed with.
CREATE TABLE secrets (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    endpoint   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

-- What handlers want to be kept of an attempt.
CREATE TABLE accounts (
    execution_id TEXT NOT NULL,
    dispatch     INTEGER NOT NULL,
    started_ms   INTEGER NOT NULL,
    ended_ms     INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    outcome      INTEGER NOT NULL,
    account      BLOB NOT NULL,
    PRIMARY KEY (execution_id, dispatch, started_ms)
) WITHOUT ROWID;

-- What happened that somebody has to act upon, until that is done.
CREATE TABLE incidents (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    kind         TEXT NOT NULL,
    tenant       TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    message      TEXT NOT NULL,
    at_ms        INTEGER NOT NULL
);

CREATE TABLE receipts (
    tenant      TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    at_ms       INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    body        BLOB NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX receipts_age ON receipts (at_ms);
