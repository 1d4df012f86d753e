//! Attacks on a sealed path, in virtual time with the real ciphers. docs/SECURITY.md has the promises; each test
//! here fails if its defence is taken out.

use starhop_net::security::{KeyFile, Keys, Kind};
use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::consumer::{Consumer, ConsumerEvent, Flow, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::Node;
use starhop_proto::peer::{Addressee, Face, Incarnation, Member as MemberId, Peer, Refusal};
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::relay::Relay;
use starhop_proto::rng::Rng;
use starhop_proto::security::{EPOCH, HEADER_LEN, Limits, Seal, SealHeader, TAG_LEN, WallClock, witness};
use starhop_proto::time::{Duration, Instant, WireTime};
use starhop_proto::units::Rate;
use starhop_proto::wire::{
    DataFlags, DataHeader, Echo, Interest, News, Notice, Packet, Reason, Suite, Waited, Way, is_interest,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;

const FLOW: FlowId = FlowId([7; 16]);
const LENGTH: u64 = 2_000_000;
const SERVER: usize = 0;
const RELAY: usize = 1;
const CLIENT: usize = 2;
const ATTACKER: usize = 3;
/// 2026-09-21, when all clocks are right.
const UNIX: u64 = 1_790_000_000_000_000_000;
const START: Instant = Instant::from_nanos(1_000_000_000_000);
const RATE: Rate = Rate::from_mbps(20);
const DELAY: Duration = Duration::from_millis(10);

type Sealed = Seal<Keys>;

/// From this number on, the addresses are ports of the attacker's host.
const PORTS: usize = 50_000;

fn addr(index: usize) -> SocketAddr {
    match index {
        0..PORTS => SocketAddr::from(([10, 0, (index / 250) as u8, (index % 250) as u8 + 1], 4433)),
        port => SocketAddr::from(([10, 0, 0, ATTACKER as u8 + 1], (port - PORTS) as u16 + 10_000)),
    }
}

fn content(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

struct Content;

impl Source for Content {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        let found = Lookup::Found { length: Some(LENGTH), is_volatile: false };
        if flow == FLOW { found } else { Lookup::Unknown }
    }

    fn read(&mut self, _now: Instant, _flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        out.extend((range.start..range.end).map(content));
        true
    }
}

#[derive(Default)]
struct Checked {
    wrong: u64,
    first: Option<Instant>,
}

impl Sink for Checked {
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]) {
        self.first.get_or_insert(now);
        self.wrong +=
            (range.start..range.end).zip(bytes).filter(|(at, byte)| content(*at) != **byte).count() as u64;
    }
}

/// The keys of one domain, and of another.
struct Domains {
    ours: KeyFile,
    theirs: KeyFile,
}

impl Domains {
    fn new() -> Self {
        let domain = |name| KeyFile::new(Kind::Domain, name, None, 0).expect("a key");
        Self { ours: domain("ours"), theirs: domain("theirs") }
    }
}

/// A seal of a node that starts at `now` with a clock that is `ahead` seconds fast.
fn seal(key: &KeyFile, now: Instant, ahead: i64) -> Sealed {
    let unix = (UNIX + now.since(START).as_nanos()).saturating_add_signed(ahead * 1_000_000_000);
    Seal::new(Keys::domain(key), now, WallClock::new(now, unix), Limits::default(), 1)
}

/// A seal of a node that has run for ten minutes at the start of the world.
fn settled(key: &KeyFile, ahead: i64) -> Sealed {
    let mut seal = seal(key, START, ahead - 600);
    seal.set_wall_clock(WallClock::new(START, UNIX.saturating_add_signed(ahead * 1_000_000_000)));
    seal
}

/// A packet as `suite` sends it to `to`.
fn sealed(suite: &mut Sealed, now: Instant, to: usize, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; suite.room()];
    write(&mut out);
    let face = Face::towards(addr(to));
    let is_request = is_interest(&out[suite.room()..]);
    let to = if is_request { Addressee::Asked(face) } else { Addressee::Asker(somebody(face)) };
    suite.seal(now, &to, &mut out, 0).expect("it can be sealed");
    out
}

/// A peer at `face` that does not exist.
fn somebody(face: Face) -> Peer {
    Peer {
        face,
        incarnation: Incarnation { boot: 5, link: 1 },
        asker: Incarnation::default(),
        member: MemberId::default(),
    }
}

/// The face at which a node hears another.
fn face(from: usize, to: usize) -> Face {
    Face { remote: addr(from), local: addr(to) }
}

/// Sending time, pretended source address, destination, and the bytes.
type Shot = (Instant, usize, usize, Vec<u8>);

/// Arrival time, number, pretended source address, destination, and the bytes.
type Flight = (Instant, u64, usize, usize, Vec<u8>);

struct World {
    now: Instant,
    server: Producer<Content, Sealed>,
    relay: Relay<Sealed>,
    client: Consumer<Checked, Sealed>,
    flights: BinaryHeap<Reverse<Flight>>,
    count: u64,
    busy: BTreeMap<(usize, usize), Instant>,
    /// Every packet that was sent.
    tape: Vec<Shot>,
    finished: Option<Instant>,
}

