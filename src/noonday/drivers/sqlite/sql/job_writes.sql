-- name: add_jobs
-- Insert new jobs, one row of values per job.
INSERT INTO jobs (tenant, id, revision, state, name, type, pool, handler, lane, unique_key, timeout_sec, heartbeat_sec,
                  deadline_sec, watch, anchor_ms, created_ms, updated_ms, trace, endpoint, halted, spec, payload, skips,
                  moves, paused_until_ms)
VALUES (:tenant, :id, :revision, :state, :name, :type, :pool, :handler, :lane, :unique_key, :timeout_sec, :heartbeat_sec,
        :deadline_sec, :watch, :anchor_ms, :created_ms, :updated_ms, :trace, :endpoint, :halted, :spec, :payload, :skips,
        :moves, :paused_until_ms);

-- name: add_fires
-- Insert the fire rows of new jobs, one row of values per job.
INSERT INTO timeline (due_ms, key, kind, number, nominal_ms, partition, tenant, pool, lane, early, recurring, runs_left,
                      ordering_key)
VALUES (:due_ms, :key, :kind, :number, :nominal_ms, :partition, :tenant, :pool, :lane, :early, :recurring, :runs_left,
        :ordering_key);
