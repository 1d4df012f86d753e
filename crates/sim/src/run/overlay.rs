//! The upstream of each node: the relays on each flow's path, told hop by hop.

use crate::engine::{HostId, NodeId, Observer, World};
use crate::host::{InterceptorHost, Protection, RelayHost, Seals};
use starhop_proto::config::{Config, Controller};
use starhop_proto::name::FlowId;
use starhop_proto::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The roles that speak with the same settings. Flows with other settings have relays of their own.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) config: Config,
    pub(crate) protection: Protection,
    pub(crate) relays: BTreeMap<NodeId, HostId>,
    pub(crate) producers: BTreeMap<NodeId, HostId>,
}

/// A flow of the overlay.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) flow: FlowId,
    pub(crate) stack: usize,
    pub(crate) consumer: HostId,
    pub(crate) server: NodeId,
}

/// The settings of a stack at a node. A controller that cannot work changes nothing.
pub(crate) fn config_at(controllers: &BTreeMap<NodeId, Controller>, node: NodeId, config: &Config) -> Config {
    let changed = controllers.get(&node).and_then(|&controller| config.with_controller(controller).ok());
    changed.unwrap_or_else(|| config.clone())
}

/// All stacks and the routes between their hosts.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    pub(crate) stacks: Vec<Stack>,
    pub(crate) members: Vec<Member>,
    /// Nodes that control the hop above them by another controller than their stack's.
    pub(crate) controllers: BTreeMap<NodeId, Controller>,
    /// Nodes whose relays are left out of every path.
    bypassed: BTreeSet<NodeId>,
    /// Relays are on the way and intercept the requests.
    is_transparent: bool,
    told: BTreeMap<(HostId, FlowId), HostId>,
}

impl Overlay {
    pub(crate) fn new(controllers: BTreeMap<NodeId, Controller>, is_transparent: bool) -> Self {
        Self { controllers, is_transparent, ..Self::default() }
    }

    /// Adds a stack without relays; its number.
    pub(crate) fn add_stack(&mut self, stack: Stack) -> usize {
        self.stacks.push(stack);
        self.stacks.len() - 1
    }

    /// Puts the relay of a stack on a node, with the stack's settings or `config`.
    pub(crate) fn add_relay<O: Observer>(
        &mut self,
        (index, node): (usize, NodeId),
        config: Option<&Config>,
        seed: u64,
        world: &mut World<O>,
    ) {
        let stack = &mut self.stacks[index];
        let config = config_at(&self.controllers, node, config.unwrap_or(&stack.config));
        let seals = Seals::new(stack.protection, world.network().clock(node), world.now());
        let host = if self.is_transparent {
            let relay = InterceptorHost::new(config, seals, seed);
            world.add_interceptor(node, Box::new(relay), index as u32)
        } else {
            world.add_host(node, Box::new(RelayHost::new(config, seals, seed)), false)
        };
        stack.relays.insert(node, host);
    }

    /// Leaves the relays of a node out of every path, or not any more.
    pub(crate) fn bypass<O: Observer>(&mut self, node: NodeId, is_out: bool, world: &mut World<O>) {
        if self.is_transparent {
            return world.set_aside(node, is_out);
        }
        if is_out {
            self.bypassed.insert(node)
        } else {
            self.bypassed.remove(&node)
        };
        self.rewire(world);
    }

    /// Puts relays on a node that was not there before, one per stack.
    pub(crate) fn add_relays<O: Observer>(&mut self, node: NodeId, rng: &mut Rng, world: &mut World<O>) {
        for index in 0..self.stacks.len() {
            self.add_relay((index, node), None, rng.next_u64(), world);
        }
    }

    /// The relays of a node.
    pub(crate) fn relays_at(&self, node: NodeId) -> impl Iterator<Item = HostId> + '_ {
        self.stacks.iter().filter_map(move |stack| stack.relays.get(&node).copied())
    }

    /// Tells every host on every path its new upstream, if that changed.
    pub(crate) fn rewire<O: Observer>(&mut self, world: &mut World<O>) {
        if self.is_transparent {
            return;
        }
        for member in &self.members {
            let chain = self.chain(member, world);
            for pair in chain.windows(2) {
                let (asker, upstream) = (pair[0], pair[1]);
                if self.told.insert((asker, member.flow), upstream) != Some(upstream) {
                    world.set_route(asker, member.flow, upstream);
                }
            }
        }
    }

    /// The consumer, the relays on its way to the server, and the producer; only the consumer if there is no way.
    fn chain<O: Observer>(&self, member: &Member, world: &World<O>) -> Vec<HostId> {
        let stack = &self.stacks[member.stack];
        let client = world.node_of(member.consumer);
        let path = world.network().path(client, member.server);
        let mut chain = vec![member.consumer];
        for link in &path {
            let (node, _) = world.network().ends(*link);
            let relay = stack.relays.get(&node).filter(|_| node != client && !self.bypassed.contains(&node));
            chain.extend(relay);
        }
        if !path.is_empty() || client == member.server {
            chain.extend(stack.producers.get(&member.server));
        }
        chain
    }
}
