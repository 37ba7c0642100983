-- The members of one group, by Redis' own clock.
-- KEYS[1]  hash: instance -> JSON {lease, weight, till}; till is in ms. It is also the channel on which changes are told.
-- ARGV[1]  join | renew | members | leave, and then what that one takes.

local key = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function tell()
  redis.call('PUBLISH', key, '')
end

local function find(instance)
  local entry = redis.call('HGET', key, instance)
  return entry and cjson.decode(entry)
end

local function keep(instance, lease, weight, ttl_ms)
  redis.call('HSET', key, instance, cjson.encode({lease = lease, weight = weight, till = now + ttl_ms}))
  if redis.call('PTTL', key) < tonumber(ttl_ms) then
    redis.call('PEXPIRE', key, ttl_ms)
  end
end

local function remove(instance, lease)
  local entry = find(instance)
  if entry and entry.lease == lease then
    redis.call('HDEL', key, instance)
    tell()
  end
end

-- A lapse publishes nothing by itself: whoever comes first tells the others.
local function remove_lapsed()
  local entries = redis.call('HGETALL', key)
  for i = 1, #entries, 2 do
    local entry = cjson.decode(entries[i + 1])
    if entry.till <= now then
      remove(entries[i], entry.lease)
    end
  end
end

local verbs = {}

-- 1, or 0 if somebody else has this name. Joining twice with one lease is joining.
function verbs.join(instance, lease, weight, ttl_ms)
  local entry = find(instance)
  if entry and entry.lease ~= lease then
    return 0
  end
  keep(instance, lease, weight, ttl_ms)
  tell()
  return 1
end

-- 1, or 0 if this lease is gone. An empty weight is the former one.
function verbs.renew(instance, lease, weight, ttl_ms)
  local entry = find(instance)
  if not entry or entry.lease ~= lease then
    return 0
  end
  if weight == '' then
    weight = entry.weight
  end
  keep(instance, lease, weight, ttl_ms)
  if weight ~= entry.weight then
    tell()
  end
  return 1
end

-- JSON {instance: [lease, weight, ms that remain]}.
function verbs.members()
  local members = {}
  local entries = redis.call('HGETALL', key)
  for i = 1, #entries, 2 do
    local entry = cjson.decode(entries[i + 1])
    members[entries[i]] = {entry.lease, entry.weight, entry.till - now}
  end
  return cjson.encode(members)
end

function verbs.leave(instance, lease)
  remove(instance, lease)
  return 1
end

remove_lapsed()
return verbs[ARGV[1]](unpack(ARGV, 2))
