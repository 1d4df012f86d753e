//! The event loop.

use super::hash::TraceHash;
use super::host::{Address, Backlog, Host, HostId, HostReport, WindowSample};
use super::network::{InFlight, LinkId, Network, NodeId};
use super::packet::{Body, Buffers, Packet};
use super::queue::{EventQueue, Key, Source};
use crate::link::{Arrival, LinkConfig, Verdict};
use starhop_proto::name::FlowId;
use starhop_proto::peer::Face;
use starhop_proto::relay::intercept::Verdict as Fate;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// A host whose timeout is due even after it was handled comes back after this long, so that a host that
/// never gets done slows the run down and does not stop it.
const LEAST_TIMEOUT: Duration = Duration::from_micros(1);

/// Sees events that hosts cannot see: first transmissions and losses.
pub trait Observer {
    /// A host sent a packet.
    fn on_sent(&mut self, now: Instant, host: HostId, body: &Body);
    /// A packet will never arrive.
    fn on_lost(&mut self, now: Instant, body: &Body);
}

/// Counters of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineCounters {
    /// Events handled: arrivals of packets at nodes and timers.
    pub events: u64,
    /// Packets put on a link, once per link.
    pub link_packets: u64,
    /// Packets that had no way to go, or found their program or node dead.
    pub unreachable: u64,
    /// Damaged packets that a UDP checksum kept from its host.
    pub bad_checksums: u64,
}

impl HostState {
    fn new(host: Box<dyn Host>, node: NodeId, is_observed: bool) -> Self {
        let (is_up, is_interceptor, moves, set, timer) = (true, false, 0, None, None);
        let (sent_packets, sent_bytes) = (0, 0);
        Self { host, node, is_up, is_observed, moves, is_interceptor, set, timer, sent_packets, sent_bytes }
    }
}

struct HostState {
    host: Box<dyn Host>,
    node: NodeId,
    is_up: bool,
    is_observed: bool,
    /// Number of times that the host changed its address.
    moves: u16,
    /// It speaks in the names of others.
    is_interceptor: bool,
    /// Hosts of one set speak with each other through the interceptors of that set.
    set: Option<u32>,
    /// The event that will wake it; older ones are ignored.
    timer: Option<Key>,
    sent_packets: u64,
    sent_bytes: u64,
}

/// A running world.
pub struct World<O> {
    network: Network,
    hosts: Vec<HostState>,
    now: Instant,
    queue: EventQueue,
    /// The seed of every link's random numbers.
    link_rng: Rng,
    sequence: u64,
    /// Interceptors by their node, and by the set of hosts whose packets they are given.
    interceptors: BTreeMap<(NodeId, u32), HostId>,
    /// Nodes whose interceptors let packets pass.
    aside: BTreeSet<NodeId>,
    strays: Vec<Option<(NodeId, Packet)>>,
    free_strays: Vec<u32>,
    buffers: Buffers,
    observer: O,
    hash: TraceHash,
    counters: EngineCounters,
    /// Hosts verify the UDP checksum and drop damaged packets. Otherwise damaged packets are delivered.
    pub udp_checksum: bool,
}

impl<O: Observer> World<O> {
    /// A world at time zero in which nothing has happened.
    pub fn new(mut network: Network, observer: O, seed: u64) -> Self {
        let link_rng = Rng::new(seed);
        for (index, link) in network.links.iter_mut().enumerate() {
            link.rng = LinkId(index as u32).rng(&link_rng);
        }
        Self {
            network,
            hosts: Vec::new(),
            now: Instant::ZERO,
            queue: EventQueue::default(),
            link_rng,
            sequence: 0,
            interceptors: BTreeMap::new(),
            aside: BTreeSet::new(),
            strays: Vec::new(),
            free_strays: Vec::new(),
            buffers: Buffers::default(),
            observer,
            hash: TraceHash::new(seed),
            counters: EngineCounters::default(),
            udp_checksum: true,
        }
    }

