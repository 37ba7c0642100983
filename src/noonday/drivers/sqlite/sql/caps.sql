-- name: count_in
-- Mark the dispatched executions that count against a new cap.
UPDATE executions SET slots = json_insert(coalesce(slots, '[]'), '$[#]', ?1)
WHERE state < 2 AND fired_ms IS NOT NULL AND (?2 = '' OR tenant = ?2) AND (?3 IS NULL OR pool = ?3)
      AND NOT EXISTS (SELECT 1 FROM json_each(executions.slots) s WHERE s.value = ?1);

-- name: count_changes
-- Return how many rows the last statement changed.
SELECT changes();

-- name: uncap
-- Remove the caps of a tenant or of a pool.
UPDATE slots SET cap = NULL WHERE tenant = ?1 AND (?1 <> '' OR key = ?2);

-- name: cap
-- Set a cap and add the executions that count against it.
INSERT INTO slots (tenant, key, used, cap) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant, key) DO UPDATE SET used = used + excluded.used, cap = excluded.cap;

-- name: drop_free_slots
-- Delete unused slots without a cap.
DELETE FROM slots WHERE used <= 0 AND cap IS NULL;
