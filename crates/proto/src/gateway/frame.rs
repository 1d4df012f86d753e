//! Frames between gateways, inside the records of a trunk.

use crate::wire::varint;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Source and target of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The client's address.
    pub from: SocketAddr,
    /// The address that the client asked for.
    pub to: SocketAddr,
    /// The differentiated services field of the client's packets (RFC 2474), six bits.
    pub dscp: u8,
}

/// Why a stream ended before its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// One of its users reset it.
    Reset,
    /// The target refused the connection.
    Refused,
    /// The target cannot be reached.
    Unreachable,
    /// The target did not answer, or a user fell silent.
    TimedOut,
    /// The other gateway was silent for too long, or started anew.
    PeerLost,
    /// The other gateway has no room.
    NoRoom,
}

impl Reason {
    const ALL: [Self; 6] =
        [Self::Reset, Self::Refused, Self::Unreachable, Self::TimedOut, Self::PeerLost, Self::NoRoom];

    fn code(self) -> u8 {
        Self::ALL.iter().position(|reason| *reason == self).unwrap_or(0) as u8
    }

    /// The word for it in logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed-out",
            Self::PeerLost => "peer-lost",
            Self::NoRoom => "no-room",
        }
    }
}

/// A stream on the wire: a number of the gateway that opened it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct WireId {
    /// Whether the sender of the frame opened it.
    pub(super) senders: bool,
    pub(super) number: u64,
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frame<'a> {
    /// A stream begins.
    Open { number: u64, opening: Opening },
    /// The target of a stream has accepted.
    Connected { id: WireId },
    /// Bytes of a stream; `is_end` says that none follow these.
    Data { id: WireId, offset: u64, bytes: &'a [u8], is_end: bool },
    /// Bytes of a stream below `limit` may be sent.
    Credit { id: WireId, limit: u64 },
    /// A stream is void, in both directions.
    Reset { id: WireId, reason: Reason },
    /// A sign of life, with the sender's clock, the receiver's as the sender believes it to be now (0: unknown), and how
    /// much of the receiver's trunk has come in order. All times in microseconds.
    Beat { time: u64, echo: u64, received: u64 },
    /// The sender's flow of packets has come so far.
    Packets { end: u64 },
    /// Streams of the receiver's whose number is below find room.
    Room { below: u64 },
}

const OPEN: u8 = 0;
const CONNECTED: u8 = 1;
const DATA: u8 = 2;
const CREDIT: u8 = 3;
const RESET: u8 = 4;
const BEAT: u8 = 5;
const PACKETS: u8 = 6;
const ROOM: u8 = 7;
/// In the first byte, beside the kind.
const FLAG_SENDERS: u8 = 0x40;
const FLAG_END: u8 = 0x80;

impl<'a> Frame<'a> {
    /// Bytes that a Data frame takes beyond its payload, at most.
    pub(super) const DATA_OVERHEAD: usize = 1 + 8 + 8 + 3;
    /// The longest frame without payload: an opening with two IPv6 addresses.
    pub(super) const MAX_CONTROL: usize = 1 + 8 + 1 + 2 * 19;

