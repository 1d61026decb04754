-- One batch of sums, added to the days that they belong to: once, however often it is sent.
--
-- KEYS[1]   number of the last batch of this process that was added
-- KEYS[2..] the days, each a hash
-- ARGV[1]   msgpack {number, number_kept_s, days_kept_s, sums}
--   sums[i] = {index of the day in KEYS, JSON of the labels without its end, an amount for each measure}
--   amounts are text: a double would round them
-- Returns how many amounts could not be added, because what stands in their place is no number.

local ENDS = {',"requests"]', ',"prompt"]', ',"cached"]', ',"completion"]'}

local batch = cmsgpack.unpack(ARGV[1])
local number, number_kept, days_kept, sums = batch[1], batch[2], batch[3], batch[4]

if tonumber(redis.call('GET', KEYS[1]) or '0') >= number then return 0 end

-- The number first, and no error after it: a batch that failed half-way and was sent again would count twice.
redis.call('SET', KEYS[1], string.format('%.0f', number), 'EX', number_kept)
local refused = 0
for _, sum in ipairs(sums) do
    for n, ending in ipairs(ENDS) do
        local amount = sum[n + 2]
        if amount ~= '0' then
            local answer = redis.pcall('HINCRBY', KEYS[sum[1]], sum[2] .. ending, amount)
            if type(answer) == 'table' then refused = refused + 1 end
        end
    end
end
for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], days_kept) end
return refused
