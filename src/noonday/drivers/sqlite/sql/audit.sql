-- name: add_audit
-- Insert an audit entry.
INSERT INTO audit (tenant, at_ms, subject, action, target, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6);

-- name: add_receipt
-- Save the response to a request under its Idempotency-Key. Returns no row if the key is taken.
INSERT INTO receipts (tenant, key, fingerprint, at_ms, status, body)
VALUES (:tenant, :key, :fingerprint, :at_ms, :status, :body)
ON CONFLICT (tenant, key) DO NOTHING RETURNING key;
