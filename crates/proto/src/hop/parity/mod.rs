//! An erasure code over the packets of a hop whose repair by request takes long.
//!
//! The code slides: every few packets the Responder sends the sum of the packets before it, each times a factor,
//! and each packet is in several such sums. The Requester solves for the missing packets. A single loss is repaired
//! by the next sum; with blocks it would wait for the block's end, so that the same delay takes about twice the
//! parity (compare RFC 8681).
//!
//! The Requester decides ([`Plan`](plan)), because it measures the loss ([`weather`]) and the hop's round trip.

mod code;
mod decoder;
mod encoder;
mod field;
mod plan;
mod weather;

pub use code::HopCode;
pub use decoder::{Decoder, Equation, Restored};
pub use encoder::{Encoder, Sum};
pub use plan::{Hop, plan};
pub use weather::{Loss, Weather};

/// Hops of a node that want parity, at most: each keeps hundreds of packets.
pub(super) const MOST_DECODERS: usize = 8;
/// Hops of a node that are sent parity, at most.
pub(super) const MOST_ENCODERS: usize = 64;

/// Bytes of memory that the codes of a node can take, with packets of `packet` bytes.
pub(crate) const fn memory_bound(packet: u64) -> u64 {
    let decoder = decoder::MOST_PACKETS + field::BITS;
    let encoder = crate::wire::MAX_OVERLAP as usize + field::BITS;
    (MOST_DECODERS * decoder + MOST_ENCODERS * encoder) as u64 * packet
}

/// The factor of the packet with `counter` in a sum with `seed`: from the 255 that are not zero, one that looks drawn. The
/// mixing is that of a hash of 32 bits (two rounds of shift and multiplication).
fn factor(seed: u8, counter: u16) -> u8 {
    let mut x = (u32::from(seed) << 16) | u32::from(counter);
    for _ in 0..2 {
        x = (x ^ (x >> 16)).wrapping_mul(0x045d_9f3b);
    }
    (1 + (x >> 8) % 255) as u8
}
