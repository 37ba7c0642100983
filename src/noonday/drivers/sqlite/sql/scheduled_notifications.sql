-- name: announce
-- Save how many rows of buckets a writer has stored. The greater number stays.
INSERT INTO minute_buckets (minute, partition, stream, share, shard, writer, rows)
SELECT e.value ->> 'minute', e.value ->> 'partition', e.value ->> 'stream', e.value ->> 'share', e.value ->> 'shard', ?2,
       e.value ->> 'rows'
FROM json_each(?1) e WHERE true
ON CONFLICT (minute, partition, stream, share, shard, writer) DO UPDATE SET rows = excluded.rows WHERE rows < excluded.rows;

-- name: index_by_user
-- Save whose notifications these are, and when they are heard of next.
INSERT INTO notifications_by_user (tenant, notification_id, user_id, created_ms, heard_ms)
SELECT e.value ->> 'tenant', e.value ->> 'id', e.value ->> 'user_id', e.value ->> 'created_ms', e.value ->> 'heard_ms'
FROM json_each(?1) e WHERE true
ON CONFLICT (tenant, notification_id) DO UPDATE
SET user_id = coalesce(user_id, excluded.user_id), created_ms = coalesce(created_ms, excluded.created_ms),
    heard_ms = max(heard_ms, excluded.heard_ms)
WHERE user_id IS NULL OR heard_ms < excluded.heard_ms;

-- name: add_rows
-- Insert rows that do not exist.
INSERT OR IGNORE INTO scheduled_notifications
    (minute, stream, share, shard, scheduled_ms, id, number, tenant, user_id, channel, data, created_ms, expires_ms, verify)
VALUES (:minute, :stream, :share, :shard, :scheduled_ms, :id, :number, :tenant, :user_id, :channel, :data, :created_ms,
        :expires_ms, :verify);

-- name: buckets
-- Return the announced buckets of some partitions in a range of minutes, each once, with the rows of all writers.
SELECT b.minute, b.stream, b.share, b.shard, sum(b.rows) AS rows
FROM minute_buckets b WHERE b.minute BETWEEN ?2 AND ?3 AND b.partition IN (SELECT value FROM json_each(?1))
GROUP BY b.minute, b.partition, b.stream, b.share, b.shard ORDER BY b.minute, b.partition, b.stream, b.share, b.shard;

-- name: rows_after
-- Return a page of rows of a bucket after a position.
SELECT scheduled_ms, id, number, tenant, user_id, channel, data, created_ms, expires_ms, verify
FROM scheduled_notifications
WHERE minute = ?1 AND stream = ?2 AND share = ?3 AND shard = ?4 AND (scheduled_ms, id, number) > (?5, ?6, ?7) AND scheduled_ms <= ?8
ORDER BY scheduled_ms, id, number LIMIT ?9;

-- name: keys
-- Return the keys of all rows of a bucket as one JSON value.
SELECT json_group_array(json_array(scheduled_ms, id, number))
FROM (SELECT scheduled_ms, id, number FROM scheduled_notifications
      WHERE minute = ?1 AND stream = ?2 AND share = ?3 AND shard = ?4 ORDER BY scheduled_ms, id, number);

-- name: progress
-- Return the progress of some buckets.
SELECT p.minute, p.stream, p.share, p.shard, p.epoch, p.position_ms, p.position_id, p.position_number, p.done, p.done_xor, p.closed
FROM json_each(?1) e CROSS JOIN bucket_progress p
ON p.minute = e.value ->> 'minute' AND p.stream = e.value ->> 'stream' AND p.share = e.value ->> 'share'
   AND p.shard = e.value ->> 'shard';

-- name: advance
-- Save the progress of a bucket, unless a higher epoch has touched it.
INSERT INTO bucket_progress (minute, stream, share, shard, epoch, position_ms, position_id, position_number, done, done_xor, closed)
VALUES (:minute, :stream, :share, :shard, :epoch, :position_ms, :position_id, :position_number, :done, :done_xor, :closed)
ON CONFLICT (minute, stream, share, shard) DO UPDATE
SET epoch = excluded.epoch, position_ms = excluded.position_ms, position_id = excluded.position_id,
    position_number = excluded.position_number, done = excluded.done, done_xor = excluded.done_xor, closed = excluded.closed
WHERE epoch <= excluded.epoch
RETURNING 1;

-- name: take_over
-- Raise the epochs of partitions and set their owner.
INSERT INTO poll_partitions (partition, epoch, owner) SELECT value, 1, ?2 FROM json_each(?1) WHERE true
ON CONFLICT (partition) DO UPDATE SET epoch = epoch + 1, owner = excluded.owner
RETURNING partition, epoch, floor_minute;

-- name: set_floor
-- Save the oldest minute of a partition that may have an unclosed bucket, unless its epoch is higher.
UPDATE poll_partitions SET floor_minute = ?3 WHERE partition = ?1 AND epoch <= ?2 RETURNING 1;

-- name: mark
-- Mark rows for their poller, which decides before it publishes them.
UPDATE scheduled_notifications SET verify = 1
WHERE rowid IN (SELECT r.rowid FROM json_each(?1) e CROSS JOIN scheduled_notifications r
                ON r.minute = e.value ->> 'minute' AND r.stream = e.value ->> 'stream' AND r.share = e.value ->> 'share'
                   AND r.shard = e.value ->> 'shard' AND r.scheduled_ms = e.value ->> 'scheduled_ms' AND r.id = e.value ->> 'id'
                   AND r.number = e.value ->> 'number');

-- name: find
-- Return the last row of a notification. A row that was moved to a later bucket comes after the one it was moved from.
SELECT minute, stream, share, shard, scheduled_ms, id, number, tenant, user_id, channel, data, created_ms, expires_ms, verify
FROM scheduled_notifications WHERE tenant = ?1 AND id = ?2 ORDER BY number DESC, scheduled_ms DESC LIMIT 1;

-- name: drop_rows
-- Delete the rows of a bucket.
DELETE FROM scheduled_notifications WHERE minute = ?1 AND stream = ?2 AND share = ?3 AND shard = ?4;

-- name: drop_announcements
-- Delete the announcements of a bucket by all writers.
DELETE FROM minute_buckets WHERE minute = ?1 AND stream = ?2 AND share = ?3 AND shard = ?4 AND partition = ?5;

-- name: drop_progress
-- Delete the progress of a bucket.
DELETE FROM bucket_progress WHERE minute = ?1 AND stream = ?2 AND share = ?3 AND shard = ?4;
