//! The interface of the programs that the engine runs at the nodes.

use super::packet::Body;
use starhop_proto::consumer::FlowStats;
use starhop_proto::name::FlowId;
use starhop_proto::peer::Face;
use starhop_proto::producer::ProducerStats;
use starhop_proto::relay::RelayStats;
use starhop_proto::relay::intercept::Verdict;
use starhop_proto::time::{Duration, Instant};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A host of a world: its number, and so its address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostId(pub u32);

const NETWORK: u32 = 10 << 24;
const PORT: u16 = 4000;

impl HostId {
    /// The made-up address with which the host begins: its number within 10.0.0.0/8.
    pub fn addr(self) -> SocketAddr {
        Address { host: self, moves: 0 }.socket()
    }
}

/// An address that a host has, or had before it moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Address {
    pub(crate) host: HostId,
    /// Number of times that the host has moved; it is added to the port.
    pub(crate) moves: u16,
}

impl Address {
    /// The address as hosts see it.
    pub(crate) fn socket(self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::from(NETWORK | self.host.0)), PORT.wrapping_add(self.moves))
    }

    /// Reads an address that hosts see, when it is one of the made-up ones.
    pub(crate) fn of(addr: SocketAddr) -> Option<Self> {
        let IpAddr::V4(ip) = addr.ip() else { return None };
        let bits = u32::from(ip);
        let host = HostId(bits & 0x00ff_ffff);
        (bits >> 24 == NETWORK >> 24).then_some(Self { host, moves: addr.port().wrapping_sub(PORT) })
    }
}

/// A program on a node: a role of the protocol, or a model of another transport. The same shape as
/// [`starhop_proto::Node`], and the same rules about `now`, which is the clock of this node.
pub trait Host {
    /// A packet arrived from `face.remote` at the host's address `face.local`.
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body);

    /// A packet from `face.remote` to `face.local` passes the node on which the host
    /// [intercepts](super::World::add_interceptor).
    fn intercept(&mut self, _now: Instant, _face: Face, _body: &mut Body) -> Verdict {
        Verdict::PassedOn
    }

    /// Time passed.
    fn handle_timeout(&mut self, now: Instant);

    /// Writes at most one packet into `out`, which is an empty datagram, and says where it goes. A host that intercepts
    /// says in whose name, too.
    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face>;

    /// Next time at which [`Self::handle_timeout`] must be called; `None` while only packets matter.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The application wants its transfer to begin.
    fn start(&mut self, _now: Instant) {}

    /// The application wants one of several transfers to begin.
    fn begin(&mut self, now: Instant, _flow: u32) {
        self.start(now);
    }

    /// The neighbour to ask for `flow` is another from now on.
    fn set_route(&mut self, _now: Instant, _flow: FlowId, _upstream: SocketAddr) {}

    /// The time of day of the node jumped by `by` nanoseconds. Timers go on.
    fn step_clock(&mut self, _now: Instant, _by: i64) {}

    /// The program was killed and starts again with nothing in its memory.
    fn restart(&mut self, _now: Instant) {}

    /// The counters of this host.
    fn report(&self) -> HostReport {
        HostReport::Other
    }

    /// The window of a sender, for the time series.
    fn window(&self) -> Option<WindowSample> {
        None
    }

    /// Bytes buffered for a flow, at a host that terminates connections.
    fn backlog(&self, _flow: u32) -> Option<Backlog> {
        None
    }

    /// The counters of one flow, at a host that serves several.
    fn flow_report(&self, _flow: u32) -> HostReport {
        self.report()
    }

    /// A flow that it serves among others is over.
    fn close(&mut self, _now: Instant, _flow: u32) {}
}

/// Counters of a TCP sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpStats {
    /// Segments with payload that it sent.
    pub segments: u64,
    /// Segments that were retransmissions.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Loss episodes that acknowledgements showed.
    pub recoveries: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Reductions that were taken back, because nothing had been lost.
    pub undone: u64,
}

/// A sender's window at one moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WindowSample {
    /// Congestion window, segments.
    pub cwnd: f64,
    /// Slow-start threshold, segments; infinite before the first loss.
    pub ssthresh: f64,
    /// Smoothed round trip; `None` before the first sample.
    pub srtt: Option<Duration>,
    /// Segments that left and are neither acknowledged nor taken for lost.
    pub in_flight: u32,
}

/// Bytes that a node buffers for one connection that it terminates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Bytes that are not sent on yet.
    pub unsent: u64,
    /// Bytes of the buffer in use.
    pub held: u64,
}

/// The counters of a host, by its role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostReport {
    /// A Consumer.
    Consumer(FlowStats),
    /// A Relay.
    Relay(RelayStats),
    /// A Producer.
    Producer(ProducerStats),
    /// A TCP sender.
    Tcp(TcpStats),
    /// A model that keeps its own books.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_host_and_no_other() {
        let moved = Address { host: HostId(70_000), moves: 3 };
        assert_eq!(Address::of(moved.socket()), Some(moved));
        assert_ne!(moved.socket(), HostId(70_000).addr());
        assert_eq!(Address::of("11.0.0.1:4000".parse().unwrap_or(HostId(0).addr())), None);
    }
}