    /// Puts a program on a node. With `is_observed` the observer sees the packets that the program sends.
    pub fn add_host(&mut self, node: NodeId, host: Box<dyn Host>, is_observed: bool) -> HostId {
        self.hosts.push(HostState::new(host, node, is_observed));
        HostId(self.hosts.len() as u32 - 1)
    }

    /// Makes a host an end point whose packets the interceptors of `set` are given.
    pub fn join(&mut self, id: HostId, set: u32) {
        self.hosts[id.0 as usize].set = Some(set);
    }

    /// Puts an interceptor on a node: the packets between hosts of `set` that pass the node are given to it.
    pub fn add_interceptor(&mut self, node: NodeId, host: Box<dyn Host>, set: u32) -> HostId {
        let id = self.add_host(node, host, false);
        self.hosts[id.0 as usize].is_interceptor = true;
        self.interceptors.insert((node, set), id);
        id
    }

    /// Makes packets pass by the interceptors of a node, or ends that.
    pub fn set_aside(&mut self, node: NodeId, is_aside: bool) {
        if is_aside {
            self.aside.insert(node)
        } else {
            self.aside.remove(&node)
        };
    }

    /// Handles every event before `end`, and lets it be `end`.
    pub fn run_until(&mut self, end: Instant) {
        while let Some(key) = self.queue.first()
            && key.at() < end
        {
            self.now = key.at();
            match key.source() {
                Source::Link(link) => self.link_event(key, link),
                Source::Timer(host) => self.timer_event(key, host),
                Source::Stray(slot) => self.stray_event(slot),
            }
        }
        self.now = end;
    }

    fn link_event(&mut self, key: Key, id: u32) {
        let link = &mut self.network.links[id as usize];
        let is_this = |next: &InFlight| Key::new(next.at, next.sequence, Source::Link(id)) == key;
        let arrived =
            if link.under_way.front().is_some_and(is_this) { link.under_way.pop_front() } else { None };
        // Packets under way may have been lost with a path: then the event is stale, and there is a newer one.
        let Some(arrived) = arrived else { return self.queue.pop() };
        match link.under_way.front() {
            Some(next) => self.queue.replace_first(Key::new(next.at, next.sequence, Source::Link(id))),
            None => self.queue.pop(),
        }
        self.counters.events += 1;
        let node = self.network.links[id as usize].to;
        self.arrive(node, arrived.packet);
    }

    fn stray_event(&mut self, slot: u32) {
        self.queue.pop();
        if let Some((node, packet)) = self.strays[slot as usize].take() {
            self.free_strays.push(slot);
            self.counters.events += 1;
            self.arrive(node, packet);
        }
    }

    fn timer_event(&mut self, key: Key, host: u32) {
        self.queue.pop();
        let state = &mut self.hosts[host as usize];
        if state.timer != Some(key) {
            return;
        }
        state.timer = None;
        let local = self.network.clock(state.node).at(self.now);
        if state.is_up && state.host.poll_timeout().is_some_and(|due| due <= local) {
            self.counters.events += 1;
            self.hash.timer(self.now, host);
            state.host.handle_timeout(local);
            self.drain(HostId(host));
        }
        self.arm(HostId(host));
    }

    fn arrive(&mut self, node: NodeId, packet: Packet) {
        if !self.network.nodes[node.0 as usize].is_up {
            return self.lose(packet.body, true);
        }
        if self.hosts[packet.to.host.0 as usize].node == node {
            return self.deliver(packet);
        }
        match self.interceptor(node, &packet) {
            Some(id) => self.intercept(id, node, packet),
            None => self.forward(node, packet),
        }
    }

    /// The program that is given a packet which passes a node.
    fn interceptor(&self, node: NodeId, packet: &Packet) -> Option<HostId> {
        let set_of = |end: Address| self.hosts[end.host.0 as usize].set;
        let set = set_of(packet.from).filter(|_| !self.interceptors.is_empty())?;
        let id = *self.interceptors.get(&(node, set)).filter(|_| set_of(packet.to) == Some(set))?;
        (self.hosts[id.0 as usize].is_up && !self.aside.contains(&node)).then_some(id)
    }

