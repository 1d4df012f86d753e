//! TCP segments: everything that a segment's header says, and a length in place of the payload.

use crate::link::XcpHeader;
use starhop_proto::name::ByteRange;
use starhop_proto::time::Instant;

/// TCP header without options, bytes (RFC 9293, section 3.1).
pub const TCP_HEADER: u32 = 20;
/// The timestamps option with its padding, bytes (RFC 7323, appendix A).
pub const TCP_TIMESTAMPS: u32 = 12;
/// Options of a SYN beside timestamps: maximum segment size, window scale, SACK permitted, padding.
const SYN_OPTIONS: u32 = 8;
/// Kind, length and padding of a SACK option; each block takes 8 bytes more (RFC 2018).
const SACK_OPTION: u32 = 4;
/// XCP's congestion header (draft-falk-xcp-spec, section 2.2).
pub(crate) const XCP_HEADER: u32 = 20;

/// The most blocks that fit beside timestamps (RFC 2018, section 3).
pub const MOST_SACK_BLOCKS: usize = 3;

/// The purpose of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TcpKind {
    /// Opens a connection.
    Syn,
    /// Accepts it.
    SynAck,
    /// Carries bytes; with `len` 0 it asks for an acknowledgement.
    Data,
    /// Acknowledges and carries nothing.
    #[default]
    Ack,
}

/// Up to three ranges beyond the cumulative acknowledgement, the latest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks {
    blocks: [ByteRange; MOST_SACK_BLOCKS],
    count: u8,
}

impl SackBlocks {
    /// Adds a block where there is room.
    pub fn push(&mut self, block: ByteRange) {
        if let Some(place) = self.blocks.get_mut(self.count as usize) {
            *place = block;
            self.count += 1;
        }
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[ByteRange] {
        &self.blocks[..self.count as usize]
    }
}

/// A TCP segment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TcpSegment {
    /// The flow, as the recorder numbers it.
    pub flow: u32,
    /// Its purpose.
    pub kind: TcpKind,
    /// Bytes of payload that it stands for.
    pub len: u32,
    /// Offset of the payload in the flow. The handshake takes no sequence numbers.
    pub seq: u64,
    /// It carries the flow's last byte.
    pub is_last: bool,
    /// All bytes below this offset arrived.
    pub ack: u64,
    /// Ranges that arrived beyond `ack`.
    pub sack: SackBlocks,
    /// The first SACK block is a range that arrived twice (RFC 2883).
    pub has_dsack: bool,
    /// Bytes after `ack` that the receiver has room for, as the scaled window says them.
    pub window: u64,
    /// The sender's clock (RFC 7323).
    pub timestamp: Instant,
    /// The peer's clock, sent back.
    pub echo: Option<Instant>,
    /// A router met congestion (the CE codepoint of RFC 3168).
    pub is_marked: bool,
    /// Total of marked segments that the receiver has seen.
    pub marks: u64,
    /// XCP's header.
    pub xcp: Option<XcpHeader>,
}

impl TcpSegment {
    /// Header bytes on the wire, without IP's.
    pub fn header(&self) -> u32 {
        let blocks = self.sack.as_slice().len() as u32;
        let sack = if blocks == 0 { 0 } else { SACK_OPTION + 8 * blocks };
        let syn = if matches!(self.kind, TcpKind::Syn | TcpKind::SynAck) { SYN_OPTIONS } else { 0 };
        let xcp = if self.xcp.is_some() { XCP_HEADER } else { 0 };
        TCP_HEADER + TCP_TIMESTAMPS + sack + syn + xcp
    }

    /// The bytes that it stands for.
    pub fn range(&self) -> ByteRange {
        ByteRange::at(self.seq, u64::from(self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_as_long_as_on_the_wire() {
        let mut ack = TcpSegment::default();
        assert_eq!(ack.header(), 32);
        (0..5).for_each(|i| ack.sack.push(ByteRange::at(i * 100, 50)));
        assert_eq!((ack.sack.as_slice().len(), ack.header()), (3, 60));
        let syn = TcpSegment { kind: TcpKind::Syn, ..TcpSegment::default() };
        assert_eq!(syn.header(), 40);
    }
}
