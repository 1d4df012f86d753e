//! Shortest paths over the links that are up.

use super::network::{LinkId, Network, NodeId};
use starhop_proto::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl Network {
    /// Sets every next hop to the path of the least propagation delay at `at`, then of the fewest hops, over
    /// links and nodes that are up. Equal paths: the link added first.
    pub fn route_by_delay(&mut self, at: Instant) {
        let incoming = self.incoming();
        for destination in 0..self.nodes.len() as u32 {
            let tree = self.tree_towards(NodeId(destination), &incoming, at);
            for (node, link) in tree.into_iter().enumerate() {
                self.set_next_hop(NodeId(node as u32), NodeId(destination), link);
            }
        }
    }

    fn incoming(&self) -> Vec<Vec<LinkId>> {
        let mut incoming = vec![Vec::new(); self.nodes.len()];
        for id in self.link_ids().filter(|id| self.links[id.0 as usize].is_up) {
            incoming[self.ends(id).1.0 as usize].push(id);
        }
        incoming
    }

    /// Dijkstra from the destination backwards: the next hop of every node.
    fn tree_towards(
        &self,
        destination: NodeId,
        incoming: &[Vec<LinkId>],
        at: Instant,
    ) -> Vec<Option<LinkId>> {
        let mut best = vec![(u64::MAX, u32::MAX); self.nodes.len()];
        let mut next = vec![None; self.nodes.len()];
        let mut open = BinaryHeap::from([Reverse((0, 0, destination))]);
        best[destination.0 as usize] = (0, 0);
        while let Some(Reverse((delay, hops, node))) = open.pop() {
            if (delay, hops) > best[node.0 as usize] || !self.nodes[node.0 as usize].is_up {
                continue;
            }
            for &id in &incoming[node.0 as usize] {
                let (from, _) = self.ends(id);
                let cost = (delay + self.link(id).propagation(at).as_nanos(), hops + 1);
                if cost < best[from.0 as usize] {
                    best[from.0 as usize] = cost;
                    next[from.0 as usize] = Some(id);
                    open.push(Reverse((cost.0, cost.1, from)));
                }
            }
        }
        next
    }
}
