-- The log lines of handlers, one row for each attempt that logged any.
CREATE TABLE attempt_logs (
    execution_id TEXT NOT NULL,
    dispatch     INTEGER NOT NULL,
    started_ms   INTEGER NOT NULL,
    ended_ms     INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    outcome      INTEGER NOT NULL,
    logs         TEXT NOT NULL,
    PRIMARY KEY (execution_id, dispatch, started_ms)
);
