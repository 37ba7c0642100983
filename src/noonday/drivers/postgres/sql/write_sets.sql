-- name: inputs
-- Return the inputs of a settlement: the jobs that decide, each with its change counter and whether it is paused; the first
-- open executions of jobs that do not allow overlap; retry policies; the jobs of returned executions; the fire rows of these
-- jobs.
SELECT jsonb_build_object(
    'jobs', (SELECT coalesce(jsonb_agg(job_version_json(j)), '[]')
             FROM unnest($4::text[], $5::uuid[]) e (tenant, id) JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id),
    'open', (SELECT coalesce(jsonb_agg(execution_json(x, NULL, false) ORDER BY x.id), '[]')
             FROM unnest($6::uuid[], $7::bigint[]) e (id, most) CROSS JOIN LATERAL turns_of(e.id, e.most, 1) turn
                  JOIN executions x ON x.id = turn),
    'policies', (SELECT coalesce(jsonb_agg(jsonb_build_object('execution_id', x.id, 'sources', jsonb_build_object(
                     'job', CASE WHEN j.revision = x.revision THEN j.spec::jsonb
                                 ELSE (SELECT r.spec::jsonb FROM revisions r
                                       WHERE r.job_id = x.job_id AND r.revision = x.revision)
                            END -> 'retryPolicy',
                     'handler', (SELECT h.info::jsonb FROM handlers h WHERE h.pool = x.pool AND h.name = x.handler),
                     'pool', (SELECT p.settings::jsonb FROM pools p WHERE p.name = x.pool)))), '[]')
                 FROM unnest($1::uuid[]) e (id) JOIN executions x ON x.id = e.id
                      JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id),
    'definitions', (SELECT coalesce(jsonb_agg(job_json(j, false)), '[]')
                    FROM unnest($2::text[], $3::uuid[]) e (tenant, id) JOIN jobs j ON j.tenant = e.tenant AND j.id = e.id),
    'fires', (SELECT coalesce(jsonb_agg(jsonb_build_object('job_id', t.key, 'fire', fire_json(t))), '[]')
              FROM unnest($3::uuid[]) e (id) JOIN timeline t ON t.key = e.id)
)::text;

-- name: apply
-- Write a decision if its inputs are unchanged.
SELECT apply_writes($1::jsonb, $2);
