#!lua
-- Extends claims of dispatches.
-- KEYS[1]  names the slot. In it, as in claim.lua:
--          KEYS[1]:TIME    hash: EXECUTION:NUMBER -> 'acked', or 'CLAIMED LAPSES'
-- ARGV     ms until a claim lapses, ms until the hash expires,
--          then for each hash: TIME, number of dispatches, then EXECUTION:NUMBER of each, then CLAIMED of each
-- Returns  for each dispatch 1 if the claim is extended, 0 if another delivery was claimed since, -1 if it is acked

local clock = redis.call('TIME')
local redis_now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local lapses, expire_ms = string.format(' %.0f', redis_now + ARGV[1]), ARGV[2]
local answers = {}

local function renew(key, first, count)
  local known = redis.call('HMGET', key, unpack(ARGV, first, first + count - 1))
  local new = {}
  for at = first, first + count - 1 do
    local stored, claimed = known[at - first + 1], ARGV[at + count]
    if stored == 'acked' then
      answers[#answers + 1] = -1
    elseif not stored or string.match(stored, '^(%d+) ') == claimed then
      new[#new + 1] = ARGV[at]
      new[#new + 1] = claimed .. lapses
      answers[#answers + 1] = 1
    else
      answers[#answers + 1] = 0
    end
  end
  if new[1] then
    redis.call('HSET', key, unpack(new))
    redis.call('PEXPIRE', key, expire_ms)
  end
end

local at = 3
while ARGV[at] do
  local count = tonumber(ARGV[at + 1])
  renew(KEYS[1] .. ':' .. ARGV[at], at + 2, count)
  at = at + 2 + 2 * count
end
return answers
