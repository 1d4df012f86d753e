//! Makes a simulation from a scenario.

use super::units::QueueRoom;
use super::{Relays, Scenario, Split, What};
use starhop_proto::config::Controller;
use starhop_proto::name::FlowId;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_sim::engine::{LinkId, Network, NodeId};
use starhop_sim::host::Middle;
use starhop_sim::link::{LinkConfig, QueueLimit};
use starhop_sim::run::{Action, FlowSpec, Plan, Simulation};
use std::collections::{BTreeMap, BTreeSet};

/// A scenario as a simulated world.
pub struct Built {
    /// The simulation, at time zero.
    pub simulation: Simulation,
    /// Name and direction of every link, in the order of its ids.
    pub links: Vec<LinkNames>,
    /// For every flow the fluid bound of its path for payload, Mbit/s.
    pub ideal_mbps: Vec<f64>,
    /// For every flow the propagation delay of its first path.
    pub propagation: Vec<Duration>,
    /// For every flow the links of its first path.
    pub paths: Vec<Vec<LinkId>>,
    /// Times at which paths change.
    pub changes: Vec<Instant>,
}

/// A scenario before it runs, in either engine.
pub struct Blueprint {
    /// Nodes, links, flows, and their events.
    pub plan: Plan,
    /// Name and direction of every link, in the order of its ids.
    pub links: Vec<LinkNames>,
    /// For every flow the fluid bound of its path for payload, Mbit/s.
    pub ideal_mbps: Vec<f64>,
    /// For every flow the propagation delay of its first path.
    pub propagation: Vec<Duration>,
    /// For every flow the links of its first path.
    pub paths: Vec<Vec<LinkId>>,
    /// Times at which paths change.
    pub changes: Vec<Instant>,
}

/// The names of a direction of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkNames {
    /// "server-r1".
    pub name: String,
    /// "forward" or "backward".
    pub direction: &'static str,
}

/// Both directions of every link of a scenario, whole: forward has an even index, backward the one after it.
pub fn link_configs(scenario: &Scenario) -> Vec<LinkConfig> {
    let mut configs = configs(scenario);
    let draft = network(scenario, &configs);
    size_queues(scenario, &draft, &paths(scenario, &draft), &mut configs);
    configs
}

/// Sets up the simulated world of a scenario.
pub fn build(scenario: &Scenario) -> Built {
    let Blueprint { plan, links, ideal_mbps, propagation, paths, changes } = blueprint(scenario);
    Built { simulation: Simulation::new(plan), links, ideal_mbps, propagation, paths, changes }
}

/// Builds the world of a scenario.
pub fn blueprint(scenario: &Scenario) -> Blueprint {
    let configs = link_configs(scenario);
    let draft = network(scenario, &configs);
    let paths = paths(scenario, &draft);
    let actions = actions(scenario);
    let changes = actions.iter().filter(|(_, action)| matches!(action, Action::Links { .. }));
    let changes = changes.map(|(at, _)| *at).filter(|at| *at > Instant::ZERO).collect();
    let propagation = paths.iter().map(|path| propagation(&draft, path)).collect();
    let ideal_mbps = (0..scenario.flows.len()).map(|i| ideal(scenario, &configs, &paths[i], i)).collect();
    let links = scenario.topology.links.iter().flat_map(|link| {
        ["forward", "backward"].map(|direction| LinkNames { name: link.name.clone(), direction })
    });
    let crowds = crowds(scenario);
    let mut programs = Programs::default();
    let flows = scenario.flows.iter().zip(&paths).zip(crowds).map(|((flow, path), crowd)| FlowSpec {
        splits: splits(scenario, &draft, flow, path),
        crowd,
        program: programs.program(flow),
        ..flow_spec(scenario, flow)
    });
    let flows = flows.collect();
    let plan = Plan {
        network: draft,
        relays: relays(scenario),
        transparent: scenario.topology.transparent,
        controllers: controllers(scenario),
        flows,
        middles: middles(scenario),
        sky: super::sky::plan(scenario),
        actions,
        seed: scenario.seed,
        warm_up: Instant::ZERO + scenario.warmup,
        end: Instant::ZERO + scenario.duration,
        step: scenario.step,
        udp_checksum: scenario.udp_checksum,
    };
    Blueprint { plan, links: links.collect(), ideal_mbps, propagation, paths, changes }
}

