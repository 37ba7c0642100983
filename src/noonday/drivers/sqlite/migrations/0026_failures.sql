-- The unresolved dead letters of a job, and the jobs that have some.
CREATE INDEX dead_of_jobs ON dead (tenant, job_id) WHERE retried_as IS NULL;

-- Jobs as before. `died`: of the executions with the latest nominal time, the one that ended last is a dead letter that nobody
-- retried. An id begins with the nominal time, in its first 13 characters.
DROP VIEW job_rows;
CREATE VIEW job_rows AS
SELECT *,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', NULL, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace, 'halted', halted) AS json,
       json_object('id', id, 'tenant', tenant, 'revision', revision, 'state', state, 'spec', json(spec), 'anchor_ms', anchor_ms,
                   'payload', payload, 'created_ms', created_ms, 'updated_ms', updated_ms, 'trace', trace,
                   'halted', halted) AS whole_json,
       EXISTS (SELECT 1 FROM dead d INDEXED BY dead_of_jobs
               WHERE d.tenant = jobs.tenant AND d.job_id = jobs.id AND d.retried_as IS NULL)
       AND EXISTS (SELECT 1 FROM dead d
                   WHERE d.retried_as IS NULL AND d.execution_id = (
                       SELECT x.id FROM executions x
                       WHERE x.job_id = jobs.id
                             AND x.id >= substr((SELECT max(y.id) FROM executions y WHERE y.job_id = jobs.id), 1, 13)
                       ORDER BY coalesce(x.finished_ms, 1 << 62) DESC, x.id DESC LIMIT 1)) AS died
FROM jobs;
