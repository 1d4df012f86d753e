use super::{Echo, Kind, ParseError, Reader, VERSION, Way};
use crate::time::WireTime;
use alloc::vec::Vec;

/// The most counters that a Parity packet may cover.
pub const MAX_COVERED: u16 = 1024;
/// The most Parity packets that may cover a packet.
pub const MAX_OVERLAP: u8 = 48;

const FLAG_BACKLOG: u8 = 4;

/// The parity that a Requester wants of its Responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodePlan {
    /// A Parity packet follows after this many packets, never 0.
    pub every: u8,
    /// So many Parity packets cover each packet, 1 to [`MAX_OVERLAP`].
    pub overlap: u8,
    /// A Parity packet follows after this many milliseconds if fewer packets come, never 0.
    pub within: u8,
}

impl CodePlan {
    /// Packets that a Parity packet covers, when they come one after the other.
    pub fn reach(&self) -> usize {
        usize::from(self.every) * usize::from(self.overlap)
    }

    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let [every, overlap, within] = reader.take("code")?;
        let plan = Self { every, overlap, within };
        let is_possible = every > 0
            && within > 0
            && (1..=MAX_OVERLAP).contains(&overlap)
            && plan.reach() <= usize::from(MAX_COVERED);
        if is_possible { Ok(plan) } else { Err(ParseError::Invalid("code")) }
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.every, self.overlap, self.within]);
    }
}

/// Everything of a Parity packet but its sum: 14 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParityHeader {
    /// Dense counter of this hop and direction, shared with Data and Notices.
    pub counter: u16,
    /// As in Data.
    pub echo: Echo,
    /// As in Data.
    pub backlog: bool,
    /// The first counter that the sum covers.
    pub first: u16,
    /// Counters that it covers from there on, 1 to [`MAX_COVERED`], all before its own.
    pub count: u16,
    /// Distance from its own counter back to that of the previous Parity packet; 0 if there was none, or too far
    /// away.
    pub previous: u8,
    /// Chooses the factors of the sum.
    pub seed: u8,
}

/// Bytes of a sum in front of the covered packets' own: a length and a first byte.
pub(crate) const SUM_PREFIX: usize = 3;

impl ParityHeader {
    /// Bytes on the wire.
    pub const LEN: usize = 14;

    pub(super) fn parse<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), ParseError> {
        let [first_byte] = reader.take("kind")?;
        let flags = first_byte & 0x0f;
        if flags & !FLAG_BACKLOG != 0 {
            return Err(ParseError::Invalid("flags"));
        }
        let counter = u16::from_be_bytes(reader.take("counter")?);
        let time = WireTime::from_be_bytes(reader.take("time")?);
        let echo = Echo { time, way: Way::from_be_bytes(reader.take("way")?) };
        let first = u16::from_be_bytes(reader.take("first")?);
        let count = u16::from_be_bytes(reader.take("count")?);
        if !(1..=MAX_COVERED).contains(&count) || counter.wrapping_sub(first) < count {
            return Err(ParseError::Invalid("count"));
        }
        let [previous, seed] = reader.take("seed")?;
        let sum = core::mem::take(&mut reader.rest);
        if sum.len() < SUM_PREFIX {
            return Err(ParseError::Truncated("sum"));
        }
        let backlog = flags & FLAG_BACKLOG != 0;
        Ok((Self { counter, echo, backlog, first, count, previous, seed }, sum))
    }

    /// Appends the header; the sum follows it to the end of the datagram.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flags = if self.backlog { FLAG_BACKLOG } else { 0 };
        out.push((VERSION << 6) | ((Kind::Parity as u8) << 4) | flags);
        out.extend_from_slice(&self.counter.to_be_bytes());
        out.extend_from_slice(&self.echo.time.to_be_bytes());
        out.extend_from_slice(&self.echo.way.to_be_bytes());
        out.extend_from_slice(&self.first.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
        out.extend_from_slice(&[self.previous, self.seed]);
    }
}