impl World {
    fn new(domains: &Domains, settings: Settings) -> Self {
        let config = Config::new(settings).expect("settings within the rules");
        let suite = || settled(&domains.ours, 0);
        Self {
            now: START,
            server: Producer::new(config.clone(), Content, suite(), 1),
            relay: Relay::new(config.clone(), addr(SERVER), suite(), 2),
            client: Consumer::new(config, suite(), 3),
            flights: BinaryHeap::new(),
            count: 0,
            busy: BTreeMap::new(),
            tape: Vec::new(),
            finished: None,
        }
    }

    fn usual(domains: &Domains) -> Self {
        Self::new(domains, Profile::Starhop.settings())
    }

    /// The client begins to ask.
    fn open(&mut self) {
        let request = Request { flow: FLOW, upstream: addr(RELAY), length: None, have: RangeSet::new() };
        assert!(self.client.open(self.now, request, Checked::default()), "the flow is open already");
    }

    /// The client's flow.
    fn fetched(&self) -> &Flow<Checked> {
        self.client.flow(FLOW).expect("the flow is open")
    }

    /// The attacker's packets arrive when it likes.
    fn shoot(&mut self, shots: impl IntoIterator<Item = Shot>) {
        for (at, from, to, bytes) in shots {
            self.count += 1;
            self.flights.push(Reverse((at, self.count, from, to, bytes)));
        }
    }

    /// Bytes that a node sent to another.
    fn sent(&self, from: usize, to: usize) -> u64 {
        let between = self.tape.iter().filter(|(_, f, t, _)| (*f, *t) == (from, to));
        between.map(|(.., bytes)| bytes.len() as u64).sum()
    }

    /// Transfers the object; how long it took.
    fn transfer(&mut self) -> Option<Duration> {
        let start = self.now;
        self.open();
        self.drain(CLIENT);
        let patience = self.now + Duration::from_secs(30);
        while self.finished.is_none() && self.now < patience {
            self.run(Duration::from_millis(1));
        }
        assert_eq!(self.fetched().sink().wrong, 0, "wrong bytes were delivered");
        self.finished.map(|at| at.since(start))
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
            let timers = [self.server.poll_timeout(), self.relay.poll_timeout(), self.client.poll_timeout()];
            let timer = (timers.iter().enumerate())
                .filter_map(|(node, at)| at.map(|at| (at.max(self.now), node)))
                .min();
            let Some(next) = [arrival, timer.map(|(at, _)| at)].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            let node = if arrival == Some(next) {
                let Some(Reverse((_, _, from, to, mut bytes))) = self.flights.pop() else { return };
                match to {
                    SERVER => self.server.handle_datagram(self.now, face(from, to), &mut bytes),
                    RELAY => self.relay.handle_datagram(self.now, face(from, to), &mut bytes),
                    CLIENT => self.client.handle_datagram(self.now, face(from, to), &mut bytes),
                    _ => continue,
                }
                to
            } else {
                let Some((_, node)) = timer else { return };
                match node {
                    SERVER => self.server.handle_timeout(self.now),
                    RELAY => self.relay.handle_timeout(self.now),
                    _ => self.client.handle_timeout(self.now),
                }
                node
            };
            self.drain(node);
        }
        self.now = end;
    }

    fn drain(&mut self, node: usize) {
        let mut out = Vec::new();
        while let Some(transmit) = match node {
            SERVER => self.server.poll_transmit(self.now, &mut out),
            RELAY => self.relay.poll_transmit(self.now, &mut out),
            _ => self.client.poll_transmit(self.now, &mut out),
        } {
            let bytes = std::mem::take(&mut out);
            let Some(to) = (0..=ATTACKER).find(|index| addr(*index) == transmit.to.remote) else { continue };
            self.tape.push((self.now, node, to, bytes.clone()));
            let busy = self.busy.entry((node, to)).or_insert(Instant::ZERO);
            if busy.since(self.now) > Duration::from_millis(100) {
                continue;
            }
            *busy = (*busy).max(self.now) + RATE.time_for(bytes.len() as u64 + 28);
            let at = *busy + DELAY;
            self.shoot([(at, node, to, bytes)]);
        }
        while let Some(event) = self.client.poll_event() {
            if matches!(event, ConsumerEvent::Finished { .. }) {
                self.finished = Some(self.now);
            }
        }
    }
}

/// Time of the transfer without disturbance.
fn undisturbed(domains: &Domains) -> Duration {
    World::usual(domains).transfer().expect("it arrives")
}

fn data(offset: u64, len: usize) -> impl Fn(&mut Vec<u8>) {
    move |out| {
        let (echo, flags) =
            (Echo { time: WireTime::from_micros(1), way: Way::default() }, DataFlags::default());
        DataHeader { counter: 9, flow: FLOW, offset, echo, flags, waited: Waited::default() }.emit(out);
        out.resize(out.len() + len, 0xbb);
    }
}

fn interest(flow: FlowId, range: ByteRange, rate: Rate, reason: Reason) -> impl Fn(&mut Vec<u8>) {
    move |out| {
        let mut interest = Interest::feedback(flow, WireTime::from_micros(1), rate);
        interest.reason = reason;
        interest.ranges.push(range);
        interest.emit(out);
    }
}

/// A request that nothing is wrong with.
fn ask() -> impl Fn(&mut Vec<u8>) {
    interest(FLOW, ByteRange::new(0, 1000), RATE, Reason::New)
}