    fn intercept(&mut self, id: HostId, node: NodeId, mut packet: Packet) {
        if packet.is_damaged && self.udp_checksum {
            self.counters.bad_checksums += 1;
            return self.lose(packet.body, false);
        }
        self.hash.packet(self.now, id.0, &packet.body);
        let local = self.network.clock(node).at(self.now);
        let face = Face { remote: packet.from.socket(), local: packet.to.socket() };
        match self.hosts[id.0 as usize].host.intercept(local, face, &mut packet.body) {
            Fate::PassedOn => self.forward(node, packet),
            Fate::Taken | Fate::Ended => self.buffers.give(packet.body),
        }
        self.drain(id);
        self.arm(id);
    }

    fn deliver(&mut self, mut packet: Packet) {
        if packet.is_damaged && self.udp_checksum {
            self.counters.bad_checksums += 1;
            return self.lose(packet.body, false);
        }
        let id = packet.to.host;
        let state = &mut self.hosts[id.0 as usize];
        if !state.is_up || state.moves != packet.to.moves {
            return self.lose(packet.body, true);
        }
        self.hash.packet(self.now, id.0, &packet.body);
        let local = self.network.clock(state.node).at(self.now);
        let face = Face { remote: packet.from.socket(), local: packet.to.socket() };
        state.host.handle_packet(local, face, &mut packet.body);
        self.buffers.give(packet.body);
        self.drain(id);
        self.arm(id);
    }

    fn forward(&mut self, node: NodeId, packet: Packet) {
        let destination = self.hosts[packet.to.host.0 as usize].node;
        match self.network.next_hop(node, destination) {
            Some(link) if self.network.links[link.0 as usize].is_up => self.transmit(link, packet),
            _ => self.lose(packet.body, true),
        }
    }

    fn transmit(&mut self, id: LinkId, mut packet: Packet) {
        let link = &mut self.network.links[id.0 as usize];
        if link.link.is_xcp() {
            link.link.route(self.now, packet.body.ip_len() + link.header, packet.body.xcp_mut());
        }
        self.counters.link_packets += 1;
        match link.link.send(self.now, packet.body.ip_len() + link.header, &mut link.rng) {
            Verdict::Arrives(arrival) if arrival.in_order && !arrival.is_doubled && !arrival.is_damaged => {
                self.enqueue(id, arrival.at, packet);
            }
            Verdict::Arrives(arrival) => self.enqueue_disturbed(id, arrival, packet),
            Verdict::Dropped | Verdict::Lost => self.lose(packet.body, false),
        }
    }

    fn enqueue(&mut self, id: LinkId, at: Instant, packet: Packet) {
        let sequence = self.next_sequence();
        let link = &mut self.network.links[id.0 as usize];
        if link.under_way.is_empty() {
            self.queue.push(Key::new(at, sequence, Source::Link(id.0)));
        }
        link.under_way.push_back(InFlight { at, sequence, packet });
    }

    fn enqueue_disturbed(&mut self, id: LinkId, arrival: Arrival, mut packet: Packet) {
        if arrival.is_damaged {
            packet.is_damaged = true;
            self.damage(id, &mut packet.body);
        }
        let to = self.network.links[id.0 as usize].to;
        if arrival.is_doubled {
            let Packet { from, to: host, is_damaged, ref body } = packet;
            let copy = Packet { from, to: host, is_damaged, body: body.clone() };
            self.enqueue_stray(to, arrival.at, copy);
        }
        if arrival.in_order {
            self.enqueue(id, arrival.at, packet);
        } else {
            self.enqueue_stray(to, arrival.at, packet);
        }
    }

    fn enqueue_stray(&mut self, node: NodeId, at: Instant, packet: Packet) {
        let slot = self.free_strays.pop().unwrap_or_else(|| {
            self.strays.push(None);
            self.strays.len() as u32 - 1
        });
        self.strays[slot as usize] = Some((node, packet));
        let sequence = self.next_sequence();
        self.queue.push(Key::new(at, sequence, Source::Stray(slot)));
    }

