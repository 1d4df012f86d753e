//! The Relay: answers from its cache, passes the rest on, repairs the hop above it. All state is soft.

use crate::config::Config;
use crate::name::FlowId;
use crate::node::{Node, Transmit};
use crate::time::Instant;
use crate::wire::{Plain, Suite};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Counters of a Relay since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RelayStats {
    /// Interests received.
    pub interests_in: u64,
    /// Interests sent.
    pub interests_out: u64,
    /// Bytes asked for that were on their way already.
    pub aggregated_bytes: u64,
    /// Bytes answered from the cache.
    pub cache_hit_bytes: u64,
    /// Bytes that the cache holds now.
    pub cache_bytes: u64,
    /// Data packets received.
    pub data_in: u64,
    /// Data packets sent.
    pub data_out: u64,
    /// Data packets that nobody asked for.
    pub unasked: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges asked for again on the upstream hop.
    pub repairs: u64,
    /// Flows with state now.
    pub flows: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

/// Relays any number of flows between neighbours.
pub struct Relay<C = Plain> {
    suite: C,
    _config: Config,
    stats: RelayStats,
}

impl<C: Suite> Relay<C> {
    /// A relay that asks `upstream` for every flow without a route of its own.
    pub fn new(config: Config, _upstream: SocketAddr, suite: C, _seed: u64) -> Self {
        Self { suite, _config: config, stats: RelayStats::default() }
    }

    /// Changes the neighbour that is asked for flows without a route of their own.
    pub fn set_upstream(&mut self, _now: Instant, _upstream: SocketAddr) {}

    /// Changes the neighbour that is asked for `flow`.
    pub fn set_route(&mut self, _now: Instant, _flow: FlowId, _upstream: SocketAddr) {}

    /// Counters since the start.
    pub fn stats(&self) -> RelayStats {
        self.stats
    }
}

impl<C: Suite> Node for Relay<C> {
    /// A Relay has nothing to tell.
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