fn name(n: u64) -> FlowId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    FlowId(id)
}

/// Writes a packet.
type Write = Box<dyn Fn(&mut Vec<u8>)>;

/// Every packet that does harm if it is believed, once in each suit that an outsider can dress it in.
fn forgeries(domains: &Domains, now: Instant, seen: &[u8]) -> Vec<Vec<u8>> {
    let mut theirs = seal(&domains.theirs, now, 0);
    let all = ByteRange::new(0, 65_536);
    let packets: Vec<Write> = vec![
        Box::new(data(0, 1350)),
        Box::new(data(1_000_000, 1350)),
        Box::new(interest(FLOW, all, Rate::ZERO, Reason::New)),
        Box::new(interest(FLOW, all, Rate::UNLIMITED, Reason::Lost)),
        Box::new(|out| Interest::feedback(FLOW, WireTime::from_micros(1), Rate::ZERO).emit(out)),
        Box::new(|out| {
            let news = News::Coming(ByteRange::new(0, LENGTH));
            Notice {
                counter: 9,
                flow: FLOW,
                echo: Echo { time: WireTime::from_micros(1), way: Way::default() },
                news,
            }
            .emit(out);
        }),
        Box::new(|out| {
            let flags = DataFlags { no_such_name: true, ..DataFlags::default() };
            DataHeader {
                counter: 9,
                flow: FLOW,
                offset: 0,
                echo: Echo { time: WireTime::from_micros(1), way: Way::default() },
                flags,
                waited: Waited::default(),
            }
            .emit(out);
        }),
        Box::new(|out| {
            let flags = DataFlags { end: true, ..DataFlags::default() };
            DataHeader {
                counter: 9,
                flow: FLOW,
                offset: 1000,
                echo: Echo { time: WireTime::from_micros(1), way: Way::default() },
                flags,
                waited: Waited::default(),
            }
            .emit(out);
        }),
    ];
    let mut forged = Vec::new();
    for write in &packets {
        let mut plain = Vec::new();
        write(&mut plain);
        // Plain, as if sealing could be left out.
        forged.push(plain.clone());
        // Under another domain's key.
        forged.push(sealed(&mut theirs, now, RELAY, write));
        // Behind the header of a true packet, its counter moved on.
        let mut dressed = seen[..HEADER_LEN].to_vec();
        dressed[HEADER_LEN - 3] ^= 0x7f;
        dressed.extend_from_slice(&plain);
        dressed.resize(dressed.len() + TAG_LEN, 0);
        forged.push(dressed);
    }
    forged
}

/// An outsider writes any address into its packets and knows every name, offset and time.
#[test]
fn an_outsider_who_forges_every_kind_of_packet_changes_nothing() {
    let domains = Domains::new();
    let usual = undisturbed(&domains);
    let mut world = World::usual(&domains);
    let seen = sealed(&mut seal(&domains.ours, START, 0), START, RELAY, data(0, 10));
    let pairs = [(SERVER, RELAY), (CLIENT, RELAY), (RELAY, SERVER), (RELAY, CLIENT)];
    let mut rng = Rng::new(1);
    for step in 0..800u64 {
        let at = START + Duration::from_millis(step);
        for (n, bytes) in forgeries(&domains, at, &seen).into_iter().enumerate() {
            let (from, to) = pairs[(n + step as usize) % pairs.len()];
            world.shoot([(at + Duration::from_micros(rng.below(1000)), from, to, bytes)]);
        }
    }
    let time = world.transfer().expect("the honest transfer arrives");
    assert!(time.as_secs_f64() < usual.as_secs_f64() / 0.9, "{time:?} where {usual:?} is usual");
    let stats = world.relay.suite().stats();
    assert!(stats.forged > 3000 && stats.foreign > 1000, "{stats:?}");
    assert_eq!(world.relay.stats().unasked, 0);
}

/// Bytes out per unauthenticated byte in: none, to any address.
#[test]
fn a_node_never_answers_an_outsider() {
    let domains = Domains::new();
    let mut world = World::usual(&domains);
    let seen = sealed(&mut seal(&domains.ours, START, 0), START, RELAY, data(0, 10));
    for n in 0..50u64 {
        let at = START + Duration::from_millis(n);
        for bytes in forgeries(&domains, at, &seen) {
            for to in [SERVER, RELAY, CLIENT] {
                world.shoot([(at, ATTACKER, to, bytes.clone())]);
            }
        }
    }
    world.run(Duration::from_secs(5));
    assert!(world.tape.is_empty(), "{} packets were sent", world.tape.len());
    assert_eq!((world.relay.stats().flows, world.relay.stats().neighbours), (0, 0), "and no state was made");
    assert_eq!(world.relay.suite().stats().senders, 0);
}

