#!lua
-- Takes tokens of a tenant's rate, or gives some back.
-- KEYS[1]  string: until when the rate is spent, ms
-- ARGV     now, ms between two tokens, how many may be taken at once, how many are asked for (negative: given back)
-- Answers  how many were granted, and when there is one more, ms

local now, interval = tonumber(ARGV[1]), tonumber(ARGV[2])
local burst, count = tonumber(ARGV[3]), tonumber(ARGV[4])
-- More than a burst ahead of now is a clock that was set back, or a rate that was raised.
local spent = math.min(math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now), now + burst * interval)
local most = math.max(0, math.floor(burst - (spent - now) / interval + 1e-6))
local granted = math.min(count, most)
spent = math.max(now, spent + granted * interval)
if spent > now then
  redis.call('SET', KEYS[1], string.format('%.3f', spent), 'PX', math.ceil(spent - now) + 1000)
else
  redis.call('DEL', KEYS[1])
end
local more = now
if granted >= most then
  more = math.max(now, math.floor(spent - (burst - 1) * interval) + 1)
end
return {granted, more}