/// The links with queues that are still unlimited.
fn configs(scenario: &Scenario) -> Vec<LinkConfig> {
    let directions = scenario
        .topology
        .links
        .iter()
        .flat_map(|link| [link.forward.config(true), link.backward.config(false)]);
    // A topology whose links are not whole was refused when it was read.
    directions
        .map(|config| {
            config.unwrap_or_else(|_| LinkConfig::ideal(starhop_proto::units::Rate::ZERO, Duration::ZERO))
        })
        .collect()
}

fn network(scenario: &Scenario, configs: &[LinkConfig]) -> Network {
    let mut network = Network::default();
    for name in &scenario.topology.nodes {
        network.add_node(scenario.topology.clocks.get(name).copied().unwrap_or_default());
    }
    for (link, pair) in scenario.topology.links.iter().zip(configs.chunks_exact(2)) {
        let (from, to) = (scenario.node(&link.from), scenario.node(&link.to));
        network.add_link(from, to, pair[0].clone(), link.forward.header());
        network.add_link(to, from, pair[1].clone(), link.backward.header());
    }
    network.route_by_delay(Instant::ZERO);
    network
}

fn paths(scenario: &Scenario, network: &Network) -> Vec<Vec<LinkId>> {
    scenario.flows.iter().map(|flow| path(scenario, network, &flow.from, &flow.to)).collect()
}

fn path(scenario: &Scenario, network: &Network, from: &str, to: &str) -> Vec<LinkId> {
    // Before the first switch only the first path is there, which need not be the shortest.
    match &scenario.topology.switching {
        Some(switching) if from == "server" && to == "client" => {
            switching.paths[0].iter().map(|&link| LinkId(link as u32 * 2)).collect()
        }
        _ => network.path(scenario.node(from), scenario.node(to)),
    }
}

fn propagation(network: &Network, path: &[LinkId]) -> Duration {
    path.iter()
        .map(|link| network.link(*link).propagation(Instant::ZERO))
        .fold(Duration::ZERO, |sum, d| sum + d)
}

/// Fills in the queues, of which some depend on the paths.
fn size_queues(scenario: &Scenario, network: &Network, paths: &[Vec<LinkId>], configs: &mut [LinkConfig]) {
    let end = Instant::ZERO + scenario.duration;
    let held = |path: &Vec<LinkId>, configs: &[LinkConfig]| {
        let bps = path.iter().map(|link| configs[link.0 as usize].rate.bits_between(Instant::ZERO, end));
        let least = bps.fold(f64::INFINITY, f64::min) / scenario.duration.as_secs_f64();
        least / 8.0 * 2.0 * propagation(network, path).as_secs_f64()
    };
    for index in 0..configs.len() {
        let link = &scenario.topology.links[index / 2];
        let spec = if index % 2 == 0 { &link.forward } else { &link.backward };
        configs[index].queue = match spec.queue {
            Some(QueueRoom::Bdp(times)) => {
                let crossing = paths.iter().filter(|path| path.iter().any(|l| l.0 as usize / 2 == index / 2));
                let most =
                    crossing.map(|path| held(path, configs)).filter(|b| b.is_finite()).fold(0.0, f64::max);
                QueueLimit::Bytes(((times * most) as u64).max(3000))
            }
            other => QueueRoom::limit(other),
        };
    }
}

