#!lua
-- Adds revocations and sets fences of one pool. Each lives for a day at least and two at most: it dies with all others of its day.
-- KEYS[1]  names the slot. In it, for each DAY since 1970 by our clock:
--          KEYS[1]:DAY    hash: EXECUTION:DISPATCH -> reason, JOB -> until when its fires are fenced
-- ARGV     field, value of each

local day = math.floor(redis.call('TIME')[1] / 86400)
local key = KEYS[1] .. ':' .. day
redis.call('HSET', key, unpack(ARGV))
redis.call('EXPIREAT', key, (day + 2) * 86400)
