//! The roles of the protocol as hosts: the very code that runs on Linux.

use super::content::Pattern;
use super::hop::{Seals, SimSuite};
use crate::engine::{Body, Clock, Host, HostReport};
use crate::record::SharedRecorder;
use starhop_proto::config::Config;
use starhop_proto::consumer::{Consumer, ConsumerEvent, Flow, FlowStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::{Node, Transmit};
use starhop_proto::peer::Face;
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::relay::intercept::{Interceptor, Verdict};
use starhop_proto::relay::{Relay, RelayStats};
use starhop_proto::time::Instant;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Hands a datagram to a role.
fn handle<N: Node>(node: &mut N, now: Instant, face: Face, body: &mut Body) {
    if let Body::Datagram(bytes) = body {
        node.handle_datagram(now, face, bytes);
    }
}

/// Takes a datagram from a role.
fn poll<N: Node>(node: &mut N, now: Instant, out: &mut Body) -> Option<Face> {
    let Body::Datagram(bytes) = out else { return None };
    node.poll_transmit(now, bytes).map(|Transmit { to, .. }| to)
}

/// A sink that checks every byte and reports it to the recorder.
#[derive(Debug)]
pub(super) struct CheckedSink {
    recorder: SharedRecorder,
    record: usize,
    flow: FlowId,
    pattern: Pattern,
    clock: Clock,
}

impl Sink for CheckedSink {
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]) {
        let now = self.clock.world(now);
        let mut recorder = self.recorder.borrow_mut();
        if !self.pattern.matches(self.flow, range, bytes) {
            recorder.on_problem(format!("flow {}: wrong bytes in {range:?}", self.record));
        }
        recorder.on_received(now, self.record, range);
    }
}

/// The client of one flow, or of several that one program fetches.
pub struct ConsumerHost {
    consumer: Consumer<CheckedSink, SimSuite>,
    seals: Seals,
    /// Its fetches, by the flow's number in the recorder.
    flows: BTreeMap<u32, Fetch>,
    numbers: BTreeMap<FlowId, u32>,
    recorder: SharedRecorder,
    pattern: Pattern,
}

/// A flow of a client.
#[derive(Debug)]
struct Fetch {
    flow: FlowId,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The flow is requested at the time when the application begins it.
    Pending(Request, CheckedSink),
    Open,
    /// The flow is over; its final counters.
    Closed(FlowStats),
}

/// A flow that a client is to fetch, and where it writes its measurements.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerSpec {
    /// The flow.
    pub flow: FlowId,
    /// The neighbour to ask.
    pub upstream: SocketAddr,
    /// The number of the flow in the recorder.
    pub record: usize,
    /// The clock of the client's node.
    pub clock: Clock,
}

impl ConsumerHost {
    /// A client without flows.
    pub fn new(
        config: Config,
        (seals, seed): (Seals, u64),
        recorder: SharedRecorder,
        pattern: Pattern,
    ) -> Self {
        let consumer = Consumer::new(config, seals.first(seed), seed);
        Self { consumer, seals, flows: BTreeMap::new(), numbers: BTreeMap::new(), recorder, pattern }
    }

    /// Adds a flow, which waits for [`Host::begin`].
    pub fn add(&mut self, spec: ConsumerSpec) {
        let ConsumerSpec { flow, upstream, record, clock } = spec;
        let (recorder, pattern) = (self.recorder.clone(), self.pattern.clone());
        let sink = CheckedSink { recorder, record, flow, pattern, clock };
        let request = Request { flow, upstream, length: None, have: RangeSet::new() };
        self.flows.insert(record as u32, Fetch { flow, stage: Stage::Pending(request, sink) });
        self.numbers.insert(flow, record as u32);
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.consumer.poll_event() {
            let (ConsumerEvent::Finished { flow, .. }
            | ConsumerEvent::NoSuchName { flow }
            | ConsumerEvent::PutOff { flow, .. }
            | ConsumerEvent::TimedOut { flow, .. }) = event;
            let Some(sink) = self.consumer.flow(flow).map(Flow::sink) else { continue };
            let (at, record) = (sink.clock.world(now), sink.record);
            match event {
                ConsumerEvent::Finished { .. } => self.recorder.borrow_mut().on_finished(at, record),
                ConsumerEvent::NoSuchName { .. } => {
                    let problem = format!("flow {record}: the producer knows no such name");
                    self.recorder.borrow_mut().on_problem(problem);
                }
                ConsumerEvent::TimedOut { .. } | ConsumerEvent::PutOff { .. } => continue,
            }
            self.end(record as u32);
        }
    }

