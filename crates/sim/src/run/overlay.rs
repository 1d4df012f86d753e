//! Who asks whom: the relays on each flow's path, told hop by hop.

use crate::engine::{HostId, NodeId, Observer, World};
use crate::host::RelayHost;
use starhop_proto::config::{Config, Controller};
use starhop_proto::name::FlowId;
use starhop_proto::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// The roles that speak with the same settings. Flows with other settings have relays of their own.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) config: Config,
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
    pub(crate) bypassed: BTreeSet<NodeId>,
    told: BTreeMap<(HostId, FlowId), HostId>,
}

impl Overlay {
    pub(crate) fn new(controllers: BTreeMap<NodeId, Controller>) -> Self {
        Self { controllers, ..Self::default() }
    }

    /// Puts relays on a node that was not there before, one per stack.
    pub(crate) fn add_relays<O: Observer>(&mut self, node: NodeId, rng: &mut Rng, world: &mut World<O>) {
        for stack in &mut self.stacks {
            let relay = RelayHost::new(config_at(&self.controllers, node, &stack.config), rng.next_u64());
            stack.relays.insert(node, world.add_host(node, Box::new(relay), false));
        }
    }

    /// The relays of a node.
    pub(crate) fn relays_at(&self, node: NodeId) -> impl Iterator<Item = HostId> + '_ {
        self.stacks.iter().filter_map(move |stack| stack.relays.get(&node).copied())
    }

    /// Tells every host on every path whom to ask, where that changed.
    pub(crate) fn rewire<O: Observer>(&mut self, world: &mut World<O>) {
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

    /// The consumer, the relays on its way to the server, and the producer; only the consumer where no way is.
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