/// A recording is played back: at once, later, and after all nodes have forgotten the transfer but not its packets.
#[test]
fn a_recording_that_is_played_back_makes_nobody_send() {
    let domains = Domains::new();
    let mut world = World::usual(&domains);
    world.transfer().expect("it arrives");
    world.run(Duration::from_millis(200));
    let tape = std::mem::take(&mut world.tape);
    assert!(tape.len() > 1500);
    for pause in [Duration::ZERO, Duration::from_secs(3), Duration::from_secs(25), Duration::from_secs(60)] {
        let start = world.now + pause;
        let first = tape[0].0;
        // From where it came, and from the attacker's own address, which would like the answer.
        let shots = |from: Option<usize>| {
            let replay = tape.iter().map(move |(at, f, to, bytes)| {
                (start + at.since(first), from.unwrap_or(*f), *to, bytes.clone())
            });
            replay.collect::<Vec<_>>()
        };
        world.shoot(shots(None));
        world.shoot(shots(Some(ATTACKER)));
        let before = world.relay.stats().sent_bytes + world.server.stats().sent_bytes;
        world.run(pause + Duration::from_secs(3));
        let after = world.relay.stats().sent_bytes + world.server.stats().sent_bytes;
        assert_eq!(after - before, 0, "after {pause:?}");
    }
    let stats = world.relay.suite().stats();
    assert!(stats.replayed >= 4000, "{stats:?}");
    // Requests are told from forgeries however old they are. The keys of old replies are gone.
    let requests = tape.iter().filter(|(_, from, to, _)| (*from, *to) == (CLIENT, RELAY)).count() as u64;
    assert!(requests > 100 && stats.untimely >= 2 * requests, "{requests} requests; {stats:?}");
}

/// Plays the requests to the relay that are on the tape, at `at`, from an address of the attacker. The relay may ask
/// for its token; it takes nothing, keeps nothing and asks nobody for anything.
fn play_to_the_relay_in_vain(world: &mut World, domains: &Domains, at: Instant) {
    let tape = std::mem::take(&mut world.tape);
    let requests: Vec<Shot> = (tape.iter())
        .filter(|(_, from, to, _)| (*from, *to) == (CLIENT, RELAY))
        .map(|(_, _, to, bytes)| (at, ATTACKER, *to, bytes.clone()))
        .collect();
    assert!(requests.len() > 50);
    let played: u64 = requests.iter().map(|(.., bytes)| bytes.len() as u64).sum();
    let opened = world.relay.suite().stats().opened;
    world.shoot(requests);
    world.run(at.since(world.now) + Duration::from_secs(10));
    assert!(world.relay.suite().stats().opened > opened + 50, "the requests are timely");
    assert!(world.sent(RELAY, ATTACKER) < played, "{} bytes for {played}", world.sent(RELAY, ATTACKER));
    assert_eq!(world.sent(RELAY, SERVER), 0, "the relay asks for nothing");
    assert_eq!((world.relay.stats().flows, world.relay.stats().neighbours), (0, 0), "and keeps nothing");
    let mut witness = Keys::domain(&domains.ours);
    for (at, .., bytes) in &world.tape {
        let asker = tape.iter().find(|(_, from, ..)| *from == CLIENT).map(|(.., bytes)| bytes);
        let header = asker.and_then(|bytes| SealHeader::parse(bytes)).expect("a sealed packet");
        let epoch = WallClock::new(START, UNIX).epoch(*at);
        let mut bytes = bytes.clone();
        let packet =
            starhop_proto::security::witness(&mut witness, None, epoch, &[header.sender], &mut bytes);
        let packet = packet.map(Packet::parse);
        assert!(
            matches!(packet, Some(Ok(Packet::Notice(Notice { news: News::Token(_), .. })))),
            "{packet:?}"
        );
    }
}

/// A relay that restarts has forgotten the requests that it answered. Which of them are timely depends on the clocks:
/// of the neighbour that sent them, and of the relay at its two starts.
#[test]
fn a_recording_played_to_a_relay_that_restarted_brings_no_more_than_its_token() {
    let domains = Domains::new();
    for (asker_ahead, relay_ahead, restart_ahead) in
        [(0, 0, 0), (28, 0, 0), (-28, 0, 0), (28, 28, 0), (0, 28, 0), (0, 0, -28), (0, 0, 28)]
    {
        let mut world = World::usual(&domains);
        world.relay = Relay::new(Config::default(), addr(SERVER), settled(&domains.ours, relay_ahead), 2);
        world.client = Consumer::new(Config::default(), seal(&domains.ours, START, asker_ahead), 3);
        world.transfer().expect("it arrives");
        world.run(EPOCH);
        let restart = world.now;
        world.relay =
            Relay::new(Config::default(), addr(SERVER), seal(&domains.ours, restart, restart_ahead), 7);
        play_to_the_relay_in_vain(&mut world, &domains, restart);
    }
}

/// An hour after a clock was set back by an hour, the requests of before are timely once more.
#[test]
fn a_recording_played_once_a_clock_that_was_set_back_shows_its_time_again_brings_no_more_than_a_token() {
    let domains = Domains::new();
    let mut world = World::usual(&domains);
    world.transfer().expect("it arrives");
    let hour = Duration::from_secs(3600);
    let unix = UNIX + world.now.since(START).as_nanos() - hour.as_nanos();
    let back = WallClock::new(world.now, unix);
    world.relay.suite_mut().set_wall_clock(back);
    let forged = vec![0x80; 100];
    world.shoot([(world.now, ATTACKER, RELAY, forged)]);
    let tape = std::mem::take(&mut world.tape);
    world.run(hour);
    world.tape = tape;
    let now = world.now;
    play_to_the_relay_in_vain(&mut world, &domains, now);
}

