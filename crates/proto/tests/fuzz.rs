//! Any node can be sent anything at any time: bytes that are no packet, packets that make no sense, packets that
//! arrive late or never. Each target here drives one parser or one role with such input and checks that its
//! invariants hold all the same. As plain tests they run for seconds; CONTRIBUTING.md says how to run one for
//! hours, guided by coverage.

use bolero::{TypeGenerator, check, produce};
use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::consumer::{Consumer, ConsumerEvent, Request, Sink};
use starhop_proto::hop::parity::{Decoder, Equation};
use starhop_proto::name::{ByteRange, FlowId, MAX_OFFSET, RangeSet};
use starhop_proto::node::Node;
use starhop_proto::peer::{Addressee, Face, Incarnation, Member};
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::relay::{GROUP, Relay, Scrutiny, Verifier};
use starhop_proto::security::{
    Algorithm, HEADER_LEN, Keyring, Limits, Public, Seal, SealHeader, SealKey, Sealing, TAG_LEN, WallClock,
};
use starhop_proto::time::{Duration, Instant, WireTime};
use starhop_proto::units::Rate;
use starhop_proto::wire::{
    CodePlan, DataFlags, DataHeader, Echo, Interest, Limit, MAX_OVERLAP, News, NotNow, Notice, Packet,
    ParityHeader, Plain, Ranges, Reason, Suite, Waited, Way, varint,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

/// Run time of each target unless BOLERO_RANDOM_TEST_TIME_MS says otherwise; all of them within half a minute.
const TEST_TIME: core::time::Duration = core::time::Duration::from_secs(4);

const PAYLOAD: u64 = 1350;

/// More than any node has reason to send at one instant for the operations of one input.
const MAX_BURST: usize = 20_000;

fn emit(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match packet {
        Packet::Interest(interest) => interest.emit(&mut out),
        Packet::Notice(notice) => notice.emit(&mut out),
        Packet::Data(header, payload) => {
            header.emit(&mut out);
            out.extend_from_slice(payload);
        }
        Packet::Parity(header, sum) => {
            header.emit(&mut out);
            out.extend_from_slice(sum);
        }
        Packet::Segment(header, sealed) => {
            header.emit(&mut out);
            out.extend_from_slice(sealed);
        }
    }
    out
}

#[test]
fn any_bytes_are_a_packet_that_emits_to_the_same_value_or_are_refused() {
    check!().with_test_time(TEST_TIME).with_max_len(256).for_each(|bytes: &[u8]| {
        let Ok(packet) = Packet::parse(bytes) else { return };
        let again = emit(&packet);
        assert!(again.len() <= bytes.len(), "the shortest form is longer than what was received");
        assert_eq!(Packet::parse(&again), Ok(packet));
    });
}

#[test]
fn any_bytes_are_a_varint_that_is_written_as_the_same_value_or_are_refused() {
    check!().with_test_time(TEST_TIME / 4).with_max_len(10).for_each(|bytes: &[u8]| {
        let Some((value, rest)) = varint::read(bytes) else { return };
        assert!(value <= varint::MAX);
        let mut out = Vec::new();
        varint::write(value, &mut out);
        assert_eq!(out.len(), varint::len(value));
        assert!(out.len() + rest.len() <= bytes.len(), "the shortest form is longer than what was received");
        assert_eq!(varint::read(&out), Some((value, &[][..])));
    });
}

#[test]
fn a_relay_keeps_its_bounds_whatever_it_is_sent() {
    let ops = produce::<Vec<Op>>().with().len(0..=160usize);
    check!().with_generator((produce::<u8>(), ops)).with_test_time(TEST_TIME).for_each(|(profile, ops)| {
        let config = config(*profile);
        let mut relay = Relay::new(config.clone(), peer(0), Plain::new(1), 1);
        match *profile / 4 % 3 {
            0 => relay.set_verifier(Box::new(Picky { known: false }), Scrutiny::Full, 1),
            1 => relay.set_verifier(Box::new(Picky { known: false }), Scrutiny::Sample, 1),
            _ => {}
        }
        Bench::new(relay, &config, Some(peer(0))).run(ops);
    });
}

/// Believes any proof, and finds every other group wrong.
struct Picky {
    known: bool,
}

impl Verifier for Picky {
    fn proof_flow(&self, _flow: FlowId) -> FlowId {
        flow(2)
    }

    fn learn(&mut self, _flow: FlowId, proof: &[u8]) -> bool {
        self.known = proof.len() > 2000;
        self.known
    }

    fn knows(&self, _flow: FlowId) -> bool {
        self.known
    }

    fn judge(&self, _flow: FlowId, number: u64, bytes: &[u8]) -> bool {
        assert!((1..=GROUP as usize).contains(&bytes.len()));
        number.is_multiple_of(2)
    }
}

#[test]
fn a_producer_keeps_its_bounds_whatever_it_is_sent() {
    let ops = produce::<Vec<Op>>().with().len(0..=160usize);
    check!().with_generator((produce::<u8>(), ops)).with_test_time(TEST_TIME).for_each(|(profile, ops)| {
        let config = config(*profile);
        let producer = Producer::new(config.clone(), Shelf, Plain::new(1), 1);
        Bench::new(producer, &config, None).run(ops);
    });
}

#[test]
fn a_consumer_takes_each_byte_once_and_only_what_it_asked_for_whatever_it_is_sent() {
    let ops = produce::<Vec<Op>>().with().len(0..=160usize);
    let have = produce::<Vec<Span>>().with().len(0..=3usize);
    let length = produce::<Option<u16>>();
    check!().with_generator((produce::<u8>(), length, have, ops)).with_test_time(TEST_TIME).for_each(
        |(profile, length, have, ops)| {
            let config = config(*profile);
            let mut set = RangeSet::new();
            have.iter().for_each(|span| set.insert(span.range()));
            let request = Request {
                flow: flow(0),
                upstream: peer(0),
                length: length.map(|packets| u64::from(packets) * 100),
                have: set.clone(),
            };
            let consumer = Consumer::new(config.clone(), Plain::new(1), 1);
            let mut bench = Bench::new(consumer, &config, Some(peer(0)));
            let sink = Once { got: set, ..Once::default() };
            assert!(bench.node.open(bench.now, request, sink));
            bench.settle();
            bench.run(ops);
        },
    );
}

#[test]
fn any_bytes_are_a_seal_header_that_is_written_the_same_or_are_refused() {
    check!().with_test_time(TEST_TIME / 4).with_max_len(64).for_each(|bytes: &[u8]| {
        let Some(header) = SealHeader::parse(bytes) else { return };
        assert_eq!(header.emit(), bytes[..HEADER_LEN]);
        assert!(header.counter < SealHeader::COUNTER_END);
    });
}

/// Input of a seal: packets of two senders, in any order, repeated, changed, at any time by any clock.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Delivery {
    /// Seals the next packet.
    Seal {
        sender: bool,
    },
    /// Delivers a packet that was sealed before, this far back; one byte of it changed by this much.
    Deliver {
        back: u16,
        at: u8,
        flip: u8,
    },
    /// Delivers anything.
    Junk {
        first: u8,
        len: u8,
    },
    /// Time passes, and a clock may be set, in seconds.
    Pass {
        millis: u16,
    },
    Clock {
        receiver: bool,
        seconds: i8,
    },
    /// A sender restarts.
    Restart {
        sender: bool,
    },
}

