use super::{Header, Kind, ParseError, Reader, varint};
use crate::name::{ByteRange, FlowId};
use crate::time::WireTime;
use alloc::vec::Vec;

/// "This range is on its way from further upstream: do not ask for it" (LEOTP's Void Packet Header). With an
/// empty range at offset `n`: "all that you asked for up to `n` has been sent", so that the loss of the last
/// packet before a pause shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Dense counter of this hop and direction, shared with Data.
    pub counter: u16,
    /// The flow that it is about.
    pub flow: FlowId,
    /// As in Data.
    pub echo: WireTime,
    /// The range on its way, or empty.
    pub range: ByteRange,
}

impl Notice {
    /// Bytes of a Notice of some packets up to an offset of 256 GiB.
    pub const USUAL_LEN: u64 = 31;

    pub(super) fn parse(header: Header, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        if header.flags != 0 {
            return Err(ParseError::Invalid("flags"));
        }
        let range = reader.range("range")?;
        reader.finish()?;
        Ok(Self { counter: header.counter, flow: header.flow, echo: header.time, range })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Header { kind: Kind::Notice, flags: 0, counter: self.counter, time: self.echo, flow: self.flow }
            .emit(out);
        varint::write(self.range.start, out);
        varint::write(self.range.len(), out);
    }
}
