//! Nodes as namespaces, links between them, and routes that follow the scenario.

use super::model::{LinkState, Model, Tally, Witnessed};
use super::terrain::Terrain;
use crate::error::LabError;
use crate::scenario::Scenario;
use starhop_net::emu::{Emulator, Links, Namespace, Report, Route, Running};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{LinkId, Network, NodeId};
use starhop_sim::run::{Action, Deed};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

/// Settings of every node below `/proc/sys/net`, made before the node has any device. Routes are not symmetric
/// while they change; IPv6 should not chatter on links that are being measured; windows may grow to the capacity of
/// a long path.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/ip_forward", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/default/forwarding", "1"),
    ("ipv6/conf/default/addr_gen_mode", "1"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/default/router_solicitations", "0"),
    ("ipv4/tcp_rmem", "4096 131072 67108864"),
    ("ipv4/tcp_wmem", "4096 65536 67108864"),
    ("ipv4/tcp_no_metrics_save", "1"),
];

/// One host.
pub(super) struct Node {
    pub(super) namespace: Namespace,
    number: u16,
    /// Number of times that the host got new addresses.
    moves: u8,
}

impl Node {
    /// Its IPv4 address, on its loopback device: it does not depend on links.
    pub(super) fn v4(&self) -> IpAddr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, 77_u8.wrapping_add(self.moves), high, low).into()
    }

    /// Its IPv6 address.
    pub(super) fn v6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, u16::from(self.moves), self.number).into()
    }
}

/// All links at the end of a step.
#[derive(Debug)]
pub(super) struct Tick {
    pub(super) at: Instant,
    pub(super) links: Vec<LinkState>,
}

/// Reports of the links while they run.
pub(super) struct Reports {
    pub(super) ticks: Receiver<Tick>,
    pub(super) witnessed: Receiver<Witnessed>,
}

/// Hosts and links, before and while they run.
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    network: Network,
    emulator: Option<Emulator<Model>>,
    running: Option<Running>,
    epoch: Arc<OnceLock<Instant>>,
    /// The link by which each node sends to each other node, as its kernel's routes have it.
    told: BTreeMap<(u32, u32), LinkId>,
    witnessed: Option<Receiver<Witnessed>>,
    is_v6: bool,
    /// The changes that a sky makes, by time.
    deeds: Vec<(Instant, Vec<Deed>)>,
    /// Rates of its links at their best.
    best: BTreeMap<LinkId, Rate>,
    has_sky: bool,
}

/// The user's choices.
#[derive(Clone, Debug, Default)]
pub(super) struct Means {
    /// Nodes speak IPv6 with each other.
    pub(super) is_v6: bool,
    /// Directory into which every link's packets are captured.
    pub(super) captures: Option<PathBuf>,
}

impl World {
    /// Makes the hosts and joins them. `tallies` count the flows of TCP by node.
    pub(super) fn new(
        scenario: &Scenario,
        terrain: Terrain,
        tallies: &BTreeMap<usize, Tally>,
        means: Means,
    ) -> Result<Self, LabError> {
        let Terrain { names, network, configs, deeds, best, has_sky } = terrain;
        let nodes = names.iter().enumerate().map(|(index, name)| node(index, name));
        let nodes = nodes.collect::<Result<Vec<_>, LabError>>()?;
        let (epoch, (witnessed, told)) = (Arc::new(OnceLock::new()), channel());
        let mut emulator = Emulator::default();
        means.captures.into_iter().for_each(|folder| emulator.capture(folder));
        let rng = Rng::new(scenario.seed);
        let model = |id: u32, config| {
            let id = LinkId(id);
            let tally = tallies.get(&(network.ends(id).0.0 as usize)).cloned().unwrap_or_default();
            let rng = id.rng(&rng);
            let mut model =
                Model::new((config, network.header(id)), rng, epoch.clone(), witnessed.clone(), tally);
            model.set_link_up(Instant::ZERO, network.is_usable(id), true);
            model
        };
        let mut configs = configs.into_iter();
        for (index, (there, back)) in std::iter::from_fn(|| configs.next().zip(configs.next())).enumerate() {
            let id = 2 * index as u32;
            let (from, to) = network.ends(LinkId(id));
            let (from, to) = (&nodes[from.0 as usize].namespace, &nodes[to.0 as usize].namespace);
            let device = device(LinkId(id));
            let (there, back) = (model(id, there), model(id + 1, back));
            emulator.join((from, &device), (to, &device), there, back)?;
        }
        Ok(Self {
            nodes,
            network,
            emulator: Some(emulator),
            running: None,
            epoch,
            told: BTreeMap::new(),
            witnessed: Some(told),
            is_v6: means.is_v6,
            deeds,
            best,
            has_sky,
        })
    }

    /// The address under which others reach a node.
    pub(super) fn address(&self, node: NodeId) -> IpAddr {
        let node = &self.nodes[node.0 as usize];
        if self.is_v6 { node.v6() } else { node.v4() }
    }

