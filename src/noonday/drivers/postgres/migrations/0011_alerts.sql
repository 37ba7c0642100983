-- Not every incident is about an execution, or a job: both may be ''.
ALTER TABLE incidents ALTER COLUMN execution_id TYPE text USING execution_id::text, ALTER COLUMN job_id TYPE text USING job_id::text;

-- What people should know of. about: the job, the endpoint, or '' for the tenant. occasion: how far what is seen again and again
-- was taken in.
CREATE TABLE alerts (
    id              text COLLATE "C" PRIMARY KEY,
    tenant          text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    about           text COLLATE "C" NOT NULL,
    job_id          text COLLATE "C" NOT NULL,
    job_name        text,
    pool            text NOT NULL,
    execution_id    text NOT NULL,
    endpoint        text,
    message         text NOT NULL,
    count           bigint NOT NULL,
    first_ms        bigint NOT NULL,
    last_ms         bigint NOT NULL,
    occasion        text COLLATE "C",
    acknowledged_ms bigint,
    acknowledged_by text,
    recovered_ms    bigint
);
CREATE UNIQUE INDEX alerts_open ON alerts (tenant, about, kind) WHERE acknowledged_ms IS NULL AND recovered_ms IS NULL;
CREATE INDEX alerts_about ON alerts (tenant, about, kind, occasion) WHERE occasion IS NOT NULL;
CREATE INDEX alerts_tenant ON alerts (tenant, id);
CREATE INDEX alerts_of_jobs ON alerts (tenant, job_id, id);
CREATE INDEX alerts_unread ON alerts (tenant, id) WHERE acknowledged_ms IS NULL;
CREATE INDEX alerts_not_recovered ON alerts (id) WHERE recovered_ms IS NULL;
CREATE INDEX alerts_age ON alerts (last_ms);

-- What people may want to be told of, until that is done.
CREATE TABLE happenings (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    alert_id     text COLLATE "C" NOT NULL,
    kind         text NOT NULL,
    job_id       text NOT NULL,
    job_name     text,
    pool         text NOT NULL,
    execution_id text NOT NULL,
    endpoint     text,
    message      text NOT NULL,
    count        bigint NOT NULL,
    at_ms        bigint NOT NULL
);
