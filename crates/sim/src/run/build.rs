//! Makes a simulation from a plan.

use super::gateway::GatewayTransport;
use super::overlay::{Member, Overlay, Stack, config_at};
use super::sky::{FlowAccount, Sky, SkyPlan};
use super::split::{Served, SplitTransport};
use super::{Action, FlowHandle, Series, Simulation, Step};
use crate::engine::{HostId, IP_HEADER, Network, NodeId, UDP_HEADER, World};
use crate::host::tcp::{OVERHEAD, TcpConfig, TcpSink, TcpSource, TcpSplice};
use crate::host::{
    ArqRelay, ArqSink, ArqSource, ArqSpec, CbrSink, CbrSource, ConsumerHost, ConsumerSpec, Exchange, Middle,
    Pattern, ProducerHost, Protection, Seals,
};
use crate::record::{Recorder, SharedRecorder};
use starhop_proto::config::{Config, Controller, Settings};
use starhop_proto::name::FlowId;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_proto::wire::DataHeader;
use std::collections::BTreeMap;

/// Header bytes of a full Data packet of the protocol below an offset of 256 GiB, without its protection.
const DATA_HEADER: u32 = DataHeader::MAX_USUAL_LEN as u32;

/// The transport of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// The protocol, with these settings at all its nodes, so protected on every hop.
    Starhop(Config, Protection),
    /// TCP.
    Tcp(TcpConfig),
    /// TCP to a gateway that splits the connection, and from there a satellite's own protocol.
    Split(Box<SplitTransport>),
    /// TCP to a gateway, the protocol to another, and TCP from there.
    Gateway(Box<GatewayTransport>),
    /// Packets at a constant rate without answers.
    Cbr {
        /// Rate of the payload.
        rate: Rate,
        /// Bytes per packet.
        payload: u32,
    },
    /// Ideal retransmission at a constant rate, the yardstick of the closed forms.
    Arq {
        /// Rate of new payload.
        rate: Rate,
        /// Bytes per packet.
        payload: u32,
        /// An acknowledgement is overdue after this.
        timeout: Duration,
        /// Whether every node of the path repairs, rather than the source alone.
        every_hop: bool,
    },
}

impl Transport {
    /// Bytes of payload in a full packet.
    pub fn payload(&self) -> u32 {
        match self {
            Self::Starhop(config, _) => config.payload as u32,
            Self::Cbr { payload, .. } | Self::Arq { payload, .. } => *payload,
            Self::Tcp(config) => config.mss,
            Self::Split(split) => split.satellite.mss,
            Self::Gateway(how) => how.tcp.mss,
        }
    }

    /// Bytes of the IP packet around a full payload; over the satellite, where a gateway splits the connection.
    pub fn full_packet(&self) -> u32 {
        let protection =
            if let Self::Starhop(_, protection) = self { *protection } else { Protection::Plain };
        self.full_packet_as(protection)
    }

    /// The same if the protocol's packets are so protected.
    pub fn full_packet_as(&self, protection: Protection) -> u32 {
        let header = match self {
            Self::Split(split) => return split.full_packet(),
            Self::Starhop(..) => DATA_HEADER + protection.around(),
            Self::Tcp(_) | Self::Gateway(_) => OVERHEAD,
            Self::Cbr { .. } | Self::Arq { .. } => UDP_HEADER + IP_HEADER,
        };
        self.payload() + header
    }
}

/// A flow to be.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Its content: flows of the same name carry the same bytes.
    pub content: FlowId,
    /// Node that has the content.
    pub from: NodeId,
    /// Node that wants the content.
    pub to: NodeId,
    /// Its length; `None` is a stream without an end.
    pub length: Option<u64>,
    /// Time at which it begins.
    pub start: Instant,
    /// Time at which it ends if it is not complete.
    pub stop: Instant,
    /// Its transport.
    pub transport: Transport,
    /// The nodes that split its TCP connection, from the source on.
    pub splits: Vec<NodeId>,
    /// Its client asks for one thing after the other, over TCP or a split connection.
    pub exchange: Option<Exchange>,
    /// Flows of one number, which differ in their contents, are fetched by one program, where the protocol carries them.
    pub program: Option<u32>,
    /// Number of the crowd with which it is measured: flows of one crowd share their delays and have no time
    /// series.
    pub crowd: Option<u32>,
}

