-- What does a secret open? In one step, so that no change can come between the three looks.
-- KEYS: the hashes of digests, keys and tenants. ARGV: a secret's SHA-256 in hex.
-- Returns nil, or the key's id, its record, its tenant's settings or nil, and the time of this server.
local id = redis.call('HGET', KEYS[1], ARGV[1])
local key = id and redis.call('HGET', KEYS[2], id)
if not key then
    return false
end
local is_readable, record = pcall(cjson.decode, key)
local tenant = is_readable and type(record) == 'table' and record.tenant
return {
    id,
    key,
    type(tenant) == 'string' and redis.call('HGET', KEYS[3], tenant),
    redis.call('TIME'),
}
