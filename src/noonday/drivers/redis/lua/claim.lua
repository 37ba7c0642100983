#!lua
-- Claims dispatches for a worker.
-- KEYS[1]  names the slot. In it, for each 4 s of the time in an execution's id, TIME:
--          KEYS[1]:TIME    hash: EXECUTION:NUMBER -> 'acked', or 'CLAIMED LAPSES': when it was claimed by the workers' clock, and
--                          when that lapses by ours; in ms
-- ARGV     now by the workers' clock, ms until a claim lapses, ms until all is forgotten,
--          then for each hash: TIME, how many dispatches, then EXECUTION:NUMBER of each
-- Answers  for each dispatch when it was claimed; the same with a minus sign if an earlier claim of it had lapsed;
--          0: somebody else has it; -1: acked

local clock = redis.call('TIME')
local ours = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now, keep = tonumber(ARGV[1]), ARGV[3]
local till = string.format(' %.0f', ours + ARGV[2])
local claimed_now, answers = ARGV[1] .. till, {}

-- The token grows also where the clock of the next worker is behind.
local function decide(was)
  if was == 'acked' then
    return -1
  end
  local claimed, until_ms = string.match(was, '^(%d+) (%d+)$')
  if ours < tonumber(until_ms) then
    return 0
  end
  return math.max(now, claimed + 1)
end

local function claim(key, first, last)
  local known = redis.call('HMGET', key, unpack(ARGV, first, last))
  local new, seen = {}, {}
  for at = first, last do
    local name, was = ARGV[at], known[at - first + 1]
    local answer = seen[name] and 0 or (was and decide(was) or now)
    if answer > 0 then
      new[#new + 1] = name
      new[#new + 1] = answer == now and claimed_now or string.format('%.0f', answer) .. till
      seen[name] = true
      answer = was and -answer or answer
    end
    answers[#answers + 1] = answer
  end
  if new[1] then
    redis.call('HSET', key, unpack(new))
    redis.call('PEXPIRE', key, keep)
  end
end

local at = 4
while ARGV[at] do
  local count = tonumber(ARGV[at + 1])
  claim(KEYS[1] .. ':' .. ARGV[at], at + 2, at + 1 + count)
  at = at + 2 + count
end
return answers