    fn damage(&mut self, id: LinkId, body: &mut Body) {
        let bytes = match body {
            Body::Datagram(bytes) => Some(bytes),
            Body::Opaque(packet) => Some(&mut packet.bytes),
            Body::Segment(_) | Body::Tcp(_) | Body::Split(_) => None,
        };
        if let Some(bytes) = bytes {
            let bit = self.network.links[id.0 as usize].rng.below(bytes.len() as u64 * 8);
            if let Some(byte) = bytes.get_mut(bit as usize / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn lose(&mut self, body: Body, is_unreachable: bool) {
        self.counters.unreachable += u64::from(is_unreachable);
        self.observer.on_lost(self.now, &body);
        self.buffers.give(body);
    }

    /// Sends every packet that a host has ready.
    fn drain(&mut self, id: HostId) {
        let local = self.network.clock(self.hosts[id.0 as usize].node).at(self.now);
        let mut body = self.buffers.take();
        while let Some(to) = self.hosts[id.0 as usize].host.poll_transmit(local, &mut body) {
            let sent = std::mem::replace(&mut body, self.buffers.take());
            self.emit(id, to, sent);
        }
        self.buffers.give(body);
    }

    fn emit(&mut self, id: HostId, face: Face, body: Body) {
        let state = &mut self.hosts[id.0 as usize];
        state.sent_packets += 1;
        state.sent_bytes += u64::from(body.ip_len());
        let node = state.node;
        if state.is_observed {
            self.observer.on_sent(self.now, id, &body);
        }
        let own = Address { host: id, moves: state.moves };
        let given = if state.is_interceptor { Address::of(face.local) } else { None };
        let from = given.filter(|given| (given.host.0 as usize) < self.hosts.len()).unwrap_or(own);
        let Some(to) = Address::of(face.remote).filter(|to| (to.host.0 as usize) < self.hosts.len()) else {
            return self.lose(body, true);
        };
        let packet = Packet { from, to, is_damaged: false, body };
        if self.hosts[to.host.0 as usize].node == node {
            // Two programs on one node: no link between them, but an event, so that neither runs inside the other.
            self.enqueue_stray(node, self.now, packet);
        } else {
            self.forward(node, packet);
        }
    }

    /// Makes sure that an event wakes the host in time. A timer that moves away is left where it is: it fires
    /// early, finds nothing due and is armed again.
    fn arm(&mut self, id: HostId) {
        let state = &self.hosts[id.0 as usize];
        let Some(due) = state.host.poll_timeout().filter(|_| state.is_up) else { return };
        let mut at = self.network.clock(state.node).world(due);
        if at <= self.now {
            at = self.now + LEAST_TIMEOUT;
        }
        if state.timer.is_some_and(|timer| timer.at() <= at) {
            return;
        }
        let key = Key::new(at, self.next_sequence(), Source::Timer(id.0));
        self.hosts[id.0 as usize].timer = Some(key);
        self.queue.push(key);
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

/// The calls by which the director of a world changes it between events.
impl<O: Observer> World<O> {
    /// The world's time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Number of hosts.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Lets a host act at its own time, takes what it wants to send and arms its timer.
    fn with_host(&mut self, id: HostId, act: impl FnOnce(&mut dyn Host, Instant)) {
        let state = &mut self.hosts[id.0 as usize];
        act(state.host.as_mut(), self.network.clock(state.node).at(self.now));
        self.drain(id);
        self.arm(id);
    }

    /// Starts the application of a host.
    pub fn start(&mut self, id: HostId) {
        self.with_host(id, |host, now| host.start(now));
    }

    /// The address of a host as it is now.
    pub fn addr(&self, id: HostId) -> SocketAddr {
        Address { host: id, moves: self.hosts[id.0 as usize].moves }.socket()
    }

    /// Gives the hosts of a node new addresses in place of the old ones. No other host is told.
    pub fn readdress(&mut self, node: NodeId) {
        self.hosts.iter_mut().filter(|host| host.node == node).for_each(|host| host.moves += 1);
    }

    /// Lets the time of day of a node jump by `by` nanoseconds.
    pub fn step_clock(&mut self, node: NodeId, by: i64) {
        let local = self.network.clock(node).at(self.now);
        self.hosts
            .iter_mut()
            .filter(|host| host.node == node)
            .for_each(|host| host.host.step_clock(local, by));
    }

    /// Starts one of the transfers of a host.
    pub fn begin(&mut self, id: HostId, flow: u32) {
        self.with_host(id, |host, now| host.begin(now, flow));
    }

    /// Tells a host its upstream for a flow.
    pub fn set_route(&mut self, id: HostId, flow: FlowId, upstream: HostId) {
        let to = self.addr(upstream);
        self.with_host(id, |host, now| host.set_route(now, flow, to));
    }

    /// Tells a host that serves several flows that one of them is over.
    pub fn close(&mut self, id: HostId, flow: u32) {
        self.with_host(id, |host, now| host.close(now, flow));
    }

    /// Kills a program: packets addressed to it are lost from now on.
    pub fn kill(&mut self, id: HostId) {
        let state = &mut self.hosts[id.0 as usize];
        state.is_up = false;
        state.timer = None;
    }

    /// Starts a killed program again with nothing in its memory.
    pub fn restart(&mut self, id: HostId) {
        self.hosts[id.0 as usize].is_up = true;
        self.with_host(id, |host, now| host.restart(now));
    }

    /// Switches a node on or off. A node that is off forwards nothing and runs nothing.
    pub fn set_node_up(&mut self, node: NodeId, is_up: bool) {
        self.network.nodes[node.0 as usize].is_up = is_up;
        let here: Vec<u32> =
            (0..self.hosts.len() as u32).filter(|&h| self.hosts[h as usize].node == node).collect();
        for host in here {
            if is_up { self.restart(HostId(host)) } else { self.kill(HostId(host)) }
        }
    }

    /// Switches a link on or off. A link that is switched off loses its queue and, unless `keep`, the packets under
    /// way.
    pub fn set_link_up(&mut self, id: LinkId, is_up: bool, keep: bool) {
        let link = &mut self.network.links[id.0 as usize];
        link.is_up = is_up;
        if is_up || keep {
            return;
        }
        link.link.reset(self.now);
        let lost: Vec<Packet> = link.under_way.drain(..).map(|flying| flying.packet).collect();
        for packet in lost {
            self.lose(packet.body, false);
        }
    }

    /// Adds one direction of a link to the running world.
    pub fn add_link(&mut self, from: NodeId, to: NodeId, config: LinkConfig, header: u32) -> LinkId {
        let id = self.network.add_link(from, to, config, header);
        self.network.links[id.0 as usize].rng = id.rng(&self.link_rng);
        id
    }

    /// The topology, to change next hops.
    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The topology.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The node of a host.
    pub fn node_of(&self, id: HostId) -> NodeId {
        self.hosts[id.0 as usize].node
    }

    /// The counters of a host.
    pub fn report(&self, id: HostId) -> HostReport {
        self.hosts[id.0 as usize].host.report()
    }

    /// The window of a host that has one.
    pub fn window_of(&self, id: HostId) -> Option<WindowSample> {
        self.hosts[id.0 as usize].host.window()
    }

    /// Bytes that a host buffers for a flow, if it terminates connections.
    pub fn backlog_of(&self, id: HostId, flow: u32) -> Option<Backlog> {
        self.hosts[id.0 as usize].host.backlog(flow)
    }

    /// The counters of one flow at a host.
    pub fn flow_report(&self, id: HostId, flow: u32) -> HostReport {
        self.hosts[id.0 as usize].host.flow_report(flow)
    }

    /// Packets and bytes (IP packets) that a host sent.
    pub fn sent_by(&self, id: HostId) -> (u64, u64) {
        let state = &self.hosts[id.0 as usize];
        (state.sent_packets, state.sent_bytes)
    }

    /// The counters of the engine.
    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    /// The hash of all that hosts saw so far.
    pub fn trace_hash(&self) -> u64 {
        self.hash.value()
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }
}
