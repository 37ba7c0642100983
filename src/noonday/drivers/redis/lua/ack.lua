#!lua
-- Marks dispatches as acked: their start or end is on the log.
-- KEYS[1]  names the slot. In it, as in claim.lua:
--          KEYS[1]:TIME    hash: EXECUTION:NUMBER -> 'acked', or 'CLAIMED LAPSES'
-- ARGV     ms until the hash expires, then for each hash: TIME, number of dispatches, then EXECUTION:NUMBER of each

local at = 2
while ARGV[at] do
  local key, count, acked = KEYS[1] .. ':' .. ARGV[at], tonumber(ARGV[at + 1]), {}
  for each = at + 2, at + 1 + count do
    acked[#acked + 1] = ARGV[each]
    acked[#acked + 1] = 'acked'
  end
  redis.call('HSET', key, unpack(acked))
  redis.call('PEXPIRE', key, ARGV[1])
  at = at + 2 + count
end
