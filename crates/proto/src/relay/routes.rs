//! The upstream of each flow at a relay.

use crate::name::FlowId;
use crate::peer::Face;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use foldhash::fast::FixedState;

/// One of several upstreams, and its share of the flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The upstream.
    pub upstream: Face,
    /// Its weight among all.
    pub weight: u32,
}

/// The destinations of requests, by flow.
#[derive(Debug)]
pub(super) struct Routes {
    /// The upstream of flows that have no own route. `None` if requests go to the server that the clients address.
    pub(super) default: Option<Face>,
    pub(super) by_flow: BTreeMap<FlowId, Face>,
    /// Upstreams that share the flows; empty if the default has all flows.
    shares: Vec<Share>,
    hasher: FixedState,
}

impl Routes {
    pub(super) fn new(default: Option<Face>, seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self { default, by_flow: BTreeMap::new(), shares: Vec::new(), hasher }
    }

    pub(super) fn set_shares(&mut self, shares: &[Share]) {
        self.shares.clear();
        self.shares.extend(shares.iter().filter(|share| share.weight > 0));
    }

    /// The upstream of a flow that is asked for at `face`.
    pub(super) fn upstream(&self, flow: FlowId, face: Face) -> Face {
        self.given(flow).unwrap_or(face.reversed())
    }

    /// The upstream that the operator gave for a flow.
    pub(super) fn given(&self, flow: FlowId) -> Option<Face> {
        self.by_flow.get(&flow).copied().or_else(|| self.shared(flow)).or(self.default)
    }

    /// The upstream of a flow whose upstream is `now`: a flow stays there as long as `now` has a share.
    pub(super) fn kept(&self, flow: FlowId, now: Face) -> Option<Face> {
        let is_shared = self.shares.iter().any(|share| share.upstream == now);
        if is_shared && !self.by_flow.contains_key(&flow) { Some(now) } else { self.given(flow) }
    }

    /// A flow's hash decides, so that a repeated request for it finds the same caches.
    fn shared(&self, flow: FlowId) -> Option<Face> {
        let total: u64 = self.shares.iter().map(|share| u64::from(share.weight)).sum();
        let mut at = self.hasher.hash_one(flow).checked_rem(total)?;
        for share in &self.shares {
            match at.checked_sub(u64::from(share.weight)) {
                Some(rest) => at = rest,
                None => return Some(share.upstream),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn face(port: u16) -> Face {
        Face::towards(([192, 0, 2, 1], port).into())
    }

    fn share(port: u16, weight: u32) -> Share {
        Share { upstream: face(port), weight }
    }

    fn flow(number: u16) -> FlowId {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        FlowId(id)
    }

    #[test]
    fn flows_are_spread_by_weight_and_a_flow_always_goes_the_same_way() {
        let mut routes = Routes::new(Some(face(9)), 7);
        assert_eq!(routes.given(flow(1)), Some(face(9)));
        routes.set_shares(&[share(1, 3000), share(2, 1000), share(3, 0)]);
        let all: Vec<Face> = (0..4000).filter_map(|number| routes.given(flow(number))).collect();
        let first = all.iter().filter(|chosen| **chosen == face(1)).count();
        assert!((2850..3150).contains(&first), "{first} of 4000 for three quarters");
        assert!(all.iter().all(|chosen| *chosen == face(1) || *chosen == face(2)));
        assert!((0..4000).all(|number| routes.given(flow(number)) == Some(all[usize::from(number)])));
    }

    #[test]
    fn a_flow_stays_where_it_is_until_that_upstream_has_no_share() {
        let mut routes = Routes::new(Some(face(1)), 7);
        routes.set_shares(&[share(1, 1), share(2, 1000)]);
        let moved = (0..100).filter(|&number| routes.kept(flow(number), face(1)) != Some(face(1)));
        assert_eq!(moved.count(), 0);
        routes.set_shares(&[share(2, 1000)]);
        assert!((0..100).all(|number| routes.kept(flow(number), face(1)) == Some(face(2))));
        routes.by_flow.insert(flow(5), face(4));
        assert_eq!(
            routes.kept(flow(5), face(2)),
            Some(face(4)),
            "what the operator said of one flow comes first"
        );
    }
}