#[test]
fn a_seal_takes_each_packet_at_most_once_and_none_that_was_changed_whatever_it_is_sent() {
    let ops = produce::<Vec<Delivery>>().with().len(0..=200usize);
    check!().with_generator(ops).with_test_time(TEST_TIME).for_each(|ops| {
        let unix = 1_790_000_000_000_000_000u64;
        let mut now = Instant::from_nanos(1_000_000_000_000);
        let begin = |now: Instant, boot: u64| {
            let limits = Limits { senders: 4, neighbours: 2 };
            Seal::new(ToyKeys(boot), now, WallClock::new(now, unix + now.as_nanos()), limits, 1)
        };
        let face = Face { remote: peer(1), local: peer(0) };
        let (mut senders, mut receiver) = ([begin(now, 1), begin(now, 2)], begin(now, 3));
        let (mut sent, mut boots): (Vec<Vec<u8>>, u64) = (Vec::new(), 3);
        let (mut nonces, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for op in ops {
            match *op {
                Delivery::Seal { sender } => {
                    let mut out = vec![0; HEADER_LEN];
                    // Unlike any other.
                    out.push(0x40);
                    out.extend_from_slice(&(sent.len() as u64).to_be_bytes());
                    let sealed = senders[usize::from(sender)].seal(
                        now,
                        &Addressee::Asked(peer(0).into()),
                        &mut out,
                        0,
                    );
                    assert!(sealed.is_ok());
                    assert!(nonces.insert(out[..HEADER_LEN].to_vec()), "key and nonce were used before");
                    sent.push(out);
                }
                Delivery::Deliver { back, at, flip } => {
                    let Some(index) = sent.len().checked_sub(1 + usize::from(back)) else { continue };
                    let mut bytes = sent[index].clone();
                    let at = usize::from(at) % bytes.len();
                    bytes[at] ^= flip;
                    if let Ok(opened) = receiver.open(now, face, &mut bytes) {
                        assert_eq!(flip, 0, "byte {at} was changed and nobody noticed");
                        assert_eq!(opened.packet[1..], (index as u64).to_be_bytes());
                        assert!(taken.insert(index), "packet {index} was taken twice");
                    }
                }
                Delivery::Junk { first, len } => {
                    let mut bytes = vec![first; usize::from(len)];
                    assert!(receiver.open(now, face, &mut bytes).is_err());
                }
                Delivery::Pass { millis } => now += Duration::from_millis(u64::from(millis)),
                Delivery::Clock { receiver: is_receiver, seconds } => {
                    let unix =
                        (unix + now.as_nanos()).saturating_add_signed(i64::from(seconds) * 1_000_000_000);
                    if is_receiver {
                        // Forward only: a step back by more than the tolerance is a restart, which loses the memory
                        // of accepted packets.
                        let unix = unix.max(1_790_000_000_000_000_000 + now.as_nanos());
                        receiver.set_wall_clock(WallClock::new(now, unix));
                    } else {
                        senders[0].set_wall_clock(WallClock::new(now, unix));
                    }
                }
                Delivery::Restart { sender } => {
                    boots += 1;
                    senders[usize::from(sender)] = begin(now, boots);
                }
            }
            assert!(receiver.stats().senders <= 4);
        }
    });
}

/// Keys without cryptography, for a machine that does not know the contents of keys: a sum that any change changes.
struct ToyKeys(u64);

struct ToyKey(u64);

impl Keyring for ToyKeys {
    type Key = ToyKey;
    type Ephemeral = ();
    type Agreed = ();

    fn ephemeral(&mut self) -> Option<((), Public)> {
        None
    }

    fn agree_asking(&mut self, _: SocketAddr, _: (&(), &Public), _: Option<&Public>) -> Option<()> {
        None
    }

    fn agree_answering(&mut self, _: Option<(&(), &Public)>, _: &Public) -> Option<()> {
        None
    }

    fn boot_id(&mut self) -> u64 {
        // Every start of every node has another one.
        self.0 += 1 << 32;
        self.0
    }

    fn sealing(
        &mut self,
        _to: &Addressee,
        sender: Incarnation,
        epoch: u64,
        _agreed: Option<&()>,
    ) -> Option<Sealing<ToyKey>> {
        let key = ToyKey(sender.boot ^ u64::from(sender.link) << 48 ^ epoch << 20);
        Some(Sealing { algorithm: Algorithm::Aes128Gcm, hint: 1, key, is_trial: false })
    }

    fn opening(
        &mut self,
        header: &SealHeader,
        epoch: u64,
        _agreed: Option<&()>,
        nth: usize,
    ) -> Option<(ToyKey, Member)> {
        let fits = nth == 0 && header.hint == 1 && header.algorithm == Algorithm::Aes128Gcm;
        let key = || ToyKey(header.sender.boot ^ u64::from(header.sender.link) << 48 ^ epoch << 20);
        fits.then(|| (key(), Member::default()))
    }

    fn token(&mut self, _secret: u64, _remote: SocketAddr) -> Option<u32> {
        None
    }
}

impl ToyKey {
    fn tag(&self, nonce: [u8; 12], header: &[u8], body: &[u8]) -> [u8; TAG_LEN] {
        let all = nonce.iter().chain(header).chain(body);
        let sum = |seed: u64| {
            all.clone().fold(seed, |sum, &byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23)
            })
        };
        let mut tag = [0; TAG_LEN];
        tag[..8].copy_from_slice(&sum(self.0).to_be_bytes());
        tag[8..].copy_from_slice(&sum(!self.0).to_be_bytes());
        tag
    }
}

