use super::{Kind, ParseError, Reader, VERSION, varint};
use crate::name::FlowId;
use crate::security::TAG_LEN;
use alloc::vec::Vec;

/// Distinguishes a Segment from Parity, with which it shares a kind.
const FLAG_SEGMENT: u8 = 8;
const FIRST: u8 = (VERSION << 6) | ((Kind::Parity as u8) << 4) | FLAG_SEGMENT;

/// The front of a segment that one gateway sends to another by the rate-based protocol of connection splitting. It takes no
/// part in what a hop knows of its link: it has neither a counter nor a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The name of the direction of the session.
    pub flow: FlowId,
    /// Segments of the session before it, in this direction.
    pub number: u64,
}

impl SegmentHeader {
    /// Bytes on the wire, at most.
    pub const MAX_LEN: usize = 1 + FlowId::LEN + 8;

    /// Whether the first byte is that of a Segment; the rest is not checked.
    #[inline]
    pub(super) fn is_one(bytes: &[u8]) -> bool {
        bytes.first() == Some(&FIRST)
    }

    pub(super) fn parse<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), ParseError> {
        reader.take::<1>("kind")?;
        let flow = FlowId(reader.take("flow")?);
        let number = reader.varint("number")?;
        let sealed = core::mem::take(&mut reader.rest);
        if sealed.len() <= TAG_LEN {
            return Err(ParseError::Truncated("segment"));
        }
        Ok((Self { flow, number }, sealed))
    }

    /// Appends the header; the sealed segment follows it to the end of the datagram.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.push(FIRST);
        out.extend_from_slice(&self.flow.0);
        varint::write(self.number, out);
    }
}
