-- Tables and columns get the names that the documentation uses.
ALTER TABLE timeline RENAME COLUMN staged TO early;
ALTER TABLE timeline RENAME COLUMN planned TO recurring;
ALTER TABLE timeline RENAME COLUMN line TO ordering_key;
DROP INDEX timeline_line;
CREATE INDEX timeline_ordering_key ON timeline (tenant, ordering_key, due_ms, key) WHERE ordering_key IS NOT NULL;

ALTER TABLE executions RENAME COLUMN cancel TO revocation;
ALTER TABLE executions RENAME COLUMN moves TO transitions;
DROP INDEX executions_wished;
CREATE INDEX executions_revoked ON executions (pool, coalesce(finished_ms, 1 << 62)) WHERE revocation IS NOT NULL;

ALTER TABLE places RENAME TO checkpoints;
ALTER TABLE checkpoints RENAME COLUMN era TO generation;
ALTER TABLE checkpoints RENAME COLUMN next TO next_offset;

ALTER TABLE accounts RENAME TO attempt_records;
ALTER TABLE attempt_records RENAME COLUMN account TO details;

ALTER TABLE alerts RENAME COLUMN occasion TO dedup_key;
DROP INDEX alerts_about;
CREATE INDEX alerts_dedup_key ON alerts (tenant, about, kind, dedup_key) WHERE dedup_key IS NOT NULL;
ALTER TABLE happenings RENAME TO alert_events;
ALTER TABLE alert_preferences RENAME COLUMN said TO spec;
ALTER TABLE notice_lines RENAME TO digest_items;

-- The slot of an ordering key is named after it.
UPDATE slots SET key = 'ordering/' || substr(key, 6) WHERE key LIKE 'line/%';
UPDATE executions
SET slots = (SELECT json_group_array(iif(value LIKE 'line/%', 'ordering/' || substr(value, 6), value)) FROM json_each(slots))
WHERE state < 2 AND slots LIKE '%line/%';

-- Executions as JSON by the names of their columns. `json` leaves out progress, result and transitions.
CREATE VIEW execution_rows AS
SELECT *,
       json_object('id', id, 'job_id', job_id, 'tenant', tenant, 'nominal_ms', nominal_ms, 'due_ms', due_ms, 'state', state,
                   'attempt', attempt, 'dispatch', dispatch, 'revision', revision, 'cause', cause, 'pool', pool, 'handler', handler,
                   'lane', lane, 'created_ms', created_ms, 'fired_ms', fired_ms, 'buffered', buffered, 'watch', watch,
                   'slots', json(iif(state < 2, coalesce(slots, '[]'), '[]')), 'worker_id', worker_id, 'started_ms', started_ms,
                   'finished_ms', finished_ms, 'revocation', revocation, 'failure', failure, 'retry_of', retry_of) AS json,
       json_object('id', id, 'job_id', job_id, 'tenant', tenant, 'nominal_ms', nominal_ms, 'due_ms', due_ms, 'state', state,
                   'attempt', attempt, 'dispatch', dispatch, 'revision', revision, 'cause', cause, 'pool', pool, 'handler', handler,
                   'lane', lane, 'created_ms', created_ms, 'fired_ms', fired_ms, 'buffered', buffered, 'watch', watch,
                   'slots', json(iif(state < 2, coalesce(slots, '[]'), '[]')), 'worker_id', worker_id, 'started_ms', started_ms,
                   'finished_ms', finished_ms, 'revocation', revocation, 'failure', failure, 'retry_of', retry_of,
                   'progress', progress, 'result', result, 'transitions', transitions) AS whole_json
FROM executions;

-- Jobs as JSON by the names of their columns, without and with the payload.
CREATE VIEW job_rows AS
SELECT *,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', NULL, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace, 'halted', halted) AS json,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', payload, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace,
                   'halted', halted) AS whole_json
FROM jobs;