impl SealKey for ToyKey {
    fn seal(&self, nonce: [u8; 12], header: &[u8], out: &mut Vec<u8>, start: usize) -> bool {
        let tag = self.tag(nonce, header, &out[start..]);
        out.extend_from_slice(&tag);
        true
    }

    fn open<'a>(&self, nonce: [u8; 12], header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let (body, tag) = bytes.split_last_chunk::<TAG_LEN>()?;
        (self.tag(nonce, header, body) == *tag).then_some(body)
    }
}

/// The profiles as published, but with the smallest cache there may be, so that it overflows, and with a small
/// window.
fn config(profile: u8) -> Config {
    let settings = Settings {
        cache_bytes: 256 * 1024,
        receive_window: 256 * 1024,
        credit_per_neighbour: 512 * 1024,
        state_bytes: 64 * 1024,
        ..Profile::ALL[usize::from(profile) % Profile::ALL.len()].1.settings()
    };
    Config::new(settings).expect("settings within the rules")
}

fn peer(index: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, index % 4), 4000))
}

/// The flows that packets are about; the Producer has all but the last.
fn flow(index: u8) -> FlowId {
    FlowId([index % 4; 16])
}

/// A place in a flow: mostly where others are, too, and now and then at an edge.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Place {
    Packet(#[generator(0..100u8)] u8),
    Early(u16),
    Any(u64),
    /// So far below the last offset.
    Late(u16),
}

