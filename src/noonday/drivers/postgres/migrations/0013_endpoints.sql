-- What is known of those whom webhooks call. settings: NULL as long as nobody has set any. unsettled_ms: when it was last disabled or
-- enabled, until all its tasks know.
CREATE TABLE endpoints (
    tenant           text COLLATE "C" NOT NULL,
    endpoint         text COLLATE "C" NOT NULL,
    settings         text,
    failing_since_ms bigint,
    failures         bigint NOT NULL DEFAULT 0,
    last_success_ms  bigint,
    last_failure_ms  bigint,
    last_error       text,
    disabled_ms      bigint,
    disabled_why     text,
    unsettled_ms     bigint,
    updated_ms       bigint NOT NULL,
    PRIMARY KEY (tenant, endpoint)
);
CREATE INDEX endpoints_failing ON endpoints (failing_since_ms) WHERE failing_since_ms IS NOT NULL AND disabled_ms IS NULL;
CREATE INDEX endpoints_unsettled ON endpoints (unsettled_ms) WHERE unsettled_ms IS NOT NULL;
CREATE INDEX endpoints_unused ON endpoints (updated_ms) WHERE settings IS NULL;
