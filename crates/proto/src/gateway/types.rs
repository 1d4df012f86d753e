//! The values that a gateway's application gives and gets.

use super::carry::CarrySettings;
use super::frame::{Opening, Reason};
use crate::consumer::Window;
use crate::name::FlowId;
use crate::security::SealKey;
use crate::split::SplitConfig;
use crate::time::Duration;
use core::net::SocketAddr;

/// A stream between two gateways, at one of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId {
    /// The peer's place in the list of peers.
    pub peer: u16,
    /// Which of the sessions with the peer: one that starts anew counts its streams anew.
    pub session: u32,
    /// Whether this gateway opened it.
    pub ours: bool,
    /// Its number among those of the gateway that opened it.
    pub number: u64,
}

/// An event for the gateway's application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GatewayEvent {
    /// The peer opened a stream: connect to its target, then call [`Gateway::connected`] or [`Gateway::reset`].
    Opened {
        /// The stream.
        stream: StreamId,
        /// Its source and target.
        opening: Opening,
    },
    /// The target of a stream has accepted.
    Connected {
        /// The stream.
        stream: StreamId,
    },
    /// There is something to read: bytes, or the end.
    Readable {
        /// The stream.
        stream: StreamId,
    },
    /// A stream that had no room takes bytes again.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// A stream is void, in both directions.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The reason.
        reason: Reason,
    },
    /// A peer answers, or no longer does.
    Peer {
        /// Its place in the list of peers.
        peer: u16,
        /// Whether it answers.
        is_up: bool,
    },
    /// A peer answers, but takes no segments of connections: it does not speak the protocol, or a relay lies in between.
    NotByRate {
        /// Its place in the list of peers.
        peer: u16,
    },
}

/// The secret that two gateways share, beforehand or in their own way: names that no other node can guess, and
/// keys.
pub trait Bond {
    /// The key that seals the records of a trunk. One key is one direction of one session.
    type Key: SealKey;

    /// The first half of the names by which hellos are asked: of us, or of the peer.
    fn hello(&self, of_us: bool) -> [u8; 8];

    /// The name and the key of the trunk that is `ours` or the peer's. Both ends have drawn a number for the session.
    fn trunk(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, Self::Key);

    /// The same for the segments of connections.
    fn segments(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, Self::Key);

    /// The same for the flow of packets.
    fn packets(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, Self::Key);
}

/// A gateway's configuration of a peer.
#[derive(Clone, Debug)]
pub struct PeerSpec<B> {
    /// The neighbour that is asked for the peer's bytes: the peer itself, or the first relay on the way. `None`: the
    /// peer is asked where it asks from, which may change.
    pub address: Option<SocketAddr>,
    /// The secret that both share.
    pub bond: B,
    /// Users' connections travel by the rate-based protocol of connection splitting, with these settings, and by nothing else.
    /// The peer must have them, too, and no relay may lie in between.
    pub by_rate: Option<SplitConfig>,
}

/// Settings of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewaySettings {
    /// Bytes that are asked of a peer ahead, at first: more are where the path holds more, up to [`Self::most_window`].
    pub window: u64,
    /// Silence of a peer after which its streams end.
    pub hold: Duration,
    /// The most streams at once.
    pub max_streams: usize,
    /// The most bytes that wait for users to read them, over all streams.
    pub max_waiting: u64,
    /// Settings of users' packets; `None`: they are neither sent nor taken.
    pub carry: Option<CarrySettings>,
}

impl GatewaySettings {
    /// A gigabit over a geostationary satellite.
    const MOST_WINDOW: u64 = 64 << 20;
    const FIRST_WINDOW: u64 = 256 << 10;

    /// The bytes of a trunk that are asked of a peer ahead.
    pub(super) fn window_of_trunk(&self) -> Window {
        Window { first: self.window.min(Self::FIRST_WINDOW), ..self.window_of_packets() }
    }

    /// Those of users' packets, which have deadlines: none waits for its window.
    pub(super) fn window_of_packets(&self) -> Window {
        Window { first: self.window, usual: self.window, most: self.most_window() }
    }

    /// The most bytes that are asked of a peer ahead.
    pub fn most_window(&self) -> u64 {
        self.window.max(Self::MOST_WINDOW)
    }

    /// The most bytes of a trunk that are kept for a peer that has told that it has `received` so many: twice what it can have asked for. A
    /// window doubles once it has come, and what a peer says nothing of is not kept for a large one.
    pub(super) fn most_kept(&self, received: u64) -> u64 {
        2 * received.clamp(self.window, self.most_window())
    }
}

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            // 62 Mbit/s over a geostationary satellite.
            window: 4 << 20,
            hold: Duration::from_secs(60),
            max_streams: 65_536,
            max_waiting: 256 << 20,
            carry: None,
        }
    }
}

/// Counters of a gateway since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GatewayStats {
    /// Streams that we opened.
    pub opened: u64,
    /// Streams that peers opened.
    pub accepted: u64,
    /// Streams that were reset, by whomever.
    pub resets: u64,
    /// Streams now.
    pub streams: u64,
    /// Bytes that wait for users to read them.
    pub waiting_bytes: u64,
    /// Users' bytes that left streams: for the peer, and for users here.
    pub user_bytes: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Records or frames that no peer of ours can have meant.
    pub bad_records: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

/// Why a stream cannot be opened: take the plain path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoStream {
    /// The peer does not answer.
    PeerDown,
    /// There are as many as there may be.
    Full,
    /// The peer has as many as it may have, by what it told.
    PeerFull,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_tells_nothing_is_kept_no_more_for_than_for_the_first_window() {
        let settings = GatewaySettings { window: 1 << 20, ..GatewaySettings::default() };
        let kept = [0, 1 << 20, 3 << 20, 1 << 40].map(|received| settings.most_kept(received) >> 20);
        assert_eq!(kept, [2, 2, 6, 128]);
    }
}
