#!lua
-- Notes that the generation of one pool is alive, and ends it if this is an older copy of Redis.
-- KEYS[1]  names the slot. In it:
--          KEYS[1]:generation    string: present if all revocations of the store are copied; the instant up to which it fences
--          KEYS[1]:beat          string: the latest beat, ms
-- ARGV     now in ms, the least value that the latest beat must have
-- Returns  the latest beat, or nil if there is no generation

if redis.call('EXISTS', KEYS[1] .. ':generation') == 0 then
  return false
end
local latest = tonumber(redis.call('GET', KEYS[1] .. ':beat') or 0)
if latest < tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1] .. ':generation')
  return false
end
local now = math.max(latest, tonumber(ARGV[1]))
redis.call('SET', KEYS[1] .. ':beat', string.format('%.0f', now))
return now
