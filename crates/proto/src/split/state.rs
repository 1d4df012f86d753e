//! Connections as values, for another process that goes on with them.

use super::config::SplitConfig;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::name::ByteRange;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// A sender between two segments. Offsets are in bytes of the flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SenderState {
    /// Bytes that were given, and whether these are all.
    pub given: u64,
    /// No bytes follow those.
    pub is_all: bool,
    /// The first byte that was never sent.
    pub next: u64,
    /// The client has everything below.
    pub cumulative: u64,
    /// Bytes that the client has, in any order.
    pub received: u64,
    /// The first byte for which the client has no room.
    pub right_edge: u64,
    /// First byte and end of each segment that is not acknowledged.
    pub waiting: Vec<(u64, u64)>,
    /// The least round trip.
    pub rtt: Duration,
}

/// A receiver between two segments. Offsets are in bytes of the flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceiverState {
    /// Everything below arrived.
    pub next: u64,
    /// First byte and end of each run that arrived beyond.
    pub beyond: Vec<(u64, u64)>,
    /// Length of the flow, once known.
    pub end: Option<u64>,
    /// The first byte for which there was no room when that was last said.
    pub right_edge: u64,
    /// Bytes that arrived in order and that the owner still has.
    pub kept: u64,
    /// Bytes for which it has room when it has none.
    pub window: u64,
}

impl Sender {
    /// A sender that goes on. What is under way counts as sent now, and tells no round trip.
    pub fn resumed(now: Instant, config: &SplitConfig, state: &SenderState) -> Self {
        let mut sender = Self::new(config);
        sender.on_rtt(state.rtt);
        sender.put_state(state);
        for &(start, end) in &state.waiting {
            // A segment that left twice is no sample of the round trip.
            (0..2).for_each(|_| sender.note_sent(now, ByteRange::new(start, end)));
        }
        sender
    }
}

impl Receiver {
    /// A receiver that goes on.
    pub fn resumed(config: &SplitConfig, state: &ReceiverState) -> Self {
        let mut receiver = Self::opened(config);
        receiver.put_state(state);
        receiver
    }
}
