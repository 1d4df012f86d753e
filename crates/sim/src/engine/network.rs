//! Nodes, the links between them, and the forwarding tables.

use super::clock::Clock;
use super::packet::Packet;
use crate::link::{Link, LinkConfig};
use starhop_proto::rng::Rng;
use starhop_proto::time::Instant;
use std::collections::VecDeque;

/// A node of the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

/// One direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u32);

impl LinkId {
    /// The random numbers of this direction in a run whose seed began `run`, wherever the run takes place.
    pub fn rng(self, run: &Rng) -> Rng {
        run.fork(u64::from(self.0) + 1)
    }
}

const NO_LINK: u32 = u32::MAX;

/// A packet under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) at: Instant,
    pub(crate) sequence: u64,
    pub(crate) packet: Packet,
}

/// One direction of a link in a network.
#[derive(Debug)]
pub(crate) struct NetLink {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) link: Link,
    pub(crate) is_up: bool,
    pub(crate) rng: Rng,
    /// In order of arrival. The event queue knows the first of them.
    pub(crate) under_way: VecDeque<InFlight>,
    /// Bytes of link-layer header per packet.
    pub(crate) header: u32,
}

/// A node of a network.
#[derive(Debug)]
pub(crate) struct NetNode {
    pub(crate) is_up: bool,
    pub(crate) clock: Clock,
    /// Outgoing link by destination node, as far as any was set.
    next_hop: Vec<u32>,
}

/// The topology of a world.
#[derive(Debug, Default)]
pub struct Network {
    pub(crate) nodes: Vec<NetNode>,
    pub(crate) links: Vec<NetLink>,
}

impl Network {
    /// Adds a node with its clock.
    pub fn add_node(&mut self, clock: Clock) -> NodeId {
        self.nodes.push(NetNode { is_up: true, clock, next_hop: Vec::new() });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds one direction of a link; `header` bytes of link layer are added to every packet.
    pub fn add_link(&mut self, from: NodeId, to: NodeId, config: LinkConfig, header: u32) -> LinkId {
        let (under_way, rng) = (VecDeque::new(), Rng::new(0));
        self.links.push(NetLink { from, to, link: Link::new(config), is_up: true, rng, under_way, header });
        LinkId(self.links.len() as u32 - 1)
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Both ends of a link.
    pub fn ends(&self, link: LinkId) -> (NodeId, NodeId) {
        let link = &self.links[link.0 as usize];
        (link.from, link.to)
    }

    /// The model of a link.
    pub fn link(&self, link: LinkId) -> &Link {
        &self.links[link.0 as usize].link
    }

    /// The model of a link, to change it.
    pub fn link_mut(&mut self, link: LinkId) -> &mut Link {
        &mut self.links[link.0 as usize].link
    }

    /// Bytes of link-layer header that a link adds to every packet.
    pub fn header(&self, link: LinkId) -> u32 {
        self.links[link.0 as usize].header
    }

    /// The clock of a node.
    pub fn clock(&self, node: NodeId) -> Clock {
        self.nodes[node.0 as usize].clock
    }

    /// All links.
    pub fn link_ids(&self) -> impl Iterator<Item = LinkId> + use<> {
        (0..self.links.len() as u32).map(LinkId)
    }

    /// Routes found from now on use the node, or do not.
    pub fn mark_node(&mut self, node: NodeId, is_up: bool) {
        self.nodes[node.0 as usize].is_up = is_up;
    }

    /// Routes found from now on use the link, or do not.
    pub fn mark_link(&mut self, link: LinkId, is_up: bool) {
        self.links[link.0 as usize].is_up = is_up;
    }

    /// The node is switched on.
    pub fn is_node_up(&self, node: NodeId) -> bool {
        self.nodes[node.0 as usize].is_up
    }

    /// The link is up, and so are both its ends.
    pub fn is_usable(&self, link: LinkId) -> bool {
        let (from, to) = self.ends(link);
        self.links[link.0 as usize].is_up && self.is_node_up(from) && self.is_node_up(to)
    }

    /// Packets for `destination` leave `node` by `link` from now on.
    pub fn set_next_hop(&mut self, node: NodeId, destination: NodeId, link: Option<LinkId>) {
        let table = &mut self.nodes[node.0 as usize].next_hop;
        let index = destination.0 as usize;
        if table.len() <= index {
            table.resize(index + 1, NO_LINK);
        }
        table[index] = link.map_or(NO_LINK, |link| link.0);
    }

    /// The link by which packets for `destination` leave `node`.
    pub fn next_hop(&self, node: NodeId, destination: NodeId) -> Option<LinkId> {
        let link = *self.nodes[node.0 as usize].next_hop.get(destination.0 as usize)?;
        (link != NO_LINK).then_some(LinkId(link))
    }

    /// The links from one node to another as packets are forwarded now; empty where they never arrive.
    pub fn path(&self, from: NodeId, to: NodeId) -> Vec<LinkId> {
        let (mut at, mut path) = (from, Vec::new());
        while at != to && path.len() <= self.nodes.len() {
            let Some(link) = self.next_hop(at, to) else { return Vec::new() };
            path.push(link);
            at = self.links[link.0 as usize].to;
        }
        if at == to { path } else { Vec::new() }
    }
}