impl Place {
    fn offset(self) -> u64 {
        match self {
            Self::Packet(n) => u64::from(n) * PAYLOAD,
            Self::Early(n) => u64::from(n),
            Self::Any(n) => n % MAX_OFFSET,
            Self::Late(n) => MAX_OFFSET - 1 - u64::from(n),
        }
    }
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
struct Span {
    start: Place,
    len: Place,
}

impl Span {
    /// At least a byte, and below the last offset.
    fn range(self) -> ByteRange {
        let start = self.start.offset();
        ByteRange::at(start, self.len.offset().clamp(1, MAX_OFFSET - start))
    }
}

/// A packet's number on its hop: after the last one with this many left out, or anything.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Counter {
    Next,
    Skip(#[generator(0..5u8)] u8),
    Any(u16),
}

/// A clock's reading: this many microseconds ago, or anything.
#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Clock {
    Ago(u16),
    Any(u32),
}

#[derive(Clone, Copy, Debug, TypeGenerator)]
enum Bound {
    Unlimited,
    Megabits(u16),
    Bits(u64),
}

impl Bound {
    fn rate(self) -> Rate {
        match self {
            Self::Unlimited => Rate::UNLIMITED,
            Self::Megabits(n) => Rate::from_mbps(u64::from(n)),
            Self::Bits(n) => Rate::from_bps(n),
        }
    }
}

#[derive(Clone, Debug, TypeGenerator)]
struct Asking {
    reason: u8,
    cold: bool,
    chirps: bool,
    turn: u8,
    hop_limit: u8,
    link_rate: Bound,
    flow_rate: Bound,
    #[generator(produce::<Vec<Span>>().with().len(0..=8usize))]
    ranges: Vec<Span>,
    code: Option<(u8, u8, u8)>,
}

#[derive(Clone, Debug, TypeGenerator)]
enum Body {
    Interest(Asking),
    Data {
        at: Place,
        #[generator(0..3000u16)]
        len: u16,
        end: bool,
        #[generator(0..8u8)]
        flags: u8,
    },
    /// An answer to a request of the node, in its own terms: some of the requested packets.
    Answer {
        which: u8,
        #[generator(0..48u8)]
        packet: u8,
        end: bool,
        volatile: bool,
    },
    Notice(Span),
    Mark(Place),
    NotNow {
        limit: u8,
        millis: u16,
    },
    Parity {
        back: u16,
        count: u8,
        previous: u8,
        seed: u8,
        sum: Vec<u8>,
    },
}

