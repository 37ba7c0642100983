#!lua
-- Extends claims of dispatches.
-- KEYS[1]  names the slot. In it, as in claim.lua:
--          KEYS[1]:TIME    hash: EXECUTION:NUMBER -> 'acked', or 'CLAIMED LAPSES'
-- ARGV     ms until a claim lapses, ms until all is forgotten,
--          then for each hash: TIME, how many dispatches, then EXECUTION:NUMBER of each, then CLAIMED of each as it was answered
-- Answers  for each dispatch 1 if the claim is extended; 0: another delivery was claimed since; -1: acked

local clock = redis.call('TIME')
local ours = clock[1] * 1000 + math.floor(clock[2] / 1000)
local till, keep = string.format(' %.0f', ours + ARGV[1]), ARGV[2]
local answers = {}

local function renew(key, first, count)
  local known = redis.call('HMGET', key, unpack(ARGV, first, first + count - 1))
  local new = {}
  for at = first, first + count - 1 do
    local was, claimed = known[at - first + 1], ARGV[at + count]
    if was == 'acked' then
      answers[#answers + 1] = -1
    elseif not was or string.match(was, '^(%d+) ') == claimed then
      new[#new + 1] = ARGV[at]
      new[#new + 1] = claimed .. till
      answers[#answers + 1] = 1
    else
      answers[#answers + 1] = 0
    end
  end
  if new[1] then
    redis.call('HSET', key, unpack(new))
    redis.call('PEXPIRE', key, keep)
  end
end

local at = 3
while ARGV[at] do
  local count = tonumber(ARGV[at + 1])
  renew(KEYS[1] .. ':' .. ARGV[at], at + 2, count)
  at = at + 2 + 2 * count
end
return answers
