#!lua
-- Claims dispatches for a worker.
-- KEYS[1]  names the slot. In it, for each 4 s of the time in an execution's id, TIME:
--          KEYS[1]:TIME    hash: EXECUTION:NUMBER -> 'acked', or 'CLAIMED LAPSES', both in ms: when it was claimed by
--                          the workers' clock, and when that claim lapses by the clock of Redis
-- ARGV     now by the workers' clock, ms until a claim lapses, ms until the hash expires,
--          then for each hash: TIME, number of dispatches, then EXECUTION:NUMBER of each
-- Returns  for each dispatch when it was claimed, negated if an earlier claim of it had lapsed;
--          0 if another delivery is claimed; -1 if it is acked

local clock = redis.call('TIME')
local redis_now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now, expire_ms = tonumber(ARGV[1]), ARGV[3]
local lapses = string.format(' %.0f', redis_now + ARGV[2])
local claimed_now, answers = ARGV[1] .. lapses, {}

-- The token grows even if the clock of the next worker is behind.
local function decide(stored)
  if stored == 'acked' then
    return -1
  end
  local claimed, lapses_ms = string.match(stored, '^(%d+) (%d+)$')
  if redis_now < tonumber(lapses_ms) then
    return 0
  end
  return math.max(now, claimed + 1)
end

local function claim(key, first, last)
  local known = redis.call('HMGET', key, unpack(ARGV, first, last))
  local new, seen = {}, {}
  for at = first, last do
    local name, stored = ARGV[at], known[at - first + 1]
    local answer = seen[name] and 0 or (stored and decide(stored) or now)
    if answer > 0 then
      new[#new + 1] = name
      new[#new + 1] = answer == now and claimed_now or string.format('%.0f', answer) .. lapses
      seen[name] = true
      answer = stored and -answer or answer
    end
    answers[#answers + 1] = answer
  end
  if new[1] then
    redis.call('HSET', key, unpack(new))
    redis.call('PEXPIRE', key, expire_ms)
  end
end

local at = 4
while ARGV[at] do
  local count = tonumber(ARGV[at + 1])
  claim(KEYS[1] .. ':' .. ARGV[at], at + 2, at + 1 + count)
  at = at + 2 + count
end
return answers
