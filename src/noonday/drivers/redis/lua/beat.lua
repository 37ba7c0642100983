#!lua
-- Notes that the generation of one pool is alive, and ends it if it is an older copy.
-- KEYS[1]  names the slot. In it:
--          KEYS[1]:generation    string: present if all revocations that the store knows of are raised; until when fires are fenced
--          KEYS[1]:beat   string: the latest beat, ms
-- ARGV     now in ms, the beat that there must have been at least
-- Answers  the latest beat, or nil: there is no generation any more

if redis.call('EXISTS', KEYS[1] .. ':generation') == 0 then
  return false
end
local before = tonumber(redis.call('GET', KEYS[1] .. ':beat') or 0)
if before < tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1] .. ':generation')
  return false
end
local now = math.max(before, tonumber(ARGV[1]))
redis.call('SET', KEYS[1] .. ':beat', string.format('%.0f', now))
return now
