-- Wireshark dissector for Starhop (docs/PROTOCOL.md).
--
--   tshark -X lua_script:tools/starhop.lua -r capture.pcapng
--   cp tools/starhop.lua ~/.local/lib/wireshark/plugins/      (for Wireshark, every time)
--
-- Filters: starhop.kind == 1, starhop.flow == ab:ab:…, starhop.repair, starhop.seal.counter, …
-- A sealed packet shows its seal only: what is in it needs the key. `starhop capture` has a node's packets as they are
-- before they are sealed and after they were opened; nodes that run with --insecure send plain ones.

local starhop = Proto("starhop", "Starhop")

local KINDS = { [0] = "Interest", [1] = "Data", [2] = "Notice", [3] = "Parity" }
local ALGORITHMS = { [0] = "AES-128-GCM", [1] = "ChaCha20-Poly1305", [2] = "AES-256-GCM", [3] = "AES-256-GCM-SIV" }
local DIRECTIONS = { [0] = "Request", [1] = "Reply" }
local VERSION_PLAIN = 1
local HEADER = 22
-- In Data, the time that its bytes waited and a way are before the offset.
local OFFSET = HEADER + 3
-- Bytes behind a plain packet: the incarnations of its sender and, in a reply, of the asker.
local TRAILER = 2
local PARITY = 3
-- With this flag kind 3 is a Segment, sealed between two gateways.
local SEGMENT = 8
local SEGMENT_HEADER = 18
-- Parity has no flow id.
local PARITY_HEADER = 14
local FLAG_TOKEN = 4
local FLAG_CODE = 8
local NEWS_TOKEN = 1
local NEWS_NOT_NOW = 2
local NEWS_KEY = 3
local SEAL = 17
local TAG = 16
local UNBOUNDED = 0xffff
-- Bytes of a varint by its two leading bits.
local VARINT = { [0] = 1, [1] = 3, [2] = 5, [3] = 8 }

