//! Relays in the path of a client and a server that do not know of them, in virtual time: paths that change, relays
//! that die and return. Seals without a cipher tell nodes apart as in reality.

use starhop_proto::config::Config;
use starhop_proto::consumer::{Consumer, ConsumerEvent, Request, Sink};
use starhop_proto::hop::HELLO;
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::{Node, Transmit};
use starhop_proto::peer::Face;
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::relay::intercept::{Interceptor, Verdict};
use starhop_proto::rng::Rng;
use starhop_proto::security::{Identity, Limits, Seal, WallClock};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;

type Suite = Seal<Identity>;

const FLOW: FlowId = FlowId([7; 16]);
const UNIX: u64 = 1_790_000_000_000_000_000;
const START: Instant = Instant::from_nanos(1_000_000_000_000);
const RATE: Rate = Rate::from_mbps(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn content(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn client() -> SocketAddr {
    ([10, 0, 0, 1], 40_000).into()
}

fn server() -> SocketAddr {
    ([10, 0, 0, 2], 4433).into()
}

fn suite(seed: u64) -> Suite {
    Seal::new(Identity::new(seed), START, WallClock::new(START, UNIX), Limits::default(), seed)
}

struct Content(u64);

impl Source for Content {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        let found = Lookup::Found { length: Some(self.0), is_volatile: false };
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
}

impl Sink for Checked {
    fn write(&mut self, _now: Instant, range: ByteRange, bytes: &[u8]) {
        self.wrong +=
            (range.start..range.end).zip(bytes).filter(|(at, byte)| content(*at) != **byte).count() as u64;
    }
}

/// The place of a datagram: at an end point, or at the relay of this number on its way to one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Client,
    Server,
    Relay(usize),
}

/// Arrival time, number, place, source and destination address, and the bytes.
type Flight = (Instant, u64, Place, SocketAddr, SocketAddr, Vec<u8>);

/// A client and a server; every path between them has one relay or none, and each half of it takes `delay`.
struct World {
    now: Instant,
    client: Consumer<Checked, Suite>,
    server: Producer<Content, Suite>,
    relays: Vec<Option<Interceptor<Suite>>>,
    /// The relay on the path now.
    path: Option<usize>,
    delay: Duration,
    loss: f64,
    rng: Rng,
    flights: BinaryHeap<Reverse<Flight>>,
    /// Until when each half of the path is busy, towards the server and towards the client.
    busy: [[Instant; 2]; 2],
    count: u64,
    boots: u64,
    finished: Option<Instant>,
    /// The relay does nothing: its process is stopped. Datagrams that were diverted to it wait.
    is_hung: bool,
    waiting: Vec<Flight>,
}

impl World {
    fn new(length: u64, relays: usize, seed: u64) -> Self {
        let config = Config::default();
        let mut world = Self {
            now: START,
            client: Consumer::new(config.clone(), suite(seed * 100 + 1), seed + 1),
            server: Producer::new(config, Content(length), suite(seed * 100 + 2), seed + 2),
            relays: Vec::new(),
            path: (relays > 0).then_some(0),
            delay: ms(5),
            loss: 0.0,
            rng: Rng::new(seed),
            flights: BinaryHeap::new(),
            busy: [[START; 2]; 2],
            count: 0,
            boots: seed * 100 + 3,
            finished: None,
            is_hung: false,
            waiting: Vec::new(),
        };
        for _ in 0..relays {
            let relay = world.relay();
            world.relays.push(Some(relay));
        }
        let request = Request { flow: FLOW, upstream: server(), length: None, have: RangeSet::new() };
        assert!(world.client.open(START, request, Checked::default()));
        world.drain(Place::Client);
        world
    }

    /// A relay that has just started.
    fn relay(&mut self) -> Interceptor<Suite> {
        self.boots += 1;
        Interceptor::new(Config::default(), suite(self.boots), self.boots)
    }

    /// Runs until the client is done or `span` has passed.
    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.finished.is_none() {
            let places = [Place::Client, Place::Server].into_iter();
            let places = places.chain((0..self.relays.len()).map(Place::Relay));
            let timer = places.filter_map(|place| Some((self.timeout(place)?.max(self.now), place))).min();
            let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
            let next = [arrival, timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            if arrival == Some(at) {
                self.arrive();
            } else if let Some((_, place)) = timer {
                match place {
                    Place::Client => self.client.handle_timeout(self.now),
                    Place::Server => self.server.handle_timeout(self.now),
                    Place::Relay(index) => {
                        self.relays[index].iter_mut().for_each(|relay| relay.handle_timeout(self.now));
                    }
                }
                self.drain(place);
            }
        }
        if self.finished.is_none() {
            self.now = end;
        }
    }

    /// The relay's process is stopped. After `noticed` datagrams pass it by. After `away` more it continues, takes what
    /// waited, `at_once` datagrams every 5 ms, as on a busy machine, and they are diverted to it again.
    fn hang(&mut self, noticed: Duration, away: Duration, at_once: usize) {
        let path = self.path;
        self.is_hung = true;
        self.run(noticed);
        self.path = None;
        self.run(away);
        (self.is_hung, self.path) = (false, path);
        for (nth, mut flight) in core::mem::take(&mut self.waiting).into_iter().enumerate() {
            flight.0 = self.now + ms(5 * (nth / at_once) as u64);
            self.flights.push(Reverse(flight));
        }
    }

    fn timeout(&self, place: Place) -> Option<Instant> {
        match place {
            Place::Client => self.client.poll_timeout(),
            Place::Server => self.server.poll_timeout(),
            Place::Relay(_) if self.is_hung => None,
            Place::Relay(index) => self.relays[index].as_ref()?.poll_timeout(),
        }
    }

    fn arrive(&mut self) {
        let Some(Reverse(flight)) = self.flights.pop() else { return };
        if matches!(flight.2, Place::Relay(_)) && self.is_hung {
            if self.path.is_some() {
                self.waiting.push(flight);
            } else {
                let (_, _, place, from, to, bytes) = flight;
                self.send(place, from, to, bytes);
            }
            return;
        }
        self.take(flight);
    }

    fn take(&mut self, (_, _, place, from, to, mut bytes): Flight) {
        let face = Face { remote: from, local: to };
        match place {
            Place::Client => self.client.handle_datagram(self.now, face, &mut bytes),
            Place::Server => self.server.handle_datagram(self.now, face, &mut bytes),
            Place::Relay(index) => {
                let relay = self.relays[index].as_mut();
                let verdict =
                    relay.map_or(Verdict::PassedOn, |relay| relay.handle_datagram(self.now, face, &bytes));
                if verdict == Verdict::PassedOn {
                    self.send(Place::Relay(index), from, to, bytes);
                }
            }
        }
        self.drain(place);
    }

    fn drain(&mut self, place: Place) {
        let mut out = Vec::new();
        while let Some(Transmit { to, .. }) = match place {
            Place::Client => self.client.poll_transmit(self.now, &mut out),
            Place::Server => self.server.poll_transmit(self.now, &mut out),
            Place::Relay(index) => {
                self.relays[index].as_mut().and_then(|relay| relay.poll_transmit(self.now, &mut out))
            }
        } {
            let from = match place {
                Place::Client => client(),
                Place::Server => server(),
                Place::Relay(_) => to.local,
            };
            let bytes = std::mem::take(&mut out);
            self.send(place, from, to.remote, bytes);
        }
        while let Some(event) = self.client.poll_event() {
            if matches!(event, ConsumerEvent::Finished { .. }) {
                self.finished = Some(self.now);
            }
        }
    }

    /// Sends a datagram over the half of the path that leads on from `place`.
    fn send(&mut self, place: Place, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let end = if to == client() { Place::Client } else { Place::Server };
        let next = match (place, self.path) {
            (Place::Client | Place::Server, Some(index)) => Place::Relay(index),
            _ => end,
        };
        let is_second_half = next == end && self.path.is_some();
        let busy = &mut self.busy[usize::from(is_second_half)][usize::from(end == Place::Client)];
        if busy.since(self.now) > ms(100) || self.rng.chance(self.loss) {
            return;
        }
        *busy = (*busy).max(self.now) + RATE.time_for(bytes.len() as u64 + 28);
        self.count += 1;
        let at = *busy + self.delay;
        self.flights.push(Reverse((at, self.count, next, from, to, bytes)));
    }

    /// The client has every byte, and all of them are right.
    fn assert_whole(&self, within: Duration) {
        let took = self.finished.map(|at| at.since(START));
        assert!(took.is_some_and(|took| took < within), "{took:?} {:?}", self.client.stats());
        let sink = self.client.flow(FLOW).expect("it is open").sink();
        assert_eq!(sink.wrong, 0);
    }
}

#[test]
fn a_relay_that_nobody_knows_of_serves_a_whole_file() {
    let mut world = World::new(3_000_000, 1, 1);
    world.run(Duration::from_secs(20));
    world.assert_whole(ms(1_600));
    let stats = world.relays[0].as_ref().map(Interceptor::stats).unwrap_or_default();
    assert!(stats.data_in > 2000 && stats.data_out > 2000, "{stats:?}");
}

#[test]
fn a_client_that_asks_its_server_who_it_is_is_not_answered_by_a_relay_between_them() {
    let (mut relay, mut out) = (Interceptor::new(Config::default(), suite(1), 1), Vec::new());
    let mut client = Consumer::new(Config::default(), suite(2), 2);
    let request = Request { flow: HELLO, upstream: server(), length: None, have: RangeSet::new() };
    client.open(START, request, Checked::default());
    let sent = client.poll_transmit(START, &mut out).expect("it asks");
    let face = Face { remote: self::client(), local: server() };
    assert_eq!(relay.handle_datagram(START, face, &out[..sent.len]), Verdict::PassedOn);
    assert_eq!(relay.poll_transmit(START, &mut Vec::new()), None);
}

/// The datagrams that waited while a relay was stopped say nothing about its link. A relay that takes them for a queue grants
/// its upstream next to nothing, for many seconds.
#[test]
fn a_relay_that_was_stopped_goes_on_at_the_rate_of_its_link() {
    for seed in 0..8 {
        let mut world = World::new(8_000_000, 1, seed);
        world.loss = 0.01;
        world.run(ms(500 + 50 * seed));
        world.hang(ms(1000 + 30 * seed), ms(500 + 300 * (seed % 3)), 4);
        world.run(Duration::from_secs(20));
        // 3.5 s at the rate of the link, and up to 1.2 in which nobody answers, take 4.7.
        world.assert_whole(ms(8_000));
    }
}
