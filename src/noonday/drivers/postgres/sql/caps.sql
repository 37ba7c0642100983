-- name: set_caps
-- Set the caps of a tenant or of a pool.
SELECT set_caps($1, $2::text[], $3::text[], $4::integer[]);
