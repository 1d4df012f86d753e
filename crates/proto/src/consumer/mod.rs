//! The Consumer: asks for a flow, writes what arrives into a [`Sink`], and times out as the last resort.

use crate::config::Config;
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::node::{Node, Transmit};
use crate::time::Instant;
use crate::wire::{Plain, Suite};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Where received bytes go: a file, a reassembly buffer, a recorder.
pub trait Sink {
    /// Takes bytes that were not received before. Called in order of arrival, not of offset.
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]);
}

/// What a Consumer is to fetch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The flow.
    pub flow: FlowId,
    /// The neighbour to ask.
    pub upstream: SocketAddr,
    /// The length, where it is known beforehand.
    pub length: Option<u64>,
    /// Bytes that the application has already.
    pub have: RangeSet,
}

/// What a Consumer tells its application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumerEvent {
    /// Every byte up to the end arrived.
    Finished {
        /// The length of the flow.
        length: u64,
    },
    /// The Producer has no such flow.
    NoSuchName,
    /// A timeout passed without an answer; this is the `count`th in a row.
    TimedOut {
        /// Timeouts since the last new byte.
        count: u32,
    },
}

/// Counters of a Consumer since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerStats {
    /// New bytes received.
    pub received_bytes: u64,
    /// Bytes received again.
    pub duplicate_bytes: u64,
    /// Interests sent.
    pub interests_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges asked for again on the last hop.
    pub repairs: u64,
    /// End-to-end timeouts.
    pub timeouts: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

/// Fetches one flow.
pub struct Consumer<S, C = Plain> {
    sink: S,
    suite: C,
    _config: Config,
    _request: Request,
    stats: ConsumerStats,
}

impl<S: Sink, C: Suite> Consumer<S, C> {
    /// A Consumer that will ask for `request` once [`Consumer::start`] is called.
    pub fn new(config: Config, request: Request, sink: S, suite: C, _seed: u64) -> Self {
        Self { sink, suite, _config: config, _request: request, stats: ConsumerStats::default() }
    }

    /// Begins to ask.
    pub fn start(&mut self, _now: Instant) {}

    /// Asks another neighbour from now on: the route changed.
    pub fn set_upstream(&mut self, _now: Instant, _upstream: SocketAddr) {}

    /// The first offset that has not arrived: everything below is complete.
    pub fn in_order_end(&self) -> u64 {
        0
    }

    /// Counters since the start.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, to change it.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }
}

impl<S: Sink, C: Suite> Node for Consumer<S, C> {
    type Event = ConsumerEvent;

    fn handle_datagram(&mut self, _now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        let _ = self.suite.open(from, datagram);
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<ConsumerEvent> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
