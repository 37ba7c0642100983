-- An operator who reads a tenant is in its audit once a day.
CREATE UNIQUE INDEX audit_operator_read ON audit (tenant, subject, (at_ms / 86400000)) WHERE action = 'OPERATOR_READ';
