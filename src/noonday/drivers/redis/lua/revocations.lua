#!lua flags=no-writes
-- Reads the revocations and fences of one pool.
-- KEYS[1]  names the slot. In it:
--          KEYS[1]:generation    string: present if all revocations of the store are copied; the instant up to which it fences
--          KEYS[1]:DAY           hash, for each day since 1970 by the clock of Redis: EXECUTION:DISPATCH -> reason,
--                                and JOB -> the instant up to which its dispatches are fenced, ms
-- ARGV     most fields to return without naming them, then the fields that are asked about
-- Returns  the generation or nil, 1 if the rest is complete (else 0), then field, value of each

local generation = redis.call('GET', KEYS[1] .. ':generation')
local today = math.floor(redis.call('TIME')[1] / 86400)
local days = {KEYS[1] .. ':' .. today - 1, KEYS[1] .. ':' .. today}
local answer = {generation, 1}

local function add(name, value)
  answer[#answer + 1] = name
  answer[#answer + 1] = value
end

if redis.call('HLEN', days[1]) + redis.call('HLEN', days[2]) <= tonumber(ARGV[1]) then
  for _, day in ipairs(days) do
    local found = redis.call('HGETALL', day)
    for at = 1, #found, 2 do
      add(found[at], found[at + 1])
    end
  end
  return answer
end
if not ARGV[2] then
  return {generation, 0}
end
-- A later revocation replaces an earlier one: today comes last.
for _, day in ipairs(days) do
  for first = 2, #ARGV, 1000 do
    local reasons = redis.call('HMGET', day, unpack(ARGV, first, math.min(first + 999, #ARGV)))
    for at, reason in ipairs(reasons) do
      if reason then
        add(ARGV[first + at - 1], reason)
      end
    end
  end
end
return answer
