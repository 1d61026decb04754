-- Many steps on the limits of tenants, made as one.
--
-- KEYS[1]               sorted set of the processes that live: name, and when it is taken for dead
-- KEYS[2i], KEYS[2i+1]  of tenant i: the state of its limits; sorted set of its leases and when they lapse
-- ARGV[1]               msgpack {process, lease_ttl_us, deadline_us, tenants, steps}
--   tenants[i] = {requests a minute, tokens a minute, requests a day, tokens a day, leases at once}; 0: none
-- Returns msgpack {now_us, one answer a step}
--
-- Limits follow the generic cell rate algorithm (ITU-T I.371, annex A), which keeps one number for each:
-- when it will be full again. Here that is kept as the time left, in microseconds, as of when it was
-- written: small numbers stay exact, and a clock that is set back (another Redis after a failover) locks
-- nobody out. Only Redis tells the time.

local TAKE, SETTLE, FORCE, RENEW, LOOK, BEAT = 1, 2, 3, 4, 5, 6
local PERIODS = {60e6, 60e6, 86400e6, 86400e6}
local ROUNDING_US = 1 -- the sum of many small steps must not refuse the last one
local SLOT_WAIT_US = 1e6 -- nobody knows when one will be free
local LATE = -1

local clock = redis.call('TIME')
local now = clock[1] * 1e6 + clock[2]
local batch = cmsgpack.unpack(ARGV[1])
local process, ttl, deadline, tenants, steps = batch[1], batch[2], batch[3], batch[4], batch[5]
local lapse = string.format('%.0f', now + ttl)

-- What is left to wait once a limit has changed: the amount that was used stays used, and a lower limit is at
-- most used up by that.
local function under(limit, was, left, period)
    if limit == was or limit == 0 or was == 0 then return left end
    return math.min(left * was / limit, math.max(left, period))
end

local function read(i)
    local tenant = tenants[i]
    if tenant.left then return tenant end
    tenant.key, tenant.leases = KEYS[2 * i], KEYS[2 * i + 1]
    local raw = redis.call('GET', tenant.key)
    if raw then
        local state = cmsgpack.unpack(raw)
        local written = state[1]
        local passed = math.max(0, now - written)
        tenant.left = {}
        for n = 1, 4 do
            tenant.left[n] = under(tenant[n], state[n + 5], math.max(0, state[n + 1] - passed), PERIODS[n])
        end
        if written > now then -- set back: a lease can outlive its process no longer than it could before
            redis.call('ZREMRANGEBYSCORE', tenant.leases, '(' .. lapse, '+inf')
        end
    else
        tenant.left = {0, 0, 0, 0}
    end
    redis.call('ZREMRANGEBYSCORE', tenant.leases, '-inf', string.format('%.0f', now))
    tenant.held = redis.call('ZCARD', tenant.leases)
    return tenant
end

local function add(tenant, amounts) -- for each limit; less than nothing gives back
    for n = 1, 4 do
        if tenant[n] > 0 then
            tenant.left[n] = math.max(0, tenant.left[n] + amounts[n] * PERIODS[n] / tenant[n])
        end
    end
    tenant.dirty = true
end

local function hold(tenant, lease)
    local is_new = redis.call('ZADD', tenant.leases, lapse, lease)
    tenant.held, tenant.leased = tenant.held + is_new, true
    return is_new
end

local function told(tenant, refused, wait)
    local left = tenant.left
    return {refused, wait, math.ceil(left[1]), math.ceil(left[2]), math.ceil(left[3]), math.ceil(left[4])}
end

local function take(tenant, lease, tokens)
    if now > deadline then return {LATE} end
    local amounts, refused, longest = {1, tokens, 1, tokens}, 0, ROUNDING_US
    for n = 1, 4 do
        if tenant[n] > 0 then
            local wait = tenant.left[n] + amounts[n] * PERIODS[n] / tenant[n] - PERIODS[n]
            if wait > longest then refused, longest = n, wait end
        end
    end
    if refused > 0 then return told(tenant, refused, math.ceil(longest)) end
    if tenant[5] > 0 and tenant.held >= tenant[5] then return told(tenant, 5, SLOT_WAIT_US) end
    add(tenant, amounts)
    hold(tenant, lease)
    return told(tenant, 0, 0)
end

local function settle(tenant, lease, requests, tokens)
    if redis.call('ZREM', tenant.leases, lease) == 0 then return 0 end
    tenant.held = tenant.held - 1
    add(tenant, {requests, tokens, requests, tokens})
    return 1
end

local function force(tenant, lease, amounts) -- what was granted elsewhere while we were away
    if lease ~= '' and hold(tenant, lease) == 0 then return 0 end
    add(tenant, amounts)
    return 1
end

local function renew(tenant, leases)
    local lost = {}
    for _, lease in ipairs(leases) do
        if hold(tenant, lease) == 1 then lost[#lost + 1] = lease end
    end
    return lost
end

local function beat(lives)
    if lives == 1 then
        redis.call('ZADD', KEYS[1], lapse, process)
    else
        redis.call('ZREM', KEYS[1], process)
    end
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
    redis.call('PEXPIRE', KEYS[1], math.ceil(ttl / 500))
    return redis.call('ZCARD', KEYS[1])
end

local answers = {}
for i, step in ipairs(steps) do
    local kind, tenant = step[1], step[2]
    if kind ~= BEAT then tenant = read(tenant) end
    if kind == TAKE then answers[i] = take(tenant, step[3], step[4])
    elseif kind == SETTLE then answers[i] = settle(tenant, step[3], step[4], step[5])
    elseif kind == RENEW then answers[i] = renew(tenant, step[3])
    elseif kind == LOOK then answers[i] = told(tenant, 0, 0)
    elseif kind == BEAT then answers[i] = beat(tenant)
    elseif kind == FORCE then answers[i] = force(tenant, step[3], step[4])
    end
end

for _, tenant in ipairs(tenants) do
    if tenant.dirty then
        local a, b, c, d = unpack(tenant.left)
        local longest = math.max(a, b, c, d)
        if longest > 0 then
            local state = {now, a, b, c, d, tenant[1], tenant[2], tenant[3], tenant[4]}
            redis.call('SET', tenant.key, cmsgpack.pack(state), 'PX', math.ceil(longest / 1000) + 1000)
        else
            redis.call('DEL', tenant.key)
        end
    end
    if tenant.leased then redis.call('PEXPIRE', tenant.leases, math.ceil(ttl / 500)) end
end
return cmsgpack.pack({now, answers})
