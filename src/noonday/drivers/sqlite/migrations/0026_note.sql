ALTER TABLE executions ADD COLUMN note TEXT;
DROP VIEW execution_rows;
-- Executions as JSON by the names of their columns. `json` leaves out progress, result and transitions.
CREATE VIEW execution_rows AS
SELECT *,
       json_object('id', id, 'job_id', job_id, 'tenant', tenant, 'nominal_ms', nominal_ms, 'due_ms', due_ms, 'state', state,
                   'attempt', attempt, 'dispatch', dispatch, 'revision', revision, 'cause', cause, 'pool', pool, 'handler', handler,
                   'lane', lane, 'created_ms', created_ms, 'fired_ms', fired_ms, 'buffered', buffered, 'watch', watch,
                   'slots', json(iif(state < 2, coalesce(slots, '[]'), '[]')), 'worker_id', worker_id, 'started_ms', started_ms,
                   'finished_ms', finished_ms, 'revocation', revocation, 'failure', failure, 'retry_of', retry_of, 'note', note) AS json,
       json_object('id', id, 'job_id', job_id, 'tenant', tenant, 'nominal_ms', nominal_ms, 'due_ms', due_ms, 'state', state,
                   'attempt', attempt, 'dispatch', dispatch, 'revision', revision, 'cause', cause, 'pool', pool, 'handler', handler,
                   'lane', lane, 'created_ms', created_ms, 'fired_ms', fired_ms, 'buffered', buffered, 'watch', watch,
                   'slots', json(iif(state < 2, coalesce(slots, '[]'), '[]')), 'worker_id', worker_id, 'started_ms', started_ms,
                   'finished_ms', finished_ms, 'revocation', revocation, 'failure', failure, 'retry_of', retry_of, 'note', note,
                   'progress', progress, 'result', result, 'transitions', transitions) AS whole_json
FROM executions;
