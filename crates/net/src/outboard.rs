//! Verification of parts of an object before the whole has arrived.
//!
//! A BLAKE3 hash is the root of a tree (BLAKE3 paper, section 2.1). Cut at subtrees of 16 KiB, it needs 32 bytes
//! for each, 0.2 % of the object: the *outboard*, an object of its own. With the outboard and the name a client can
//! verify that the outboard belongs to the name, and then that 16 KiB belong to the object.

use blake3::Hasher;
use blake3::hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use starhop_proto::name::{ByteRange, FlowId};

/// Bytes of a group, the unit of verification. A lone chunk of 1 KiB would cost twelve times more per byte.
pub const GROUP: u64 = starhop_proto::relay::GROUP;

/// The longest outboard that is kept in memory, of an object of 64 GiB. Longer objects are verified as a whole.
pub const MAX_OUTBOARD: u64 = 128 << 20;

/// Separates outboards' flows from every other use of BLAKE3.
const FLOW_CONTEXT: &str = "starhop 2026 outboard v1";

/// Bytes of a chaining value.
const CV: usize = 32;

/// The flow of the outboard of the object that travels as `flow`.
pub fn outboard_flow(flow: FlowId) -> FlowId {
    FlowId::of_content(&blake3::derive_key(FLOW_CONTEXT, &flow.0))
}

/// Bytes of the outboard of an object of `length`; `None` for an object without an outboard: a single group, or far
/// too many.
pub fn outboard_len(length: u64) -> Option<u64> {
    let len = length.div_ceil(GROUP) * CV as u64;
    (length > GROUP && len <= MAX_OUTBOARD).then_some(len)
}

/// Hashes an object that comes in order, and keeps the values for its outboard.
#[derive(Debug, Default)]
pub struct TreeHasher {
    values: Vec<ChainingValue>,
    group: Hasher,
    /// Bytes in `group`.
    filled: u64,
}

impl TreeHasher {
    /// Takes the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == GROUP {
                self.values.push(self.group.finalize_non_root());
                self.group = hasher_at(self.values.len() as u64);
                self.filled = 0;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min((GROUP - self.filled) as usize));
            self.group.update(piece);
            self.filled += piece.len() as u64;
            bytes = rest;
        }
    }

    /// The object's hash, and its outboard if it has one.
    pub fn finish(mut self) -> (blake3::Hash, Option<Vec<u8>>) {
        if self.values.is_empty() {
            return (self.group.finalize(), None);
        }
        self.values.push(self.group.finalize_non_root());
        (root_of(&self.values), Some(self.values.concat()))
    }
}

/// The hashes of an object's groups, proved to belong to its name.
#[derive(Clone, Debug)]
pub struct Outboard {
    values: Vec<ChainingValue>,
}

impl Outboard {
    /// Reads the outboard of the object whose hash is `root`; `None` if it belongs to another object.
    pub fn read(bytes: &[u8], root: &blake3::Hash) -> Option<Self> {
        let (values, rest) = bytes.as_chunks::<CV>();
        let is_true = rest.is_empty() && values.len() >= 2 && root_of(values) == *root;
        is_true.then(|| Self { values: values.to_vec() })
    }

    /// As [`Outboard::read`], for the object that travels as `flow`: half of its hash is compared.
    pub fn read_for(bytes: &[u8], flow: FlowId) -> Option<Self> {
        let (values, rest) = bytes.as_chunks::<CV>();
        let is_true =
            rest.is_empty() && values.len() >= 2 && FlowId::of_content(root_of(values).as_bytes()) == flow;
        is_true.then(|| Self { values: values.to_vec() })
    }

    /// Length, bytes.
    pub fn len(&self) -> u64 {
        (self.values.len() * CV) as u64
    }

    /// Always false: an outboard has at least two groups.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of groups.
    pub fn groups(&self) -> u64 {
        self.values.len() as u64
    }