/// All clocks were an hour ahead. The relay starts again when its clock is right, and in an hour the requests of before are
/// timely once more.
#[test]
fn a_recording_of_before_a_restart_brings_no_more_than_a_token_once_the_clock_shows_its_time_again() {
    let domains = Domains::new();
    let hour = Duration::from_secs(3600);
    let mut world = World::usual(&domains);
    world.server = Producer::new(Config::default(), Content, settled(&domains.ours, 3600), 1);
    world.relay = Relay::new(Config::default(), addr(SERVER), settled(&domains.ours, 3600), 2);
    world.client = Consumer::new(Config::default(), seal(&domains.ours, START, 3600), 3);
    world.transfer().expect("it arrives");
    let latest = world.relay.suite().latest();
    let mut right = seal(&domains.ours, world.now, 0);
    right.was_at(latest);
    world.relay = Relay::new(Config::default(), addr(SERVER), right, 7);
    let tape = std::mem::take(&mut world.tape);
    world.run(hour);
    world.tape = tape;
    let now = world.now;
    play_to_the_relay_in_vain(&mut world, &domains, now);
}

/// Relay and server have just started; the client's clock is behind theirs, or ahead.
#[test]
fn a_node_that_has_just_started_serves_a_neighbour_whose_clock_is_behind() {
    let domains = Domains::new();
    let started = |ahead| {
        let mut world = World::usual(&domains);
        world.server = Producer::new(Config::default(), Content, seal(&domains.ours, START, 0), 1);
        world.relay = Relay::new(Config::default(), addr(SERVER), seal(&domains.ours, START, 0), 2);
        world.client = Consumer::new(Config::default(), seal(&domains.ours, START, ahead), 3);
        world.transfer().expect("it arrives")
    };
    let usual = started(0);
    for ahead in [-28, -12, 28] {
        let time = started(ahead);
        assert!(time < usual + Duration::from_millis(5), "{time:?} where {usual:?} is usual, {ahead} s");
    }
}

/// A node of the domain asks for names that do not exist, and for its own bytes again and again, at line rate.
#[test]
fn an_interest_flood_of_an_insider_leaves_an_honest_flow_its_goodput_and_memory_its_bounds() {
    let domains = Domains::new();
    let usual = undisturbed(&domains);
    let settings = Profile::Starhop.settings();
    let mut world = World::new(&domains, settings.clone());
    let mut suite = seal(&domains.ours, START, 0);
    // 20 000 per second, 15 Mbit/s of requests.
    let shots = (0..20_000u64).map(|n| {
        let at = START + Duration::from_micros(50 * n);
        let bytes = match n % 4 {
            0 => sealed(
                &mut suite,
                at,
                RELAY,
                interest(FLOW, ByteRange::new(0, 1350), Rate::from_mbps(1), Reason::Lost),
            ),
            1 => sealed(
                &mut suite,
                at,
                RELAY,
                interest(FLOW, ByteRange::at(LENGTH + n, 9), Rate::UNLIMITED, Reason::New),
            ),
            _ => sealed(
                &mut suite,
                at,
                RELAY,
                interest(name(n), ByteRange::new(0, 65_536), Rate::UNLIMITED, Reason::New),
            ),
        };
        (at, ATTACKER, RELAY, bytes)
    });
    let shots: Vec<Shot> = shots.collect();
    world.shoot(shots);
    let time = world.transfer().expect("the honest transfer arrives");
    let stats = world.relay.stats();
    println!("flood: {:.3} s, {:.3} s without; {stats:?}", time.as_secs_f64(), usual.as_secs_f64());
    assert!(time.as_secs_f64() < usual.as_secs_f64() / 0.9, "{time:?} where {usual:?} is usual");
    assert!(
        stats.state_bytes <= settings.state_bytes
            && stats.flows <= 400
            && stats.cache_bytes <= settings.cache_bytes,
        "names that nobody has are few at a time: {stats:?}"
    );
    assert!(stats.over_limit > 8000, "{stats:?}");
}

/// The flood of one insider: each packet is of another node, which has just started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flood {
    /// From addresses where it does not receive, for names that nobody has.
    Forged,
    /// From its own address with the token, for names that nobody has.
    Proven,
    /// From all ports of its address with their tokens, for bytes of a name that exists.
    Wide,
}

/// Packets per second of a flood.
const FLOOD: u64 = 10_000;

fn flood(domains: &Domains, kind: Flood, token: impl Fn(usize) -> u32, last: Duration) -> Vec<Shot> {
    let count = last.as_nanos() * FLOOD / 1_000_000_000;
    (0..count)
        .map(|n| {
            let at = START + Duration::from_secs(1).scaled(n, FLOOD);
            let mut suite = settled(&domains.ours, 0);
            let (from, flow) = match kind {
                Flood::Forged => (ATTACKER + 1 + (n as usize % 40_000), name(n)),
                Flood::Proven => (ATTACKER, name(n)),
                Flood::Wide => (PORTS + (n as usize % 50_000), FLOW),
            };
            let token = (kind != Flood::Forged).then(|| token(from));
            let bytes = sealed(&mut suite, at, RELAY, |out: &mut Vec<u8>| {
                let mut interest = Interest::feedback(flow, WireTime::from_micros(1), Rate::UNLIMITED);
                interest.token = token;
                interest.ranges.push(ByteRange::new(LENGTH - 65_536, LENGTH));
                interest.emit(out);
            });
            (at, from, RELAY, bytes)
        })
        .collect()
}

