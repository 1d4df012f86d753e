//! A relay of which end points do not know (the papers' deployment).
//!
//! It stands on a router and is given every datagram of the protocol that passes. It answers a client as the server
//! that the client addressed, and asks that server as the client. So every hop keeps both end points' addresses,
//! and when the relay goes, the end points continue without it.
//!
//! The seal tells the owner of a datagram. A request that opens is answered here. A reply opens only if this relay
//! asked: replies to other nodes pass unchanged.

use super::{Relay, RelayStats, Taken};
use crate::config::Config;
use crate::hop::Transfer;
use crate::node::Transmit;
use crate::peer::{Face, Opened, Refusal};
use crate::time::Instant;
use crate::wire::Suite;
use alloc::vec::Vec;

/// The fate of an intercepted datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The relay took it.
    Taken,
    /// It goes on as it came.
    PassedOn,
    /// It is dropped: it repeats a datagram that was opened here before, and the next node that could open it has
    /// not seen it.
    Ended,
}

/// A [`Relay`] that answers each end point under the address of the other.
pub struct Interceptor<C> {
    relay: Relay<C>,
    /// Buffer in which datagrams are opened: datagrams for other nodes go on sealed as they came.
    opened: Vec<u8>,
}

impl<C: Suite> Interceptor<C> {
    /// A relay of every flow that passes.
    pub fn new(config: Config, suite: C, seed: u64) -> Self {
        Self { relay: Relay::of_passing_flows(config, suite, seed), opened: Vec::new() }
    }

    /// The relay.
    pub fn relay(&self) -> &Relay<C> {
        &self.relay
    }

    /// The relay, to change its keys or its verifier.
    pub fn relay_mut(&mut self) -> &mut Relay<C> {
        &mut self.relay
    }

    /// Counters since the start.
    pub fn stats(&self) -> RelayStats {
        self.relay.stats()
    }

    /// A datagram was intercepted on its way from `face.remote` to `face.local`.
    pub fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &[u8]) -> Verdict {
        let mut opened = core::mem::take(&mut self.opened);
        opened.clear();
        opened.extend_from_slice(datagram);
        let verdict = match self.relay.suite_mut().open(now, face, &mut opened) {
            Ok(Opened { peer, packet }) => {
                match self.relay.handle_packet(now, peer, packet, datagram.len()) {
                    Taken::Yes => Verdict::Taken,
                    Taken::No => Verdict::PassedOn,
                }
            }
            Err(Refusal::Replayed) => Verdict::Ended,
            // Of another domain, sealed with a key of two nodes only, from before this relay was there, or for
            // another node.
            Err(_) => Verdict::PassedOn,
        };
        self.opened = opened;
        verdict
    }

    /// As [`crate::Node::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        crate::Node::handle_timeout(&mut self.relay, now);
    }

    /// Appends at most one datagram to `out` and names its two ends: it travels from `to.local` to `to.remote`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        crate::Node::poll_transmit(&mut self.relay, now, out)
    }

    /// The oldest transfer that has ended and was not told.
    pub fn poll_event(&mut self) -> Option<Transfer> {
        crate::Node::poll_event(&mut self.relay)
    }

    /// As [`crate::Node::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        crate::Node::poll_timeout(&self.relay)
    }
}