local f = starhop.fields
f.version = ProtoField.uint8("starhop.version", "Version", base.DEC, nil, 0xc0)
f.kind = ProtoField.uint8("starhop.kind", "Kind", base.DEC, KINDS, 0x30)
f.flags = ProtoField.uint8("starhop.flags", "Flags", base.HEX, nil, 0x0f)
f.repair = ProtoField.bool("starhop.repair", "Repair", 8, nil, 0x01)
f.cold = ProtoField.bool("starhop.cold", "Cold", 8, nil, 0x02)
f.last = ProtoField.bool("starhop.end", "End", 8, nil, 0x01)
f.unknown = ProtoField.bool("starhop.no_such_name", "No such name", 8, nil, 0x02)
f.backlog = ProtoField.bool("starhop.backlog", "Backlog", 8, nil, 0x04)
f.volatile = ProtoField.bool("starhop.volatile", "Volatile", 8, nil, 0x08)
f.counter = ProtoField.uint16("starhop.counter", "Counter")
f.time = ProtoField.uint24("starhop.time", "Time (µs)")
f.echo = ProtoField.uint24("starhop.echo", "Echo (µs)")
f.way = ProtoField.uint16("starhop.way", "Way of the echoed Interest (16 µs)")
f.waited = ProtoField.uint8("starhop.waited", "Waited, code", base.DEC, nil, 0x7f)
f.dry = ProtoField.bool("starhop.dry", "Dry", 8, nil, 0x80)
f.flow = ProtoField.bytes("starhop.flow", "Flow id")
f.turn = ProtoField.uint16("starhop.turn", "Turn")
f.key = ProtoField.bytes("starhop.key", "Answerer's ephemeral key")
f.token = ProtoField.uint32("starhop.token", "Token", base.HEX)
f.every = ProtoField.uint8("starhop.code.every", "Packets per Parity packet")
f.overlap = ProtoField.uint8("starhop.code.overlap", "Parity packets that cover a packet")
f.within = ProtoField.uint8("starhop.code.within", "Parity follows within (ms)")
f.first = ProtoField.uint16("starhop.parity.first", "First counter covered")
f.count = ProtoField.uint16("starhop.parity.count", "Counters covered")
f.previous = ProtoField.uint8("starhop.parity.previous", "Parity before, counters back")
f.seed = ProtoField.uint8("starhop.parity.seed", "Seed")
f.sender = ProtoField.uint8("starhop.sender", "Sender's incarnation")
f.asker = ProtoField.uint8("starhop.asker", "Asker's incarnation")
f.again = ProtoField.bool("starhop.again", "Again", 8, nil, 0x80)
f.chirps = ProtoField.bool("starhop.chirps", "Chirps", 8, nil, 0x40)
f.hop_limit = ProtoField.uint8("starhop.hop_limit", "Hop limit", base.DEC, nil, 0x3f)
f.link_rate = ProtoField.uint64("starhop.link_rate", "Link rate (bit/s)")
f.flow_rate = ProtoField.uint64("starhop.flow_rate", "Flow rate (bit/s)")
f.range = ProtoField.string("starhop.range", "Range")
f.start = ProtoField.uint64("starhop.start", "Start")
f.length = ProtoField.uint64("starhop.length", "Length")
f.offset = ProtoField.uint64("starhop.offset", "Offset")
f.payload = ProtoField.bytes("starhop.payload", "Payload")
f.payload_length = ProtoField.uint32("starhop.payload_length", "Payload length")
f.algorithm = ProtoField.uint8("starhop.seal.algorithm", "Algorithm", base.DEC, ALGORITHMS, 0x30)
f.direction = ProtoField.uint8("starhop.seal.direction", "Direction", base.DEC, DIRECTIONS, 0x40)
f.hint = ProtoField.uint8("starhop.seal.hint", "Key hint", base.DEC, nil, 0x0f)
f.exchange_asker = ProtoField.uint8("starhop.seal.asker", "Asker's ephemeral key", base.DEC, nil, 0xf0)
f.exchange_answerer = ProtoField.uint8("starhop.seal.answerer", "Answerer's ephemeral key", base.DEC, nil, 0x0f)
f.boot = ProtoField.bytes("starhop.seal.boot", "Boot id")
f.link = ProtoField.uint16("starhop.seal.link", "Link")
f.epoch = ProtoField.uint16("starhop.seal.epoch", "Epoch (4 s)")
f.nonce = ProtoField.uint24("starhop.seal.counter", "Counter")
f.sealed = ProtoField.bytes("starhop.seal.packet", "Sealed packet")
f.tag = ProtoField.bytes("starhop.seal.tag", "Tag")

