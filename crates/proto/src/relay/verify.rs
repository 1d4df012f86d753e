//! A relay can disprove bytes of its cache: a node that was asked filled it, but may have lied. Before the cache
//! answers, a [`Verifier`] judges the groups of the answer; wrong ones are forgotten and fetched again.
//!
//! Bytes that only pass are not held back for it: the Consumer verifies them.

use super::{Flow, Relay};
use crate::cache::Cache;
use crate::name::{ByteRange, FlowId};
use crate::rng::Rng;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::wire::Suite;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes that are judged at once.
pub const GROUP: u64 = 16 * 1024;

/// The longest proof that is looked for, in bytes: with 32 bytes for each group, that of an object of 1 GiB.
pub const MAX_PROOF: u64 = 2 << 20;

/// Interval between two looks for the proof of one flow.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Nanoseconds that pass after each byte of a proof that was tried: a byte takes about 3 ns to check, so that a
/// node that makes a relay look for proofs takes at most some percent of its time.
const PAUSE_NANOS_PER_BYTE: u64 = 100;

/// With samples, the share of groups that are judged.
const SAMPLE: f64 = 1.0 / 8.0;

/// Tells true bytes from wrong ones, for flows whose name commits to their bytes.
pub trait Verifier: Send {
    /// The flow that carries the proof of `flow`, if there is such a flow.
    fn proof_flow(&self, flow: FlowId) -> FlowId;

    /// Takes a candidate for the proof of `flow`; true if it is the proof.
    fn learn(&mut self, flow: FlowId, proof: &[u8]) -> bool;

    /// Whether the proof of `flow` is known.
    fn knows(&self, flow: FlowId) -> bool;

    /// Whether `bytes` are group `number` of `flow`, whose proof is known.
    fn judge(&self, flow: FlowId, number: u64, bytes: &[u8]) -> bool;
}

/// Which groups are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrutiny {
    /// One in eight, and all of a flow once one was wrong.
    Sample,
    /// All that are here whole.
    Full,
}

/// A verifier at work.
pub(super) struct Verifying {
    verifier: Box<dyn Verifier>,
    scrutiny: Scrutiny,
    rng: Rng,
    /// The earliest time at which another proof is tried.
    next_proof: Instant,
    bytes: Vec<u8>,
    found: Vec<ByteRange>,
}

impl Verifying {
    /// Whether the proof of `flow` is known. A proof that is not known is looked for in the cache.
    fn has_proof(&mut self, now: Instant, cache: &mut Cache, flow: &mut Flow) -> bool {
        if self.verifier.knows(flow.name) {
            return true;
        }
        if now < self.next_proof || now < flow.next_look {
            return false;
        }
        flow.next_look = now + LOOK_INTERVAL;
        let proof = flow.sibling(self.verifier.proof_flow(flow.name));
        self.found.clear();
        cache.find(proof, ByteRange::new(0, MAX_PROOF), &mut self.found);
        let Some(&whole) = self.found.first().filter(|first| first.start == 0) else { return false };
        self.next_proof = now + Duration::from_nanos(PAUSE_NANOS_PER_BYTE * whole.len());
        self.bytes.clear();
        cache.read(proof, whole, &mut self.bytes) && self.verifier.learn(flow.name, &self.bytes)
    }

    /// Whether a group that the cache holds whole is wrong.
    fn is_wrong(&mut self, cache: &mut Cache, flow: &Flow, group: ByteRange) -> bool {
        if cache.is_verified(flow.fetch.id, group) {
            return false;
        }
        if self.scrutiny == Scrutiny::Sample && !flow.is_suspect && !self.rng.chance(SAMPLE) {
            return false;
        }
        self.bytes.clear();
        if !cache.read(flow.fetch.id, group, &mut self.bytes) {
            return false;
        }
        let is_true = self.verifier.judge(flow.name, group.start / GROUP, &self.bytes);
        if is_true {
            cache.mark_verified(flow.fetch.id, group);
        }
        !is_true
    }
}

impl<C: Suite> Relay<C> {
    /// Has the bytes of the cache verified before answers, from now on.
    pub fn set_verifier(&mut self, verifier: Box<dyn Verifier>, scrutiny: Scrutiny, seed: u64) {
        self.verifying = Some(Verifying {
            verifier,
            scrutiny,
            rng: Rng::new(seed),
            next_proof: Instant::ZERO,
            bytes: Vec::new(),
            found: Vec::new(),
        });
    }

    /// Forgets the groups at `range` that are wrong. Returns whether there were any.
    pub(super) fn forget_wrong(&mut self, now: Instant, flow_slot: Slot, range: ByteRange) -> bool {
        let (Some(verifying), Some(flow)) = (&mut self.verifying, self.flows.get_mut(flow_slot)) else {
            return false;
        };
        if !verifying.has_proof(now, &mut self.cache, flow) {
            return false;
        }
        let before = self.stats.disproved_groups;
        for number in range.start / GROUP..range.end.div_ceil(GROUP) {
            let end = flow.length.unwrap_or(u64::MAX);
            let group = ByteRange::at(number * GROUP, GROUP).intersect(ByteRange::new(0, end));
            if group.is_empty() || !verifying.is_wrong(&mut self.cache, flow, group) {
                continue;
            }
            self.cache.remove(flow.fetch.id, group);
            flow.is_suspect = true;
            self.stats.disproved_groups += 1;
            self.stats.last_disproved =
                self.uplinks.get(flow.fetch.uplink).map(|requester| requester.face.remote);
        }
        self.stats.disproved_groups > before
    }
}
