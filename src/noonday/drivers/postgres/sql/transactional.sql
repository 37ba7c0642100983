-- name: add
-- Insert jobs unless a unique key is taken. Returns the keys that are taken.
SELECT callers_add($1::text);

-- name: inputs
-- Return an execution and the inputs of its settlement.
SELECT callers_read($1::text);

-- name: settle
-- Write a settlement if its inputs are unchanged. Returns whether it was written.
SELECT callers_settle($1::text, $2::bigint);

-- name: pools
-- Return the names of all pools.
SELECT callers_pools();

-- name: handler
-- Return the declaration of a handler.
SELECT callers_handler($1::text, $2::text);

-- name: handler_names
-- Return the names of the handlers of a pool, up to a limit.
SELECT callers_handler_names($1::text, $2::bigint);

-- name: tenant
-- Return the settings of a tenant.
SELECT callers_tenant($1::text);

-- name: waiting
-- Return how many jobs of a tenant have a due time or are paused, up to a limit.
SELECT callers_waiting($1::text, $2::bigint);

-- name: next_one_shot
-- Return when the next one-shot of a tenant is due.
SELECT callers_next_one_shot($1::text);
