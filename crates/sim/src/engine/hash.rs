//! The trace hash: two runs that differ anywhere have different hashes.

use super::packet::Body;
use starhop_proto::time::Instant;

/// Mixes every event that a host sees: who, when, how long, and the header bytes. Payload is left out: it is
/// checked where it arrives, and hashing it would cost more than carrying it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceHash(u64);

/// Bytes of a datagram that are mixed: all headers of the protocol fit.
const HEADER: usize = 40;

impl TraceHash {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn mix(&mut self, word: u64) {
        // The folded multiplication of wyhash: both halves of the product depend on all bits of the state.
        let product = u128::from(self.0 ^ word) * 0xa076_1d64_78bd_642f_u128;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(word.rotate_left(32));
    }

    pub(crate) fn timer(&mut self, now: Instant, host: u32) {
        self.mix(now.as_nanos() ^ (u64::from(host) << 40) ^ (1 << 63));
    }

    pub(crate) fn packet(&mut self, now: Instant, host: u32, body: &Body) {
        self.mix(now.as_nanos() ^ (u64::from(host) << 40));
        match body {
            Body::Datagram(bytes) => {
                let header = &bytes[..bytes.len().min(HEADER)];
                self.mix(bytes.len() as u64);
                let (words, rest) = header.as_chunks::<8>();
                words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
                rest.iter().for_each(|&byte| self.mix(u64::from(byte)));
            }
            Body::Segment(s) => {
                self.mix(s.offset);
                self.mix(u64::from(s.len) | u64::from(s.flow) << 32);
            }
        }
    }
}
