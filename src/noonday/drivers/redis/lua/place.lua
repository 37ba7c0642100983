#!lua
-- Adds entries to the queues of one partition. An entry that is there already changes nothing.
-- KEYS[1]  zset: pool -> score of its first entry. In the same slot:
--          KEYS[1]:h:POOL                  zset: LANE:TENANT -> score of the first entry of that queue
--          KEYS[1]:q:n:POOL:LANE:TENANT    zset: entry -> score; n is the length of POOL
-- ARGV     for each queue: pool, LANE:TENANT, lowest score, number of entries, then for each: score, entry

local base, at = KEYS[1], 1
while ARGV[at] do
  local pool, name, first, count = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  at = at + 4
  -- Heads first: if memory runs out in between, a head without an entry does no harm, but an entry without a head is lost.
  redis.call('ZADD', base, 'LT', first, pool)
  redis.call('ZADD', base .. ':h:' .. pool, 'LT', first, name)
  redis.call('ZADD', base .. ':q:' .. #pool .. ':' .. pool .. ':' .. name, 'NX', unpack(ARGV, at, at + 2 * count - 1))
  at = at + 2 * count
end