/// A simulation to be.
pub struct Plan {
    /// Nodes and links; next hops are found by delay.
    pub network: Network,
    /// The nodes that run relays.
    pub relays: Vec<NodeId>,
    /// Relays intercept the flows that pass, and no node is told of them. Otherwise each node sends its requests to
    /// the next relay on the way.
    pub transparent: bool,
    /// Nodes that control the hop above them by another controller than their flows' settings name.
    pub controllers: BTreeMap<NodeId, Controller>,
    /// The flows.
    pub flows: Vec<FlowSpec>,
    /// The programs through which the packets of a TCP flow go, from the source on, by the flow's number.
    pub middles: BTreeMap<usize, Vec<(NodeId, Middle)>>,
    /// The sky that finds the ways between the hosts; without one, ways are those of the least delay.
    pub sky: Option<SkyPlan>,
    /// Changes of the world during the run.
    pub actions: Vec<(Instant, Action)>,
    /// Same plan, same seed: same run.
    pub seed: u64,
    /// Statistics begin here.
    pub warm_up: Instant,
    /// The run ends here.
    pub end: Instant,
    /// The step of the time series.
    pub step: Duration,
    /// Hosts verify the UDP checksum of each packet.
    pub udp_checksum: bool,
}

impl Plan {
    /// Flows over a network without relays until `end`, with seed 1, no warm-up and a step of 100 ms.
    pub fn new(network: Network, flows: Vec<FlowSpec>, end: Instant) -> Self {
        Self {
            network,
            relays: Vec::new(),
            transparent: false,
            controllers: BTreeMap::new(),
            flows,
            middles: BTreeMap::new(),
            sky: None,
            actions: Vec::new(),
            seed: 1,
            warm_up: Instant::ZERO,
            end,
            step: Duration::from_millis(100),
            udp_checksum: true,
        }
    }
}

impl Simulation {
    /// Sets a world up in which nothing has happened yet.
    pub fn new(plan: Plan) -> Self {
        let recorder = SharedRecorder::new(Recorder::new(plan.warm_up));
        let mut world = World::new(plan.network, recorder.clone(), plan.seed);
        world.udp_checksum = plan.udp_checksum;
        let links = world.network().link_ids().count();
        let mut builder = Builder {
            world,
            recorder,
            overlay: Overlay::new(plan.controllers, plan.transparent),
            pattern: Pattern::default(),
            rng: Rng::new(plan.seed).fork(u64::MAX),
            served: BTreeMap::new(),
            carried: BTreeMap::new(),
            middles: plan.middles,
            members: members(&plan.flows),
            programs: BTreeMap::new(),
        };
        let cache = plan.sky.as_ref().and_then(|sky| sky.station_cache);
        builder.add_stacks(&plan.flows, &plan.relays, cache);
        builder.add_gateways(&plan.flows);
        builder.add_pairs(&plan.flows);
        let flows: Vec<FlowHandle> = plan.flows.iter().map(|flow| builder.add_flow(flow)).collect();
        let accounts = |sky: &SkyPlan| {
            let account = |flow| account(flow, sky, plan.warm_up, plan.end);
            plan.flows.iter().map(account).collect::<Vec<_>>()
        };
        let accounts = plan.sky.as_ref().map(accounts).unwrap_or_default();
        let sky_rng = builder.rng.fork(0x0073_6b79);
        let sky = plan.sky.map(|sky| Sky::new(sky, accounts, &sky_rng));
        let steps = steps(&flows, plan.actions, plan.warm_up);
        let series = Series {
            step: plan.step,
            flows: vec![Vec::new(); flows.len()],
            paths: vec![Vec::new(); if sky.is_some() { flows.len() } else { 0 }],
            links: vec![Vec::new(); links],
        };
        let at_warm_up = (Instant::ZERO, vec![Default::default(); links]);
        let Builder { world, recorder, overlay, .. } = builder;
        let (sent_before, end) = (vec![0.0; links], plan.end);
        let deeds = None;
        Self { world, recorder, overlay, sky, deeds, flows, steps, end, series, sent_before, at_warm_up }
    }
}

