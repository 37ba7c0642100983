#!lua
-- One breaker, by the rules of model/breaker.py.
-- KEYS[1]  hash: cB and fB, calls and failures of the 10 s bucket B; until and probe, when the open time and the probe end, ms
-- ARGV     the verb, now in ms, then
--          count: calls, failures, result of a probe (1: it failed, 0: it succeeded, empty: there was none),
--                 least number of calls to open
--          ask:   nothing
-- Returns  count: how long it stays open in ms, 0 if it is closed, -1 if its open time is over
--          ask:   0 if it is closed, -1 if the caller may probe, else how long to wait in ms

local WINDOW, BUCKET, OPEN, PROBE = 60000, 10000, 30000, 60000
local key, now = KEYS[1], tonumber(ARGV[2])

local function field(name)
  return tonumber(redis.call('HGET', key, name) or 0)
end

local function open()
  redis.call('DEL', key)
  redis.call('HSET', key, 'until', now + OPEN)
  redis.call('PEXPIRE', key, OPEN + 2 * PROBE)
  return OPEN
end

if ARGV[1] == 'ask' then
  if field('until') == 0 then
    return 0
  end
  local wait = math.max(field('until'), field('probe')) - now
  if wait > 0 then
    return wait
  end
  redis.call('HSET', key, 'probe', now + PROBE)
  redis.call('PEXPIRE', key, OPEN + 2 * PROBE)
  return -1
end

if ARGV[5] == '1' then
  return open()
end
if ARGV[5] == '0' then
  redis.call('DEL', key)
end
if field('until') > 0 then
  return now < field('until') and field('until') - now or -1
end
local bucket = math.floor(now / BUCKET)
redis.call('HINCRBY', key, 'c' .. bucket, ARGV[3])
redis.call('HINCRBY', key, 'f' .. bucket, ARGV[4])
redis.call('PEXPIRE', key, WINDOW)
local calls, failures, fields = 0, 0, redis.call('HGETALL', key)
for at = 1, #fields, 2 do
  local kind, at_bucket = string.sub(fields[at], 1, 1), tonumber(string.sub(fields[at], 2))
  if at_bucket <= bucket - WINDOW / BUCKET then
    redis.call('HDEL', key, fields[at])
  elseif kind == 'c' then
    calls = calls + fields[at + 1]
  else
    failures = failures + fields[at + 1]
  end
end
if calls >= tonumber(ARGV[6]) and failures * 2 > calls then
  return open()
end
return 0
