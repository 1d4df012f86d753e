use crate::name::FlowId;
use alloc::collections::BTreeMap;

/// The use of a flow between two gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// The peer's answer to our hello, or its trunk.
    Trunk,
    /// Packets, either way.
    Packets,
    /// The peer's segments.
    Segments,
}

/// The peer that each flow belongs to. A flow of one use is never taken for one of another, and a trunk of ours knows the start of
/// the node that asked for it last.
#[derive(Debug, Default)]
pub(super) struct Owners {
    trunks: BTreeMap<FlowId, u16>,
    packets: BTreeMap<FlowId, u16>,
    segments: BTreeMap<FlowId, u16>,
    /// Our trunks: the peer, and the start of the node that asked last.
    askers: BTreeMap<FlowId, (u16, Option<u64>)>,
}

impl Owners {
    fn flows(&self, of: Use) -> &BTreeMap<FlowId, u16> {
        match of {
            Use::Trunk => &self.trunks,
            Use::Packets => &self.packets,
            Use::Segments => &self.segments,
        }
    }

    fn flows_mut(&mut self, of: Use) -> &mut BTreeMap<FlowId, u16> {
        match of {
            Use::Trunk => &mut self.trunks,
            Use::Packets => &mut self.packets,
            Use::Segments => &mut self.segments,
        }
    }

    /// A flow of this use belongs to a peer from now on.
    pub(super) fn add(&mut self, of: Use, flow: FlowId, peer: u16) {
        self.flows_mut(of).insert(flow, peer);
    }

    /// A flow belongs to nobody any more. Returns the peer that it belonged to.
    pub(super) fn remove(&mut self, of: Use, flow: FlowId) -> Option<u16> {
        self.flows_mut(of).remove(&flow)
    }

    /// The peer that a flow belongs to.
    pub(super) fn find(&self, of: Use, flow: FlowId) -> Option<u16> {
        self.flows(of).get(&flow).copied()
    }

    /// A peer may ask for a trunk of ours.
    pub(super) fn offer(&mut self, flow: FlowId, peer: u16) {
        self.askers.insert(flow, (peer, None));
    }

    /// The session of a trunk of ours has ended.
    pub(super) fn withdraw(&mut self, flow: FlowId) {
        self.askers.remove(&flow);
    }

    /// A node that started as `boot` asks for a trunk of ours. Returns the peer, and the start of the node that asked before.
    pub(super) fn on_asked(&mut self, flow: FlowId, boot: u64) -> Option<(u16, Option<u64>)> {
        let (peer, before) = self.askers.get_mut(&flow)?;
        Some((*peer, before.replace(boot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: FlowId = FlowId([7; 16]);

    #[test]
    fn a_flow_of_one_use_is_none_of_another() {
        let uses = [Use::Trunk, Use::Packets, Use::Segments];
        for of in uses {
            let mut owners = Owners::default();
            owners.add(of, FLOW, 3);
            assert_eq!(
                uses.map(|other| owners.find(other, FLOW)),
                uses.map(|other| (other == of).then_some(3))
            );
            assert_eq!((owners.remove(of, FLOW), owners.remove(of, FLOW)), (Some(3), None));
        }
    }

    #[test]
    fn a_trunk_tells_a_node_that_asks_from_the_one_that_asked_before() {
        let mut owners = Owners::default();
        assert_eq!(owners.on_asked(FLOW, 8), None);
        owners.offer(FLOW, 2);
        let asked = [8, 8, 9].map(|boot| owners.on_asked(FLOW, boot));
        assert_eq!(asked, [None, Some(8), Some(8)].map(|before| Some((2, before))));
        owners.withdraw(FLOW);
        assert_eq!(owners.on_asked(FLOW, 9), None);
    }
}
