//! The Producer: answers Interests from a [`Source`].

use crate::config::Config;
use crate::name::{ByteRange, FlowId};
use crate::node::{Node, Transmit};
use crate::time::Instant;
use crate::wire::{Plain, Suite};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// What a [`Source`] knows of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// There is no such flow.
    Unknown,
    /// There will be an answer, but not yet; the request is dropped and will be asked again.
    NotYet,
    /// The flow exists.
    Found {
        /// Its length; `None` for a stream without an end.
        length: Option<u64>,
        /// Whether relays must not keep it.
        is_volatile: bool,
    },
}

/// Where a Producer's bytes come from.
pub trait Source {
    /// What is known of `flow`.
    fn lookup(&mut self, flow: FlowId) -> Lookup;

    /// Appends the bytes of `range` to `out`, all or none; false when they cannot be had (the file changed).
    /// `range` lies within the length that [`Source::lookup`] gave.
    fn read(&mut self, now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool;
}

/// Counters of a Producer since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProducerStats {
    /// Interests received.
    pub interests_in: u64,
    /// Data packets sent.
    pub data_sent: u64,
    /// Payload bytes sent, repairs included.
    pub payload_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Packets sent again.
    pub repairs: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

/// Serves the flows of one [`Source`].
pub struct Producer<S, C = Plain> {
    source: S,
    suite: C,
    _config: Config,
    stats: ProducerStats,
}

impl<S: Source, C: Suite> Producer<S, C> {
    /// A Producer for `source`.
    pub fn new(config: Config, source: S, suite: C, _seed: u64) -> Self {
        Self { source, suite, _config: config, stats: ProducerStats::default() }
    }

    /// Counters since the start.
    pub fn stats(&self) -> ProducerStats {
        self.stats
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to change it.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }
}

impl<S: Source, C: Suite> Node for Producer<S, C> {
    /// A Producer has nothing to tell.
    type Event = core::convert::Infallible;

    fn handle_datagram(&mut self, _now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        let _ = self.suite.open(from, datagram);
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