/// The smallest over hops of mean rate · (1 - loss) · payload share of a full packet on the wire; with
/// alternative paths the mean over them, weighted by the time each is in use.
fn ideal(scenario: &Scenario, configs: &[LinkConfig], path: &[LinkId], flow: usize) -> f64 {
    let flow = &scenario.flows[flow];
    let (from, to) = (Instant::ZERO + flow.start, Instant::ZERO + flow.stop);
    let bound = |links: &mut dyn Iterator<Item = usize>, from, to| {
        let over = |link: usize| {
            let header = scenario.topology.links[link / 2].forward.header();
            let wire = flow.how.full_packet() + header;
            configs[link].mean_bps(from, to, wire) * f64::from(flow.how.payload()) / f64::from(wire) * 1e-6
        };
        links.map(over).fold(f64::INFINITY, f64::min)
    };
    let Some(switching) = &scenario.topology.switching else {
        return bound(&mut path.iter().map(|link| link.0 as usize), from, to);
    };
    let mut sum = 0.0;
    for (path, since, until) in in_use(scenario) {
        let (since, until) = (since.max(from), until.min(to));
        if since < until {
            let mut links = switching.paths[path].iter().map(|&link| link * 2);
            sum += bound(&mut links, since, until) * until.since(since).as_secs_f64();
        }
    }
    sum / to.since(from).as_secs_f64()
}

/// Which path is in use from when to when.
fn in_use(scenario: &Scenario) -> Vec<(usize, Instant, Instant)> {
    let switches = switches(scenario);
    let ends = switches.iter().skip(1).map(|(at, _)| *at).chain([Instant::ZERO + scenario.duration]);
    switches.iter().zip(ends).map(|(&(since, path), until)| (path, since, until)).collect()
}

