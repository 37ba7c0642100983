-- The people whom notifications reach. profile: ciphertext.
CREATE TABLE users (
    tenant     text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    profile    bytea NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (tenant, user_id)
);

-- The accounts of tenants at providers. try_order: the lowest of a channel is tried first. limits, settings: JSON. secrets:
-- ciphertext. fault: why the account is stopped. NULL: it is in use.
CREATE TABLE provider_accounts (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    kind       text NOT NULL,
    try_order  bigint NOT NULL,
    limits     text NOT NULL,
    settings   text NOT NULL,
    secrets    bytea NOT NULL,
    fault      text,
    fault_ms   bigint,
    version    bigint NOT NULL,
    created_ms bigint NOT NULL,
    updated_ms bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);
