//! A chain of roles in one process: server - relays - client, with links that delay, lose, reorder, repeat and
//! damage packets. Small on purpose: the real simulator is `starhop-sim`.
#![allow(dead_code, reason = "each test file uses its own part of the rig")]

use starhop_proto::config::Config;
use starhop_proto::consumer::{Consumer, ConsumerEvent, Flow, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::Node;
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::relay::Relay;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::Plain;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{Ipv4Addr, SocketAddr};

pub(crate) const FLOW: FlowId = FlowId([7; 16]);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn addr(index: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, (index >> 8) as u8, index as u8), 4000))
}

/// The suite of the relay with this number.
pub(crate) fn plain(index: usize) -> Plain {
    Plain::new(index as u64)
}

/// A packet as a datagram of the incarnation 250 for that of the node `asker`, which a request does not name.
pub(crate) fn datagram(mut packet: Vec<u8>, asker: Plain) -> Vec<u8> {
    packet.extend_from_slice(&[250, asker.own()]);
    packet
}

/// The packet of a datagram.
pub(crate) fn packet(datagram: &[u8]) -> &[u8] {
    &datagram[..datagram.len() - Plain::TRAILER]
}

/// The byte at an offset of the test flow.
pub(crate) fn content(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A byte that the content of a flow is combined with, so that each flow has its own.
fn salt(flow: FlowId) -> u8 {
    flow.0[0] ^ FLOW.0[0]
}

pub(crate) struct Content {
    pub(crate) length: Option<u64>,
    pub(crate) reads: u64,
    /// Time of the first read of each byte range, ascending: its transmission by the source.
    pub(crate) first_reads: Vec<(u64, Instant)>,
}

impl Source for Content {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        if flow.0[1..] == FLOW.0[1..] {
            Lookup::Found { length: self.length, is_volatile: false }
        } else {
            Lookup::Unknown
        }
    }

    fn read(&mut self, now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        self.reads += range.len();
        if self.first_reads.last().is_none_or(|(offset, _)| *offset < range.start) {
            self.first_reads.push((range.start, now));
        }
        out.extend((range.start..range.end).map(|offset| content(offset) ^ salt(flow)));
        true
    }
}

/// Checks bytes of [`FLOW`], unless made for another flow.
#[derive(Default)]
pub(crate) struct Checked {
    pub(crate) got: RangeSet,
    pub(crate) wrong: u64,
    salt: u8,
    /// (arrival, first byte) of every write.
    pub(crate) arrivals: Vec<(Instant, ByteRange)>,
}

impl Checked {
    pub(crate) fn of(flow: FlowId) -> Self {
        Self { salt: salt(flow), ..Self::default() }
    }
}

impl Sink for Checked {
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]) {
        assert!(!self.got.overlaps(range), "{range:?} was delivered twice");
        self.wrong +=
            (range.start..range.end).zip(bytes).filter(|(o, b)| content(*o) ^ self.salt != **b).count()
                as u64;
        self.got.insert(range);
        self.arrivals.push((now, range));
    }
}

/// The effects of the rig's links on packets.
#[derive(Clone, Copy)]
pub(crate) struct Path {
    pub(crate) delay: Duration,
    pub(crate) rate: Rate,
    pub(crate) queue: Duration,
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    pub(crate) reorder: f64,
    pub(crate) corrupt: f64,
    /// Longer datagrams are dropped.
    pub(crate) longest: usize,
    /// Receivers wake up only at multiples of this.
    pub(crate) tick: Duration,
    /// Nodes take packets from their sockets only at multiples of this, and know when each of them arrived.
    pub(crate) turn: Duration,
    /// Timers ring only at multiples of this.
    pub(crate) timers: Duration,
    /// Up to this much is added to the delay, by chance; packets stay in order.
    pub(crate) jitter: Duration,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            delay: ms(10),
            rate: Rate::from_mbps(20),
            queue: ms(600),
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            longest: usize::MAX,
            tick: Duration::ZERO,
            turn: Duration::ZERO,
            timers: Duration::ZERO,
            jitter: Duration::ZERO,
        }
    }
}

pub(crate) enum Role {
    Server(Box<Producer<Content>>),
    Relay(Box<Relay>),
    Client(Box<Consumer<Checked>>),
    Dead,
}

macro_rules! each {
    ($role:expr, $node:ident => $then:expr, else $none:expr) => {
        match $role {
            Role::Server($node) => $then,
            Role::Relay($node) => $then,
            Role::Client($node) => $then,
            Role::Dead => $none,
        }
    };
}

/// A change of datagrams of one node as they arrive.
pub(crate) type Lie = Box<dyn FnMut(Instant, &mut Vec<u8>)>;

/// When it is handled, its number, its ends, when it arrived, and its bytes.
type Flight = Reverse<(Instant, u64, usize, usize, Instant, Vec<u8>)>;

