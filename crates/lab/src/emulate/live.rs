//! A live view of a run.

use super::pace::WINDOW;
use super::run::Run;
use super::world::Tick;
use starhop_proto::time::Instant;
use starhop_sim::engine::LinkId;

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Flows, in the scenario's order.
    pub flows: Vec<FlowNow>,
    /// Both directions of every link.
    pub links: Vec<LinkNow>,
    /// Nodes, in the scenario's order.
    pub nodes: Vec<NodeNow>,
}

/// A flow.
#[derive(Clone, Debug)]
pub struct FlowNow {
    /// Its name.
    pub name: String,
    /// Name of its transport.
    pub transport: String,
    /// Bytes that its client has.
    pub bytes: u64,
    /// Bytes that its client wants, if known.
    pub size: Option<u64>,
    /// Rate at which its client received, over the last second.
    pub mbps: f64,
    /// Present delay of a packet from the source to the client: propagation, serialisation and queues, ms. None
    /// while there is no way.
    pub delay_ms: Option<f64>,
    /// Waiting, running, done or stopped.
    pub state: &'static str,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkNow {
    /// `from-to`.
    pub name: String,
    /// It takes packets.
    pub is_up: bool,
    /// Rate at which it sent, over the last second.
    pub mbps: f64,
    /// Share of its capacity that it used.
    pub used: f64,
    /// Waiting time of a packet that enters now.
    pub queue_ms: f64,
    /// Lost on the way, since the beginning.
    pub lost: u64,
    /// Found the queue full, since the beginning.
    pub dropped: u64,
    /// Sent, since the beginning.
    pub packets: u64,
}

/// A node.
#[derive(Clone, Debug)]
pub struct NodeNow {
    /// Its name.
    pub name: String,
    /// The program that runs there: "server", "relay", "relay, dead", "client", "router".
    pub role: String,
    /// It is switched on.
    pub is_up: bool,
}

impl Snapshot {
    pub(super) fn of(run: &Run<'_>) -> Self {
        let now = run.now();
        Self {
            flows: (0..run.scenario.flows.len()).map(|index| flow(run, now, index)).collect(),
            links: links(run),
            nodes: nodes(run),
        }
    }
}

fn flow(run: &Run<'_>, now: Instant, index: usize) -> FlowNow {
    let (spec, plan) = (&run.scenario.flows[index], &run.blueprint.plan.flows[index]);
    let is_over = run.is_over(index);
    let bytes = run.bytes_of(index);
    let state = match () {
        () if now < plan.start => "waiting",
        () if is_over && spec.size.is_some_and(|size| bytes >= size) => "done",
        () if is_over || now >= plan.stop => "stopped",
        () => "running",
    };
    let queues = |tick: &Tick| {
        let path = run.world.network().path(plan.from, plan.to);
        path.iter().map(|link| tick.links[link.0 as usize].backlog.as_millis_f64()).sum::<f64>()
    };
    let base = run.world.base(plan.from, plan.to, run.full_packet(index), now);
    let queued = run.ticks.last().map_or(0.0, queues);
    FlowNow {
        name: spec.name.clone(),
        transport: run.controls.get(&index).unwrap_or(&spec.transport).clone(),
        bytes,
        size: spec.size,
        mbps: run.pace.mbps(index),
        delay_ms: base.map(|base| base.as_millis_f64() + queued),
        state,
    }
}

fn links(run: &Run<'_>) -> Vec<LinkNow> {
    let Some(last) = run.ticks.last() else { return Vec::new() };
    let first = run.ticks.iter().rev().find(|tick| last.at.since(tick.at) >= WINDOW);
    let network = run.world.network();
    let direction = |id: LinkId| {
        let index = id.0 as usize;
        let (since, sent) = first.map_or((Instant::ZERO, 0.0), |tick| (tick.at, tick.links[index].sent_bits));
        let state = &last.links[index];
        let bits = state.sent_bits - sent;
        let capacity = network.link(id).schedule().bits_between(since, last.at);
        let (from, to) = network.ends(id);
        LinkNow {
            name: format!("{}-{}", run.world.name(from), run.world.name(to)),
            is_up: network.is_usable(id),
            mbps: bits * 1e-6 / last.at.since(since).as_secs_f64().max(1e-9),
            used: if capacity > 0.0 { bits / capacity } else { 0.0 },
            queue_ms: state.backlog.as_millis_f64(),
            lost: state.counters.lost,
            dropped: state.counters.dropped,
            packets: state.counters.packets,
        }
    };
    // Links of the sky that no path uses are no news.
    let is_shown = |id: &LinkId| network.is_usable(*id) || (id.0 as usize) < run.blueprint.links.len();
    network.link_ids().filter(is_shown).map(direction).collect()
}

fn nodes(run: &Run<'_>) -> Vec<NodeNow> {
    let scenario = run.scenario;
    let node = |index: usize| {
        let id = starhop_sim::engine::NodeId(index as u32);
        let name = run.world.name(id);
        let mut roles: Vec<&str> = Vec::new();
        let mut add = |role: &'static str, is: bool| roles.extend(is.then_some(role));
        add("server", scenario.flows.iter().any(|flow| flow.from == name));
        add("client", scenario.flows.iter().any(|flow| flow.to == name));
        add("proxy", run.splits.is_at(id));
        add("gateway", run.gateways.is_at(id));
        roles.extend(run.processes.relay_at(id));
        if roles.is_empty() {
            roles.push("router");
        }
        NodeNow { name: name.to_owned(), role: roles.join(", "), is_up: run.world.network().is_node_up(id) }
    };
    (0..run.world.nodes.len()).map(node).collect()
}
