-- The log lines of handlers, one row for each attempt that logged any.
CREATE TABLE attempt_logs (
    execution_id uuid NOT NULL,
    dispatch     integer NOT NULL,
    started_ms   bigint NOT NULL,
    ended_ms     bigint NOT NULL,
    attempt      integer NOT NULL,
    outcome      smallint NOT NULL,
    logs         bytea NOT NULL,
    PRIMARY KEY (execution_id, dispatch, started_ms)
);