    /// Whether `bytes` are group `number`, whole (the last group may be shorter).
    pub fn verifies(&self, number: u64, bytes: &[u8]) -> bool {
        let Some(value) = self.values.get(number as usize) else { return false };
        if bytes.is_empty() || bytes.len() as u64 > GROUP {
            return false;
        }
        let mut hasher = hasher_at(number);
        hasher.update(bytes);
        // Public bytes: nothing is learnt from how long a comparison takes.
        hasher.finalize_non_root() == *value
    }
}

/// The range of a group of an object whose length may be known.
pub fn group_range(number: u64, length: Option<u64>) -> ByteRange {
    ByteRange::at(number * GROUP, GROUP).intersect(ByteRange::new(0, length.unwrap_or(u64::MAX)))
}

fn hasher_at(number: u64) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(number * GROUP);
    hasher
}

/// The root above at least two groups.
fn root_of(values: &[ChainingValue]) -> blake3::Hash {
    let (left, right) = halves(values);
    merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash)
}

fn subtree(values: &[ChainingValue]) -> ChainingValue {
    if let [value] = values {
        return *value;
    }
    let (left, right) = halves(values);
    merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
}

/// The left half of a BLAKE3 tree is the largest power of two that leaves something for the right.
fn halves(values: &[ChainingValue]) -> (&[ChainingValue], &[ChainingValue]) {
    values.split_at((values.len().next_power_of_two() / 2).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 / 7 + i / 1000) as u8).collect()
    }

    fn hash(bytes: &[u8], step: usize) -> (blake3::Hash, Option<Vec<u8>>) {
        let mut hasher = TreeHasher::default();
        bytes.chunks(step).for_each(|chunk| hasher.update(chunk));
        hasher.finish()
    }

    #[test]
    fn the_root_is_blake3_of_the_object_however_it_is_fed() {
        let group = GROUP as usize;
        let lengths =
            [0, 1, 1024, group - 1, group, group + 1, 2 * group, 3 * group, 5 * group + 7, 17 * group];
        for len in lengths {
            let bytes = object(len);
            for step in [1000, group, 100_000] {
                let (root, outboard) = hash(&bytes, step);
                assert_eq!(root, blake3::hash(&bytes), "{len} bytes by {step}");
                assert_eq!(outboard.map(|o| o.len() as u64), outboard_len(len as u64), "{len} bytes");
            }
        }
    }

    #[test]
    fn every_group_is_verified_and_no_other_bytes_are() {
        let bytes = object(5 * GROUP as usize + 77);
        let (root, outboard) = hash(&bytes, 4096);
        let outboard = Outboard::read(&outboard.unwrap(), &root).unwrap();
        let groups: Vec<&[u8]> = bytes.chunks(GROUP as usize).collect();
        for (number, group) in groups.iter().enumerate() {
            assert!(outboard.verifies(number as u64, group));
            assert!(!outboard.verifies(number as u64 + 1, group), "at another place");
            assert!(!outboard.verifies(number as u64, &group[1..]), "shorter");
            let mut wrong = group.to_vec();
            wrong[group.len() / 2] ^= 1;
            assert!(!outboard.verifies(number as u64, &wrong), "one bit");
        }
        assert!(!outboard.verifies(6, groups[5]));
    }

    #[test]
    fn an_outboard_that_does_not_belong_to_the_name_is_refused() {
        let bytes = object(3 * GROUP as usize);
        let (root, outboard) = hash(&bytes, 4096);
        let outboard = outboard.unwrap();
        assert!(Outboard::read(&outboard, &blake3::hash(b"another")).is_none());
        assert!(Outboard::read(&outboard[..64], &root).is_none());
        assert!(Outboard::read(&outboard[..70], &root).is_none());
        assert!(Outboard::read(&[], &root).is_none());
        let mut wrong = outboard.clone();
        wrong[40] ^= 1;
        assert!(Outboard::read(&wrong, &root).is_none());
    }
}