    /// The frame, if it has no payload to borrow.
    pub(super) fn without_payload(self) -> Option<Frame<'static>> {
        Some(match self {
            Self::Open { number, opening } => Frame::Open { number, opening },
            Self::Connected { id } => Frame::Connected { id },
            Self::Credit { id, limit } => Frame::Credit { id, limit },
            Self::Reset { id, reason } => Frame::Reset { id, reason },
            Self::Beat { time, echo, received } => Frame::Beat { time, echo, received },
            Self::Packets { end } => Frame::Packets { end },
            Self::Room { below } => Frame::Room { below },
            Self::Data { .. } => return None,
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let head = |kind: u8, id: WireId, out: &mut Vec<u8>| {
            out.push(kind | if id.senders { FLAG_SENDERS } else { 0 });
            varint::write(id.number, out);
        };
        match *self {
            Self::Open { number, opening } => {
                head(OPEN, WireId { senders: true, number }, out);
                out.push(opening.dscp);
                emit_address(opening.from, out);
                emit_address(opening.to, out);
            }
            Self::Connected { id } => head(CONNECTED, id, out),
            Self::Data { id, offset, bytes, is_end } => {
                head(DATA | if is_end { FLAG_END } else { 0 }, id, out);
                varint::write(offset, out);
                varint::write(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            Self::Credit { id, limit } => {
                head(CREDIT, id, out);
                varint::write(limit, out);
            }
            Self::Reset { id, reason } => {
                head(RESET, id, out);
                out.push(reason.code());
            }
            Self::Beat { time, echo, received } => {
                out.push(BEAT);
                [time, echo, received].into_iter().for_each(|value| varint::write(value, out));
            }
            Self::Packets { end } => {
                out.push(PACKETS);
                varint::write(end, out);
            }
            Self::Room { below } => {
                out.push(ROOM);
                varint::write(below, out);
            }
        }
    }

    /// Takes a frame off the front of `bytes`; `None` if no valid frame is there.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&first, rest) = bytes.split_first()?;
        let kind = first & !(FLAG_SENDERS | FLAG_END);
        if kind == BEAT {
            let (time, rest) = varint::read(rest)?;
            let (echo, rest) = varint::read(rest)?;
            let (received, rest) = varint::read(rest)?;
            return Some((Self::Beat { time, echo, received }, rest));
        }
        let (number, rest) = varint::read(rest)?;
        if kind == PACKETS {
            return Some((Self::Packets { end: number }, rest));
        }
        if kind == ROOM {
            return Some((Self::Room { below: number }, rest));
        }
        let id = WireId { senders: first & FLAG_SENDERS != 0, number };
        match kind {
            OPEN => {
                let (&dscp, rest) = rest.split_first()?;
                let (from, rest) = parse_address(rest)?;
                let (to, rest) = parse_address(rest)?;
                Some((Self::Open { number, opening: Opening { from, to, dscp: dscp & 0x3f } }, rest))
            }
            CONNECTED => Some((Self::Connected { id }, rest)),
            DATA => {
                let (offset, rest) = varint::read(rest)?;
                let (len, rest) = varint::read(rest)?;
                let (bytes, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                (offset + len <= varint::MAX).then_some(())?;
                Some((Self::Data { id, offset, bytes, is_end: first & FLAG_END != 0 }, rest))
            }
            CREDIT => {
                let (limit, rest) = varint::read(rest)?;
                Some((Self::Credit { id, limit }, rest))
            }
            RESET => {
                let (&code, rest) = rest.split_first()?;
                let reason = Reason::ALL.get(usize::from(code)).copied().unwrap_or(Reason::Reset);
                Some((Self::Reset { id, reason }, rest))
            }
            _ => None,
        }
    }
}

fn emit_address(address: SocketAddr, out: &mut Vec<u8>) {
    match address.ip() {
        IpAddr::V4(v4) => {
            out.push(4);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(6);
            out.extend_from_slice(&v6.octets());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

fn parse_address(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (&version, rest) = bytes.split_first()?;
    let (ip, rest) = match version {
        4 => {
            let (octets, rest) = rest.split_first_chunk::<4>()?;
            (IpAddr::V4(Ipv4Addr::from(*octets)), rest)
        }
        6 => {
            let (octets, rest) = rest.split_first_chunk::<16>()?;
            (IpAddr::V6(Ipv6Addr::from(*octets)), rest)
        }
        _ => return None,
    };
    let (port, rest) = rest.split_first_chunk::<2>()?;
    Some((SocketAddr::new(ip, u16::from_be_bytes(*port)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_are_read_as_they_were_written_one_behind_the_other() {
        let id = WireId { senders: false, number: 70 };
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        let opening = Opening { from: SocketAddr::from(([10, 0, 0, 9], 40_000)), to: v6, dscp: 46 };
        let frames = [
            Frame::Open { number: 3, opening },
            Frame::Connected { id: WireId { senders: true, number: 3 } },
            Frame::Data { id, offset: 1 << 33, bytes: b"hello", is_end: true },
            Frame::Data { id, offset: 5, bytes: b"", is_end: false },
            Frame::Credit { id, limit: 1 << 40 },
            Frame::Reset { id, reason: Reason::Refused },
            Frame::Beat { time: 1, echo: 2, received: 3 },
            Frame::Packets { end: 1 << 50 },
            Frame::Room { below: 20_000 },
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.emit(&mut bytes));
        let (mut rest, mut read) = (&bytes[..], Vec::new());
        while let Some((frame, left)) = Frame::parse(rest) {
            read.push(frame);
            rest = left;
        }
        assert_eq!((&read[..], rest), (&frames[..], &[][..]));
    }

    #[test]
    fn an_opening_is_no_longer_than_the_longest_frame() {
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 80));
        let mut bytes = Vec::new();
        let opening = Opening { from: v6, to: v6, dscp: 63 };
        Frame::Open { number: varint::MAX, opening }.emit(&mut bytes);
        assert_eq!(bytes.len(), Frame::MAX_CONTROL);
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_are_not(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Some((frame, left)) = Frame::parse(rest) {
                prop_assert!(left.len() < rest.len(), "{frame:?}");
                rest = left;
            }
        }
    }
}
