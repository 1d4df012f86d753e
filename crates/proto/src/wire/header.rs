use super::{ParseError, Reader};
use crate::name::FlowId;
use crate::time::WireTime;
use alloc::vec::Vec;

/// The protocol version of this crate.
pub const VERSION: u8 = 1;

/// The packet kinds of version 1, as numbered on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A request, or feedback only.
    Interest = 0,
    /// An answer.
    Data = 1,
    /// News about data that is not in the packet.
    Notice = 2,
    /// A sum of other packets of the hop.
    Parity = 3,
}

/// The 22 bytes that every packet but Parity starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind of packet.
    pub kind: Kind,
    /// Four bits whose meaning belongs to the kind.
    pub flags: u8,
    /// Dense counter of the packets from this sender to this neighbour, modulo 2^16.
    pub counter: u16,
    /// In an Interest the sender's clock; in Data and Notice the echo of it (see `hop::rtt`).
    pub time: WireTime,
    /// The flow that the packet is about.
    pub flow: FlowId,
}

impl Header {
    /// Bytes on the wire.
    pub const LEN: usize = 1 + 2 + 3 + FlowId::LEN;

    /// Whether the first bytes are those of a Parity packet; the rest is not checked.
    #[inline]
    pub(super) fn is_parity(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|first| first >> 4 == (VERSION << 2) | Kind::Parity as u8)
    }

    #[inline]
    pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let [first] = reader.take("kind")?;
        if first >> 6 != VERSION {
            return Err(ParseError::Version(first >> 6));
        }
        let kind = match (first >> 4) & 3 {
            0 => Kind::Interest,
            1 => Kind::Data,
            2 => Kind::Notice,
            _ => Kind::Parity,
        };
        Ok(Self {
            kind,
            flags: first & 0x0f,
            counter: u16::from_be_bytes(reader.take("counter")?),
            time: WireTime::from_be_bytes(reader.take("time")?),
            flow: FlowId(reader.take("flow")?),
        })
    }

    pub(super) fn emit(self, out: &mut Vec<u8>) {
        let mut bytes = [0; Self::LEN];
        bytes[0] = (VERSION << 6) | ((self.kind as u8) << 4) | self.flags;
        bytes[1..3].copy_from_slice(&self.counter.to_be_bytes());
        bytes[3..6].copy_from_slice(&self.time.to_be_bytes());
        bytes[6..].copy_from_slice(&self.flow.0);
        out.extend_from_slice(&bytes);
    }
}
