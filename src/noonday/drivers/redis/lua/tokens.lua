#!lua
-- Takes tokens of a tenant's rate, or returns unused ones.
-- KEYS[1]  string: the instant up to which the rate is spent, ms
-- ARGV     now in ms, ms between two tokens, burst, number of tokens to take (negative: to return)
-- Returns  the number of tokens granted, and when the next token is available, ms

local now, interval = tonumber(ARGV[1]), tonumber(ARGV[2])
local burst, count = tonumber(ARGV[3]), tonumber(ARGV[4])
-- A value more than a burst ahead of now means that a clock was set back, or that the rate was raised.
local spent = math.min(math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now), now + burst * interval)
local available = math.max(0, math.floor(burst - (spent - now) / interval + 1e-6))
local granted = math.min(count, available)
spent = math.max(now, spent + granted * interval)
if spent > now then
  redis.call('SET', KEYS[1], string.format('%.3f', spent), 'PX', math.ceil(spent - now) + 1000)
else
  redis.call('DEL', KEYS[1])
end
local next_ms = now
if granted >= available then
  next_ms = math.max(now, math.floor(spent - (burst - 1) * interval) + 1)
end
return {granted, next_ms}
