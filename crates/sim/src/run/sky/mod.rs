//! A sky over the ground: satellites, their links and relays, made when a path first uses them.
//!
//! [`Feed`] yields the events of the constellation, [`Sky`] applies them to the world. Only satellites and links on
//! paths exist: a day over Beijing and New York passes hundreds of satellites, but holds two dozen links at a time.

mod account;
mod deed;
mod feed;
mod links;
mod plan;

pub use account::{FlowPath, PathResult};
pub use deed::{Deed, Tuning};
pub use links::GroupResult;
pub use plan::{Handover, SkyLinkConfig, SkyPair, SkyPlan, VCurve};

pub(super) use account::FlowAccount;
pub(super) use deed::Stage;
pub(super) use feed::Feed;

use super::overlay::Overlay;
use crate::engine::{Clock, LinkId, NodeId, World};
use crate::link::LinkCounters;
use crate::record::SharedRecorder;
use account::PathAccount;
use links::Links;
use starhop_orbit::network::{Network, NodeId as Body};
use starhop_orbit::schedule::{Event, Plan as Schedule};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A satellite that has been off every path for this long loses the memory of its relays: the memory of a day's
/// satellites together would be a hundred times that of those in use.
const RELAY_MEMORY: Duration = Duration::from_secs(60);

/// Time beyond the run's end for which its last passes are followed.
const LOOK_AHEAD: Duration = Duration::from_secs(1_200);

/// The sky of a running simulation.
#[derive(Debug)]
pub(super) struct Sky {
    plan: SkyPlan,
    links: Links,
    /// The simulated node of a satellite or station.
    nodes: BTreeMap<Body, NodeId>,
    /// For every pair the links from client to server and those back, from the server's end; empty without a way.
    routes: Vec<Route>,
    paths: Vec<PathAccount>,
    flows: Vec<FlowAccount>,
    /// Satellites with relays that left the last path at some time.
    left: VecDeque<(Instant, Body)>,
    rng: Rng,
}

/// A way of a pair through the simulated network.
#[derive(Clone, Debug, Default)]
pub(super) struct Route {
    bodies: Vec<Body>,
    /// The nodes from the client to the server.
    chain: Vec<NodeId>,
    to_server: Vec<LinkId>,
    to_client: Vec<LinkId>,
}

impl Sky {
    pub(super) fn new(plan: SkyPlan, flows: Vec<FlowAccount>, rng: &Rng) -> Self {
        let satellites = plan.network.satellite_count();
        let stations = (satellites..).zip(plan.gateways.iter().copied());
        Self {
            links: Links::new(rng.fork(1)),
            nodes: stations.collect(),
            routes: vec![Route::default(); plan.pairs.len()],
            paths: vec![PathAccount::default(); plan.pairs.len()],
            flows,
            left: VecDeque::new(),
            rng: rng.fork(2),
            plan,
        }
    }

    /// The network, and the schedule of the pairs' stations from the run's beginning until every pass that the run
    /// sees has ended. The network is shared because the feed reads it while the sky changes.
    pub(super) fn sight(&self, end: Instant) -> (Arc<Network>, Schedule) {
        let stations =
            self.plan.pairs.iter().map(|pair| (pair.client_station, pair.server_station)).collect();
        let length_s = (end.since(Instant::ZERO) + LOOK_AHEAD).as_secs_f64().ceil();
        let plan = Schedule {
            from_s: self.plan.from_s,
            relaying: self.plan.relaying,
            ..Schedule::new(stations, self.plan.from_s + length_s)
        };
        (Arc::clone(&self.plan.network), plan)
    }