/// The time from the first request to the first byte, for a client that begins two seconds after a flood.
fn start_beside(domains: &Domains, kind: Option<Flood>) -> Duration {
    let mut settings = Profile::Starhop.settings();
    settings.state_bytes = 16 << 20;
    let mut world = World::new(domains, settings);
    let tokens: Vec<u32> = (0..PORTS + 50_000)
        .map(|from| world.relay.suite_mut().token(addr(from)).expect("strangers need one"))
        .collect();
    let before = Duration::from_secs(2);
    let shots = kind.map(|kind| flood(domains, kind, |from| tokens[from], before + Duration::from_secs(1)));
    world.shoot(shots.into_iter().flatten());
    world.run(before);
    // 200 names a second that nobody has, a second's worth at once, and what is asked for until the first answers.
    let passed_on = world.relay.stats().interests_out;
    assert!(passed_on < 2 * FLOOD / 10, "{kind:?}: {passed_on} names were asked of the server");
    let start = world.now;
    world.open();
    world.drain(CLIENT);
    world.run(Duration::from_secs(1));
    world.fetched().sink().first.map_or(Duration::MAX, |first| first.since(start))
}

/// Two round trips are 80 ms, and two packets take 1.2 ms.
#[test]
fn a_new_transfer_begins_within_two_round_trips_beside_a_flood_of_an_insider() {
    let domains = Domains::new();
    let usual = start_beside(&domains, None);
    for kind in [Flood::Forged, Flood::Proven, Flood::Wide] {
        let time = start_beside(&domains, Some(kind));
        println!("{kind:?}: the first byte after {time:?}, {usual:?} without");
        assert!(time < Duration::from_millis(82), "{kind:?}: {time:?}");
    }
}

/// Until an asker has proved that it receives at its address, it gets three bytes for each that it sent; then it
/// gets the bytes that it asked for, and no other node gets any of them.
#[test]
fn an_insider_gets_little_until_it_proves_its_address_and_then_what_it_asked_for() {
    let domains = Domains::new();
    let mut world = World::usual(&domains);
    let mut suite = seal(&domains.ours, START, 0);
    let all = ByteRange::new(0, 40_000);
    let mut asked = 0;
    for n in 0..20u64 {
        let bytes = sealed(&mut suite, START, RELAY, interest(FLOW, all, Rate::UNLIMITED, Reason::Lost));
        asked += bytes.len() as u64;
        world.shoot([(START + Duration::from_millis(n), ATTACKER, RELAY, bytes)]);
    }
    world.run(Duration::from_secs(5));
    let before = world.sent(RELAY, ATTACKER);
    assert!(before > 0 && before <= 3 * asked, "{before} bytes for {asked}");
    let mut told = world.tape.iter().filter(|(_, from, to, _)| (*from, *to) == (RELAY, ATTACKER));
    let token = told.find_map(|(at, _, _, bytes)| {
        let mut bytes = bytes.clone();
        let opened = suite.open(*at, face(RELAY, ATTACKER), &mut bytes).expect("it is for the attacker");
        match Packet::parse(opened.packet) {
            Ok(Packet::Notice(Notice { news: News::Token(token), .. })) => Some(token),
            _ => None,
        }
    });
    let now = world.now;
    let proven = sealed(&mut suite, now, RELAY, |out: &mut Vec<u8>| {
        let mut interest = Interest::feedback(FLOW, WireTime::from_micros(1), Rate::UNLIMITED);
        interest.reason = Reason::Lost;
        interest.token = token;
        interest.ranges.push(all);
        interest.emit(out);
    });
    world.shoot([(now, ATTACKER, RELAY, proven)]);
    world.run(Duration::from_secs(5));
    let overhead = 40_000 / 1350 * 60 + 10 * 100;
    let sent = world.sent(RELAY, ATTACKER) - before;
    assert!((38_000..40_000 + overhead).contains(&sent), "{sent} bytes");
    assert_eq!(world.sent(RELAY, CLIENT), 0);
}

/// A request is bound to the address that it was sent to: played to another node, or back to its sender, it opens nothing.
#[test]
fn a_recorded_request_opens_only_where_it_was_sent_to() {
    let domains = Domains::new();
    let (mut sender, mut other) = (seal(&domains.ours, START, 0), seal(&domains.ours, START, 0));
    let recorded = sealed(&mut sender, START, RELAY, ask());
    let play = |at: &mut Sealed, to: usize| {
        at.open(START, face(CLIENT, to), &mut recorded.clone()).map(|opened| opened.peer.face)
    };
    assert_eq!(play(&mut other, SERVER), Err(Refusal::Forged));
    assert_eq!(play(&mut sender, RELAY), Err(Refusal::NotForMe));
    assert_eq!(play(&mut other, RELAY), Ok(face(CLIENT, RELAY)));
}

