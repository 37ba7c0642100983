#!lua
-- One throttle, as model/throttle.py says.
-- KEYS[1]  hash: spent and begun, until when the rate is spent in ms; mean, how long calls take in ms, if known
--          with :reserved  sorted set: executions that have paid, by the instant they paid for
--          with :inside    sorted set: executions that went, by when their lease ends
--          with :line      sorted set: executions that found no place, by when they first came
--          with :coming    sorted set: the same, by when they are to be back
-- ARGV     the verb, then
--          ask:    now in ms, how many at once (0: any number), ms between two calls (0: any), burst,
--                  then for each an execution and its lease in ms
--          leave:  for each an execution and how long it ran in ms
-- Answers  ask:    for each 0 if it may go, else how long it waits in ms: positive for the rate, negative for a place
--          leave:  nothing

local LATE, KEPT, EXPECTED, SOONEST, LATEST, GUESSING = 1000, 600000, 5000, 250, 30000, 2000
local GOLDEN, HASTE, HOUR = 0.6180339887498949, 0.8, 3600000
local key = KEYS[1]
local reserved, inside = key .. ':reserved', key .. ':inside'
local line, coming = key .. ':line', key .. ':coming'
local state = redis.call('HMGET', key, 'spent', 'begun', 'mean')
local spent, begun = tonumber(state[1] or 0), tonumber(state[2] or 0)
local mean = tonumber(state[3] or 0)

local function exact(number)
  return string.format('%.17g', number)
end

local function keep(name, ms)
  ms = math.ceil(ms)
  if redis.call('PTTL', name) < ms then
    redis.call('PEXPIRE', name, ms)
  end
end

if ARGV[1] == 'leave' then
  for at = 2, #ARGV, 2 do
    local ran = tonumber(ARGV[at + 1])
    if redis.call('ZREM', inside, ARGV[at]) == 1 and ran > 0 then
      ran = math.min(ran, LATEST)
      mean = mean > 0 and mean + (ran - mean) / 5 or ran
      redis.call('HSET', key, 'mean', exact(mean))
      keep(key, HOUR)
    end
  end
  return nil
end

local now, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5])
local ahead = (burst - 1) * interval

local function turn_of(before)
  local spread = before * GOLDEN % 1.0
  if mean == 0 then
    return math.ceil(SOONEST + (GUESSING - SOONEST) * spread)
  end
  local wait = HASTE * (before + 1) * mean / most
  if wait > LATEST then
    wait = LATEST * (0.75 + 0.25 * spread)
  end
  return math.ceil(math.max(SOONEST, wait))
end

local function wait_for_place(execution)
  local came = redis.call('ZSCORE', line, execution)
  local promised = came and 0 or redis.call('ZCOUNT', coming, '-inf', now)
  if most - redis.call('ZCARD', inside) > promised then
    return 0
  end
  if not came then
    redis.call('ZADD', line, now, execution)
  end
  local wait = turn_of(redis.call('ZRANK', line, execution))
  redis.call('ZADD', coming, now + wait, execution)
  keep(line, wait + EXPECTED)
  keep(coming, wait + EXPECTED)
  return wait
end

local function wait_for_token(execution)
  local at = redis.call('ZSCORE', reserved, execution)
  at = at and tonumber(at)
  if not at or (at <= now and now < begun - ahead - LATE) then
    local token = math.max(spent, now, begun - LATE)
    spent = token + interval
    at = token - ahead
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
  for _, lost in ipairs(redis.call('ZRANGEBYSCORE', coming, '-inf', now - EXPECTED)) do
    redis.call('ZREM', line, lost)
    redis.call('ZREM', coming, lost)
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
    wait = most > 0 and -wait_for_place(execution) or 0
    if wait == 0 and interval > 0 then
      wait = wait_for_token(execution)
    end
  end
  if wait == 0 and most > 0 then
    redis.call('ZREM', line, execution)
    redis.call('ZREM', coming, execution)
    redis.call('ZADD', inside, now + lease, execution)
    keep(inside, lease)
  end
  answers[#answers + 1] = wait
end
if interval > 0 then
  redis.call('HSET', key, 'spent', exact(spent), 'begun', exact(begun))
  keep(key, HOUR + math.max(spent, begun) - now)
  keep(reserved, KEPT + math.max(spent, begun) - now)
end
return answers
