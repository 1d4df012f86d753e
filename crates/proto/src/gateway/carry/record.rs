//! The inside of a record of packets: when it was made, and packets or parts of them.

use crate::time::{Duration, Instant};
use crate::wire::varint;
use alloc::vec::Vec;

/// A moment of its sender's clock in milliseconds, modulo 2^16: 65 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stamp(pub(super) u16);

impl Stamp {
    pub(super) fn at(now: Instant) -> Self {
        Self((now.since(Instant::ZERO).as_nanos() / 1_000_000) as u16)
    }

    /// The time from `earlier` to this; `None` when this one is the earlier of both.
    pub(super) fn since(self, earlier: Self) -> Option<Duration> {
        let millis = self.0.wrapping_sub(earlier.0);
        (millis < 1 << 15).then(|| Duration::from_millis(millis.into()))
    }
}

/// A packet, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece<'a> {
    /// The flow's number, among those of its sender.
    pub(super) flow: u64,
    /// Which of the flow's packets this is, from 0.
    pub(super) number: u64,
    /// The flow's packets are to be delivered in order.
    pub(super) is_ordered: bool,
    /// Its offset in its packet, and the packet's length; `None` for a whole packet.
    pub(super) part: Option<(u16, u16)>,
    pub(super) bytes: &'a [u8],
}

/// An item of a record; items follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item<'a> {
    /// Time at which the following pieces were put into the record.
    Time(Stamp),
    Piece(Piece<'a>),
}

const PIECE: u8 = 0;
const TIME: u8 = 1;
/// In the first byte of a piece.
const FLAG_ORDERED: u8 = 0x80;
const FLAG_PART: u8 = 0x40;

/// Bytes that a piece takes beyond its payload.
pub(super) fn overhead(flow: u64, number: u64, is_part: bool) -> usize {
    1 + varint::len(flow) + varint::len(number) + if is_part { 4 } else { 0 } + 2
}

impl<'a> Item<'a> {
    /// Bytes of a time.
    pub(super) const TIME_LEN: usize = 3;

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Time(stamp) => {
                out.push(TIME);
                out.extend_from_slice(&stamp.0.to_be_bytes());
            }
            Self::Piece(Piece { flow, number, is_ordered, part, bytes }) => {
                let ordered = if is_ordered { FLAG_ORDERED } else { 0 };
                out.push(PIECE | ordered | if part.is_some() { FLAG_PART } else { 0 });
                varint::write(flow, out);
                varint::write(number, out);
                if let Some((offset, total)) = part {
                    out.extend_from_slice(&offset.to_be_bytes());
                    out.extend_from_slice(&total.to_be_bytes());
                }
                out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Takes an item off the front of `bytes`; `None` when there is none that makes sense.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&first, rest) = bytes.split_first()?;
        match first & !(FLAG_ORDERED | FLAG_PART) {
            TIME if first == TIME => {
                let (stamp, rest) = rest.split_first_chunk::<2>()?;
                Some((Self::Time(Stamp(u16::from_be_bytes(*stamp))), rest))
            }
            PIECE => parse_piece(first, rest).map(|(piece, rest)| (Self::Piece(piece), rest)),
            _ => None,
        }
    }
}

fn parse_piece(first: u8, rest: &[u8]) -> Option<(Piece<'_>, &[u8])> {
    let (flow, rest) = varint::read(rest)?;
    let (number, rest) = varint::read(rest)?;
    let (part, rest) = if first & FLAG_PART == 0 {
        (None, rest)
    } else {
        let ([a, b, c, d], rest) = rest.split_first_chunk::<4>()?;
        (Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))), rest)
    };
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let fits = |(offset, total): (u16, u16)| usize::from(offset) + bytes.len() <= usize::from(total);
    (!bytes.is_empty() && part.is_none_or(fits)).then_some(())?;
    Some((Piece { flow, number, is_ordered: first & FLAG_ORDERED != 0, part, bytes }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The vector of PROTOCOL.md.
    #[test]
    fn the_published_record_of_packets_holds() {
        let mut record = Vec::new();
        Item::Time(Stamp(0x0203)).emit(&mut record);
        let whole = Piece { flow: 5, number: 70, is_ordered: true, part: None, bytes: b"hi" };
        let part = Piece { flow: 6, number: 0, is_ordered: false, part: Some((1300, 1500)), bytes: b"end" };
        Item::Piece(whole).emit(&mut record);
        assert_eq!(record.len(), Item::TIME_LEN + overhead(5, 70, false) + 2);
        Item::Piece(part).emit(&mut record);
        let hex: alloc::string::String = record.iter().map(|byte| alloc::format!("{byte:02x}")).collect();
        assert_eq!(hex, "010203800540004600026869400600051405dc0003656e64");
    }

    #[test]
    fn stamps_tell_their_order_over_a_wrap() {
        assert_eq!(Stamp(3).since(Stamp(65_533)), Some(Duration::from_millis(6)));
        assert_eq!(Stamp(65_533).since(Stamp(3)), None);
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_they_were_written(
            flow in 0u64..1 << 62, number in 0u64..1 << 62, is_ordered: bool,
            part in prop::option::of(0u16..30_000), bytes in prop::collection::vec(any::<u8>(), 1..1500),
        ) {
            let part = part.map(|offset| (offset, offset + bytes.len() as u16 + 7));
            let piece = Piece { flow, number, is_ordered, part, bytes: &bytes };
            let mut out = Vec::new();
            Item::Piece(piece).emit(&mut out);
            prop_assert_eq!(out.len(), overhead(flow, number, part.is_some()) + bytes.len());
            prop_assert_eq!(Item::parse(&out), Some((Item::Piece(piece), &[][..])));
        }

        #[test]
        fn any_bytes_are_items_or_are_not(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Some((item, left)) = Item::parse(rest) {
                prop_assert!(left.len() < rest.len(), "{item:?}");
                rest = left;
            }
        }
    }
}