    /// The egress of a link: the node, its device, and the bytes that the link adds to each packet.
    pub(super) fn egress(&self, link: u32) -> (&Namespace, String, u32) {
        let (id, pair) = (LinkId(link), LinkId(link & !1));
        let from = self.network.ends(id).0;
        (&self.nodes[from.0 as usize].namespace, device(pair), self.network.header(id))
    }

    /// Name of a node.
    pub(super) fn name(&self, node: NodeId) -> &str {
        self.nodes[node.0 as usize].namespace.name()
    }

    /// The node of this name.
    pub(super) fn node_named(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.namespace.name() == name)
    }

    /// Whether ways are a sky's.
    pub(super) fn has_sky(&self) -> bool {
        self.has_sky
    }

    /// The network with its routes as they are now.
    pub(super) fn network(&self) -> &Network {
        &self.network
    }

    /// Starts the links: time begins at `epoch`.
    pub(super) fn start(
        &mut self,
        epoch: Instant,
        scenario: &Scenario,
        actions: &[(Instant, Action)],
    ) -> Result<Reports, LabError> {
        let ended = || LabError::system("cannot start the links")(std::io::Error::other("they were started"));
        let (mut emulator, witnessed) = self.emulator.take().zip(self.witnessed.take()).ok_or_else(ended)?;
        let (ticks, told) = channel();
        for (at, action) in actions {
            let (at, action, network) = (*at, action.clone(), self.touching(action));
            emulator.at(on_machine(epoch, at), move |links| act(links, at, &action, &network));
        }
        for (at, deeds) in self.deeds.clone() {
            emulator.at(on_machine(epoch, at), move |links| {
                deeds.into_iter().for_each(|deed| tune(links, at, deed));
            });
        }
        let steps = scenario.duration.as_nanos() / scenario.step.as_nanos();
        let samples = (1..=steps).map(|step| Instant::ZERO + scenario.step.scaled(step, 1));
        for at in samples.chain([Instant::ZERO + scenario.warmup]) {
            let ticks = ticks.clone();
            emulator.at(on_machine(epoch, at), move |links| sample(links, at, &ticks));
        }
        self.running = Some(emulator.start().map_err(LabError::system("cannot start the links"))?);
        // Set once, here.
        let _ = self.epoch.set(epoch);
        Ok(Reports { ticks: told, witnessed })
    }

    /// Both directions of every link of the node that an action is about.
    fn touching(&self, action: &Action) -> Vec<LinkId> {
        let (Action::NodeDown(node) | Action::NodeUp(node)) = action else { return Vec::new() };
        let ids = self.network.link_ids();
        ids.filter(|&id| self.network.ends(id).0 == *node || self.network.ends(id).1 == *node).collect()
    }

    /// Ends the links.
    pub(super) fn stop(&mut self) -> Result<Report, LabError> {
        let gone = || std::io::Error::other("they did not run");
        let running = self.running.take().ok_or_else(gone);
        running.and_then(Running::stop).map_err(LabError::system("the links failed"))
    }

    /// Packets that devices threw away, because they were not read in time.
    pub(super) fn device_drops(&self) -> u64 {
        self.nodes.iter().filter_map(|node| node.namespace.device_drops().ok()).sum()
    }

    /// Applies a change of the network, and updates the routes of the kernels that it affects.
    pub(super) fn follow(&mut self, at: Instant, action: &Action) -> Result<(), LabError> {
        match action {
            Action::Links { states, .. } => {
                states.iter().for_each(|&(link, is_up)| self.network.mark_link(link, is_up));
            }
            Action::NodeDown(node) => self.network.mark_node(*node, false),
            Action::NodeUp(node) => self.network.mark_node(*node, true),
            Action::Readdress(node) => self.readdress(*node)?,
            Action::Crash(_)
            | Action::Restart(_)
            | Action::Bypass(_)
            | Action::Include(_)
            | Action::StepClock(..) => return Ok(()),
        }
        self.route(at)
    }

    /// Times at which the sky changes something.
    pub(super) fn sky_times(&self) -> impl Iterator<Item = Instant> + '_ {
        self.deeds.iter().map(|(at, _)| *at)
    }

    /// Applies the changes that the sky makes at one of its times, and updates the routes of the kernels that they
    /// affect.
    pub(super) fn follow_sky(&mut self, at: Instant, number: usize) -> Result<(), LabError> {
        let mut has_new_routes = false;
        for deed in &self.deeds[number].1 {
            match deed.clone() {
                // They are there from the beginning.
                Deed::Join { .. } => {}
                Deed::Switch { link, is_up, .. } => self.network.mark_link(link, is_up),
                Deed::Tune { link, tuning } => tuning.apply(self.network.link_mut(link), at),
                Deed::Hop { node, to, link } => {
                    self.network.set_next_hop(node, to, link);
                    has_new_routes = true;
                }
            }
        }
        if has_new_routes { self.tell_routes() } else { Ok(()) }
    }

    /// Gives a host other addresses in place of those that it had. Routes follow with the next [`World::route`].
    fn readdress(&mut self, node: NodeId) -> Result<(), LabError> {
        let host = &mut self.nodes[node.0 as usize];
        let old = [(host.v4(), 32), (host.v6(), 128)];
        host.moves += 1;
        for (address, prefix) in [(host.v4(), 32), (host.v6(), 128)] {
            host.namespace.address("lo", address, prefix)?;
        }
        for (address, prefix) in old {
            host.namespace.remove_address("lo", address, prefix)?;
        }
        self.told.retain(|&(from, to), _| from != node.0 && to != node.0);
        Ok(())
    }

    /// Finds the paths at `at` and tells every kernel the routes that are new to it.
    pub(super) fn route(&mut self, at: Instant) -> Result<(), LabError> {
        if !self.has_sky {
            self.network.route_by_delay(at);
        }
        self.tell_routes()
    }

    fn tell_routes(&mut self) -> Result<(), LabError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let mut routes = Vec::new();
            for (to, other) in self.nodes.iter().enumerate().filter(|&(to, _)| to != index) {
                let key = (index as u32, to as u32);
                let link = self.network.next_hop(NodeId(key.0), NodeId(key.1));
                let before = match link {
                    Some(link) => self.told.insert(key, link),
                    None => self.told.remove(&key),
                };
                if before != link {
                    routes.extend(both(node, other, link));
                }
            }
            if !routes.is_empty() {
                node.namespace.routes(routes)?;
            }
        }
        Ok(())
    }

    /// Propagation and serialisation of a packet of `bytes` from one node to another, as paths are now.
    pub(super) fn base(&self, from: NodeId, to: NodeId, bytes: u32, at: Instant) -> Option<Duration> {
        let path = self.network.path(from, to);
        let over = |link: &LinkId| {
            let model = self.network.link(*link);
            let bytes = u64::from(bytes + self.network.header(*link));
            // A rate that rises and falls with a pass has queues of its own making.
            let rate = self.best.get(link).copied().unwrap_or_else(|| model.schedule().at(at));
            let serialisation = rate.time_for(bytes);
            let serialisation = if serialisation == Duration::MAX { Duration::ZERO } else { serialisation };
            model.propagation(at) + serialisation
        };
        (!path.is_empty()).then(|| path.iter().map(over).fold(Duration::ZERO, |sum, part| sum + part))
    }
}

