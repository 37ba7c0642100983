-- line: the concurrency key in whose order a fire has its turn, if in one.
ALTER TABLE timeline ADD COLUMN line TEXT;
CREATE INDEX timeline_line ON timeline (tenant, line, due_ms, key) WHERE line IS NOT NULL;