/// Numbers and contents of the flows of each program.
fn members(flows: &[FlowSpec]) -> BTreeMap<u32, Vec<(usize, FlowId)>> {
    let mut members: BTreeMap<u32, Vec<(usize, FlowId)>> = BTreeMap::new();
    for (number, flow) in flows.iter().enumerate() {
        if let Some(program) = flow.program {
            members.entry(program).or_default().push((number, flow.content));
        }
    }
    members
}

/// The steps of the run, latest first; steps of the same time keep the given order.
fn steps(flows: &[FlowHandle], actions: Vec<(Instant, Action)>, warm_up: Instant) -> Vec<(Instant, Step)> {
    let mut steps: Vec<(Instant, Step)> = vec![(warm_up, Step::WarmedUp)];
    steps.extend(actions.into_iter().map(|(at, action)| (at, Step::Do(action))));
    for (index, flow) in flows.iter().enumerate() {
        steps.push((flow.start, Step::Start(index)));
        steps.push((flow.stop, Step::Stop(index)));
    }
    steps.sort_by_key(|(at, _)| *at);
    steps.reverse();
    steps
}

/// The facts that the sky needs about a flow.
fn account(flow: &FlowSpec, sky: &SkyPlan, warm_up: Instant, end: Instant) -> FlowAccount {
    let pair = sky.pairs.iter().position(|pair| (pair.server, pair.client) == (flow.from, flow.to));
    let window = (flow.start.max(warm_up), flow.stop.min(end));
    let packet = (flow.transport.full_packet(), flow.transport.payload());
    FlowAccount::new(pair.unwrap_or_default(), window, packet)
}

/// The settings with another cache; as they are where it would be too small to work.
fn with_cache(config: &Config, cache: Option<u64>) -> Config {
    let Some(cache_bytes) = cache else { return config.clone() };
    Config::new(Settings { cache_bytes, ..(**config).clone() }).unwrap_or_else(|_| config.clone())
}

pub(super) struct Builder {
    pub(super) world: World<SharedRecorder>,
    pub(super) recorder: SharedRecorder,
    overlay: Overlay,
    pub(super) pattern: Pattern,
    pub(super) rng: Rng,
    /// Flows that a gateway serves, by their numbers.
    pub(super) served: BTreeMap<u32, Served>,
    /// The server of each flow that a pair of gateways carries, and the gateway near its client, by their numbers.
    pub(super) carried: BTreeMap<u32, (HostId, HostId)>,
    middles: BTreeMap<usize, Vec<(NodeId, Middle)>>,
    /// The numbers and contents of the flows that one program fetches, until it is there.
    members: BTreeMap<u32, Vec<(usize, FlowId)>>,
    programs: BTreeMap<u32, HostId>,
}

impl Builder {
    /// Adds one set of relays and producers for all flows with the same settings. `cache` replaces the cache size
    /// of the settings at the relays, bytes.
    fn add_stacks(&mut self, flows: &[FlowSpec], relays: &[NodeId], cache: Option<u64>) {
        for flow in flows {
            let Transport::Starhop(config, protection) = &flow.transport else { continue };
            if self.stack_of(config, *protection).is_some() {
                continue;
            }
            let alike: Vec<&FlowSpec> =
                flows.iter().filter(|other| other.transport == flow.transport).collect();
            let producers = self.add_producers(config, *protection, &alike);
            let roomy = with_cache(config, cache);
            let stack =
                Stack { config: config.clone(), protection: *protection, relays: BTreeMap::new(), producers };
            for &producer in stack.producers.values() {
                self.world.join(producer, self.overlay.stacks.len() as u32);
            }
            let stack = self.overlay.add_stack(stack);
            for &node in relays {
                let seed = self.rng.next_u64();
                self.overlay.add_relay((stack, node), Some(&roomy), seed, &mut self.world);
            }
        }
    }

    /// The seals of a host that is put on a node at the beginning.
    pub(super) fn seals(&self, protection: Protection, node: NodeId) -> Seals {
        Seals::new(protection, self.world.network().clock(node), self.world.now())
    }

