-- Keeps the members of one group, by the clock of Redis.
-- KEYS[1]  hash: instance -> JSON {lease, weight, till}; till is when the lease lapses, ms. Also the channel of changes.
-- ARGV     the verb (join, renew, members or leave), then its arguments

local key = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function publish_change()
  redis.call('PUBLISH', key, '')
end

local function find(instance)
  local entry = redis.call('HGET', key, instance)
  return entry and cjson.decode(entry)
end

local function store(instance, lease, weight, ttl_ms)
  redis.call('HSET', key, instance, cjson.encode({lease = lease, weight = weight, till = now + ttl_ms}))
  if redis.call('PTTL', key) < tonumber(ttl_ms) then
    redis.call('PEXPIRE', key, ttl_ms)
  end
end

local function remove(instance, lease)
  local entry = find(instance)
  if entry and entry.lease == lease then
    redis.call('HDEL', key, instance)
    publish_change()
  end
end

-- A lapse publishes nothing by itself: the next call of any instance does.
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

-- Returns 1, or 0 if another lease has this name. Joining twice with one lease succeeds.
function verbs.join(instance, lease, weight, ttl_ms)
  local entry = find(instance)
  if entry and entry.lease ~= lease then
    return 0
  end
  store(instance, lease, weight, ttl_ms)
  publish_change()
  return 1
end

-- Returns 1, or 0 if this lease has lapsed. An empty weight keeps the former one.
function verbs.renew(instance, lease, weight, ttl_ms)
  local entry = find(instance)
  if not entry or entry.lease ~= lease then
    return 0
  end
  if weight == '' then
    weight = entry.weight
  end
  store(instance, lease, weight, ttl_ms)
  if weight ~= entry.weight then
    publish_change()
  end
  return 1
end

-- Returns JSON {instance: [lease, weight, ms until it lapses]}.
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
