#!lua flags=no-writes
-- The flags of one pool.
-- KEYS[1]  names the slot. In it:
--          KEYS[1]:era    string: present if all flags that the store knows of are raised; until when fires are barred
--          KEYS[1]:DAY    hash, for each day since 1970 by our clock: EXECUTION:DISPATCH -> reason
--                         and JOB -> until when its fires are barred
-- ARGV     how many fields may be answered unasked, then those that are asked about
-- Answers  the era or nil, whether what follows is all that could be asked about, then field, value

local era = redis.call('GET', KEYS[1] .. ':era')
local today = math.floor(redis.call('TIME')[1] / 86400)
local days = {KEYS[1] .. ':' .. today - 1, KEYS[1] .. ':' .. today}
local answer = {era, 1}

local function add(name, value)
  answer[#answer + 1] = name
  answer[#answer + 1] = value
end

if redis.call('HLEN', days[1]) + redis.call('HLEN', days[2]) <= tonumber(ARGV[1]) then
  for _, day in ipairs(days) do
    local flags = redis.call('HGETALL', day)
    for at = 1, #flags, 2 do
      add(flags[at], flags[at + 1])
    end
  end
  return answer
end
if not ARGV[2] then
  return {era, 0}
end
-- A later wish replaces an earlier one: today comes last.
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
