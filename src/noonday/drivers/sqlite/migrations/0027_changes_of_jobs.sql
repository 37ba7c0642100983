-- A second job of the same name is found without reading all jobs.
CREATE INDEX jobs_of_names ON jobs (tenant, name, id) WHERE name IS NOT NULL AND state <> 2;

-- A trigger may have a payload of its own. NULL: the payload of the job.
ALTER TABLE executions ADD COLUMN payload TEXT;