/// Times at which each of the alternative paths begins to be used, ascending.
fn switches(scenario: &Scenario) -> Vec<(Instant, usize)> {
    let Some(switching) = &scenario.topology.switching else { return Vec::new() };
    let mut times: Vec<Duration> = switching.at.clone();
    if let Some(every) = switching.every {
        let count = scenario.duration.as_nanos() / every.as_nanos();
        times.extend((1..=count).map(|i| every.scaled(i, 1)));
    }
    let turns = times.iter().enumerate().map(|(i, at)| (*at, (i + 1) % switching.paths.len()));
    let events = scenario.events.iter().filter_map(|event| match event.what {
        What::Path(path) => Some((event.at, path)),
        _ => None,
    });
    let mut all: Vec<(Instant, usize)> = std::iter::once((Duration::ZERO, 0))
        .chain(turns)
        .chain(events)
        .map(|(at, path)| (Instant::ZERO + at, path))
        .collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn actions(scenario: &Scenario) -> Vec<(Instant, Action)> {
    let mut actions = Vec::new();
    if let Some(switching) = &scenario.topology.switching {
        for (at, path) in switches(scenario) {
            let states = switching.paths.iter().enumerate().flat_map(|(index, links)| {
                links.iter().flat_map(move |&link| both(link).map(|id| (id, index == path)))
            });
            actions.push((at, Action::Links { states: states.collect(), keep: switching.keep }));
        }
    }
    for event in &scenario.events {
        let id = |node: usize| NodeId(node as u32);
        let action = match event.what {
            What::Crash(node) => Action::Crash(id(node)),
            What::Restart(node) => Action::Restart(id(node)),
            What::Bypass(node) => Action::Bypass(id(node)),
            What::Include(node) => Action::Include(id(node)),
            What::NodeDown(node) => Action::NodeDown(id(node)),
            What::NodeUp(node) => Action::NodeUp(id(node)),
            What::Link { link, is_up, keep } => {
                Action::Links { states: both(link).map(|id| (id, is_up)).to_vec(), keep }
            }
            What::Readdress(node) => Action::Readdress(id(node)),
            What::StepClock { node, by } => Action::StepClock(id(node), by),
            What::Path(_) => continue,
        };
        actions.push((Instant::ZERO + event.at, action));
    }
    actions
}

/// Both directions of a link of the scenario.
fn both(link: usize) -> [LinkId; 2] {
    [LinkId(link as u32 * 2), LinkId(link as u32 * 2 + 1)]
}

/// The middle nodes that run a relay: those that are no end of a flow.
fn relays(scenario: &Scenario) -> Vec<NodeId> {
    if let Some(sky) = &scenario.topology.sky {
        return super::sky::gateways(scenario, sky);
    }
    let ends: BTreeSet<&str> =
        scenario.flows.iter().flat_map(|flow| [flow.from.as_str(), flow.to.as_str()]).collect();
    let middle = scenario.topology.nodes.iter().filter(|node| !ends.contains(node.as_str()));
    let middle: Vec<NodeId> = middle.map(|name| scenario.node(name)).collect();
    match &scenario.topology.relays {
        Relays::All => middle,
        Relays::Named(names) => names.iter().map(|name| scenario.node(name)).collect(),
        Relays::Share(share) => {
            let mut rng = Rng::new(scenario.seed).fork(0x7265_6c61_7973);
            let mut drawn: Vec<(u64, NodeId)> = middle.iter().map(|&node| (rng.next_u64(), node)).collect();
            drawn.sort();
            drawn.truncate((share * middle.len() as f64).round() as usize);
            drawn.into_iter().map(|(_, node)| node).collect()
        }
    }
}

fn controllers(scenario: &Scenario) -> BTreeMap<NodeId, Controller> {
    let named = scenario.topology.controllers.iter();
    named.map(|(name, &controller)| (scenario.node(name), controller)).collect()
}

fn flow_spec(scenario: &Scenario, flow: &super::Flow) -> FlowSpec {
    FlowSpec {
        content: content_id(&flow.content, &flow.transport),
        from: scenario.node(&flow.from),
        to: scenario.node(&flow.to),
        length: flow.size,
        start: Instant::ZERO + flow.start,
        stop: Instant::ZERO + flow.stop,
        transport: flow.how.clone(),
        splits: Vec::new(),
        exchange: flow.exchange,
        crowd: None,
        program: None,
    }
}

/// The number of the group with which each flow is measured, if the group is too large for a list.
fn crowds(scenario: &Scenario) -> Vec<Option<u32>> {
    let mut numbers: BTreeMap<&str, u32> = BTreeMap::new();
    let mut crowds = Vec::with_capacity(scenario.flows.len());
    for flow in &scenario.flows {
        let next = numbers.len() as u32;
        let large = flow.group.as_ref().filter(|group| !group.is_listed());
        crowds.push(large.map(|group| *numbers.entry(&group.name).or_insert(next)));
    }
    crowds
}

/// The programs that fetch several flows each: the copies of a flow, unless they share their content.
#[derive(Default)]
struct Programs {
    numbers: BTreeMap<String, u32>,
}

impl Programs {
    fn program(&mut self, flow: &super::Flow) -> Option<u32> {
        let group = flow.group.as_ref().filter(|_| flow.content == flow.name)?;
        let next = self.numbers.len() as u32;
        Some(*self.numbers.entry(group.name.to_string()).or_insert(next))
    }
}

/// The programs through which the packets of each flow go, by the flow's number.
fn middles(scenario: &Scenario) -> BTreeMap<usize, Vec<(NodeId, Middle)>> {
    let flows = scenario.flows.iter().enumerate().filter(|(_, flow)| !flow.middles.is_empty());
    let of = |flow: &super::Flow| {
        flow.middles.in_order().map(|(name, middle)| (scenario.node(name), middle)).collect()
    };
    flows.map(|(index, flow)| (index, of(flow))).collect()
}

/// The nodes that split a flow's connection, from the source on: on its first path in the order of the path, others
/// after them as given.
fn splits(scenario: &Scenario, network: &Network, flow: &super::Flow, path: &[LinkId]) -> Vec<NodeId> {
    let between: Vec<NodeId> = path.iter().skip(1).map(|link| network.ends(*link).0).collect();
    match &flow.split {
        Split::None => Vec::new(),
        Split::EveryHop => between,
        Split::Named(names) => {
            let mut nodes: Vec<NodeId> = names.iter().map(|name| scenario.node(name)).collect();
            nodes.sort_by_key(|node| between.iter().position(|other| other == node).unwrap_or(usize::MAX));
            nodes.dedup();
            nodes
        }
    }
}

/// The name of a content on the wire. Transports do not share content: they would share measurements.
fn content_id(content: &str, transport: &str) -> FlowId {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = content.bytes().chain([0]).chain(transport.bytes()).fold(0xcbf2_9ce4_8422_2325, fold);
    let mut rng = Rng::new(hash);
    let mut id = [0; FlowId::LEN];
    id.chunks_exact_mut(8).for_each(|half| half.copy_from_slice(&rng.next_u64().to_le_bytes()));
    FlowId(id)
}
