use super::{Echo, Header, Kind, ParseError, Reader, Waited, Way, varint};
use crate::name::{ByteRange, FlowId, MAX_OFFSET};
use alloc::vec::Vec;

const FLAG_END: u8 = 1;
const FLAG_NO_SUCH_NAME: u8 = 2;
const FLAG_BACKLOG: u8 = 4;
const FLAG_VOLATILE: u8 = 8;

/// Flags of a Data packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DataFlags {
    /// The flow ends after this payload: `offset + payload length` is its length.
    pub end: bool,
    /// The Producer has no flow of this name. The payload is empty.
    pub no_such_name: bool,
    /// The Responder had more to send when it sent this: it is held by its rate, not by a lack of data.
    pub backlog: bool,
    /// The bytes may change: relays pass them on and do not keep them.
    pub is_volatile: bool,
}

/// Everything of a Data packet but its payload: 26 to 33 bytes, at most 30 below an offset of 256 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// Dense counter of this hop and direction, shared with Notices.
    pub counter: u16,
    /// The flow that the payload belongs to.
    pub flow: FlowId,
    /// Offset of the payload in the flow.
    pub offset: u64,
    /// The Requester's clock.
    pub echo: Echo,
    /// Its flags.
    pub flags: DataFlags,
    /// Waiting time of its bytes for their turn.
    pub waited: Waited,
}

impl DataHeader {
    /// Bytes of the header up to an offset of 256 GiB.
    pub const MAX_USUAL_LEN: u64 = 30;

    /// The range that `payload_len` bytes of this packet cover.
    pub const fn range(&self, payload_len: usize) -> ByteRange {
        ByteRange::at(self.offset, payload_len as u64)
    }

    #[inline]
    pub(super) fn parse<'a>(header: Header, reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), ParseError> {
        let [waited] = reader.take("waited")?;
        let way = Way::from_be_bytes(reader.take("way")?);
        let offset = reader.varint("offset")?;
        let payload = core::mem::take(&mut reader.rest);
        if offset + payload.len() as u64 > MAX_OFFSET {
            return Err(ParseError::Invalid("offset"));
        }
        let flags = DataFlags {
            end: header.flags & FLAG_END != 0,
            no_such_name: header.flags & FLAG_NO_SUCH_NAME != 0,
            backlog: header.flags & FLAG_BACKLOG != 0,
            is_volatile: header.flags & FLAG_VOLATILE != 0,
        };
        if payload.is_empty() && !flags.end && !flags.no_such_name {
            return Err(ParseError::Invalid("payload"));
        }
        if flags.no_such_name && (!payload.is_empty() || flags.end) {
            return Err(ParseError::Invalid("flags"));
        }
        let Header { counter, flow, time, .. } = header;
        let echo = Echo { time, way };
        let waited = Waited::from_byte(waited);
        Ok((Self { counter, flow, offset, echo, flags, waited }, payload))
    }

    /// Appends the header; the payload follows it to the end of the datagram.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let bit = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = bit(self.flags.end, FLAG_END)
            | bit(self.flags.no_such_name, FLAG_NO_SUCH_NAME)
            | bit(self.flags.backlog, FLAG_BACKLOG)
            | bit(self.flags.is_volatile, FLAG_VOLATILE);
        Header { kind: Kind::Data, flags, counter: self.counter, time: self.echo.time, flow: self.flow }
            .emit(out);
        out.push(self.waited.to_byte());
        out.extend_from_slice(&self.echo.way.to_be_bytes());
        varint::write(self.offset, out);
    }
}
