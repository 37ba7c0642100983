-- What was asked to end, by when it did. Those that have not come last.
CREATE INDEX executions_wished ON executions (pool, coalesce(finished_ms, 1 << 62)) WHERE cancel IS NOT NULL;
