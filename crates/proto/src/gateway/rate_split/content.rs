//! The inside of a segment, as the gateways seal it.

use super::super::frame::WireId;
use crate::name::{ByteRange, MAX_OFFSET};
use crate::split::{Acknowledgement, Blocks, MOST_BLOCKS};
use crate::wire::varint;
use alloc::vec::Vec;

/// A direction of the path between two gateways, as it is offered or accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// Payload bytes of a full segment in the direction that is opened.
    pub(super) mss: u16,
    /// Bytes of one connection for which the sender of this message has room.
    pub(super) window: u32,
    /// The clock of the gateway that opens, microseconds.
    pub(super) time: u64,
}

/// One message of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content<'a> {
    /// The sender's direction of the path opens: this segment is as long as its data will be.
    Open(Terms),
    /// It came. The same length and time, and the window of the sender of this message.
    Accept(Terms),
    /// Bytes of a connection. Its end takes an offset, as TCP's does (RFC 9293, section 3.4).
    Data { id: WireId, offset: u64, bytes: &'a [u8], is_last: bool },
    /// The sender has bytes for which there was no room: how much is there now?
    Ask { id: WireId },
    /// The received ranges of a connection.
    Ack { id: WireId, ack: Acknowledgement },
}

const OPEN: u8 = 0;
const ACCEPT: u8 = 1;
const DATA: u8 = 2;
const ACK: u8 = 3;
const ASK: u8 = 4;
const FLAG_SENDERS: u8 = 0x40;
const FLAG_LAST: u8 = 0x80;

impl<'a> Content<'a> {
    /// Bytes that data takes beyond its payload, at most.
    pub(super) const DATA_OVERHEAD: usize = 1 + 8 + 8;

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let head = |kind: u8, id: WireId, out: &mut Vec<u8>| {
            out.push(kind | if id.senders { FLAG_SENDERS } else { 0 });
            varint::write(id.number, out);
        };
        match *self {
            Self::Open(terms) => emit_terms(OPEN, terms, out),
            Self::Accept(terms) => emit_terms(ACCEPT, terms, out),
            Self::Data { id, offset, bytes, is_last } => {
                head(DATA | if is_last { FLAG_LAST } else { 0 }, id, out);
                varint::write(offset, out);
                out.extend_from_slice(bytes);
            }
            Self::Ask { id } => head(ASK, id, out),
            Self::Ack { id, ack } => {
                head(ACK, id, out);
                varint::write(ack.next, out);
                out.extend_from_slice(&ack.window.to_be_bytes());
                for block in ack.blocks.as_slice() {
                    varint::write(block.start, out);
                    varint::write(block.len(), out);
                }
            }
        }
    }

    /// Reads a message that fills `bytes`; `None` where it makes no sense.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&first, rest) = bytes.split_first()?;
        match first & !(FLAG_SENDERS | FLAG_LAST) {
            OPEN => parse_terms(rest).map(Self::Open),
            ACCEPT => parse_terms(rest).map(Self::Accept),
            kind @ (DATA | ACK | ASK) => {
                let (number, rest) = varint::read(rest)?;
                let id = WireId { senders: first & FLAG_SENDERS != 0, number };
                if kind == ASK {
                    return rest.is_empty().then_some(Self::Ask { id });
                }
                let (offset, rest) = varint::read(rest)?;
                if kind == ACK {
                    return Some(Self::Ack { id, ack: parse_ack(offset, rest)? });
                }
                let is_last = first & FLAG_LAST != 0;
                let is_some = !rest.is_empty() || is_last;
                (is_some && offset + (rest.len() as u64) < MAX_OFFSET).then_some(())?;
                Some(Self::Data { id, offset, bytes: rest, is_last })
            }
            _ => None,
        }
    }
}

fn emit_terms(kind: u8, terms: Terms, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(kind);
    out.extend_from_slice(&terms.mss.to_be_bytes());
    out.extend_from_slice(&terms.window.to_be_bytes());
    varint::write(terms.time, out);
    if kind == OPEN {
        out.resize(start + Content::DATA_OVERHEAD + usize::from(terms.mss), 0);
    }
}

/// The padding behind the terms may hold anything.
fn parse_terms(bytes: &[u8]) -> Option<Terms> {
    let (mss, rest) = bytes.split_first_chunk::<2>()?;
    let (window, rest) = rest.split_first_chunk::<4>()?;
    let (time, _) = varint::read(rest)?;
    let terms = Terms { mss: u16::from_be_bytes(*mss), window: u32::from_be_bytes(*window), time };
    (terms.mss > 0).then_some(terms)
}

fn parse_ack(next: u64, rest: &[u8]) -> Option<Acknowledgement> {
    let (window, mut rest) = rest.split_first_chunk::<2>()?;
    let (mut blocks, mut count) = ([ByteRange::default(); MOST_BLOCKS], 0);
    while !rest.is_empty() {
        let (start, behind) = varint::read(rest)?;
        let (len, behind) = varint::read(behind)?;
        (start + len <= MAX_OFFSET).then_some(())?;
        *blocks.get_mut(count)? = ByteRange::at(start, len);
        (count, rest) = (count + 1, behind);
    }
    let blocks = Blocks::of(blocks.into_iter().take(count));
    Some(Acknowledgement { next, window: u16::from_be_bytes(*window), blocks, asked: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn emitted(content: Content<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        content.emit(&mut out);
        out
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (id, terms) =
            (WireId { senders: true, number: 70 }, Terms { mss: 1300, window: 1 << 22, time: 1 << 40 });
        let blocks = Blocks::of([ByteRange::at(9_000, 1_300), ByteRange::at(5_000, 7)]);
        let all = [
            Content::Open(terms),
            Content::Accept(terms),
            Content::Data { id, offset: 1 << 33, bytes: b"hello", is_last: false },
            Content::Data { id: WireId { senders: false, ..id }, offset: 0, bytes: b"", is_last: true },
            Content::Ask { id },
            Content::Ack { id, ack: Acknowledgement { next: 4_000, window: 600, blocks, asked: 0 } },
        ];
        for content in all {
            assert_eq!(Content::parse(&emitted(content)), Some(content));
        }
    }

    #[test]
    fn an_opening_is_as_long_as_full_data_and_its_answer_is_short() {
        let terms = Terms { mss: 1300, window: 1 << 22, time: 5 };
        assert_eq!(emitted(Content::Open(terms)).len(), 1300 + Content::DATA_OVERHEAD);
        assert!(emitted(Content::Accept(terms)).len() < 20);
    }

    #[test]
    fn data_that_is_neither_bytes_nor_an_end_is_refused() {
        let id = WireId { senders: true, number: 1 };
        assert_eq!(
            Content::parse(&emitted(Content::Data { id, offset: 7, bytes: b"", is_last: false })),
            None
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_are_not(bytes: Vec<u8>) {
            if let Some(content @ (Content::Data { .. } | Content::Ask { .. } | Content::Ack { .. })) = Content::parse(&bytes) {
                let again = emitted(content);
                prop_assert_eq!(Content::parse(&again), Some(content));
            }
        }
    }
}
