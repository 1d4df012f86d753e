//! The state of a gateway, for its operator. Nothing here takes part in the protocol.

use super::{Bond, CarryStats, Gateway, Opening, StreamId};
use crate::hop::{About, Downstream, Upstream};
use crate::time::{Duration, Instant};
use crate::wire::Suite;
use core::net::SocketAddr;

/// The bytes of users that a gateway exchanged with a peer since its start, without the headers and repairs of hops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// Users gave them to this gateway, for the peer.
    pub to_peer: u64,
    /// They came from the peer, and users took them.
    pub from_peer: u64,
}

/// A peer of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerView {
    /// The neighbour that is asked for the peer's bytes; `None` if the peer has not asked yet, which shows its address.
    pub address: Option<SocketAddr>,
    /// Whether it answers.
    pub is_up: bool,
    /// The round trip to it, as last seen.
    pub rtt: Option<Duration>,
    /// Sessions with it so far.
    pub sessions: u32,
    /// Streams with it now.
    pub streams: usize,
    /// Bytes of users.
    pub account: Account,
    /// Packets of users.
    pub carried: CarryStats,
    /// Users' flows of packets towards it now.
    pub packet_flows: usize,
}

/// A user's connection as it is carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamView {
    /// Its stream.
    pub id: StreamId,
    /// Its client and its target.
    pub opening: Opening,
    /// Bytes that came of it and that its user here has not taken.
    pub waiting: usize,
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// The peers, in the order in which they were given.
    pub fn peer_views(&self, now: Instant) -> impl Iterator<Item = PeerView> + '_ {
        self.peers.iter().zip(0u16..).map(move |(peer, index)| PeerView {
            address: peer.address(),
            is_up: self.is_up(now, index),
            rtt: self.rtt(index).filter(|rtt| !rtt.is_zero()),
            sessions: peer.sessions(),
            streams: self.stream_ids().filter(|id| id.peer == index).count(),
            account: peer.account,
            carried: peer.carried,
            packet_flows: peer.carry.as_ref().map_or(0, |carry| carry.waiting().0),
        })
    }

    /// The streams, in no order that means anything.
    pub fn stream_views(&self) -> impl Iterator<Item = StreamView> + '_ {
        self.streams.iter().filter_map(|(slot, stream)| {
            let id = *self.streams.key(slot)?;
            Some(StreamView { id, opening: stream.opening?, waiting: stream.receive.held() })
        })
    }

    fn stream_ids(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.streams.iter().filter_map(|(slot, _)| self.streams.key(slot).copied())
    }

    /// The hops towards the nodes that it asks.
    pub fn upstreams(&self) -> impl Iterator<Item = Upstream> + '_ {
        self.consumer.upstreams()
    }

    /// The hops towards the nodes that ask it.
    pub fn downstreams(&self) -> impl Iterator<Item = Downstream> + '_ {
        self.producer.downstreams()
    }

    /// Changes the facts that this node tells neighbours about itself.
    pub fn set_about(&mut self, about: About) {
        self.producer.set_about(about);
    }
}