/// Behind a NAT requests were sent to another address than they arrive at.
#[test]
fn a_node_behind_a_nat_takes_what_was_sent_to_its_public_address_and_to_its_own() {
    let domains = Domains::new();
    let mut own = seal(&domains.ours, START, 0);
    let hear = |own: &mut Sealed, sent_to: usize| {
        let mut bytes = sealed(&mut seal(&domains.ours, START, 0), START, sent_to, ask());
        own.open(START, face(CLIENT, RELAY), &mut bytes).is_ok()
    };
    assert_eq!([RELAY, SERVER].map(|to| hear(&mut own, to)), [true, false]);
    own.set_public(Some(addr(SERVER)));
    assert_eq!([RELAY, SERVER, ATTACKER].map(|to| hear(&mut own, to)), [true, true, false]);
}

/// Neither restarts nor clocks that are set make two packets share key and nonce.
#[test]
fn no_nonce_is_ever_used_twice() {
    let domains = Domains::new();
    let mut rng = Rng::new(5);
    let mut used = BTreeSet::new();
    let mut note = |bytes: &[u8]| {
        let header = SealHeader::parse(bytes).expect("sealed");
        assert!(used.insert((header.sender, header.epoch, header.counter)), "{header:?} was used before");
    };
    // A machine that forgets everything at each restart, within one epoch and with the clock set back.
    for restart in 0..300u64 {
        let mut unix = UNIX + rng.below(20_000_000_000);
        let mut suite = Seal::new(
            Keys::domain(&domains.ours),
            START,
            WallClock::new(START, unix),
            Limits { senders: 100, neighbours: 5 },
            restart,
        );
        let mut now = START;
        for _ in 0..60 {
            now += Duration::from_millis(rng.below(400));
            if rng.chance(0.1) {
                // The clock is set, back or forward, by up to 20 s.
                unix = (unix + rng.below(40_000_000_000)).saturating_sub(20_000_000_000);
                suite.set_wall_clock(WallClock::new(START, unix));
            }
            if rng.chance(0.05) {
                suite.set_keys(Keys::domain(&domains.ours));
            }
            // More neighbours than it has room for.
            let bytes = sealed(&mut suite, now, rng.below(9) as usize, data(0, 10));
            note(&bytes);
        }
    }
    assert!(used.len() == 300 * 60);
}

/// Counters of an epoch run out after 2^24 packets: the next number is taken, not the first counter again.
#[test]
fn a_counter_that_ran_out_does_not_begin_again() {
    let domains = Domains::new();
    let mut suite = seal(&domains.ours, START, 0);
    let mut out = Vec::with_capacity(64);
    let mut first = None;
    for n in 0..SealHeader::COUNTER_END + 3 {
        out.clear();
        out.resize(suite.room() + 1, 0x40);
        suite
            .seal(START, &Addressee::Asked(Face::towards(addr(RELAY))), &mut out, 0)
            .expect("it can be sealed");
        let header = SealHeader::parse(&out).expect("sealed");
        let first = *first.get_or_insert(header.sender);
        assert_eq!(header.sender == first, n < SealHeader::COUNTER_END, "packet {n}");
    }
}

#[test]
fn clocks_may_differ_by_half_a_minute_and_a_wrong_clock_is_told_from_a_forgery() {
    let domains = Domains::new();
    let mut own = seal(&domains.ours, START, 0);
    // Requests from before its own start are refused, whatever the clocks show.
    let now = START + Duration::from_secs(200);
    let mut hear = |ahead: i64| {
        let mut bytes = sealed(&mut seal(&domains.ours, now, ahead), now, RELAY, ask());
        let opened = own.open(now, face(CLIENT, RELAY), &mut bytes).map(|opened| opened.peer.face);
        (opened, own.stats())
    };
    for ahead in [-31, -4, 0, 4, 31] {
        assert_eq!(hear(ahead).0, Ok(face(CLIENT, RELAY)), "{ahead} s");
    }
    for ahead in [-60, 60, -3600, 100_000] {
        let (refused, stats) = hear(ahead);
        assert_eq!(refused, Err(Refusal::Untimely), "{ahead} s");
        assert!((stats.last_untimely_s - ahead).abs() <= 4, "{stats:?}");
    }
    // A clock that was never set.
    let (refused, stats) = hear(-1_700_000_000);
    assert_eq!((refused, stats.untimely, stats.forged), (Err(Refusal::Forged), 4, 1));
}

/// A key is replaced while a transfer runs: no packet is refused as long as the order of the steps is kept.
#[test]
fn a_key_is_rotated_without_a_drop() {
    let domains = Domains::new();
    let mut world = World::usual(&domains);
    let mut file = domains.ours.clone();
    world.open();
    world.drain(CLIENT);
    for _ in 0..3 {
        file.rotate(0).expect("a key");
        // Nodes get it one after the other.
        for node in [RELAY, CLIENT, SERVER] {
            world.run(Duration::from_millis(40));
            match node {
                SERVER => world.server.suite_mut().set_keys(Keys::domain(&file)),
                RELAY => world.relay.suite_mut().set_keys(Keys::domain(&file)),
                _ => world.client.suite_mut().set_keys(Keys::domain(&file)),
            }
        }
        world.run(Duration::from_millis(40));
    }
    world.run(Duration::from_secs(10));
    assert!(world.finished.is_some());
    assert_eq!(world.fetched().stats().timeouts, 0);
    for stats in [world.server.suite().stats(), world.relay.suite().stats(), world.client.suite().stats()] {
        assert_eq!((stats.forged, stats.replayed), (0, 0), "{stats:?}");
    }
    // The old key is worth nothing now.
    let mut old = sealed(&mut seal(&domains.ours, world.now, 0), world.now, RELAY, ask());
    assert!(world.relay.suite_mut().open(world.now, face(CLIENT, RELAY), &mut old).is_err());
}

