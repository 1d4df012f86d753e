//! The trace hash: two runs that differ anywhere have different hashes.

use super::packet::Body;
use starhop_proto::split::Message;
use starhop_proto::time::Instant;

/// Mixes every event that a host sees: the host, the time, the length, and the header bytes. Payload is left out:
/// the receiver checks it, and hashing it would cost more than carrying it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceHash(u64);

/// Bytes of a datagram that are mixed: the front of a seal, and all headers of the protocol but unusual ones.
const HEADER: usize = 48;

impl TraceHash {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    /// The folded multiplication of wyhash: both halves of the product depend on all bits of both factors.
    fn mix(&mut self, a: u64, b: u64) {
        let product = u128::from(self.0 ^ a) * u128::from(b ^ 0xa076_1d64_78bd_642f);
        // Were one factor zero, the sum would still keep the other.
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(a ^ b.rotate_left(32));
    }

    pub(crate) fn timer(&mut self, now: Instant, host: u32) {
        self.mix(now.as_nanos(), u64::from(host) | 1 << 63);
    }

    fn bytes(&mut self, now: Instant, host: u32, bytes: &[u8]) {
        self.mix(now.as_nanos(), u64::from(host) | (bytes.len() as u64) << 32);
        let mut header = [0; HEADER];
        let len = bytes.len().min(HEADER);
        header[..len].copy_from_slice(&bytes[..len]);
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[8 * i + byte]));
        self.mix(word(0), word(1));
        self.mix(word(2), word(3));
        self.mix(word(4), word(5));
    }

    pub(crate) fn packet(&mut self, now: Instant, host: u32, body: &Body) {
        match body {
            Body::Datagram(bytes) => self.bytes(now, host, bytes),
            Body::Opaque(packet) => self.bytes(now, host, &packet.bytes),
            Body::Segment(s) => {
                self.mix(now.as_nanos(), u64::from(host) | u64::from(s.flow) << 32);
                self.mix(s.offset, u64::from(s.len) | u64::from(s.header) << 32);
            }
            Body::Tcp(s) => {
                self.mix(now.as_nanos(), u64::from(host) | u64::from(s.flow) << 32);
                self.mix(s.seq, u64::from(s.len) | (s.kind as u64) << 32);
                self.mix(s.ack, s.window);
                for block in s.sack.as_slice() {
                    self.mix(block.start, block.end);
                }
            }
            Body::Split(s) => {
                self.mix(now.as_nanos(), u64::from(host) | s.connection.0 << 32);
                self.split_message(&s.message);
            }
        }
    }

    fn split_message(&mut self, message: &Message) {
        match message {
            Message::Open => self.mix(0, 0),
            Message::Accept => self.mix(1, 0),
            Message::Data { range, is_last } => self.mix(range.start << 1 | u64::from(*is_last), range.end),
            Message::Ack(ack) | Message::Request { ack, .. } => {
                self.mix(ack.next, u64::from(ack.window) | ack.asked << 16);
                for block in ack.blocks.as_slice() {
                    self.mix(block.start, block.end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_header_and_the_length_matter() {
        let hash = |bytes: &[u8]| {
            let mut hash = TraceHash::new(1);
            hash.packet(Instant::from_nanos(7), 3, &Body::Datagram(bytes.to_vec()));
            hash.value()
        };
        let plain = [9; 100];
        let mut seen = vec![hash(&plain), hash(&plain[..99]), hash(&plain[..20])];
        for index in 0..HEADER {
            let mut changed = plain;
            changed[index] ^= 1;
            seen.push(hash(&changed));
        }
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