    /// Applies all events of the feed that are due.
    pub(super) fn apply(&mut self, feed: &mut Feed<'_>, stage: &mut Stage<'_>, overlay: &mut Overlay) {
        let now = stage.now();
        let mut has_new_routes = false;
        while let Some(event) = feed.next_at(now) {
            match event {
                Event::LinkUp { ends, delay_s } => {
                    let until = if self.plan.has_curve() { feed.down_at(ends) } else { None };
                    let nodes = [ends.0, ends.1].map(|body| self.node(body, stage, overlay));
                    self.links.bring_up(&self.plan, (ends, nodes), delay_s, until, stage);
                }
                Event::Delay { ends, delay_s } => self.links.set_delay(ends, delay_s, stage),
                Event::Route { pair, nodes } => {
                    has_new_routes = true;
                    self.route(pair, nodes, stage);
                }
                Event::LinkDown { ends } => self.links.take_down(&self.plan, ends, stage),
            }
        }
        self.links.retire(stage);
        if has_new_routes {
            self.forget_relays(stage.world, overlay);
            overlay.rewire(stage.world);
        }
        for (route, path) in self.routes.iter().zip(&mut self.paths) {
            path.set_propagation(now, propagation(route, stage.world));
        }
    }

    /// The node of a satellite or station, made with its relays where it is new.
    fn node(&mut self, body: Body, stage: &mut Stage<'_>, overlay: &mut Overlay) -> NodeId {
        if let Some(node) = self.nodes.get(&body) {
            return *node;
        }
        let node = stage.world.network_mut().add_node(Clock::default());
        self.nodes.insert(body, node);
        if self.plan.relays.get(body as usize).copied().unwrap_or(false) {
            overlay.add_relays(node, &mut self.rng, stage.world);
        }
        node
    }

    fn route(&mut self, pair: usize, bodies: Vec<Body>, stage: &mut Stage<'_>) {
        let now = stage.now();
        self.close_flows(Some(pair), stage.world);
        let old = std::mem::take(&mut self.routes[pair]);
        for body in old.bodies.iter().filter(|body| !bodies.contains(body)) {
            self.left.push_back((now, *body));
        }
        if bodies.is_empty() {
            self.cut(pair, &old, stage);
        }
        let route = self.way(pair, bodies);
        self.links.mark_data(&self.plan, &route.to_client, stage);
        let hops = route.bodies.len().max(1) - 1 + self.access_hops(pair);
        self.paths[pair].set_route(now, hops);
        self.routes[pair] = route;
        // Last, so that routes that another pair lost through a cut are installed again.
        if self.routes[pair].chain.is_empty() {
            self.routes.iter().for_each(|route| install(route, stage));
        } else {
            install(&self.routes[pair], stage);
        }
    }

    /// Links between hosts and gateways that every way of the pair has.
    fn access_hops(&self, pair: usize) -> usize {
        let SkyPair { client, server, .. } = self.plan.pairs[pair];
        [client, server].iter().filter(|host| self.plan.access.contains_key(host)).count()
    }

    fn way(&self, pair: usize, bodies: Vec<Body>) -> Route {
        let mut route = Route { bodies, ..Route::default() };
        if route.bodies.is_empty() {
            return route;
        }
        let SkyPair { client, server, .. } = self.plan.pairs[pair];
        let mut ways: Vec<(LinkId, LinkId)> = Vec::new();
        if let Some(&(up, down)) = self.plan.access.get(&client) {
            route.chain.push(client);
            ways.push((up, down));
        }
        route.chain.extend(route.bodies.iter().filter_map(|body| self.nodes.get(body)));
        ways.extend(route.bodies.windows(2).filter_map(|ends| self.links.way(ends[0], ends[1])));
        if let Some(&(up, down)) = self.plan.access.get(&server) {
            route.chain.push(server);
            ways.push((down, up));
        }
        route.to_server = ways.iter().map(|way| way.0).collect();
        route.to_client = ways.iter().rev().map(|way| way.1).collect();
        route
    }

    /// There is no way any more: the gateways know no node beyond their antennas.
    fn cut(&self, pair: usize, old: &Route, stage: &mut Stage<'_>) {
        let SkyPair { client_station, server_station, client, server } = self.plan.pairs[pair];
        for (station, host) in [(client_station, client), (server_station, server)] {
            let gateway = self.plan.gateways[station];
            for &node in old.chain.iter().filter(|node| **node != host && **node != gateway) {
                stage.hop(gateway, node, None);
            }
        }
    }

