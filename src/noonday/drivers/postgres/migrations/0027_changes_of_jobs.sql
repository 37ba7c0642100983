-- A second job of the same name is found without reading all jobs.
CREATE INDEX jobs_of_names ON jobs (tenant, name, id) WHERE name IS NOT NULL AND state <> 2;

-- A trigger may have a payload of its own. NULL: the payload of the job.
ALTER TABLE executions ADD COLUMN payload bytea;

-- Return an execution as JSON by the names of its columns, without its payload. Without `whole`, progress, result and transitions are
-- left out too.
CREATE OR REPLACE FUNCTION execution_json(x executions, waits_until_ms bigint, whole boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN to_jsonb(x) - '{payload,progress,result,transitions}'::text[]
       || jsonb_build_object('slots', CASE WHEN x.state < 2 AND x.slots IS NOT NULL THEN x.slots::jsonb ELSE '[]' END,
                             'waits_until_ms', waits_until_ms)
       || CASE WHEN whole THEN jsonb_build_object('progress', base64(x.progress), 'result', base64(x.result),
                                                  'transitions', x.transitions)
               ELSE '{}' END;

-- Occurrences of a job that a person skips, as JSON. NULL: none.
ALTER TABLE jobs ADD COLUMN skips text;

-- Return a job as JSON by the names of its columns.
CREATE OR REPLACE FUNCTION job_json(j jobs, with_payload boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('id', j.id, 'tenant', j.tenant, 'revision', j.revision, 'state', j.state, 'spec', j.spec::jsonb,
                          'anchor_ms', j.anchor_ms, 'payload', CASE WHEN with_payload THEN base64(j.payload) END,
                          'created_ms', j.created_ms, 'updated_ms', j.updated_ms, 'trace', j.trace, 'halted', j.halted,
                          'skips', coalesce(j.skips, '[]')::jsonb);
