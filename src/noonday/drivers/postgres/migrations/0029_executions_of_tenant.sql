-- Executions of a tenant by nominal time, with which the id begins.
CREATE INDEX executions_of_tenant ON executions (tenant, id);