    /// Empties relays that have been off every path for long.
    fn forget_relays(&mut self, world: &mut World<SharedRecorder>, overlay: &Overlay) {
        let now = world.now();
        let satellites = self.plan.network.satellite_count();
        while let Some(&(at, body)) = self.left.front()
            && at + RELAY_MEMORY <= now
        {
            self.left.pop_front();
            let is_used = self.routes.iter().any(|route| route.bodies.contains(&body));
            let left_again = self.left.iter().any(|(_, other)| *other == body);
            if is_used || left_again || body >= satellites {
                continue;
            }
            let Some(node) = self.nodes.get(&body) else { continue };
            overlay.relays_at(*node).for_each(|relay| world.restart(relay));
        }
    }

    /// Adds the capacity of the flows' paths until now.
    fn close_flows(&mut self, pair: Option<usize>, world: &World<SharedRecorder>) {
        for flow in self.flows.iter_mut().filter(|flow| pair.is_none_or(|pair| flow.pair == pair)) {
            flow.close(&self.plan, &self.routes[flow.pair].to_client, world);
        }
    }

    /// The end of the warm-up: links are counted from here on.
    pub(super) fn on_warm_up(&mut self, world: &World<SharedRecorder>) {
        self.links.on_warm_up(world);
    }

    /// The end of the run.
    pub(super) fn finish(&mut self, world: &World<SharedRecorder>) {
        self.close_flows(None, world);
        self.paths.iter_mut().for_each(|path| path.advance(world.now()));
        self.links.finish(world);
    }

    /// The path of a flow as it is now: links over all, and its propagation; `None` without a way.
    pub(super) fn path_now(&self, flow: usize) -> Option<(u32, Duration)> {
        self.paths[self.flows[flow].pair].now()
    }

    /// The path of a flow.
    pub(super) fn flow_path(&self, flow: usize) -> FlowPath {
        let account = &self.flows[flow];
        FlowPath { ideal_bps: account.ideal_bps(), path: self.paths[account.pair].result() }
    }

    /// The rate at which a full packet is sent over a link at its best, where the sky knows it.
    pub(super) fn best_rate(&self, link: LinkId) -> Option<starhop_proto::units::Rate> {
        self.links.best_rate(&self.plan, link)
    }

    /// Counters of the links since the end of the warm-up, by kind: `done` gives those of each link.
    pub(super) fn groups(&self, done: impl Fn(LinkId) -> (LinkCounters, f64)) -> Vec<GroupResult> {
        self.links.groups(&self.plan, done)
    }

    /// Counters of a link in the simulation since the end of the warm-up.
    pub(super) fn done(&self, link: LinkId, world: &World<SharedRecorder>) -> (LinkCounters, f64) {
        self.links.done(link, world)
    }

    /// The names of all satellites and stations that were touched.
    pub(super) fn names(&self) -> BTreeMap<NodeId, String> {
        let name = |(&body, &node): (&Body, &NodeId)| (node, self.plan.network.node_name(body).to_owned());
        self.nodes.iter().map(name).collect()
    }

    /// Times at which any path changed.
    pub(super) fn change_times(&self) -> Vec<Instant> {
        let times: BTreeSet<Instant> =
            self.paths.iter().flat_map(|path| path.changes().iter().copied()).collect();
        times.into_iter().collect()
    }
}

/// Every node of the way knows every other by it.
fn install(route: &Route, stage: &mut Stage<'_>) {
    for (i, &node) in route.chain.iter().enumerate() {
        for &later in &route.chain[i + 1..] {
            stage.hop(node, later, Some(route.to_server[i]));
        }
        let Some(back) = i.checked_sub(1) else { continue };
        let link = route.to_client[route.to_client.len() - 1 - back];
        for &earlier in &route.chain[..i] {
            stage.hop(node, earlier, Some(link));
        }
    }
}

fn propagation(route: &Route, world: &World<SharedRecorder>) -> Option<Duration> {
    let (network, now) = (world.network(), world.now());
    let delays = route.to_client.iter().map(|&link| network.link(link).propagation(now));
    (!route.chain.is_empty()).then(|| delays.fold(Duration::ZERO, |sum, delay| sum + delay))
}
