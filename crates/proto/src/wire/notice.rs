use super::{Echo, Header, Kind, ParseError, Reader, Way, varint};
use crate::name::{ByteRange, FlowId};
use crate::time::Duration;
use alloc::vec::Vec;

/// A Responder tells its asker something that is no data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    /// Dense counter of this hop and direction, shared with Data. A token, a "not now" and a key do not count.
    pub counter: u16,
    /// The flow that it is about.
    pub flow: FlowId,
    /// As in Data.
    pub echo: Echo,
    /// Its news.
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
    /// "I did not take what you asked for: ask again after this time, and not before".
    NotNow(NotNow),
    /// "Say in your next Interest that you have this key": replies stay secret from then on whoever takes the nodes' own keys
    /// later. It is for the suite.
    Key(AnswererKey),
}

/// The ephemeral key of a node that answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswererKey {
    /// The number by which replies name it, from 1 to 15.
    pub number: u8,
    /// The public half.
    pub public: [u8; 32],
}

/// A limit kept a Responder from taking a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotNow {
    /// The limit.
    pub limit: Limit,
    /// The time after which to ask again, in whole milliseconds, from 1 to 65,535.
    pub after: Duration,
}

/// The thing for which a Responder has no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// One more neighbour. The Responder keeps nothing of the request.
    Neighbours,
    /// One more flow of this neighbour. The Responder keeps nothing of the flow's requests.
    Flows,
    /// One more name that may not exist. The Responder keeps nothing of the flow's requests.
    Names,
    /// More bytes, or more pieces, for this neighbour. A part of the request was not taken.
    Bytes,
}

impl Limit {
    const ALL: [Self; 4] = [Self::Neighbours, Self::Flows, Self::Names, Self::Bytes];

    /// Whether the whole request for the flow was refused, rather than a part.
    pub fn is_whole(self) -> bool {
        self != Self::Bytes
    }
}

impl NotNow {
    /// There is no room for one more flow.
    pub const NO_ROOM: Self = Self { limit: Limit::Flows, after: Duration::from_millis(500) };

    /// For `limit`, with `after` as it can be written.
    pub fn new(limit: Limit, after: Duration) -> Self {
        let millis = after.as_nanos().div_ceil(1_000_000).clamp(1, u64::from(u16::MAX));
        Self { limit, after: Duration::from_millis(millis) }
    }
}

/// The flags of a Notice are the kind of its news.
const COMING: u8 = 0;
const TOKEN: u8 = 1;
const NOT_NOW: u8 = 2;
const KEY: u8 = 3;

impl Notice {
    /// Bytes of a Notice of some packets up to an offset of 256 GiB.
    pub const USUAL_LEN: u64 = 32;
    /// Bytes that a Notice of a key is longer.
    pub const KEY_LEN: u64 = 33;

    pub(super) fn parse(header: Header, reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let echo = Echo { time: header.time, way: Way::from_be_bytes(reader.take("way")?) };
        let news = match header.flags {
            COMING => News::Coming(reader.range("range")?),
            TOKEN => match u32::from_be_bytes(reader.take("token")?) {
                0 => return Err(ParseError::Invalid("token")),
                token => News::Token(token),
            },
            NOT_NOW => {
                let [limit] = reader.take("limit")?;
                let limit = Limit::ALL.get(usize::from(limit)).ok_or(ParseError::Invalid("limit"))?;
                match u16::from_be_bytes(reader.take("after")?) {
                    0 => return Err(ParseError::Invalid("after")),
                    millis => {
                        let after = Duration::from_millis(u64::from(millis));
                        News::NotNow(NotNow { limit: *limit, after })
                    }
                }
            }
            KEY => {
                let [number] = reader.take("number")?;
                if !(1..=15).contains(&number) {
                    return Err(ParseError::Invalid("number"));
                }
                News::Key(AnswererKey { number, public: reader.take("key")? })
            }
            _ => return Err(ParseError::Invalid("flags")),
        };
        reader.finish()?;
        Ok(Self { counter: header.counter, flow: header.flow, echo, news })
    }

    /// The key in a packet, if it is a Notice of one.
    #[inline]
    pub(crate) fn key_in(packet: &[u8]) -> Option<AnswererKey> {
        const FIRST: u8 = (super::VERSION << 6) | ((Kind::Notice as u8) << 4) | KEY;
        if packet.first() != Some(&FIRST) {
            return None;
        }
        match super::Packet::parse(packet) {
            Ok(super::Packet::Notice(Self { news: News::Key(key), .. })) => Some(key),
            _ => None,
        }
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let flags = match self.news {
            News::Coming(_) => COMING,
            News::Token(_) => TOKEN,
            News::NotNow(_) => NOT_NOW,
            News::Key(_) => KEY,
        };
        let Self { counter, echo, flow, .. } = *self;
        Header { kind: Kind::Notice, flags, counter, time: echo.time, flow }.emit(out);
        out.extend_from_slice(&echo.way.to_be_bytes());
        match self.news {
            News::Coming(range) => {
                varint::write(range.start, out);
                varint::write(range.len(), out);
            }
            News::Token(token) => out.extend_from_slice(&token.to_be_bytes()),
            News::NotNow(NotNow { limit, after }) => {
                out.push(limit as u8);
                out.extend_from_slice(&((after.as_nanos() / 1_000_000) as u16).to_be_bytes());
            }
            News::Key(AnswererKey { number, public }) => {
                out.push(number);
                out.extend_from_slice(&public);
            }
        }
    }
}