    fn end(&mut self, number: u32) {
        let Some(fetch) = self.flows.get_mut(&number) else { return };
        if let Stage::Open = fetch.stage {
            let stats = self.consumer.flow(fetch.flow).map(Flow::stats);
            fetch.stage = Stage::Closed(stats.unwrap_or_default());
            self.consumer.close(fetch.flow);
        }
    }
}

impl Host for ConsumerHost {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        handle(&mut self.consumer, now, face, body);
        self.take_events(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.consumer.handle_timeout(now);
        self.take_events(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        poll(&mut self.consumer, now, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.consumer.poll_timeout()
    }

    fn begin(&mut self, now: Instant, flow: u32) {
        let Some(fetch) = self.flows.get_mut(&flow) else { return };
        if let Stage::Pending(request, sink) = std::mem::replace(&mut fetch.stage, Stage::Open) {
            self.consumer.open(now, request, sink);
        }
        self.take_events(now);
    }

    fn close(&mut self, _now: Instant, flow: u32) {
        self.end(flow);
    }

    fn set_route(&mut self, now: Instant, flow: FlowId, to: SocketAddr) {
        let Some(fetch) = self.numbers.get(&flow).and_then(|number| self.flows.get_mut(number)) else {
            return;
        };
        match &mut fetch.stage {
            Stage::Pending(request, _) => request.upstream = to,
            Stage::Open => self.consumer.set_upstream(now, flow, to),
            Stage::Closed(_) => {}
        }
    }

    fn step_clock(&mut self, _now: Instant, by: i64) {
        self.seals.step(by, self.consumer.suite_mut());
    }

    fn report(&self) -> HostReport {
        HostReport::Consumer(self.consumer.stats().flows)
    }

    fn flow_report(&self, flow: u32) -> HostReport {
        let stats = self.flows.get(&flow).and_then(|fetch| match fetch.stage {
            Stage::Pending(..) => None,
            Stage::Open => self.consumer.flow(fetch.flow).map(Flow::stats),
            Stage::Closed(stats) => Some(stats),
        });
        HostReport::Consumer(stats.unwrap_or_default())
    }
}

/// A relay that its neighbours ask by its address.
pub struct RelayHost {
    relay: Relay<SimSuite>,
    config: Config,
    seals: Seals,
    seed: u64,
    routes: BTreeMap<FlowId, SocketAddr>,
    /// Counters of earlier lives: they survive a crash, nothing else does.
    before: RelayStats,
}

/// An address at which nothing listens: a relay forwards requests of flows without a route to it.
const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 255, 255, 255)), 9);

impl RelayHost {
    /// A relay without routes.
    pub fn new(config: Config, seals: Seals, seed: u64) -> Self {
        let relay = Relay::new(config.clone(), NOWHERE, seals.first(seed), seed);
        Self { relay, config, seals, seed, routes: BTreeMap::new(), before: RelayStats::default() }
    }
}

impl Host for RelayHost {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        handle(&mut self.relay, now, face, body);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.relay.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        poll(&mut self.relay, now, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }

    fn set_route(&mut self, now: Instant, flow: FlowId, upstream: SocketAddr) {
        self.routes.insert(flow, upstream);
        self.relay.set_route(now, flow, upstream);
    }

    fn step_clock(&mut self, _now: Instant, by: i64) {
        self.seals.step(by, self.relay.suite_mut());
    }

    fn restart(&mut self, now: Instant) {
        self.before = sum(self.before, self.relay.stats());
        self.seed = self.seed.wrapping_add(1 << 32);
        let suite = self.seals.suite(now, self.seed);
        self.relay = Relay::new(self.config.clone(), NOWHERE, suite, self.seed);
        // Routes come from the operator's configuration, so they survive a restart.
        for (&flow, &upstream) in &self.routes {
            self.relay.set_route(now, flow, upstream);
        }
    }

