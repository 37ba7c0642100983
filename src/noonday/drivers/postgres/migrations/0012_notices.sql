-- Who wants to be told of what. said: everything else of the preference, as JSON; channel: ciphertext.
CREATE TABLE alert_preferences (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    said       text NOT NULL,
    channel    bytea NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- What is gathered for a preference until it is due, and until it is sent. One that is closed takes in nothing more.
CREATE TABLE notices (
    id         text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    preference text COLLATE "C" NOT NULL,
    due_ms     bigint NOT NULL,
    closed     boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX notices_open ON notices (tenant, preference) WHERE NOT closed;
CREATE INDEX notices_due ON notices (closed, due_ms);
CREATE INDEX notices_of ON notices (tenant, preference);

CREATE TABLE notice_lines (
    notice_id    text COLLATE "C" NOT NULL,
    about        text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    count        bigint NOT NULL,
    first_ms     bigint NOT NULL,
    last_ms      bigint NOT NULL,
    alert_id     text NOT NULL,
    job_id       text NOT NULL,
    job_name     text,
    pool         text NOT NULL,
    execution_id text NOT NULL,
    endpoint     text,
    message      text NOT NULL,
    PRIMARY KEY (notice_id, about, kind)
);
