//! The state of a gateway's sessions and streams as bytes, so that another process goes on with them.
//!
//! All that peers and users would notice is handed over: numbers and names of the sessions, the bytes that may still be asked
//! for, the records that came, and the streams. All that hops learn anew is not: to its neighbours the next process is
//! another incarnation of the node, as after a restart. A peer does not notice: it finds the same trunks, with the same bytes,
//! and asks once more for what it misses.
//!
//! The offset in a trunk is the nonce of a record. So only one of the two processes may seal: the first one ends, or
//! the second one never begins.

use super::frame::{Frame, Opening};
use super::{Bond, Gateway, StreamId};
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::time::{Duration, Instant};
use crate::wire::Suite;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// The first bytes of a state: a word, and the version of what follows.
const FORM: [u8; 4] = *b"SHG3";

/// Why a gateway cannot go on with the state of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// The state has another form, such as that of another version, or was cut.
    OtherForm,
    /// The peer at this place of the list is not the one that the session is with, or has another key.
    OtherPeer(u16),
}

impl core::fmt::Display for NotTaken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OtherForm => write!(f, "the state of the sessions has the form of another version"),
            Self::OtherPeer(peer) => {
                write!(f, "the session with peer {peer} began with another peer there, or under another key")
            }
        }
    }
}

impl core::error::Error for NotTaken {}

/// A value that is written into a state and read from it.
pub(super) trait Part: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the value off the front of `from`; `None` when the bytes make no sense.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// Implements [`Part`] for a structure, field by field.
macro_rules! parts {
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::gateway::handover::Part for $name {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                $($crate::gateway::handover::Part::put(&self.$field, out);)+
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::gateway::handover::Part::take(from)?),+ })
            }
        }
    };
}
pub(super) use parts;

impl Part for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_be_bytes());
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk::<8>()?;
        *from = rest;
        Some(Self::from_be_bytes(*bytes))
    }
}

/// Numbers that are shorter than 64 bits.
macro_rules! numbers {
    ($($kind:ty),+) => {
        $(impl Part for $kind {
            fn put(&self, out: &mut Vec<u8>) {
                (*self as u64).put(out);
            }

            fn take(from: &mut &[u8]) -> Option<Self> {
                u64::take(from)?.try_into().ok()
            }
        })+
    };
}
numbers!(u16, u32, usize);

impl Part for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(u8::take(from)? != 0)
    }
}

impl Part for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        Some(byte)
    }
}

impl Part for Instant {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_nanos().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u64::take(from).map(Self::from_nanos)
    }
}

impl Part for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_nanos().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        u64::take(from).map(Self::from_nanos)
    }
}

impl<T: Part> Part for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        if bool::take(from)? { T::take(from).map(Some) } else { Some(None) }
    }
}

impl<A: Part, B: Part> Part for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<T: Part> Part for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        // No room is made ahead: a length that is not true ends with the bytes.
        let count = usize::take(from)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

/// Bytes, as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Part for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.len().put(out);
        out.extend_from_slice(&self.0);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::take(from)?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(Self(bytes.to_vec()))
    }
}

impl Part for VecDeque<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        out.extend(self);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Bytes::take(from).map(|bytes| bytes.0.into())
    }
}

impl Part for BTreeMap<u64, Vec<u8>> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        for (key, bytes) in self {
            key.put(out);
            bytes.len().put(out);
            out.extend_from_slice(bytes);
        }
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let pieces = Vec::<(u64, Bytes)>::take(from)?;
        Some(pieces.into_iter().map(|(key, bytes)| (key, bytes.0)).collect())
    }
}

impl Part for RangeSet {
    fn put(&self, out: &mut Vec<u8>) {
        let ranges: Vec<(u64, u64)> = self.iter().map(|range| (range.start, range.end)).collect();
        ranges.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut set = Self::new();
        for (start, end) in Vec::<(u64, u64)>::take(from)? {
            (start <= end).then(|| set.insert(ByteRange::new(start, end)))?;
        }
        Some(set)
    }
}

impl Part for FlowId {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk::<{ FlowId::LEN }>()?;
        *from = rest;
        Some(Self(*bytes))
    }
}

impl Part for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        let v6 = match self.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.is_ipv4().put(out);
        out.extend_from_slice(&v6.octets());
        self.port().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let is_v4 = bool::take(from)?;
        let (octets, rest) = from.split_first_chunk::<16>()?;
        *from = rest;
        let v6 = core::net::Ipv6Addr::from(*octets);
        let ip = if is_v4 { IpAddr::V4(v6.to_ipv4_mapped()?) } else { IpAddr::V6(v6) };
        Some(Self::new(ip, u16::take(from)?))
    }
}

parts!(Opening { from, to, dscp });
parts!(StreamId { peer, session, ours, number });

/// Frames without payload.
impl Part for VecDeque<Frame<'static>> {
    fn put(&self, out: &mut Vec<u8>) {
        let mut frames = Vec::new();
        self.iter().for_each(|frame| frame.emit(&mut frames));
        Bytes(frames).put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let bytes = Bytes::take(from)?.0;
        let (mut rest, mut frames) = (&bytes[..], Self::new());
        while !rest.is_empty() {
            let (frame, left) = Frame::parse(rest)?;
            frames.push_back(frame.without_payload()?);
            rest = left;
        }
        Some(frames)
    }
}

impl<B: Bond, C: Suite> Gateway<B, C> {
    /// The state of all sessions and streams, for [`Gateway::take_over`] by another process on this host. That
    /// process looks at every stream itself: events that nobody took are not handed over. From the moment at which another process takes the state over, this gateway must not send any more.
    pub fn hand_over(&self) -> Vec<u8> {
        let mut out = FORM.to_vec();
        self.peers.len().put(&mut out);
        for peer in &self.peers {
            peer.put_state(self.producer.source(), &mut out);
        }
        let streams =
            self.streams.iter().filter_map(|(slot, stream)| Some((*self.streams.key(slot)?, stream)));
        let streams: Vec<_> = streams.collect();
        streams.len().put(&mut out);
        for (id, stream) in streams {
            id.put(&mut out);
            stream.put(&mut out);
        }
        out
    }

    /// Goes on with the sessions and streams of another process of this node, instead of beginning anew. Call it on a gateway that has
    /// done nothing yet.
    ///
    /// # Errors
    /// [`NotTaken`]; the gateway is then of no use.
    pub fn take_over(&mut self, now: Instant, mut state: &[u8]) -> Result<(), NotTaken> {
        let form = state.split_off(..FORM.len()).ok_or(NotTaken::OtherForm)?;
        let from = &mut state;
        let count = usize::take(from).filter(|_| form == FORM).ok_or(NotTaken::OtherForm)?;
        for index in 0..count {
            let index = u16::try_from(index).map_err(|_| NotTaken::OtherForm)?;
            self.take_peer(now, index, from)?;
        }
        let streams = Vec::take(from).filter(|_| from.is_empty()).ok_or(NotTaken::OtherForm)?;
        for (id, stream) in streams {
            self.take_stream(id, stream);
        }
        Ok(())
    }
}