    fn add_producers(
        &mut self,
        config: &Config,
        protection: Protection,
        flows: &[&FlowSpec],
    ) -> BTreeMap<NodeId, HostId> {
        let mut lengths: BTreeMap<NodeId, BTreeMap<FlowId, Option<u64>>> = BTreeMap::new();
        for flow in flows {
            lengths.entry(flow.from).or_default().insert(flow.content, flow.length);
        }
        let add = |(node, lengths)| {
            let (pattern, seed) = (self.pattern.clone(), self.rng.next_u64());
            let seals = self.seals(protection, node);
            let producer = ProducerHost::new(config.clone(), lengths, pattern, (seals, seed));
            (node, self.world.add_host(node, Box::new(producer), true))
        };
        lengths.into_iter().map(add).collect()
    }

    fn stack_of(&self, config: &Config, protection: Protection) -> Option<usize> {
        let is_it = |stack: &Stack| stack.config == *config && stack.protection == protection;
        self.overlay.stacks.iter().position(is_it)
    }

    fn add_flow(&mut self, spec: &FlowSpec) -> FlowHandle {
        let record = self.recorder.borrow_mut().add_flow(spec.content, spec.crowd);
        let Ends { driver, client, senders, gateway } = match &spec.transport {
            Transport::Starhop(config, protection) => self.add_consumer(config, *protection, spec, record),
            Transport::Tcp(config) => self.add_tcp(config, spec, record),
            Transport::Split(split) => self.add_split(split, spec, record),
            Transport::Gateway(how) => self.add_carried(how, spec, record),
            Transport::Cbr { rate, payload } => self.add_cbr(*rate, *payload, spec, record),
            Transport::Arq { rate, payload, timeout, every_hop } => {
                let (flow, rate, payload, timeout) = (record as u32, *rate, *payload, *timeout);
                self.add_arq(ArqSpec { flow, rate, payload, timeout }, *every_hop, spec)
            }
        };
        let FlowSpec { from, to, start, stop, .. } = *spec;
        FlowHandle {
            record,
            driver,
            client,
            senders,
            gateway,
            is_connected: matches!(&spec.transport, Transport::Tcp(config) if !config.handshake),
            from,
            to,
            start,
            stop,
            full_packet: spec.transport.full_packet(),
            is_sampled: spec.crowd.is_none(),
            is_among_others: spec.program.is_some() && matches!(spec.transport, Transport::Starhop(..)),
        }
    }

    fn add_consumer(
        &mut self,
        config: &Config,
        protection: Protection,
        spec: &FlowSpec,
        record: usize,
    ) -> Ends {
        let stack = self.stack_of(config, protection).unwrap_or_default();
        let producer = self.overlay.stacks[stack].producers.get(&spec.from).copied().unwrap_or(HostId(0));
        let consumer = ConsumerSpec {
            flow: spec.content,
            upstream: producer.addr(),
            record,
            clock: self.world.network().clock(spec.to),
        };
        let seals = self.seals(protection, spec.to);
        let consumer = self.add_program((config, seals, stack as u32), spec, record, consumer);
        self.overlay.members.push(Member { flow: spec.content, stack, consumer, server: spec.from });
        Ends::new(consumer, consumer)
    }

    /// The program that fetches a flow, the `record`th: its own, or that of others like it.
    fn add_program(
        &mut self,
        (config, seals, stack): (&Config, Seals, u32),
        spec: &FlowSpec,
        record: usize,
        fetch: ConsumerSpec,
    ) -> HostId {
        let known = spec.program.and_then(|program| self.programs.get(&program));
        if let Some(host) = known {
            return *host;
        }
        let (seed, recorder, pattern) = (self.rng.next_u64(), self.recorder.clone(), self.pattern.clone());
        let config = config_at(&self.overlay.controllers, spec.to, config);
        let mut consumer = ConsumerHost::new(config, (seals, seed), recorder, pattern);
        consumer.add(fetch);
        let others = spec.program.and_then(|program| self.members.remove(&program)).unwrap_or_default();
        for (number, flow) in others.into_iter().filter(|(number, _)| *number != record) {
            consumer.add(ConsumerSpec { flow, record: number, ..fetch });
        }
        let host = self.world.add_host(spec.to, Box::new(consumer), false);
        self.world.join(host, stack);
        if let Some(program) = spec.program {
            self.programs.insert(program, host);
        }
        host
    }

