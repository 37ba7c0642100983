-- What is known of those whom webhooks call. settings: NULL as long as nobody has set any. unsettled_ms: when it was last disabled or
-- enabled, until all its tasks know.
CREATE TABLE endpoints (
    tenant           TEXT NOT NULL,
    endpoint         TEXT NOT NULL,
    settings         TEXT,
    failing_since_ms INTEGER,
    failures         INTEGER NOT NULL DEFAULT 0,
    last_success_ms  INTEGER,
    last_failure_ms  INTEGER,
    last_error       TEXT,
    disabled_ms      INTEGER,
    disabled_why     TEXT,
    unsettled_ms     INTEGER,
    updated_ms       INTEGER NOT NULL,
    PRIMARY KEY (tenant, endpoint)
) WITHOUT ROWID;
CREATE INDEX endpoints_failing ON endpoints (failing_since_ms) WHERE failing_since_ms IS NOT NULL AND disabled_ms IS NULL;
CREATE INDEX endpoints_unsettled ON endpoints (unsettled_ms) WHERE unsettled_ms IS NOT NULL;
CREATE INDEX endpoints_unused ON endpoints (updated_ms) WHERE settings IS NULL;
