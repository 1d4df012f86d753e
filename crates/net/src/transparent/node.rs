//! A relay between end points that do not know of it.

use super::pairs::{Pair, Pairs};
use starhop_proto::Node;
use starhop_proto::name::FlowId;
use starhop_proto::relay::Relay;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::wire::Packet;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// What becomes of an intercepted datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The relay took it.
    Taken,
    /// It goes on as it came.
    PassedOn,
}

/// A client that has not asked for this long has gone, or has another address now.
const SILENT: Duration = Duration::from_millis(500);
/// Pairs and routes are forgotten after this time.
const IDLE: Duration = Duration::from_secs(120);

/// In whose name the relay asks for a flow.
#[derive(Clone, Copy, Debug)]
struct Asker {
    /// The client.
    client: Pair,
    last_heard: Instant,
}

/// A [`Relay`] that answers each end point under the address of the other.
///
/// To the relay, a neighbour is a pair of addresses: a client and the server that it speaks to, or that server and the
/// client in whose name it is asked. So every hop keeps both end points' addresses, and when the relay goes, the end
/// points go on where it stood.
pub(super) struct Interceptor {
    relay: Relay,
    pairs: Pairs,
    askers: BTreeMap<FlowId, Asker>,
    next_sweep: Instant,
}

impl Interceptor {
    pub(super) fn new(relay: Relay, now: Instant) -> Self {
        Self { relay, pairs: Pairs::default(), askers: BTreeMap::new(), next_sweep: now + IDLE }
    }

    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    /// A datagram on its way from `from` to `to` was intercepted.
    pub(super) fn handle(
        &mut self,
        now: Instant,
        from: SocketAddr,
        to: SocketAddr,
        datagram: &mut [u8],
    ) -> Verdict {
        self.sweep(now);
        let pair = Pair { peer: from, local: to };
        let is_taken = match Packet::parse(datagram) {
            Ok(Packet::Interest(interest)) => {
                self.route(now, interest.flow, pair);
                true
            }
            Ok(Packet::Data(header, payload)) => {
                let range = header.range(payload.len());
                self.is_asked_of(header.flow, pair) && self.relay.expects(header.flow, range)
            }
            Ok(Packet::Notice(notice)) => {
                self.is_asked_of(notice.flow, pair) && self.relay.expects(notice.flow, notice.range.prefix(0))
            }
            // Sealed, of a later version, or not Starhop's at all.
            Err(_) => false,
        };
        if !is_taken {
            return Verdict::PassedOn;
        }
        let name = self.pairs.name(now, pair);
        self.relay.handle_datagram(now, name, datagram);
        Verdict::Taken
    }

    /// Whether the relay asks this server for the flow, in the name of this client.
    fn is_asked_of(&self, flow: FlowId, server: Pair) -> bool {
        self.askers.get(&flow).is_some_and(|asker| asker.client.reversed() == server)
    }

    /// The flow is asked of whom its client asks; of several clients, the first that is still there.
    fn route(&mut self, now: Instant, flow: FlowId, client: Pair) {
        match self.askers.get_mut(&flow) {
            Some(asker) if asker.client == client => asker.last_heard = now,
            Some(asker) if now.since(asker.last_heard) < SILENT => {}
            _ => {
                self.askers.insert(flow, Asker { client, last_heard: now });
                let upstream = self.pairs.name(now, client.reversed());
                self.relay.set_route(now, flow, upstream);
            }
        }
    }

    fn sweep(&mut self, now: Instant) {
        if now < self.next_sweep {
            return;
        }
        self.next_sweep = now + IDLE;
        let silent = self.askers.iter().filter(|(_, asker)| now.since(asker.last_heard) >= IDLE);
        let silent: Vec<FlowId> = silent.map(|(flow, _)| *flow).collect();
        for flow in silent {
            self.askers.remove(&flow);
            self.relay.clear_route(now, flow);
        }
        self.pairs.forget(now, IDLE.scaled(2, 1));
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.relay.handle_timeout(now);
    }

    /// Appends at most one datagram to `out` and says between whom it travels.
    pub(super) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Pair, usize)> {
        loop {
            let start = out.len();
            let transmit = self.relay.poll_transmit(now, out)?;
            if let Some(pair) = self.pairs.pair(transmit.to) {
                self.pairs.name(now, pair);
                return Some((pair, transmit.len));
            }
            // For a neighbour that was forgotten.
            out.truncate(start);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.relay.poll_timeout()
    }
}
