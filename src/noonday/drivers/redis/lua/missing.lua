#!lua flags=no-writes
-- Which of some entries one partition does not have.
-- KEYS[1]  zset: pool -> score of its first entry. In the same slot, as in place.lua:
--          KEYS[1]:h:POOL                  zset: LANE:TENANT -> score of the first entry of that queue
--          KEYS[1]:q:n:POOL:LANE:TENANT    zset: entry -> score
-- ARGV     for each queue: pool, LANE:TENANT, how many entries, then the entries
-- Answers  the places of those that are missing, counted from 0 over all entries of the call

local base, at, place, missing = KEYS[1], 1, 0, {}
while ARGV[at] do
  local pool, name, count = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  at = at + 3
  -- What no head leads to is never taken: of a server that drops keys to save memory, heads may be gone and entries not.
  local found = redis.call('ZSCORE', base, pool) and redis.call('ZSCORE', base .. ':h:' .. pool, name)
  local queue = base .. ':q:' .. #pool .. ':' .. pool .. ':' .. name
  local scores = found and redis.call('ZMSCORE', queue, unpack(ARGV, at, at + count - 1)) or {}
  for each = 1, count do
    if not scores[each] then
      missing[#missing + 1] = place
    end
    place = place + 1
  end
  at = at + count
end
return missing
