//! The changes that a sky makes to a network, one by one: to the network of the simulation, and to any other
//! network that must go through the same changes.

use crate::engine::{LinkId, Network, NodeId, World};
use crate::link::{Link, LinkConfig, LossModel, Outage, RateSchedule};
use crate::record::SharedRecorder;
use starhop_proto::time::{Duration, Instant};

/// A change of a network.
#[derive(Clone, Debug)]
pub enum Deed {
    /// There is another direction of a link; its number is the next.
    Join {
        /// Its near and its far node.
        ends: (NodeId, NodeId),
        /// Its model.
        config: LinkConfig,
        /// Bytes of link-layer header per packet.
        header: u32,
    },
    /// A link is switched on or off. A link that goes off loses its queue and, unless `keep`, the packets under
    /// way.
    Switch {
        /// The link.
        link: LinkId,
        /// Whether the link is switched on.
        is_up: bool,
        /// Packets under way still arrive.
        keep: bool,
    },
    /// The model of a link changes.
    Tune {
        /// The link.
        link: LinkId,
        /// The new values.
        tuning: Tuning,
    },
    /// Packets for `to` leave `node` by `link` from now on.
    Hop {
        /// The node.
        node: NodeId,
        /// Their destination.
        to: NodeId,
        /// The link to it; `None` if there is no way.
        link: Option<LinkId>,
    },
}

/// A change of a link's model.
#[derive(Clone, Debug)]
pub enum Tuning {
    /// Another delay.
    Delay(Duration),
    /// Another rate, and other outages.
    Rate(RateSchedule, Option<Outage>),
    /// Other losses.
    Loss(LossModel),
    /// Nothing waits or is under way.
    Empty,
}

impl Tuning {
    /// Changes a link.
    pub fn apply(self, link: &mut Link, now: Instant) {
        match self {
            Self::Delay(delay) => link.set_delay(delay),
            Self::Rate(rate, outage) => link.set_rate(rate, outage),
            Self::Loss(loss) => link.set_loss(loss),
            Self::Empty => link.reset(now),
        }
    }
}

/// The world that a sky changes, and the list of its changes if the caller keeps one.
pub(crate) struct Stage<'a> {
    pub(crate) world: &'a mut World<SharedRecorder>,
    pub(crate) log: Option<&'a mut Vec<(Instant, Deed)>>,
}

impl Stage<'_> {
    pub(super) fn now(&self) -> Instant {
        self.world.now()
    }

    pub(super) fn network(&self) -> &Network {
        self.world.network()
    }

    pub(super) fn join(&mut self, ends: (NodeId, NodeId), config: LinkConfig, header: u32) -> LinkId {
        self.note(|| Deed::Join { ends, config: config.clone(), header });
        self.world.add_link(ends.0, ends.1, config, header)
    }

    pub(super) fn switch(&mut self, link: LinkId, is_up: bool, keep: bool) {
        self.note(|| Deed::Switch { link, is_up, keep });
        self.world.set_link_up(link, is_up, keep);
    }

    pub(super) fn tune(&mut self, link: LinkId, tuning: Tuning) {
        self.note(|| Deed::Tune { link, tuning: tuning.clone() });
        let now = self.now();
        tuning.apply(self.world.network_mut().link_mut(link), now);
    }

    pub(super) fn hop(&mut self, node: NodeId, to: NodeId, link: Option<LinkId>) {
        if self.network().next_hop(node, to) != link {
            self.note(|| Deed::Hop { node, to, link });
            self.world.network_mut().set_next_hop(node, to, link);
        }
    }

    fn note(&mut self, deed: impl FnOnce() -> Deed) {
        let now = self.now();
        if let Some(log) = &mut self.log {
            log.push((now, deed()));
        }
    }
}
