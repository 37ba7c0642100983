#!lua
-- Adds revocations and sets fences of one pool. Each lives for one to two days: it expires with all others of its day.
-- KEYS[1]  names the slot. In it, for each DAY since 1970 by the clock of Redis:
--          KEYS[1]:DAY    hash: EXECUTION:DISPATCH -> reason, JOB -> the instant up to which its dispatches are fenced, ms
-- ARGV     field, value of each

local day = math.floor(redis.call('TIME')[1] / 86400)
local key = KEYS[1] .. ':' .. day
redis.call('HSET', key, unpack(ARGV))
redis.call('EXPIREAT', key, (day + 2) * 86400)
