-- name: add
-- New jobs, unless a unique key is taken.
SELECT callers_add($1::text);

-- name: look
-- An execution, and what settling it depends on.
SELECT callers_look($1::text);

-- name: settle
-- What was decided, if what it was decided by is unchanged.
SELECT callers_settle($1::text, $2::bigint);

-- name: pools
-- Which pools there are.
SELECT callers_pools();

-- name: handler
-- What is known of a handler.
SELECT callers_handler($1::text, $2::text);

-- name: tenant
-- A tenant's settings.
SELECT callers_tenant($1::text);

-- name: waiting
-- How many jobs of a tenant wait.
SELECT callers_waiting($1::text, $2::bigint);

-- name: next_one_shot
-- When the next one-shot of a tenant is due.
SELECT callers_next_one_shot($1::text);