#[derive(Clone, Debug, TypeGenerator)]
enum Arrival {
    Keep(u8),
    Data { jump: u8, len: u8 },
    Other { jump: u8 },
    Late { back: u8, len: u8 },
    Sum { back: u8, count: u8, seed: u8, sum: Vec<u8> },
}

/// For any numbers and sums, the decoder restores each packet once, and none that came.
#[test]
fn a_decoder_restores_nothing_that_came_and_nothing_twice() {
    check!().with_test_time(TEST_TIME).with_type().for_each(|arrivals: &Vec<Arrival>| {
        let mut decoder = Decoder::default();
        decoder.keep(40);
        let (mut number, mut known) = (1_000_u64, BTreeSet::new());
        let header = DataHeader {
            counter: 0,
            flow: FlowId([1; 16]),
            offset: 0,
            echo: Echo::default(),
            flags: DataFlags::default(),
            waited: Waited::default(),
        };
        for arrival in arrivals {
            match arrival {
                Arrival::Keep(reach) => decoder.keep(usize::from(*reach)),
                Arrival::Data { jump, len } => {
                    number += 1 + u64::from(*jump);
                    decoder.on_data(number, &header, &vec![7; usize::from(*len)]);
                    known.insert(number);
                }
                Arrival::Other { jump } => {
                    number += 1 + u64::from(*jump);
                    decoder.on_other(number);
                    known.insert(number);
                }
                Arrival::Late { back, len } => {
                    let late = number - u64::from(*back);
                    decoder.on_data(late, &header, &vec![9; usize::from(*len)]);
                    known.insert(late);
                }
                Arrival::Sum { back, count, seed, sum } => {
                    let first = number - u64::from(*back);
                    let count = u16::from(*count) + 1;
                    decoder.on_sum(Equation { first, count, seed: *seed, bytes: sum });
                }
            }
            while let Some(restored) = decoder.poll() {
                let is_new = known.insert(restored.number);
                assert!(is_new || !decoder.is_on(), "{} was known", restored.number);
            }
        }
    });
}

