//! Rate-based connection splitting: the gateway with TCP on one side and the satellite on the other, and the client, or a
//! terminal that the client is behind.

mod client;
mod gateway;
mod terminal;

pub use client::SplitSink;
pub use gateway::{GatewayHost, Upstream};
pub use terminal::TerminalHost;

use starhop_proto::split::{Buffer, SplitConfig};
use starhop_proto::time::Duration;

/// Bounds the buffer before the round trips are known: longer than both round trips of any gateway.
const LONGEST_TRIPS: Duration = Duration::from_secs(4);

/// The largest buffer that a connection may get.
fn largest_buffer(config: &SplitConfig) -> u64 {
    match config.buffer {
        Buffer::Bytes(bytes) => bytes,
        Buffer::PeakRate(rate) => rate.bytes_in(LONGEST_TRIPS),
    }
}
