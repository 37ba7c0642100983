-- Who wants to be told of what. said: everything else of the preference, as JSON; channel: ciphertext.
CREATE TABLE alert_preferences (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    said       TEXT NOT NULL,
    channel    BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

-- What is gathered for a preference until it is due, and until it is sent. One that is closed takes in nothing more.
CREATE TABLE notices (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL,
    preference TEXT NOT NULL,
    due_ms     INTEGER NOT NULL,
    closed     INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX notices_open ON notices (tenant, preference) WHERE closed = 0;
CREATE INDEX notices_due ON notices (closed, due_ms);
CREATE INDEX notices_of ON notices (tenant, preference);

CREATE TABLE notice_lines (
    notice_id    TEXT NOT NULL,
    about        TEXT NOT NULL,
    kind         TEXT NOT NULL,
    count        INTEGER NOT NULL,
    first_ms     INTEGER NOT NULL,
    last_ms      INTEGER NOT NULL,
    alert_id     TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    job_name     TEXT,
    pool         TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    endpoint     TEXT,
    message      TEXT NOT NULL,
    PRIMARY KEY (notice_id, about, kind)
) WITHOUT ROWID;
