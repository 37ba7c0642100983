-- name: policies
-- Who says how failures of these executions are retried: the job as it was fired, its handler, its pool.
SELECT json_group_array(json_array(
           x.id,
           json(iif(j.revision = x.revision, j.spec,
                    (SELECT spec FROM revisions r WHERE r.job_id = x.job_id AND r.revision = x.revision)) -> '$.retryPolicy'),
           (SELECT json(h.info) FROM handlers h WHERE h.pool = x.pool AND h.name = x.handler),
           (SELECT json(p.settings) FROM pools p WHERE p.name = x.pool)))
FROM json_each(?1) e CROSS JOIN executions x ON x.id = e.value
     CROSS JOIN jobs j ON j.tenant = x.tenant AND j.id = x.job_id;

-- name: jobs
-- Some jobs as they are now, without their payloads.
SELECT json_group_array(json_array(j.id, j.tenant, j.revision, j.state, json(j.spec), j.anchor_ms, NULL, j.created_ms,
                                   j.updated_ms))
FROM json_each(?1) e CROSS JOIN jobs j ON j.tenant = e.value ->> 0 AND j.id = e.value ->> 1;
