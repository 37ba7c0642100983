-- name: count_others
-- Return how many other accounts a tenant has.
SELECT count(*) FROM provider_accounts WHERE tenant = ?1 AND name <> ?2;

-- name: put
-- Save an account, without a fault. It keeps its creation time. The time is the first version, so that an account that was deleted
-- does not begin again.
INSERT INTO provider_accounts (tenant, name, kind, try_order, limits, settings, secrets, version, created_ms, updated_ms)
VALUES (:tenant, :name, :kind, :try_order, :limits, :settings, :secrets, :updated_ms, :created_ms, :updated_ms)
ON CONFLICT (tenant, name) DO UPDATE
SET kind = excluded.kind, try_order = excluded.try_order, limits = excluded.limits, settings = excluded.settings,
    secrets = excluded.secrets, fault = NULL, fault_ms = NULL, version = max(version + 1, excluded.version),
    updated_ms = excluded.updated_ms;

-- name: has_any
-- Return a row if there is an account.
SELECT 1 AS one FROM provider_accounts LIMIT 1;

-- name: find
-- Return one account of a tenant.
SELECT tenant, name, kind, try_order, limits, settings, secrets, fault, fault_ms, version, created_ms, updated_ms
FROM provider_accounts WHERE tenant = ?1 AND name = ?2;

-- name: accounts
-- Return the accounts of some tenants.
SELECT a.tenant, a.name, a.kind, a.try_order, a.limits, a.settings, a.secrets, a.fault, a.fault_ms, a.version, a.created_ms,
       a.updated_ms
FROM json_each(?1) e CROSS JOIN provider_accounts a ON a.tenant = e.value ORDER BY a.tenant, a.try_order, a.name;

-- name: delete
-- Delete an account.
DELETE FROM provider_accounts WHERE tenant = ?1 AND name = ?2 RETURNING 1;

-- name: stop
-- Save why an account is stopped, unless it was changed since. The first fault stays.
UPDATE provider_accounts SET fault = coalesce(fault, ?4), fault_ms = coalesce(fault_ms, ?5)
WHERE tenant = ?1 AND name = ?2 AND version = ?3 RETURNING 1;