pub(crate) struct Rig {
    pub(crate) roles: Vec<Role>,
    pub(crate) path: Path,
    pub(crate) config: Config,
    pub(crate) now: Instant,
    pub(crate) events: Vec<(Instant, ConsumerEvent)>,
    /// Datagrams and bytes handed to links, towards the client and towards the server.
    pub(crate) forward: (u64, u64),
    pub(crate) backward: (u64, u64),
    /// The client's request.
    request: Request,
    rng: Rng,
    flights: BinaryHeap<Flight>,
    sent: u64,
    busy: Vec<[Instant; 2]>,
    last_arrival: Vec<[Instant; 2]>,
    /// Added to the clock of each node.
    pub(crate) clock_offset: Vec<Duration>,
    /// A node that lies, and its lies.
    pub(crate) liar: Option<(usize, Lie)>,
}

impl Rig {
    /// A chain of `hops` links. Node 0 is the server, the last one the client.
    pub(crate) fn chain(hops: usize, config: Config, length: Option<u64>, path: Path) -> Self {
        Self::with_request(hops, config, length, path, RangeSet::new(), FLOW)
    }

    pub(crate) fn with_request(
        hops: usize,
        config: Config,
        length: Option<u64>,
        path: Path,
        have: RangeSet,
        flow: FlowId,
    ) -> Self {
        let mut roles = vec![Role::Server(Box::new(Producer::new(
            config.clone(),
            Content { length, reads: 0, first_reads: Vec::new() },
            Plain::new(200),
            1,
        )))];
        for index in 1..hops {
            roles.push(Role::Relay(Box::new(Relay::new(
                config.clone(),
                addr(index - 1),
                plain(index),
                index as u64,
            ))));
        }
        roles.push(Role::Client(Box::new(Consumer::new(config.clone(), Plain::new(99), 99))));
        Self {
            path,
            config,
            now: Instant::ZERO + Duration::from_secs(1000),
            events: Vec::new(),
            forward: (0, 0),
            backward: (0, 0),
            rng: Rng::new(5),
            flights: BinaryHeap::new(),
            sent: 0,
            busy: vec![[Instant::ZERO; 2]; hops + 1],
            last_arrival: vec![[Instant::ZERO; 2]; hops + 2],
            clock_offset: vec![Duration::ZERO; roles.len()],
            liar: None,
            request: Request { flow, upstream: addr(hops - 1), length: None, have },
            roles,
        }
    }

    pub(crate) fn client_at(&mut self, index: usize) -> &mut Consumer<Checked> {
        match &mut self.roles[index] {
            Role::Client(client) => client,
            _ => unreachable!("node {index} is a client"),
        }
    }

    pub(crate) fn client(&mut self) -> &mut Consumer<Checked> {
        self.client_at(self.roles.len() - 1)
    }

    /// The client begins to ask.
    pub(crate) fn open(&mut self, now: Instant) {
        let request = self.request.clone();
        assert!(self.client().open(now, request, Checked::default()), "the flow is open already");
    }

    /// The client's flow.
    pub(crate) fn fetched(&mut self) -> &mut Flow<Checked> {
        let flow = self.request.flow;
        self.client().flow_mut(flow).expect("the flow is open")
    }

    /// Adds a client that asks node `upstream`, and returns its index.
    pub(crate) fn add_client(&mut self, upstream: usize) -> usize {
        self.request = Request { flow: FLOW, upstream: addr(upstream), length: None, have: RangeSet::new() };
        self.roles.push(Role::Client(Box::new(Consumer::new(self.config.clone(), Plain::new(98), 98))));
        self.clock_offset.push(Duration::ZERO);
        self.busy.push([Instant::ZERO; 2]);
        self.roles.len() - 1
    }

    pub(crate) fn server(&mut self) -> &mut Producer<Content> {
        match &mut self.roles[0] {
            Role::Server(server) => server,
            _ => unreachable!("the first node is the server"),
        }
    }