local malformed = ProtoExpert.new("starhop.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
starhop.experts = { malformed }

starhop.prefs.ports = Pref.range("UDP ports", "4433-4448", "Ports of Starhop nodes", 65535)

-- A varint at `at`: its value as UInt64 and its length; nil where it ends too early.
local function varint(buffer, at)
    if at >= buffer:len() then return nil end
    local length = VARINT[bit.rshift(buffer(at, 1):uint(), 6)]
    if at + length > buffer:len() then return nil end
    local value = buffer(at, length):uint64()
    return value:band(UInt64.max():rshift(66 - 8 * length)), length
end

-- A rate in bit/s: mantissa << exponent, 5 bits of exponent and 11 of mantissa.
local function rate(buffer)
    local bits = buffer:uint()
    if bits == UNBOUNDED then return nil end
    return UInt64(bit.band(bits, 0x7ff)):lshift(bit.rshift(bits, 11))
end

local function add_rate(tree, field, buffer)
    local value = rate(buffer)
    if value then
        tree:add(field, buffer, value)
    else
        tree:add(field, buffer, UInt64.max()):append_text(" (no bound)")
    end
end

-- A range at `at`: its text, and where it ends.
local function add_range(tree, buffer, at)
    local start, start_length = varint(buffer, at)
    if not start then return nil end
    local length, length_length = varint(buffer, at + start_length)
    if not length then return nil end
    local text = string.format("[%s, %s)", tostring(start), tostring(start + length))
    local branch = tree:add(f.range, buffer(at, start_length + length_length), text)
    branch:add(f.start, buffer(at, start_length), start)
    branch:add(f.length, buffer(at + start_length, length_length), length)
    return text, at + start_length + length_length
end

local function interest(buffer, tree)
    tree:add(f.repair, buffer(0, 1))
    tree:add(f.cold, buffer(0, 1))
    if buffer:len() < HEADER + 7 then return nil end
    tree:add(f.again, buffer(HEADER, 1))
    tree:add(f.chirps, buffer(HEADER, 1))
    tree:add(f.hop_limit, buffer(HEADER, 1))
    tree:add(f.turn, buffer(HEADER + 1, 2))
    add_rate(tree, f.link_rate, buffer(HEADER + 3, 2))
    add_rate(tree, f.flow_rate, buffer(HEADER + 5, 2))
    local at, texts = HEADER + 7, {}
    if bit.band(buffer(0, 1):uint(), FLAG_TOKEN) ~= 0 then
        if buffer:len() < at + 4 then return nil end
        tree:add(f.token, buffer(at, 4))
        at = at + 4
    end
    if bit.band(buffer(0, 1):uint(), FLAG_CODE) ~= 0 then
        if buffer:len() < at + 3 then return nil end
        tree:add(f.every, buffer(at, 1))
        tree:add(f.overlap, buffer(at + 1, 1))
        tree:add(f.within, buffer(at + 2, 1))
        at = at + 3
    end
    while at < buffer:len() do
        -- Two zeros begin the padding.
        if at + 1 < buffer:len() and buffer(at, 2):uint() == 0 then break end
        local text, after = add_range(tree, buffer, at)
        if not text then return nil end
        texts[#texts + 1], at = text, after
    end
    if #texts == 0 then return "feedback" end
    return table.concat(texts, " ")
end

local function data(buffer, tree, reported)
    tree:add(f.last, buffer(0, 1))
    tree:add(f.unknown, buffer(0, 1))
    tree:add(f.backlog, buffer(0, 1))
    tree:add(f.volatile, buffer(0, 1))
    if buffer:len() < OFFSET then return nil end
    tree:add(f.waited, buffer(HEADER, 1))
    tree:add(f.dry, buffer(HEADER, 1))
    tree:add(f.way, buffer(HEADER + 1, 2))
    local offset, length = varint(buffer, OFFSET)
    if not offset then return nil end
    tree:add(f.offset, buffer(OFFSET, length), offset)
    local at = OFFSET + length
    -- A capture may leave the payload out.
    local here, count = buffer:len() - at, reported - at
    tree:add(f.payload_length, count):set_generated()
    if here > 0 then tree:add(f.payload, buffer(at, here)) end
    return string.format("[%s, %s)", tostring(offset), tostring(offset + UInt64(count)))
end

local function notice(buffer, tree)
    local news, at = bit.band(buffer(0, 1):uint(), 0x0f), HEADER + 2
    if buffer:len() < at then return nil end
    tree:add(f.way, buffer(HEADER, 2))
    if news == NEWS_NOT_NOW and buffer:len() >= at + 3 then return "not now" end
    if news == NEWS_KEY and buffer:len() >= at + 33 then
        tree:add(f.key, buffer(at + 1, 32))
        return string.format("key %d", buffer(at, 1):uint())
    end
    if news ~= NEWS_TOKEN then return add_range(tree, buffer, at) end
    if buffer:len() < at + 4 then return nil end
    tree:add(f.token, buffer(at, 4))
    return "token"
end

local function parity(buffer, tree, pinfo)
    tree:add(f.backlog, buffer(0, 1))
    tree:add(f.way, buffer(6, 2))
    tree:add(f.first, buffer(8, 2))
    tree:add(f.count, buffer(10, 2))
    tree:add(f.previous, buffer(12, 1))
    tree:add(f.seed, buffer(13, 1))
    local first, count = buffer(8, 2):uint(), buffer(10, 2):uint()
    pinfo.cols.info = string.format("%s %d of %d from %d", KINDS[PARITY], buffer(1, 2):uint(), count, first)
end

local function plain(datagram, tree, pinfo)
    if datagram:len() < PARITY_HEADER + TRAILER then return false end
    local buffer = datagram(0, datagram:len() - TRAILER):tvb()
    tree:add(f.sender, datagram(datagram:len() - 2, 1))
    tree:add(f.asker, datagram(datagram:len() - 1, 1))
    local kind = bit.band(bit.rshift(buffer(0, 1):uint(), 4), 3)
    if kind == PARITY and bit.band(buffer(0, 1):uint(), 15) == SEGMENT then
        if datagram:len() < SEGMENT_HEADER + TRAILER then return false end
        tree:add(f.version, buffer(0, 1))
        tree:add(f.flags, buffer(0, 1))
        tree:add(f.flow, buffer(1, 16))
        pinfo.cols.info = string.format("Segment flow %s", tostring(buffer(1, 4):bytes()):lower())
        return true
    end
    if kind ~= PARITY and datagram:len() < HEADER + TRAILER then return false end
    tree:add(f.version, buffer(0, 1))
    tree:add(f.kind, buffer(0, 1))
    tree:add(f.flags, buffer(0, 1))
    tree:add(f.counter, buffer(1, 2))
    tree:add(kind == 0 and f.time or f.echo, buffer(3, 3))
    if kind == PARITY then
        parity(buffer, tree, pinfo)
        return true
    end
    tree:add(f.flow, buffer(6, 16))
    local what
    if kind == 0 then
        what = interest(buffer, tree)
    elseif kind == 1 then
        what = data(buffer, tree, datagram:reported_len() - TRAILER)
    else
        what = notice(buffer, tree)
    end
    if not what then
        tree:add_proto_expert_info(malformed)
        what = "malformed"
    end
    local flow = tostring(buffer(6, 4):bytes()):lower()
    pinfo.cols.info = string.format("%s %d flow %s %s", KINDS[kind], buffer(1, 2):uint(), flow, what)
    return true
end

local function sealed(buffer, tree, pinfo)
    if buffer:len() <= SEAL + TAG then return false end
    tree:add(f.direction, buffer(0, 1))
    tree:add(f.algorithm, buffer(0, 1))
    tree:add(f.hint, buffer(0, 1))
    tree:add(f.exchange_asker, buffer(1, 1))
    tree:add(f.exchange_answerer, buffer(1, 1))
    tree:add(f.boot, buffer(2, 8))
    tree:add(f.link, buffer(10, 2))
    tree:add(f.epoch, buffer(12, 2))
    tree:add(f.nonce, buffer(14, 3))
    local length = buffer:len() - SEAL - TAG
    tree:add(f.sealed, buffer(SEAL, length))
    tree:add(f.tag, buffer(SEAL + length, TAG))
    local boot = tostring(buffer(2, 4):bytes()):lower()
    pinfo.cols.info = string.format("sealed %d by %s, %d bytes", buffer(14, 3):uint(), boot, length)
    return true
end

function starhop.dissector(buffer, pinfo, root)
    if buffer:len() == 0 then return 0 end
    local first = buffer(0, 1):uint()
    local dissect = bit.rshift(first, 6) == VERSION_PLAIN and plain or first >= 0x80 and sealed
    if not dissect then return 0 end
    local tree = root:add(starhop, buffer())
    if not dissect(buffer, tree, pinfo) then
        tree:add_proto_expert_info(malformed)
    end
    pinfo.cols.protocol = "Starhop"
    return buffer:len()
end

local table_of_ports = DissectorTable.get("udp.port")
local registered = starhop.prefs.ports

function starhop.prefs_changed()
    if registered == starhop.prefs.ports then return end
    table_of_ports:remove(registered, starhop)
    registered = starhop.prefs.ports
    table_of_ports:add(registered, starhop)
end

table_of_ports:add(registered, starhop)
