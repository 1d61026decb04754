-- Puts a key's record in the place of the one that its writer saw, if that is still there, and tells of it.
-- KEYS: the hashes of digests, keys and tenants. ARGV: the key's id; the record that is to be there before,
-- '' for none; the new record; a tenant that must exist, '' for none; the channel and the news; how many
-- digests lead to the key from now on; those digests, then those that lead there no longer.
-- Returns 1 if it is written, 0 if another record stands there, -1 without the tenant.
local id, before, after, tenant = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local present = redis.call('HGET', KEYS[2], id) or ''
if present == after then
    return 1 -- this very step, sent again because its answer was lost
end
if present ~= before then
    return 0
end
if tenant ~= '' and redis.call('HEXISTS', KEYS[3], tenant) == 0 then
    return -1
end
-- First the news, which may be forbidden: a script that fails midway is not undone. Nobody acts on them
-- before the script is done.
redis.call('PUBLISH', ARGV[5], ARGV[6])
redis.call('HSET', KEYS[2], id, after)
local first = 8
for i = first, first + ARGV[7] - 1 do
    redis.call('HSET', KEYS[1], ARGV[i], id)
end
for i = first + ARGV[7], #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
end
return 1
