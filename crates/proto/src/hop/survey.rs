//! The state of a node's hops, for its operator. Nothing here takes part in the protocol.

use super::{Downlinks, Greeting, Requester, Responder, Uplinks};
use crate::name::FlowId;
use crate::peer::Member;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use core::net::SocketAddr;

/// Packets and bytes that a hop has carried since its neighbour became known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Data packets and Notices.
    pub packets: u64,
    /// Bytes on the wire, IPv4 and UDP included, roughly.
    pub bytes: u64,
    /// Packets that were lost on the hop. Only its receiving side knows.
    pub lost: u64,
    /// Payload bytes that the cache had. Only the sending side of a relay's hop knows.
    pub from_cache: u64,
    /// Parity packets of the hop's erasure code. [`Carried::packets`] counts them, too.
    pub parity: u64,
    /// Lost packets that parity restored. [`Carried::lost`] counts them, too. Only the receiving side knows.
    pub restored: u64,
}

/// A hop towards a neighbour that is asked, as its receiving side measures it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Upstream {
    /// The neighbour.
    pub addr: SocketAddr,
    /// The smoothed and the smallest hopRTT; `None` before the first measurement. Their difference is queueing.
    pub rtt: Option<(Duration, Duration)>,
    /// The rate that the neighbour is granted.
    pub rate: Rate,
    /// Arrivals and losses.
    pub carried: Carried,
    /// Time of the last packet.
    pub last_heard: Option<Instant>,
    /// Time of the last Interest.
    pub last_asked: Option<Instant>,
    /// The longest payload that comes from it; `None` while that is not known.
    pub payload: Option<u16>,
    /// Its greeting, once it has sent one.
    pub greeting: Option<Greeting>,
    /// The rate above which something on the way drops packets and keeps no queue of them, where that shows.
    pub policed: Option<Rate>,
}

impl Upstream {
    /// A hop of which nothing is known but its neighbour.
    pub fn unheard(addr: SocketAddr) -> Self {
        Self {
            addr,
            rtt: None,
            rate: Rate::ZERO,
            carried: Carried::default(),
            last_heard: None,
            last_asked: None,
            payload: None,
            greeting: None,
            policed: None,
        }
    }
}

/// A hop towards a neighbour that asks, as its sending side sees it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Downstream {
    /// The neighbour.
    pub addr: SocketAddr,
    /// The roster's member whose key the neighbour has.
    pub member: Member,
    /// The rate that the neighbour grants.
    pub rate: Rate,
    /// The longest payload that it is sent.
    pub payload: u64,
    /// Bytes that wait to be sent.
    pub queued: u64,
    /// Bytes that it asked for and that are not here yet.
    pub awaited: u64,
    /// Flows that it has asked for.
    pub flows: usize,
    /// The sent packets.
    pub carried: Carried,
    /// Time of its last Interest.
    pub last_heard: Instant,
}

/// A flow that a node serves or relays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowView {
    /// Its name.
    pub id: FlowId,
    /// Its length, once it is known.
    pub length: Option<u64>,
    /// The neighbour that is asked for it; `None` at its source.
    pub upstream: Option<SocketAddr>,
    /// Neighbours that have asked for it.
    pub subscribers: usize,
    /// Bytes that were asked for upstream and have not arrived.
    pub expected: u64,
    /// Time of the last request or arrival.
    pub last_used: Instant,
}

impl Uplinks {
    /// The hops towards the neighbours that are asked.
    pub fn survey(&self) -> impl Iterator<Item = Upstream> + '_ {
        self.iter().map(Requester::survey)
    }
}

impl Downlinks {
    /// The hops towards the neighbours that ask.
    pub fn survey(&self) -> impl Iterator<Item = Downstream> + '_ {
        self.iter().map(Responder::survey)
    }

    /// Notes that the neighbour of a hop is answered with `bytes` from the cache.
    pub fn note_cached(&mut self, link: Slot, bytes: u64) {
        if let Some(responder) = self.get_mut(link) {
            responder.note_cached(bytes);
        }
    }
}
