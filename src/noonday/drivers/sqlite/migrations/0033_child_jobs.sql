-- The jobs that handlers have enqueued, until they are created: one row for each dispatch that enqueued any.
CREATE TABLE child_jobs (
    tenant       TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    dispatch     INTEGER NOT NULL,
    job_id       TEXT NOT NULL,
    jobs         INTEGER NOT NULL,
    children     TEXT NOT NULL,
    PRIMARY KEY (tenant, execution_id, dispatch)
);