    fn report(&self) -> HostReport {
        HostReport::Relay(sum(self.before, self.relay.stats()))
    }
}

/// A relay that its neighbours do not know of: it is given the packets that pass its node.
pub struct InterceptorHost {
    relay: Interceptor<SimSuite>,
    config: Config,
    seals: Seals,
    seed: u64,
    /// As [`RelayHost`]'s.
    before: RelayStats,
}

impl InterceptorHost {
    /// A relay for every flow that passes.
    pub fn new(config: Config, seals: Seals, seed: u64) -> Self {
        let relay = Interceptor::new(config.clone(), seals.first(seed), seed);
        Self { relay, config, seals, seed, before: RelayStats::default() }
    }
}

impl Host for InterceptorHost {
    fn handle_packet(&mut self, _now: Instant, _face: Face, _body: &mut Body) {}

    fn intercept(&mut self, now: Instant, face: Face, body: &mut Body) -> Verdict {
        match body {
            Body::Datagram(bytes) => self.relay.handle_datagram(now, face, bytes),
            _ => Verdict::PassedOn,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.relay.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        let Body::Datagram(bytes) = out else { return None };
        self.relay.poll_transmit(now, bytes).map(|Transmit { to, .. }| to)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }

    fn step_clock(&mut self, _now: Instant, by: i64) {
        self.seals.step(by, self.relay.relay_mut().suite_mut());
    }

    fn restart(&mut self, now: Instant) {
        self.before = sum(self.before, self.relay.stats());
        self.seed = self.seed.wrapping_add(1 << 32);
        self.relay = Interceptor::new(self.config.clone(), self.seals.suite(now, self.seed), self.seed);
    }

    fn report(&self) -> HostReport {
        HostReport::Relay(sum(self.before, self.relay.stats()))
    }
}

/// The sum of the counters of two lives; gauges are those of the second.
fn sum(before: RelayStats, now: RelayStats) -> RelayStats {
    RelayStats {
        interests_in: before.interests_in + now.interests_in,
        interests_out: before.interests_out + now.interests_out,
        aggregated_bytes: before.aggregated_bytes + now.aggregated_bytes,
        cache_hit_bytes: before.cache_hit_bytes + now.cache_hit_bytes,
        data_in: before.data_in + now.data_in,
        data_out: before.data_out + now.data_out,
        unasked: before.unasked + now.unasked,
        sent_bytes: before.sent_bytes + now.sent_bytes,
        repairs: before.repairs + now.repairs,
        unplaced_bytes: before.unplaced_bytes + now.unplaced_bytes,
        bad_datagrams: before.bad_datagrams + now.bad_datagrams,
        ..now
    }
}

/// A source of any number of flows.
#[derive(Debug)]
pub(super) struct PatternSource {
    pattern: Pattern,
    lengths: BTreeMap<FlowId, Option<u64>>,
}

impl Source for PatternSource {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        match self.lengths.get(&flow) {
            Some(&length) => Lookup::Found { length, is_volatile: false },
            None => Lookup::Unknown,
        }
    }

    fn read(&mut self, _now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        self.pattern.write(flow, range, out);
        true
    }
}

/// A server.
pub struct ProducerHost {
    producer: Producer<PatternSource, SimSuite>,
    seals: Seals,
}

impl ProducerHost {
    /// A server of the named flows; `None` is a stream without an end.
    pub fn new(
        config: Config,
        lengths: BTreeMap<FlowId, Option<u64>>,
        pattern: Pattern,
        (seals, seed): (Seals, u64),
    ) -> Self {
        let source = PatternSource { pattern, lengths };
        Self { producer: Producer::new(config, source, seals.first(seed), seed), seals }
    }
}

impl Host for ProducerHost {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        handle(&mut self.producer, now, face, body);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.producer.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        poll(&mut self.producer, now, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.producer.poll_timeout()
    }

    fn step_clock(&mut self, _now: Instant, by: i64) {
        self.seals.step(by, self.producer.suite_mut());
    }

    fn report(&self) -> HostReport {
        HostReport::Producer(self.producer.stats())
    }
}