fn node(index: usize, name: &str) -> Result<Node, LabError> {
    let namespace = Namespace::new(name)?;
    namespace.settings(SETTINGS)?;
    let node = Node { namespace, number: index as u16 + 1, moves: 0 };
    node.namespace.address("lo", node.v4(), 32)?;
    node.namespace.address("lo", node.v6(), 128)?;
    Ok(node)
}

/// The device at both ends of a link.
fn device(link: LinkId) -> String {
    format!("link{}", link.0 / 2)
}

/// The route from `node` to `other` by `link`, for both IP versions.
fn both(node: &Node, other: &Node, link: Option<LinkId>) -> [Route; 2] {
    let route = |to, source| Route { to, device: link.map(device), source };
    [route(other.v4(), node.v4()), route(other.v6(), node.v6())]
}

/// A moment of the scenario on the machine's clock.
pub(super) fn on_machine(epoch: Instant, at: Instant) -> Instant {
    epoch + at.since(Instant::ZERO)
}

fn act(links: &mut Links<Model>, at: Instant, action: &Action, touching: &[LinkId]) {
    match action {
        Action::Links { states, keep } => {
            for &(LinkId(id), is_up) in states {
                links.model(id as usize).set_link_up(at, is_up, *keep);
                if !is_up && !keep {
                    links.lose(id as usize);
                }
            }
        }
        Action::NodeDown(_) | Action::NodeUp(_) => {
            let is_up = matches!(action, Action::NodeUp(_));
            for &LinkId(id) in touching {
                links.model(id as usize).set_node_up(at, is_up);
                if !is_up {
                    links.lose(id as usize);
                }
            }
        }
        Action::Crash(_)
        | Action::Restart(_)
        | Action::Bypass(_)
        | Action::Include(_)
        | Action::Readdress(_)
        | Action::StepClock(..) => {}
    }
}

/// Applies a change of the sky to a link; changes of nodes and routes concern their kernels only.
fn tune(links: &mut Links<Model>, at: Instant, deed: Deed) {
    match deed {
        Deed::Join { .. } | Deed::Hop { .. } => {}
        Deed::Tune { link, tuning } => links.model(link.0 as usize).tune(at, tuning),
        Deed::Switch { link, is_up, keep } => {
            links.model(link.0 as usize).set_link_up(at, is_up, keep);
            if !is_up && !keep {
                links.lose(link.0 as usize);
            }
        }
    }
}

fn sample(links: &mut Links<Model>, at: Instant, ticks: &Sender<Tick>) {
    let links = links.models().map(|model| model.state(at)).collect();
    // The receiver is gone once the run is over.
    let _ = ticks.send(Tick { at, links });
}
