-- What people should know of. about: the job, the endpoint, or '' for the tenant. occasion: how far what is seen again and again
-- was taken in.
CREATE TABLE alerts (
    id              TEXT PRIMARY KEY,
    tenant          TEXT NOT NULL,
    kind            TEXT NOT NULL,
    about           TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    job_name        TEXT,
    pool            TEXT NOT NULL,
    execution_id    TEXT NOT NULL,
    endpoint        TEXT,
    message         TEXT NOT NULL,
    count           INTEGER NOT NULL,
    first_ms        INTEGER NOT NULL,
    last_ms         INTEGER NOT NULL,
    occasion        TEXT,
    acknowledged_ms INTEGER,
    acknowledged_by TEXT,
    recovered_ms    INTEGER
) WITHOUT ROWID;
CREATE UNIQUE INDEX alerts_open ON alerts (tenant, about, kind) WHERE acknowledged_ms IS NULL AND recovered_ms IS NULL;
CREATE INDEX alerts_about ON alerts (tenant, about, kind, occasion) WHERE occasion IS NOT NULL;
CREATE INDEX alerts_tenant ON alerts (tenant, id);
CREATE INDEX alerts_of_jobs ON alerts (tenant, job_id, id);
CREATE INDEX alerts_unread ON alerts (tenant, id) WHERE acknowledged_ms IS NULL;
CREATE INDEX alerts_not_recovered ON alerts (id) WHERE recovered_ms IS NULL;
CREATE INDEX alerts_age ON alerts (last_ms);

-- What people may want to be told of, until that is done.
CREATE TABLE happenings (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant       TEXT NOT NULL,
    alert_id     TEXT NOT NULL,
    kind         TEXT NOT NULL,
    job_id       TEXT NOT NULL,
    job_name     TEXT,
    pool         TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    endpoint     TEXT,
    message      TEXT NOT NULL,
    count        INTEGER NOT NULL,
    at_ms        INTEGER NOT NULL
);
