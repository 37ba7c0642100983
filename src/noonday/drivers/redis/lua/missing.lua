#!lua flags=no-writes
-- Finds the entries that one partition does not have.
-- KEYS[1]  zset: pool -> score of its first entry. In the same slot, as in place.lua:
--          KEYS[1]:h:POOL                  zset: LANE:TENANT -> score of the first entry of that queue
--          KEYS[1]:q:n:POOL:LANE:TENANT    zset: entry -> score
-- ARGV     for each queue: pool, LANE:TENANT, number of entries, then the entries
-- Returns  the indexes of the missing entries, counted from 0 over all entries of the call

local base, at, index, missing = KEYS[1], 1, 0, {}
while ARGV[at] do
  local pool, name, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  -- An entry without a head is never pulled, so it is missing too. A server that evicts keys may lose heads and keep entries.
  local found = redis.call('ZSCORE', base, pool) and redis.call('ZSCORE', base .. ':h:' .. pool, name)
  local queue = base .. ':q:' .. #pool .. ':' .. pool .. ':' .. name
  local scores = found and redis.call('ZMSCORE', queue, unpack(ARGV, at, at + count - 1)) or {}
  for each = 1, count do
    if not scores[each] then
      missing[#missing + 1] = index
    end
    index = index + 1
  end
  at = at + count
end
return missing
