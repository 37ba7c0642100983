#!lua flags=allow-oom
-- Takes what is ready out of one partition: no more for a pool than its room, which its queues share.
-- KEYS[1]  zset: pool -> score of its first entry. In the same slot, as in place.lua:
--          KEYS[1]:h:POOL                  zset: LANE:TENANT -> score of the first entry of that queue
--          KEYS[1]:q:n:POOL:LANE:TENANT    zset: entry -> score
-- ARGV     highest score that is ready, number of the turn, how many pools, then for each: pool, room;
--          then the queues to be left alone, each as n:POOL:LANE:TENANT
-- Answers  {entries}, {score of the first entry that is left, or nothing, for each pool}

local base, ready, turn, pools = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local full, fulls, taken, left = {}, 0, {}, {}
for at = 4 + 2 * pools, #ARGV do
  full[ARGV[at]] = true
  fulls = fulls + 1
end

-- What has a first entry stays a head, with its score; what has none goes.
local function keep_head(heads, name, queue)
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
    taken[#taken + 1] = got[at]
  end
  return #got
end

-- The queues whose turn it is. Those with the latest heads come first: they have the least, and leave the rest of their
-- share to those with a backlog. If there are more than have room, the next turn begins further on.
local function chosen(heads, path, room)
  local window, names = room + fulls, {}
  local found = redis.call('ZREVRANGEBYSCORE', heads, ready, '-inf', 'LIMIT', 0, window)
  if #found == window then
    local from = turn * room % redis.call('ZCOUNT', heads, '-inf', ready)
    found = redis.call('ZREVRANGEBYSCORE', heads, ready, '-inf', 'LIMIT', from, window)
  end
  for _, name in ipairs(found) do
    if #names < room and not full[path .. name] then
      names[#names + 1] = name
    end
  end
  return names
end

local function drain(pool, room)
  local heads, path = base .. ':h:' .. pool, #pool .. ':' .. pool .. ':'
  local names = chosen(heads, path, room)
  for at, name in ipairs(names) do
    local queue = base .. ':q:' .. path .. name
    room = room - take(queue, math.ceil(room / (#names - at + 1)))
    keep_head(heads, name, queue)
  end
  left[#left + 1] = keep_head(base, pool, heads)
end

for at = 4, 2 + 2 * pools, 2 do
  drain(ARGV[at], tonumber(ARGV[at + 1]))
end
return {taken, left}
