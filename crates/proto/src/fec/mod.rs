//! A systematic erasure code against the losses of a terrestrial path (SatERN, section II): a loss that it repairs
//! is no end-to-end loss, so no receiver waits a satellite's round trip for it, and no sender mistakes it for
//! congestion.
//!
//! Packets are opaque: any contents, ciphertext of a tunnel included, come out byte for byte. The [`FecEncoder`]
//! stands where the lossy part begins and sends every packet at once, with parity after every block; the
//! [`FecDecoder`] stands where it ends, at the satellite gateway. The decoder hands packets on in order, repairs
//! losses by parity, measures the losses, and reports them; from the reports the encoder chooses length and parity
//! of its blocks ([`FecPlan`]). Two hosts that protect each other's packets have both, a [`FecEnd`] each; [`FecNode`] speaks
//! over a network.
//!
//! The code is Reed and Solomon's, by the crate `reed-solomon-simd`: of k packets and r parity packets, any k are enough.

mod block;
mod config;
mod decoder;
mod encoder;
mod end;
mod estimate;
mod frame;
mod gilbert;
mod greeting;
mod node;
mod plan;

pub use config::{FecConfig, FecConfigError, FecSettings};
pub use decoder::{FecDecoder, FecDecoderStats};
pub use encoder::{FecEncoder, FecEncoderStats};
pub use end::FecEnd;
pub use estimate::LossEstimate;
pub use frame::{FecFrame, FecReport, FrameError};
pub(crate) use gilbert::Gilbert;
pub use node::{FecNode, FecNodeStats};
pub use plan::FecPlan;

#[cfg(test)]
mod tests;
