-- The unresolved dead letters of a job, and the jobs that have some.
CREATE INDEX dead_of_jobs ON dead (tenant, job_id) WHERE retried_as IS NULL;

-- Return whether, of the executions of a job with the latest nominal time, the one that ended last is a dead letter that nobody
-- retried. An id begins with the nominal time, in its first 13 characters. Row comparisons name the job, which leaves no index but
-- the one by job.
CREATE FUNCTION job_died(j jobs) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    latest uuid;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM dead d WHERE d.tenant = j.tenant AND d.job_id = j.id AND d.retried_as IS NULL) THEN
        RETURN false;
    END IF;
    SELECT x.id INTO latest FROM executions x
    WHERE (x.job_id, x.id) >= (j.id, '00000000-0000-0000-0000-000000000000')
          AND (x.job_id, x.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY x.job_id DESC, x.id DESC LIMIT 1;
    SELECT x.id INTO latest FROM executions x
    WHERE (x.job_id, x.id) >= (j.id, (left(latest::text, 13) || '-0000-0000-000000000000')::uuid)
          AND (x.job_id, x.id) <= (j.id, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
    ORDER BY coalesce(x.finished_ms, 9000000000000000) DESC, x.id DESC LIMIT 1;
    RETURN EXISTS (SELECT 1 FROM dead d WHERE d.execution_id = latest AND d.retried_as IS NULL);
END $$;
