-- Open executions of jobs that do not allow overlap: the first one whose turn it is, and the first one that is buffered.
CREATE INDEX executions_turns ON executions (job_id, buffered, id) WHERE state < 2 AND watch & 1 = 1;
