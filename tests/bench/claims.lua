-- Workers as requests of wrk: claim, ack what was claimed, again. Any connection acks for any other, as all are one node;
-- so as many requests are in flight as there are connections, and the client takes a fraction of what the server does.
-- BATCH is put in front of this file.

local acks, waiting = {}, 0

local function post(verb, body)
  return string.format(
    "POST /v0/topics/jobs/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
    verb, #body, body)
end

local claim = post("claim", string.format('{"node":"w","max":%d}', BATCH))

request = function()
  if waiting == 0 then return claim end
  local ack = acks[waiting]
  acks[waiting], waiting = nil, waiting - 1
  return ack
end

response = function(status, _, body)
  if status ~= 200 then error("a worker got " .. status .. ": " .. body) end
  if body:find('"claimed":', 1, true) == nil then return end
  local seqs, leases, count = {}, {}, 0
  for seq, lease in body:gmatch('{"%$seq":(%d+),"lease_id":"(lease_%x+)"') do
    count = count + 1
    seqs[count], leases[count] = seq, '"' .. lease .. '"'
  end
  if count == 0 then return end
  waiting = waiting + 1
  acks[waiting] = post("ack", string.format('{"node":"w","seqs":[%s],"lease_ids":[%s]}',
    table.concat(seqs, ","), table.concat(leases, ",")))
end