/// A thief of the old key, who speaks already, is not heard for the rest of the epoch either.
#[test]
fn a_key_that_is_gone_opens_nothing_from_then_on() {
    let mut file = Domains::new().ours;
    let (mut own, mut other) = (seal(&file, START, 0), seal(&file, START, 0));
    let mut heard = |own: &mut Sealed| {
        let mut bytes = sealed(&mut other, START, RELAY, ask());
        own.open(START, face(CLIENT, RELAY), &mut bytes).is_ok()
    };
    for expected in [true, true, true, false] {
        assert_eq!(heard(&mut own), expected);
        file.rotate(0).expect("a key");
        own.set_keys(Keys::domain(&file));
    }
}

/// A node with a key can pretend to be many senders, at addresses where it does not receive. They displace each
/// other, but no sender that has proved its address.
#[test]
fn senders_without_end_fill_neither_the_memory_nor_the_place_of_others() {
    let domains = Domains::new();
    let keys = Keys::domain(&domains.ours);
    let limits = Limits { senders: 48, neighbours: 50 };
    let mut own = Seal::new(keys, START, WallClock::new(START, UNIX), limits, 1);
    let mut honest = seal(&domains.ours, START, 0);
    let first = sealed(&mut honest, START, RELAY, ask());
    let peer = own.open(START, face(CLIENT, RELAY), &mut first.clone()).expect("it is taken").peer;
    own.settle(&peer);
    for _ in 0..500 {
        let mut bytes = sealed(&mut seal(&domains.ours, START, 0), START, RELAY, ask());
        assert!(own.open(START, face(ATTACKER, RELAY), &mut bytes).is_ok(), "a newcomer is never refused");
    }
    assert_eq!((own.stats().senders, own.stats().over_limit), (1 + 6, 0));
    assert_eq!(own.open(START, face(CLIENT, RELAY), &mut first.clone()), Err(Refusal::Replayed));
    assert!(own.open(START, face(CLIENT, RELAY), &mut sealed(&mut honest, START, RELAY, ask())).is_ok());
}

/// A table that is not full forgets whom it has not heard for 76 s, settled or not, and takes no recording of theirs.
#[test]
fn senders_that_have_gone_silent_are_forgotten_and_cannot_be_replayed() {
    let domains = Domains::new();
    let mut own = seal(&domains.ours, START, 0);
    let recorded: Vec<Vec<u8>> =
        (0..3).map(|_| sealed(&mut seal(&domains.ours, START, 0), START, RELAY, ask())).collect();
    for (n, bytes) in recorded.iter().enumerate() {
        let peer = own.open(START, face(CLIENT, RELAY), &mut bytes.clone()).expect("it is taken").peer;
        if n == 0 {
            own.settle(&peer);
        }
    }
    own.wipe(START + Duration::from_secs(60));
    let later = START + Duration::from_secs(84);
    assert_eq!(own.stats().senders, 3);
    let lively = sealed(&mut seal(&domains.ours, later, 0), later, RELAY, ask());
    assert!(own.open(later, face(CLIENT, RELAY), &mut lively.clone()).is_ok());
    assert_eq!(own.stats().senders, 1);
    for bytes in recorded {
        assert_eq!(own.open(later, face(CLIENT, RELAY), &mut bytes.clone()), Err(Refusal::Untimely));
    }
    assert_eq!(own.open(later, face(CLIENT, RELAY), &mut lively.clone()), Err(Refusal::Replayed));
}

#[test]
fn a_sealed_packet_costs_at_most_63_bytes_above_udp() {
    let domains = Domains::new();
    let mut suite = seal(&domains.ours, START, 0);
    let far = data((1 << 38) - 2000, 1350);
    let bytes = sealed(&mut suite, START, RELAY, far);
    assert_eq!(bytes.len(), 1350 + 63);
    assert_eq!(suite.overhead(), 33);
}

/// A holder of the keys can read a capture, hours later and as often as it likes; a holder of other keys cannot.
#[test]
fn a_witness_with_the_keys_reads_what_passes_by() {
    let domains = Domains::new();
    let bytes = sealed(&mut seal(&domains.ours, START, 0), START, RELAY, data(0, 10));
    let mut plain = Vec::new();
    data(0, 10)(&mut plain);
    let asker = somebody(Face::towards(addr(RELAY))).incarnation;
    for hours in [0, 1, 24] {
        let at = START + Duration::from_secs(hours * 3600);
        let epoch = WallClock::new(START, UNIX).epoch(at);
        let read = |file: &KeyFile| {
            let mut datagram = bytes.clone();
            witness(&mut Keys::domain(file), None, epoch, &[Incarnation::default(), asker], &mut datagram)
                .map(<[u8]>::to_vec)
        };
        assert_eq!(read(&domains.ours).as_ref(), Some(&plain), "{hours} h later");
        assert_eq!(read(&domains.theirs), None);
    }
}
