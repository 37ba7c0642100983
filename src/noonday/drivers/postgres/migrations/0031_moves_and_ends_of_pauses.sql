-- Occurrences of a job that a person has moved to another time, as JSON. NULL: none.
ALTER TABLE jobs ADD COLUMN moves text;

-- When a paused job is resumed. NULL: when a user resumes it.
ALTER TABLE jobs ADD COLUMN paused_until_ms bigint;
CREATE INDEX jobs_to_resume ON jobs (paused_until_ms) WHERE paused_until_ms IS NOT NULL;
CREATE INDEX jobs_to_resume_of_tenants ON jobs (tenant, paused_until_ms) WHERE paused_until_ms IS NOT NULL;

-- Return a job as JSON by the names of its columns.
CREATE OR REPLACE FUNCTION job_json(j jobs, with_payload boolean) RETURNS jsonb LANGUAGE sql STABLE
RETURN jsonb_build_object('id', j.id, 'tenant', j.tenant, 'revision', j.revision, 'state', j.state, 'spec', j.spec::jsonb,
                          'anchor_ms', j.anchor_ms, 'payload', CASE WHEN with_payload THEN base64(j.payload) END,
                          'created_ms', j.created_ms, 'updated_ms', j.updated_ms, 'trace', j.trace, 'halted', j.halted,
                          'skips', coalesce(j.skips, '[]')::jsonb, 'moves', coalesce(j.moves, '[]')::jsonb,
                          'paused_until_ms', j.paused_until_ms);
