use super::{Header, Kind, ParseError, Reader, varint};
use crate::name::{ByteRange, FlowId};
use crate::time::WireTime;
use alloc::vec::Vec;

/// A Responder tells its asker something that is no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Dense counter of this hop and direction, shared with Data. A token does not count.
    pub counter: u16,
    /// The flow that it is about.
    pub flow: FlowId,
    /// As in Data.
    pub echo: WireTime,
    /// What it tells.
    pub news: News,
}

/// The content of a [`Notice`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// "This range is on its way from further upstream: do not ask for it" (LEOTP's Void Packet Header). With an
    /// empty range at offset `n`: "all that you asked for up to `n` has been sent", so that the loss of the last
    /// packet before a pause shows.
    Coming(ByteRange),
    /// "Repeat this number in your next Interest": until then the Responder sends little, because it does not know
    /// whether the asker receives where it says that it is. Never zero.
    Token(u32),
}

/// The flags of a Notice are the kind of its news.
const COMING: u8 = 0;
const TOKEN: u8 = 1;

impl Notice {
    /// Bytes of a Notice of some packets up to an offset of 256 GiB.
    pub const USUAL_LEN: u64 = 30;

    pub(super) fn parse(header: Header, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let news = match header.flags {
            COMING => News::Coming(reader.range("range")?),
            TOKEN => match u32::from_be_bytes(reader.take("token")?) {
                0 => return Err(ParseError::Invalid("token")),
                token => News::Token(token),
            },
            _ => return Err(ParseError::Invalid("flags")),
        };
        reader.finish()?;
        Ok(Self { counter: header.counter, flow: header.flow, echo: header.time, news })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flags = match self.news {
            News::Coming(_) => COMING,
            News::Token(_) => TOKEN,
        };
        let Self { counter, echo, flow, .. } = *self;
        Header { kind: Kind::Notice, flags, counter, time: echo, flow }.emit(out);
        match self.news {
            News::Coming(range) => {
                varint::write(range.start, out);
                varint::write(range.len(), out);
            }
            News::Token(token) => out.extend_from_slice(&token.to_be_bytes()),
        }
    }
}
