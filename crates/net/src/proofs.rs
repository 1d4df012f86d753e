//! The outboards of the objects that pass, by which a relay can disprove bytes of its cache.

use crate::outboard::{Outboard, outboard_flow};
use starhop_proto::name::FlowId;
use starhop_proto::relay::Verifier;
use std::collections::{BTreeMap, VecDeque};

/// Bytes of outboards that are kept, of 32 GiB of objects.
pub const MAX_PROOF_BYTES: u64 = 64 << 20;

/// Outboards of objects by flow; the oldest go when there is no room for more.
#[derive(Debug)]
pub struct Proofs {
    known: BTreeMap<FlowId, Outboard>,
    order: VecDeque<FlowId>,
    bytes: u64,
    limit: u64,
}

impl Default for Proofs {
    fn default() -> Self {
        Self::new(MAX_PROOF_BYTES)
    }
}

impl Proofs {
    /// None yet, and never more than `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { known: BTreeMap::new(), order: VecDeque::new(), bytes: 0, limit }
    }
}

impl Verifier for Proofs {
    fn proof_flow(&self, flow: FlowId) -> FlowId {
        outboard_flow(flow)
    }

    fn learn(&mut self, flow: FlowId, proof: &[u8]) -> bool {
        let Some(outboard) = Outboard::read_for(proof, flow) else { return false };
        if self.known.insert(flow, outboard).is_none() {
            self.order.push_back(flow);
            self.bytes += proof.len() as u64;
        }
        while self.bytes > self.limit {
            let Some(oldest) = self.order.pop_front().and_then(|flow| self.known.remove(&flow)) else {
                break;
            };
            self.bytes -= oldest.len();
        }
        self.knows(flow)
    }

    fn knows(&self, flow: FlowId) -> bool {
        self.known.contains_key(&flow)
    }

    fn judge(&self, flow: FlowId, number: u64, bytes: &[u8]) -> bool {
        self.known.get(&flow).is_some_and(|outboard| outboard.verifies(number, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outboard::{GROUP, TreeHasher};

    fn object(seed: u8) -> (FlowId, Vec<u8>, Vec<u8>) {
        let bytes: Vec<u8> = (0..3 * GROUP as usize + 5).map(|at| (at / 100) as u8 ^ seed).collect();
        let mut hasher = TreeHasher::default();
        hasher.update(&bytes);
        let (hash, outboard) = hasher.finish();
        (FlowId::of_content(hash.as_bytes()), bytes, outboard.unwrap())
    }

    #[test]
    fn only_the_outboard_of_the_very_object_proves_its_groups() {
        let ((flow, bytes, own), (other, _, foreign)) = (object(1), object(2));
        let mut proofs = Proofs::default();
        assert!(!proofs.learn(flow, &foreign) && !proofs.learn(flow, &own[..64]) && !proofs.knows(flow));
        assert!(proofs.learn(flow, &own) && !proofs.knows(other));
        for (number, group) in (0..).zip(bytes.chunks(GROUP as usize)) {
            assert!(proofs.judge(flow, number, group));
            let mut wrong = group.to_vec();
            wrong[3] ^= 1;
            assert!(!proofs.judge(flow, number, &wrong));
        }
    }

    #[test]
    fn the_oldest_proofs_go_when_the_room_is_full() {
        let objects: Vec<_> = (0..5).map(object).collect();
        let len = objects[0].2.len() as u64;
        let mut proofs = Proofs::new(2 * len);
        assert!(objects.iter().all(|(flow, _, own)| proofs.learn(*flow, own) && proofs.learn(*flow, own)));
        let known: Vec<bool> = objects.iter().map(|(flow, ..)| proofs.knows(*flow)).collect();
        assert_eq!(known, [false, false, false, true, true]);
        assert_eq!(proofs.bytes, 2 * len);
        assert!(!Proofs::new(len - 1).learn(objects[0].0, &objects[0].2), "too long for all the room");
    }
}
