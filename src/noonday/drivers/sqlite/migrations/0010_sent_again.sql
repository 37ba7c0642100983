-- When somebody dealt with a dead letter.
ALTER TABLE dead ADD COLUMN resolved_ms INTEGER;
-- Calls of a tenant by the time they were meant for: an id begins with it.
CREATE INDEX executions_of_webhooks ON executions (tenant, id) WHERE pool = 'webhooks';