    fn add_cbr(&mut self, rate: Rate, payload: u32, spec: &FlowSpec, record: usize) -> Ends {
        let clock = self.world.network().clock(spec.to);
        let sink = CbrSink::new(self.recorder.clone(), clock, spec.length);
        let sink = self.world.add_host(spec.to, Box::new(sink), false);
        let source = CbrSource::new(sink.addr(), record as u32, payload, rate, spec.length);
        Ends::new(self.world.add_host(spec.from, Box::new(source), true), sink)
    }

    /// A source, the programs through which packets go, the nodes that split the connection, and the client: each asks
    /// the one before. Without a handshake all connections are open, and each knows the one after it.
    fn add_tcp(&mut self, config: &TcpConfig, spec: &FlowSpec, record: usize) -> Ends {
        let flow = record as u32;
        let first = self.world.host_count() as u32;
        let downstream = |index: u32| (!config.handshake).then(|| HostId(first + index + 1).addr());
        let mut source =
            TcpSource::new(config, flow, spec.length, self.rng.next_u64()).answering(spec.exchange);
        if let Some(downstream) = downstream(0) {
            source = source.connected(downstream);
        }
        let mut senders = vec![self.world.add_host(spec.from, Box::new(source), true)];
        let middles = self.middles.remove(&record).unwrap_or_default();
        let next = middles.len() as u32;
        for (index, (node, middle)) in middles.into_iter().enumerate() {
            let upstream = HostId(first + index as u32);
            let host = middle.host(upstream.addr(), HostId(upstream.0 + 2).addr(), u64::from(flow) + 1);
            self.world.add_host(node, host, false);
        }
        for (index, &node) in (next..).zip(&spec.splits) {
            let upstream = HostId(first + index).addr();
            let mut splice = TcpSplice::new(config, flow, upstream, self.rng.next_u64());
            if let Some(downstream) = downstream(index + 1) {
                splice = splice.connected(downstream);
            }
            senders.push(self.world.add_host(node, Box::new(splice), false));
        }
        let last = HostId(first + next + spec.splits.len() as u32).addr();
        let clock = self.world.network().clock(spec.to);
        let sink = TcpSink::new(config, flow, self.recorder.clone(), clock).upstream(last);
        let sink = self.world.add_host(spec.to, Box::new(sink.asking(spec.exchange)), false);
        Ends { senders, ..Ends::new(sink, sink) }
    }
}

/// The programs of a flow.
pub(super) struct Ends {
    /// The host that drives the flow: the requester, or the sender if there are no requests.
    pub(super) driver: HostId,
    pub(super) client: HostId,
    /// TCP senders, the source first.
    pub(super) senders: Vec<HostId>,
    pub(super) gateway: Option<HostId>,
}

impl Ends {
    fn new(driver: HostId, client: HostId) -> Self {
        Self { driver, client, senders: Vec::new(), gateway: None }
    }
}

impl Builder {
    /// Source, relays where every hop repairs, and sink, along the path as it is now.
    fn add_arq(&mut self, arq: ArqSpec, every_hop: bool, spec: &FlowSpec) -> Ends {
        let clock = self.world.network().clock(spec.to);
        let sink = ArqSink::new(self.recorder.clone(), clock, spec.length);
        let sink = self.world.add_host(spec.to, Box::new(sink), false);
        let path = self.world.network().path(spec.from, spec.to);
        let middle: Vec<NodeId> =
            path.iter().skip(1).map(|link| self.world.network().ends(*link).0).collect();
        let middle = if every_hop { middle } else { Vec::new() };
        // Hosts are numbered as they are added: from the sink back to the source, each after the one it sends to.
        let mut next = sink;
        for node in middle.into_iter().rev() {
            let before = HostId(next.0 + 2);
            let relay = ArqRelay::new(arq, before.addr(), next.addr());
            next = self.world.add_host(node, Box::new(relay), false);
        }
        let source = ArqSource::new(arq, next.addr(), spec.length);
        Ends::new(self.world.add_host(spec.from, Box::new(source), true), sink)
    }
}
