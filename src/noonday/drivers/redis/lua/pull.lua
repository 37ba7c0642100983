#!lua flags=allow-oom
-- Removes ready entries from one partition and returns them: at most `room` for a pool, shared by its queues.
-- KEYS[1]  zset: pool -> score of its first entry. In the same slot, as in place.lua:
--          KEYS[1]:h:POOL                  zset: LANE:TENANT -> score of the first entry of that queue
--          KEYS[1]:q:n:POOL:LANE:TENANT    zset: entry -> score
-- ARGV     highest score that is ready, number of the pull, number of pools, then for each: pool, room;
--          then the queues to leave out, each as n:POOL:LANE:TENANT
-- Returns  {entries}, {for each pool the score of its first remaining entry, or an empty string}

local base, ready, pull, pools = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local left_out, left_out_count, pulled, remaining = {}, 0, {}, {}
for at = 4 + 2 * pools, #ARGV do
  left_out[ARGV[at]] = true
  left_out_count = left_out_count + 1
end

-- Updates the score of a head to that of its first entry, or removes the head if it has no entries. Returns the score.
local function update_head(heads, name, queue)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  if first[2] then
    redis.call('ZADD', heads, first[2], name)
  else
    redis.call('ZREM', heads, name)
  end
  return first[2] or ''
end

local function take(queue, share)
  local got = redis.call('ZRANGEBYSCORE', queue, '-inf', ready, 'LIMIT', 0, share)
  if got[1] then
    redis.call('ZREMRANGEBYRANK', queue, 0, #got - 1)
  end
  for at = 1, #got do
    pulled[#pulled + 1] = got[at]
  end
  return #got
end

-- Returns the queues to pull from. Those with the latest heads come first: they have the fewest entries, and leave the rest of
-- their share to those with a backlog. If there are more queues than room, the next pull begins further on.
local function choose(heads, path, room)
  local window, names = room + left_out_count, {}
  local found = redis.call('ZREVRANGEBYSCORE', heads, ready, '-inf', 'LIMIT', 0, window)
  if #found == window then
    local from = pull * room % redis.call('ZCOUNT', heads, '-inf', ready)
    found = redis.call('ZREVRANGEBYSCORE', heads, ready, '-inf', 'LIMIT', from, window)
  end
  for _, name in ipairs(found) do
    if #names < room and not left_out[path .. name] then
      names[#names + 1] = name
    end
  end
  return names
end

local function drain(pool, room)
  local heads, path = base .. ':h:' .. pool, #pool .. ':' .. pool .. ':'
  local names = choose(heads, path, room)
  for at, name in ipairs(names) do
    local queue = base .. ':q:' .. path .. name
    room = room - take(queue, math.ceil(room / (#names - at + 1)))
    update_head(heads, name, queue)
  end
  remaining[#remaining + 1] = update_head(base, pool, heads)
end

for at = 4, 2 + 2 * pools, 2 do
  drain(ARGV[at], tonumber(ARGV[at + 1]))
end
return {pulled, remaining}
