-- Bulk operations. body: everything else of the operation, as JSON.
CREATE TABLE operations (
    tenant   text COLLATE "C" NOT NULL,
    id       uuid NOT NULL,
    version  integer NOT NULL,
    state    text NOT NULL,
    next_ms  bigint NOT NULL,
    ended_ms bigint,
    body     text NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);
CREATE INDEX operations_due ON operations (next_ms) WHERE state = 'RUNNING';
CREATE INDEX operations_ended ON operations (ended_ms) WHERE ended_ms IS NOT NULL;
