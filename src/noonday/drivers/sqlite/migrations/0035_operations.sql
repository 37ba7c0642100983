-- Bulk operations. body: everything else of the operation, as JSON.
CREATE TABLE operations (
    tenant   TEXT NOT NULL,
    id       TEXT NOT NULL,
    version  INTEGER NOT NULL,
    state    TEXT NOT NULL,
    next_ms  INTEGER NOT NULL,
    ended_ms INTEGER,
    body     TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX operations_due ON operations (next_ms) WHERE state = 'RUNNING';
CREATE INDEX operations_ended ON operations (ended_ms) WHERE ended_ms IS NOT NULL;
