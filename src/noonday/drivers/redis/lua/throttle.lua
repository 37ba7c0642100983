#!lua
-- One throttle, by the rules of model/throttle.py.
-- KEYS[1]  hash: spent and begun, the instants up to which reserved tokens and started calls have spent the rate, ms;
--          mean, the mean duration of calls in ms, if known
--          with :reserved  sorted set: executions with a reserved token, by the instant of the token
--          with :inside    sorted set: executions whose call is running, by when their lease ends
--          with :line      sorted set: executions that wait for a slot, by when they first asked
--          with :coming    sorted set: the same executions, by when they should ask again
-- ARGV     the verb, then
--          ask:    now in ms, most calls at once (0: no limit), ms between two calls (0: no limit), burst,
--                  then for each request the execution and its lease in ms
--          end:    for each call the execution and its duration in ms
-- Returns  ask:    for each request 0 if it may call, else how long it waits in ms: positive for the rate, negative for a slot
--          end:    nothing

local LATE, KEPT, EXPECTED, SOONEST, LATEST, GUESSING = 1000, 600000, 5000, 250, 30000, 2000
local GOLDEN, HASTE, HOUR = 0.6180339887498949, 0.8, 3600000
local key = KEYS[1]
local reserved, inside = key .. ':reserved', key .. ':inside'
local waiting, returning = key .. ':line', key .. ':coming'
local state = redis.call('HMGET', key, 'spent', 'begun', 'mean')
local spent, begun = tonumber(state[1] or 0), tonumber(state[2] or 0)
local mean = tonumber(state[3] or 0)

local function exact(number)
  return string.format('%.17g', number)
end

local function extend(name, ms)
  ms = math.ceil(ms)
  if redis.call('PTTL', name) < ms then
    redis.call('PEXPIRE', name, ms)
  end
end

if ARGV[1] == 'end' then
  for at = 2, #ARGV, 2 do
    local ran = tonumber(ARGV[at + 1])
    if redis.call('ZREM', inside, ARGV[at]) == 1 and ran > 0 then
      ran = math.min(ran, LATEST)
      mean = mean > 0 and mean + (ran - mean) / 5 or ran
      redis.call('HSET', key, 'mean', exact(mean))
      extend(key, HOUR)
    end
  end
  return nil
end

local now, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local burst_ms = (burst - 1) * interval

local function wait_behind(ahead_of_it)
  local spread = ahead_of_it * GOLDEN % 1.0
  if mean == 0 then
    return math.ceil(SOONEST + (GUESSING - SOONEST) * spread)
  end
  local wait = HASTE * (ahead_of_it + 1) * mean / most
  if wait > LATEST then
    wait = LATEST * (0.75 + 0.25 * spread)
  end
  return math.ceil(math.max(SOONEST, wait))
end

local function wait_for_slot(execution)
  local first_asked = redis.call('ZSCORE', waiting, execution)
  local expected_back = first_asked and 0 or redis.call('ZCOUNT', returning, '-inf', now)
  if most - redis.call('ZCARD', inside) > expected_back then
    return 0
  end
  if not first_asked then
    redis.call('ZADD', waiting, now, execution)
  end
  local wait = wait_behind(redis.call('ZRANK', waiting, execution))
  redis.call('ZADD', returning, now + wait, execution)
  extend(waiting, wait + EXPECTED)
  extend(returning, wait + EXPECTED)
  return wait
end

local function wait_for_token(execution)
  local at = redis.call('ZSCORE', reserved, execution)
  at = at and tonumber(at)
  if not at or (at <= now and now < begun - burst_ms - LATE) then
    local token = math.max(spent, now, begun - LATE)
    spent = token + interval
    at = token - burst_ms
  end
  if at > now then
    redis.call('ZADD', reserved, exact(at), execution)
    return math.ceil(at - now)
  end
  redis.call('ZREM', reserved, execution)
  begun = math.max(begun, now) + interval
  return 0
end

if most > 0 then
  redis.call('ZREMRANGEBYSCORE', inside, '-inf', now)
  for _, lost in ipairs(redis.call('ZRANGEBYSCORE', returning, '-inf', now - EXPECTED)) do
    redis.call('ZREM', waiting, lost)
    redis.call('ZREM', returning, lost)
  end
end
if interval > 0 then
  redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now - KEPT)
end
local answers = {}
for at = 6, #ARGV, 2 do
  local execution, lease = ARGV[at], tonumber(ARGV[at + 1])
  local wait = 0
  if most == 0 or not redis.call('ZSCORE', inside, execution) then
    wait = most > 0 and -wait_for_slot(execution) or 0
    if wait == 0 and interval > 0 then
      wait = wait_for_token(execution)
    end
  end
  if wait == 0 and most > 0 then
    redis.call('ZREM', waiting, execution)
    redis.call('ZREM', returning, execution)
    redis.call('ZADD', inside, now + lease, execution)
    extend(inside, lease)
  end
  answers[#answers + 1] = wait
end
if interval > 0 then
  redis.call('HSET', key, 'spent', exact(spent), 'begun', exact(begun))
  extend(key, HOUR + math.max(spent, begun) - now)
  extend(reserved, KEPT + math.max(spent, begun) - now)
end
return answers
