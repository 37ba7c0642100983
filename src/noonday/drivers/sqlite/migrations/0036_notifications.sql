-- One dispatch of a notification that is to be published at its time. minute: minutes since 1970. data: ciphertext. The rows are
-- larger than the keys by far, so the key is an index beside them: it alone is read when the keys of a bucket are.
CREATE TABLE scheduled_notifications (
    minute       INTEGER NOT NULL,
    stream       INTEGER NOT NULL,
    share        TEXT NOT NULL,
    shard        INTEGER NOT NULL,
    scheduled_ms INTEGER NOT NULL,
    id           TEXT NOT NULL,
    number       INTEGER NOT NULL,
    tenant       TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    channel      TEXT NOT NULL,
    data         BLOB NOT NULL,
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER NOT NULL,
    verify       INTEGER NOT NULL,
    PRIMARY KEY (minute, stream, share, shard, scheduled_ms, id, number)
);
CREATE INDEX scheduled_notifications_by_id ON scheduled_notifications (tenant, id, number);

-- The buckets of a minute that have rows. rows: how many a writer has stored at least, within a factor of two.
CREATE TABLE minute_buckets (
    minute    INTEGER NOT NULL,
    partition INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    share     TEXT NOT NULL,
    shard     INTEGER NOT NULL,
    writer    TEXT NOT NULL,
    rows      INTEGER NOT NULL,
    PRIMARY KEY (minute, partition, stream, share, shard, writer)
) WITHOUT ROWID;

-- The owners of the partitions of buckets. floor_minute: the oldest minute that may have an unclosed bucket.
CREATE TABLE poll_partitions (
    partition    INTEGER PRIMARY KEY,
    epoch        INTEGER NOT NULL,
    owner        TEXT NOT NULL,
    floor_minute INTEGER
);

-- How far a poller has come in a bucket. position_ms, position_id, position_number: key of the last row that was published.
CREATE TABLE bucket_progress (
    minute          INTEGER NOT NULL,
    stream          INTEGER NOT NULL,
    share           TEXT NOT NULL,
    shard           INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    position_ms     INTEGER,
    position_id     TEXT,
    position_number INTEGER,
    done            INTEGER NOT NULL,
    done_xor        INTEGER NOT NULL,
    closed          INTEGER NOT NULL,
    PRIMARY KEY (minute, stream, share, shard)
) WITHOUT ROWID;

-- What happened to notifications. detail: ciphertext.
CREATE TABLE notification_events (
    tenant          TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    name            TEXT NOT NULL,
    at_ms           INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    number          INTEGER NOT NULL,
    detail          BLOB NOT NULL,
    PRIMARY KEY (tenant, notification_id, name)
) WITHOUT ROWID;

-- Who won a dispatch: the poller that publishes it, or the person who cancels or edits it.
CREATE TABLE notification_decisions (
    tenant          TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    number          INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    PRIMARY KEY (tenant, notification_id, number)
) WITHOUT ROWID;

-- Whose notification it is. user_id and created_ms are NULL as long as only its events are known. heard_ms: the time of its last
-- event or of its last row, whichever is later.
CREATE TABLE notifications_by_user (
    tenant          TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    user_id         TEXT,
    created_ms      INTEGER,
    heard_ms        INTEGER NOT NULL,
    PRIMARY KEY (tenant, notification_id)
) WITHOUT ROWID;
CREATE INDEX notifications_of_users ON notifications_by_user (tenant, user_id, created_ms DESC, notification_id)
    WHERE user_id IS NOT NULL;
CREATE INDEX notifications_by_age ON notifications_by_user (heard_ms);

-- Keys that name a send. sent = 0: a dispatch has it, and may have called a provider. until_ms: when the key is free again.
CREATE TABLE send_keys (
    tenant          TEXT NOT NULL,
    key             TEXT NOT NULL,
    notification_id TEXT NOT NULL,
    number          INTEGER NOT NULL,
    sent            INTEGER NOT NULL,
    until_ms        INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX send_keys_by_end ON send_keys (until_ms);

-- The people whom notifications reach. profile: ciphertext.
CREATE TABLE users (
    tenant     TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    version    INTEGER NOT NULL,
    profile    BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id)
) WITHOUT ROWID;

-- The accounts of tenants at providers. try_order: the lowest of a channel is tried first. limits, settings: JSON. secrets:
-- ciphertext. fault: why the account is stopped. NULL: it is in use.
CREATE TABLE provider_accounts (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    kind       TEXT NOT NULL,
    try_order  INTEGER NOT NULL,
    limits     TEXT NOT NULL,
    settings   TEXT NOT NULL,
    secrets    BLOB NOT NULL,
    fault      TEXT,
    fault_ms   INTEGER,
    version    INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
);