    pub(crate) fn relay(&mut self, index: usize) -> &mut Relay {
        match &mut self.roles[index] {
            Role::Relay(relay) => relay,
            _ => unreachable!("node {index} is a relay"),
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        self.roles[index] = Role::Dead;
    }

    pub(crate) fn restart(&mut self, index: usize, upstream: usize, seed: u64) {
        self.roles[index] =
            Role::Relay(Box::new(Relay::new(self.config.clone(), addr(upstream), Plain::new(seed), seed)));
    }

    pub(crate) fn start(&mut self) {
        let now = self.clock(self.roles.len() - 1);
        self.open(now);
        self.drain(self.roles.len() - 1);
    }

    /// Runs for `span`, or until `done` says so.
    pub(crate) fn run(&mut self, span: Duration, done: impl Fn(&mut Self) -> bool) {
        let end = self.now + span;
        while !done(self) {
            let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
            let timer = (0..self.roles.len())
                .filter_map(|index| {
                    let at = each!(&self.roles[index], node => node.poll_timeout(), else None)?;
                    let at = at_next(at.before(self.clock_offset[index]), self.path.timers);
                    Some((at.max(self.now), index))
                })
                .min();
            let next = [arrival, timer.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = at;
            if arrival == Some(at) {
                let Some(Reverse((_, _, from, to, arrived, mut bytes))) = self.flights.pop() else { return };
                let arrived = arrived + self.clock_offset[to];
                if let Some((_, lie)) = self.liar.as_mut().filter(|(liar, _)| *liar == from) {
                    lie(arrived, &mut bytes);
                }
                each!(&mut self.roles[to], node => node.handle_datagram(arrived, addr(from).into(), &mut bytes), else ());
                self.drain(to);
            } else if let Some((_, index)) = timer {
                let now = self.clock(index);
                each!(&mut self.roles[index], node => node.handle_timeout(now), else ());
                self.drain(index);
            }
        }
    }

    pub(crate) fn finish(&mut self, within: Duration) -> Option<Duration> {
        let start = self.now;
        self.run(within, |rig| rig.events.iter().any(|(_, e)| matches!(e, ConsumerEvent::Finished { .. })));
        let finished = self.events.iter().find(|(_, e)| matches!(e, ConsumerEvent::Finished { .. }));
        finished.map(|(at, _)| at.since(start))
    }

    pub(crate) fn clock(&self, index: usize) -> Instant {
        self.now + self.clock_offset[index]
    }

    pub(crate) fn drain(&mut self, index: usize) {
        let mut out = Vec::new();
        let now = self.clock(index);
        while let Some(transmit) =
            each!(&mut self.roles[index], node => node.poll_transmit(now, &mut out), else None)
        {
            assert_eq!(transmit.len, out.len());
            let to =
                (0..self.roles.len()).find(|i| addr(*i) == transmit.to.remote).expect("a node of the rig");
            self.send(index, to, core::mem::take(&mut out));
        }
        if let Role::Client(client) = &mut self.roles[index] {
            while let Some(event) = client.poll_event() {
                self.events.push((self.now, event));
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, mut bytes: Vec<u8>) {
        let wire = bytes.len() as u64 + 28;
        let count = if to > from { &mut self.forward } else { &mut self.backward };
        *count = (count.0 + 1, count.1 + wire);
        let busy = &mut self.busy[from.min(to)][usize::from(to > from)];
        let start = (*busy).max(self.now);
        if start.since(self.now) > self.path.queue {
            return;
        }
        *busy = start + self.path.rate.time_for(wire);
        let mut arrival = *busy + self.path.delay;
        if self.rng.chance(self.path.loss) || bytes.len() > self.path.longest {
            return;
        }
        if self.rng.chance(self.path.corrupt) {
            let at = self.rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.rng.below(8);
        }
        if self.rng.chance(self.path.reorder) {
            arrival += Duration::from_micros(self.rng.below(5_000));
        }
        if !self.path.jitter.is_zero() {
            arrival += Duration::from_nanos(self.rng.below(self.path.jitter.as_nanos()));
            let last = &mut self.last_arrival[from.min(to)][usize::from(to > from)];
            *last = arrival.max(*last);
            arrival = *last;
        }
        arrival = at_next(arrival, self.path.tick);
        let handled = at_next(arrival, self.path.turn);
        self.sent += 1;
        if self.rng.chance(self.path.duplicate) {
            self.flights.push(Reverse((handled, self.sent, from, to, arrival, bytes.clone())));
            self.sent += 1;
        }
        self.flights.push(Reverse((handled, self.sent, from, to, arrival, bytes)));
    }
}

/// The next multiple of `step`; `at` itself where there are no steps.
fn at_next(at: Instant, step: Duration) -> Instant {
    let step = step.as_nanos().max(1);
    Instant::from_nanos(at.as_nanos().div_ceil(step) * step)
}

/// Time of each packet of `rig` from its first transmission until it and all packets before it had arrived.
pub(crate) fn in_order_delays(rig: &mut Rig) -> Vec<Duration> {
    let arrivals = core::mem::take(&mut rig.fetched().sink_mut().arrivals);
    let sent = core::mem::take(&mut rig.server().source_mut().first_reads);
    let mut sent = sent.into_iter().peekable();
    let mut got = RangeSet::new();
    let mut delays = Vec::new();
    for (at, range) in arrivals {
        got.insert(range);
        let end = got.first().filter(|first| first.start == 0).map_or(0, |first| first.end);
        while let Some((_, left)) = sent.next_if(|(offset, _)| *offset < end) {
            delays.push(at.since(left));
        }
    }
    delays
}