/// One thing that happens to a node.
#[derive(Clone, Debug, TypeGenerator)]
enum Op {
    /// Time passes, in nanoseconds, and the driver comes back.
    Wait(#[generator(0..1_000_000_000u32)] u32),
    /// The driver comes back a few times when it was told to.
    Timeouts(#[generator(1..20u8)] u8),
    Noise {
        from: u8,
        bytes: Vec<u8>,
    },
    Packet {
        from: u8,
        flow: u8,
        counter: Counter,
        clock: Clock,
        body: Body,
    },
    Upstream(u8),
    Route {
        flow: u8,
        to: u8,
    },
}

/// The operations of the targets on a role beyond those of every node.
trait Role: Node {
    /// Changes where `flow`, or everything, is asked for; false where nothing is asked for at all.
    fn reroute(&mut self, now: Instant, flow: Option<FlowId>, to: SocketAddr) -> bool;

    /// The invariants after every operation, `asked` being all that the node ever asked for.
    fn check(&mut self, config: &Config, asked: &BTreeMap<FlowId, RangeSet>);
}

impl Role for Relay {
    fn reroute(&mut self, now: Instant, flow: Option<FlowId>, to: SocketAddr) -> bool {
        match flow {
            Some(flow) => self.set_route(now, flow, to),
            None => self.set_upstream(now, to),
        }
        true
    }

    fn check(&mut self, config: &Config, _asked: &BTreeMap<FlowId, RangeSet>) {
        let held = self.stats().cache_bytes;
        assert!(held <= config.cache_bytes, "the cache holds {held} bytes of {}", config.cache_bytes);
        let (held, all) = (self.stats().state_bytes, self.stats().state_limit);
        assert!(held <= all && all == config.state_bytes, "state takes {held} bytes of {all}");
    }
}

/// The contents of the tests' Producer: an object, a stream without an end, an object that has become shorter.
struct Shelf;

impl Shelf {
    const LENGTHS: [Option<u64>; 3] = [Some(100_000), None, Some(50_000)];
}

impl Source for Shelf {
    fn lookup(&mut self, id: FlowId) -> Lookup {
        match (0..3).find(|index| flow(*index) == id) {
            Some(index) => {
                Lookup::Found { length: Self::LENGTHS[usize::from(index)], is_volatile: index == 1 }
            }
            None if id == flow(3) => Lookup::Unknown,
            None => Lookup::NotYet,
        }
    }

    fn read(&mut self, _now: Instant, id: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let index = (0..3).find(|index| flow(*index) == id).expect("a flow that was looked up");
        let length = Self::LENGTHS[usize::from(index)].unwrap_or(MAX_OFFSET);
        assert!(!range.is_empty() && range.end <= length, "{range:?} is read of {length} bytes");
        if index == 2 && range.end > 30_000 {
            return false;
        }
        out.resize(out.len() + range.len() as usize, index);
        true
    }
}

impl Role for Producer<Shelf> {
    fn reroute(&mut self, _now: Instant, _flow: Option<FlowId>, _to: SocketAddr) -> bool {
        false
    }

    fn check(&mut self, _config: &Config, _asked: &BTreeMap<FlowId, RangeSet>) {}
}

/// Takes every byte once, and none that was there before.
#[derive(Default)]
struct Once {
    got: RangeSet,
    /// Written since the last check.
    fresh: Vec<ByteRange>,
    is_finished: bool,
}

impl Sink for Once {
    fn write(&mut self, _now: Instant, range: ByteRange, bytes: &[u8]) {
        assert_eq!(range.len(), bytes.len() as u64);
        assert!(!range.is_empty() && !self.got.overlaps(range), "{range:?} was written twice");
        assert!(!self.is_finished, "{range:?} was written after the end was reported");
        self.got.insert(range);
        self.fresh.push(range);
    }
}

impl Role for Consumer<Once> {
    fn reroute(&mut self, now: Instant, _flow: Option<FlowId>, to: SocketAddr) -> bool {
        self.set_upstream(now, flow(0), to);
        true
    }

    fn check(&mut self, _config: &Config, asked: &BTreeMap<FlowId, RangeSet>) {
        let asked = asked.get(&flow(0));
        let events: Vec<ConsumerEvent> = core::iter::from_fn(|| self.poll_event()).collect();
        let fetched = self.flow_mut(flow(0)).expect("it is never closed");
        for range in core::mem::take(&mut fetched.sink_mut().fresh) {
            assert!(asked.is_some_and(|asked| asked.contains(range)), "{range:?} was never asked for");
        }
        for event in events {
            let ConsumerEvent::Finished { length, .. } = event else { continue };
            assert!(!fetched.sink().is_finished, "the end is reported twice");
            assert!(fetched.in_order_end() >= length, "bytes are missing before {length}");
            fetched.sink_mut().is_finished = true;
        }
    }
}

/// A node, and the facts that are known of it from outside.
struct Bench<N> {
    node: N,
    config: Config,
    now: Instant,
    /// The upstreams that the node was ever given.
    upstreams: BTreeSet<SocketAddr>,
    /// Bytes that each neighbour asked for and was not sent.
    owed: BTreeMap<SocketAddr, u64>,
    counters: BTreeMap<SocketAddr, u16>,
    /// The requests of the node: the union of all, and the latest.
    asked: BTreeMap<FlowId, RangeSet>,
    requests: Vec<(SocketAddr, FlowId, ByteRange)>,
}

impl<N: Role> Bench<N> {
    fn new(node: N, config: &Config, upstream: Option<SocketAddr>) -> Self {
        Self {
            node,
            config: config.clone(),
            now: Instant::ZERO + Duration::from_secs(1000),
            upstreams: upstream.into_iter().collect(),
            owed: BTreeMap::new(),
            counters: BTreeMap::new(),
            asked: BTreeMap::new(),
            requests: Vec::new(),
        }
    }

    fn run(&mut self, ops: &[Op]) {
        for op in ops {
            self.apply(op);
            self.node.check(&self.config, &self.asked);
            self.settle();
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Wait(nanos) => self.now += Duration::from_nanos(u64::from(*nanos)),
            Op::Timeouts(count) => (0..*count).for_each(|_| self.wait_for_timeout()),
            Op::Noise { from, bytes } => self.deliver(peer(*from), bytes.clone()),
            Op::Packet { from, flow: id, counter, clock, body } => {
                self.deliver_packet(peer(*from), flow(*id), *counter, *clock, body);
            }
            Op::Upstream(to) => self.reroute(None, peer(*to)),
            Op::Route { flow: id, to } => self.reroute(Some(flow(*id)), peer(*to)),
        }
    }

    fn wait_for_timeout(&mut self) {
        let Some(at) = self.node.poll_timeout() else { return };
        assert!(at < self.now + Duration::from_secs(3600), "the node sleeps for hours");
        self.now = self.now.max(at);
        self.settle();
    }

    fn reroute(&mut self, flow: Option<FlowId>, to: SocketAddr) {
        if self.node.reroute(self.now, flow, to) {
            self.upstreams.insert(to);
        }
    }

    fn deliver(&mut self, from: SocketAddr, mut bytes: Vec<u8>) {
        if let Ok(Packet::Interest(interest)) = Packet::parse(&bytes) {
            let limit = self.config.request_limit;
            let asked: u64 = interest.ranges.iter().map(|range| range.len().min(limit)).sum();
            *self.owed.entry(from).or_default() += asked.min(limit);
        }
        // As the incarnation 9 to that of the node.
        bytes.extend_from_slice(&[9, Plain::new(1).own()]);
        self.node.handle_datagram(self.now, from.into(), &mut bytes);
    }

    /// The counter and the time in a packet of `from`.
    fn stamp(&mut self, from: SocketAddr, counter: Counter, clock: Clock) -> (u16, WireTime) {
        let last = self.counters.entry(from).or_default();
        let counter = match counter {
            Counter::Next => last.wrapping_add(1),
            Counter::Skip(count) => last.wrapping_add(2 + u16::from(count)),
            Counter::Any(counter) => counter,
        };
        *last = counter;
        let time = match clock {
            Clock::Ago(micros) => WireTime::at(self.now.before(Duration::from_micros(u64::from(micros)))),
            Clock::Any(micros) => WireTime::from_micros(micros),
        };
        (*last, time)
    }

    fn deliver_packet(&mut self, from: SocketAddr, id: FlowId, counter: Counter, clock: Clock, body: &Body) {
        let (counter, time) = self.stamp(from, counter, clock);
        let echo = Echo { time, way: Way::from_be_bytes(counter.to_be_bytes()) };
        let data = |flow, offset, flags| DataHeader {
            counter,
            flow,
            offset,
            echo,
            flags,
            waited: Waited::from_byte(counter as u8),
        };
        match body {
            Body::Interest(asking) => {
                let interest = asking.interest(counter, id, time);
                self.deliver(from, emit(&Packet::Interest(interest)));
            }
            Body::Data { at, len, end, flags } => {
                let flags = DataFlags {
                    end: *end,
                    backlog: flags & 1 != 0,
                    is_volatile: flags & 2 != 0,
                    no_such_name: flags & 4 != 0 && *len == 0,
                };
                let len = u64::from(*len).min(MAX_OFFSET - at.offset());
                let payload = vec![7; len as usize];
                self.deliver(from, emit(&Packet::Data(data(id, at.offset(), flags), &payload)));
            }
            Body::Answer { which, packet, end, volatile } => {
                let newest = self.requests.len().saturating_sub(1 + usize::from(*which % 32));
                let Some(&(to, id, range)) = self.requests.get(newest) else { return };
                let start = range.end.min(range.start + u64::from(*packet) * PAYLOAD);
                let part = ByteRange::new(start, range.end).prefix(PAYLOAD);
                let flags = DataFlags { end: *end, is_volatile: *volatile, ..DataFlags::default() };
                let payload = vec![7; part.len() as usize];
                self.deliver(to, emit(&Packet::Data(data(id, part.start, flags), &payload)));
            }
            Body::Notice(span) => {
                let notice = Notice { counter, flow: id, echo, news: News::Coming(span.range()) };
                self.deliver(from, emit(&Packet::Notice(notice)));
            }
            Body::NotNow { limit, millis } => {
                let limits = [Limit::Neighbours, Limit::Flows, Limit::Names, Limit::Bytes];
                let limit = limits[usize::from(*limit) % limits.len()];
                let after = Duration::from_millis(u64::from(*millis));
                let news = News::NotNow(NotNow::new(limit, after));
                self.deliver(from, emit(&Packet::Notice(Notice { counter, flow: id, echo, news })));
            }
            Body::Parity { back, count, previous, seed, sum } => {
                let (first, count) = (counter.wrapping_sub(*back), u16::from(*count));
                let parity = ParityHeader {
                    counter,
                    echo,
                    backlog: false,
                    first,
                    count,
                    previous: *previous,
                    seed: *seed,
                };
                self.deliver(from, emit(&Packet::Parity(parity, sum)));
            }
            Body::Mark(at) => {
                let news = News::Coming(ByteRange::at(at.offset(), 0));
                self.deliver(from, emit(&Packet::Notice(Notice { counter, flow: id, echo, news })));
            }
        }
    }

    /// Acts as the driver until the node waits for time to pass, which it must come to.
    fn settle(&mut self) {
        self.drain();
        for _ in 0..100 {
            self.node.handle_timeout(self.now);
            self.drain();
            self.node.check(&self.config, &self.asked);
            if self.node.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
        }
        panic!("the node is due again and again at one instant, {:?}", self.now);
    }

    fn drain(&mut self) {
        let mut out = Vec::new();
        for _ in 0..MAX_BURST {
            let Some(transmit) = self.node.poll_transmit(self.now, &mut out) else { return };
            assert_eq!(transmit.len, out.len(), "a datagram is as long as was said");
            self.take(transmit.to.remote, &out[..out.len() - Plain::TRAILER]);
            out.clear();
        }
        panic!("{MAX_BURST} datagrams at one instant, and no end");
    }

    /// Checks a datagram that the node sent against the requests that it got.
    fn take(&mut self, to: SocketAddr, datagram: &[u8]) {
        match Packet::parse(datagram).expect("a node sends what parses") {
            Packet::Interest(interest) => {
                assert!(self.upstreams.contains(&to), "{to} is asked and was never an upstream");
                let bytes: u64 = interest.ranges.iter().map(|range| range.len()).sum();
                assert!(bytes <= self.config.request_limit, "one Interest asks for {bytes} bytes");
                for &range in interest.ranges.iter() {
                    self.asked.entry(interest.flow).or_default().insert(range);
                    self.requests.push((to, interest.flow, range));
                }
                let surplus = self.requests.len().saturating_sub(64);
                self.requests.drain(..surplus);
            }
            Packet::Data(_, payload) => {
                let owed = self.owed.get_mut(&to).expect("Data goes to those who asked");
                let sent = payload.len() as u64;
                *owed = owed.checked_sub(sent).expect("no more is sent than was asked for");
            }
            Packet::Notice(_) => assert!(self.owed.contains_key(&to), "Notices go to those who asked"),
            Packet::Parity(..) => assert!(self.owed.contains_key(&to), "Parity goes to those who asked"),
            Packet::Segment(..) => panic!("only gateways send segments"),
        }
    }
}

impl Asking {
    fn interest(&self, counter: u16, flow: FlowId, sent: WireTime) -> Interest {
        let mut ranges = Ranges::default();
        self.ranges.iter().for_each(|span| {
            ranges.push(span.range());
        });
        Interest {
            counter,
            flow,
            sent,
            reason: [Reason::New, Reason::Again, Reason::Lost][usize::from(self.reason % 3)],
            cold: self.cold,
            chirps: self.chirps,
            turn: u16::from(self.turn),
            token: None,
            code: self.code.map(|(every, overlap, within)| CodePlan {
                every: every.max(1),
                overlap: overlap % MAX_OVERLAP + 1,
                within: within.max(1),
            }),
            hop_limit: self.hop_limit % (Interest::MAX_HOP_LIMIT + 1),
            link_rate: self.link_rate.rate(),
            flow_rate: self.flow_rate.rate(),
            ranges,
            padding: 0,
        }
    }
}
