-- What does each process have under way? Tells what one has, and asks for what the others have.
--
-- KEYS[1]  a hash with a field for each process: the time of this server in microseconds, a space, its report
-- ARGV[1]  '<process> <kept_us> <report>'; with an empty report it leaves
-- Returns msgpack {now_us, {[process] = report, ...}} of the others
--
-- Reports are taken as they are: msgpack inside, which nothing here needs to read. What is older than kept_us
-- is of a process that died, or was written before the clock was set back; what has no time, nobody here wrote.

local clock = redis.call('TIME')
local now = clock[1] * 1e6 + clock[2]
local process, kept, report = string.match(ARGV[1], '^(%S+) (%d+) (.*)$')

if report == '' then
    redis.call('HDEL', KEYS[1], process)
else
    redis.call('HSET', KEYS[1], process, string.format('%.0f ', now) .. report)
    redis.call('PEXPIRE', KEYS[1], math.ceil(kept / 500))
end

local others, count = {}, 0
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
    local name, value = fields[i], fields[i + 1]
    local written, said = string.match(value, '^(%d+) (.*)$')
    if not written or not string.match(name, '^[%w._-]+$') or math.abs(now - written) > tonumber(kept) then
        redis.call('HDEL', KEYS[1], name)
    elseif name ~= process then
        -- cmsgpack would call it text, which it is not: bin 32 by hand, and so the map 32 around it
        others[#others + 1] = cmsgpack.pack(name) .. '\198' .. struct.pack('>I4', #said) .. said
        count = count + 1
    end
end
return '\146' .. cmsgpack.pack(now) .. '\223' .. struct.pack('>I4', count) .. table.concat(others)
