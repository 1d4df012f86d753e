//! The bytes that simulated flows carry, cheap to make and to check.

use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::rng::Rng;
use std::rc::Rc;

/// A prime: a byte that is misplaced by any power of two, or any multiple of a packet, is a wrong byte.
const PERIOD: usize = 65_521;

/// Content that repeats a random pattern from a place that depends on the flow, so that making and checking
/// bytes is copying and comparing memory.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The pattern, twice in a row: any piece up to one period lies in it without a seam.
    bytes: Rc<[u8]>,
}

impl Default for Pattern {
    fn default() -> Self {
        let mut rng = Rng::new(0x5354_4152_484f_5021);
        let once: Vec<u8> = (0..PERIOD).map(|_| rng.next_u64() as u8).collect();
        Self { bytes: once.iter().chain(&once).copied().collect() }
    }
}

impl Pattern {
    /// Appends the bytes of `range` of `flow`.
    pub fn write(&self, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) {
        self.pieces(flow, range).for_each(|piece| out.extend_from_slice(piece));
    }

    /// Whether `bytes` are those of `range` of `flow`.
    pub fn matches(&self, flow: FlowId, range: ByteRange, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        for piece in self.pieces(flow, range) {
            match rest.split_at_checked(piece.len()) {
                Some((head, tail)) if head == piece => rest = tail,
                _ => return false,
            }
        }
        rest.is_empty()
    }

    fn pieces(&self, flow: FlowId, range: ByteRange) -> impl Iterator<Item = &[u8]> {
        let phase = u64::from_le_bytes(flow.0[..8].try_into().unwrap_or_default()) % PERIOD as u64;
        let mut at = range.start;
        std::iter::from_fn(move || {
            let len = ((range.end - at) as usize).min(PERIOD);
            let from = ((at % PERIOD as u64 + phase) % PERIOD as u64) as usize;
            at += len as u64;
            (len > 0).then(|| &self.bytes[from..from + len])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_recognised_and_every_mistake_is_too() {
        let (pattern, flow) = (Pattern::default(), FlowId([7; 16]));
        let range = ByteRange::at((1 << 32) + 700, 200_000);
        let mut bytes = Vec::new();
        pattern.write(flow, range, &mut bytes);
        assert!(pattern.matches(flow, range, &bytes));
        assert!(!pattern.matches(FlowId([8; 16]), range, &bytes));
        assert!(!pattern.matches(flow, ByteRange::at(range.start - (1 << 32), 200_000), &bytes));
        assert!(!pattern.matches(flow, range, &bytes[1..]));
        bytes[123_456] ^= 1;
        assert!(!pattern.matches(flow, range, &bytes));
    }
}
