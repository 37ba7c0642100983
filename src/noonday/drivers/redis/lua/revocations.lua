#!lua flags=no-writes
-- The revocations of one pool.
-- KEYS[1]  names the slot. In it:
--          KEYS[1]:generation    string: present if all revocations that the store knows of are raised; until when fires are fenced
--          KEYS[1]:DAY    hash, for each day since 1970 by our clock: EXECUTION:DISPATCH -> reason
--                         and JOB -> until when its fires are fenced
-- ARGV     how many fields may be answered unasked, then those that are asked about
-- Answers  the generation or nil, whether what follows is all that could be asked about, then field, value

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
