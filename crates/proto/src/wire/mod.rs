//! The bytes on the wire, version 1. Offsets live in this module and nowhere else; `docs/PROTOCOL.md` draws them.
//!
//! A packet has two faces: [`Packet`], the checked view of received bytes, whose payload still lies in the
//! datagram; and the values [`Interest`], [`DataHeader`] and [`Notice`], each with `parse` and `emit`.

mod data;
mod echo;
mod header;
mod interest;
mod notice;
mod parity;
mod segment;
pub mod suite;
pub mod varint;
mod waited;

pub use data::{DataFlags, DataHeader};
pub use echo::{Echo, Way};
pub use header::{Header, Kind, VERSION};
pub use interest::{Interest, MAX_RANGES, Ranges, Reason};
pub use notice::{AnswererKey, Limit, News, NotNow, Notice};
pub(crate) use parity::SUM_PREFIX;
pub use parity::{CodePlan, MAX_COVERED, MAX_OVERLAP, ParityHeader};
pub use segment::SegmentHeader;
pub use suite::{Plain, Suite};
pub use waited::Waited;

use core::fmt;

/// The fault of received bytes. The sender, or the path, is to blame; nothing was changed by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The datagram ends inside the named field.
    Truncated(&'static str),
    /// The version field holds another version than [`VERSION`].
    Version(u8),
    /// Bytes follow the last field.
    TrailingBytes(usize),
    /// The named field holds a value that it must not.
    Invalid(&'static str),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(field) => write!(f, "the datagram ends inside the field `{field}`"),
            Self::Version(version) => write!(f, "version {version} where {VERSION} is spoken"),
            Self::TrailingBytes(count) => write!(f, "{count} bytes follow the last field"),
            Self::Invalid(field) => write!(f, "the field `{field}` holds a value that it must not"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Whether the first bytes are those of an Interest; the rest is not checked.
pub fn is_interest(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| (first >> 4) & 3 == Kind::Interest as u8)
}

/// A received packet, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// A request, or feedback only.
    Interest(Interest),
    /// An answer and its payload.
    Data(DataHeader, &'a [u8]),
    /// News about data that is not in this packet.
    Notice(Notice),
    /// A sum of other packets of the hop.
    Parity(ParityHeader, &'a [u8]),
    /// A segment of a connection between two gateways, sealed from end to end.
    Segment(SegmentHeader, &'a [u8]),
}

impl<'a> Packet<'a> {
    /// Checks and reads one packet, which must fill `bytes` exactly.
    ///
    /// # Errors
    /// [`ParseError`] names the field at fault.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        if SegmentHeader::is_one(bytes) {
            return SegmentHeader::parse(&mut reader).map(|(header, sealed)| Self::Segment(header, sealed));
        }
        if Header::is_parity(bytes) {
            return ParityHeader::parse(&mut reader).map(|(parity, sum)| Self::Parity(parity, sum));
        }
        let header = Header::parse(&mut reader)?;
        match header.kind {
            Kind::Interest => Interest::parse(header, &mut reader).map(Self::Interest),
            Kind::Data => {
                DataHeader::parse(header, &mut reader).map(|(data, payload)| Self::Data(data, payload))
            }
            Kind::Notice => Notice::parse(header, &mut reader).map(Self::Notice),
            Kind::Parity => Err(ParseError::Invalid("kind")),
        }
    }
}

/// Takes fields off the front of a datagram.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(ParseError::Truncated(field))?;
        self.rest = rest;
        Ok(*head)
    }

    fn varint(&mut self, field: &'static str) -> Result<u64, ParseError> {
        let (value, rest) = varint::read(self.rest).ok_or(ParseError::Truncated(field))?;
        self.rest = rest;
        Ok(value)
    }

    fn range(&mut self, field: &'static str) -> Result<crate::name::ByteRange, ParseError> {
        let start = self.varint(field)?;
        let len = self.varint(field)?;
        if start + len > crate::name::MAX_OFFSET {
            return Err(ParseError::Invalid(field));
        }
        Ok(crate::name::ByteRange::at(start, len))
    }

    fn finish(&self) -> Result<(), ParseError> {
        if self.rest.is_empty() { Ok(()) } else { Err(ParseError::TrailingBytes(self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{ByteRange, FlowId};
    use crate::time::{Duration, WireTime};
    use crate::units::Rate;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const FLOW: FlowId = FlowId([0xab; 16]);

    fn hex(bytes: &[u8]) -> alloc::string::String {
        bytes.iter().map(|b| alloc::format!("{b:02x}")).collect()
    }

    const KEY_VECTOR: &str = concat!(
        "630001000009abababababababababababababababab0102",
        "09cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
    );

    const SEGMENT_VECTOR: &str =
        concat!("78abababababababababababababababab", "40012c", "0505050505050505050505050505050505");

    /// The vectors of docs/PROTOCOL.md.
    #[test]
    fn the_published_test_vectors_hold() {
        let mut interest =
            Interest::feedback(FLOW, WireTime::from_micros(0x02_0304), Rate::from_bps(20_004_864));
        interest.counter = 7;
        interest.ranges.push(ByteRange::new(65_536, 131_072));
        let mut bytes = Vec::new();
        interest.emit(&mut bytes);
        assert_eq!(hex(&bytes), "400007020304abababababababababababababababab20000074c5ffff410000410000");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Interest(interest)));

        let data = DataHeader {
            counter: 0xfffe,
            flow: FLOW,
            offset: 5_000_000,
            echo: Echo { time: WireTime::from_micros(0xff_ffff), way: Way::from_be_bytes([0x12, 0x34]) },
            flags: DataFlags { end: true, ..DataFlags::default() },
            waited: Waited { time: Duration::from_micros(24_576), is_dry: true },
        };
        bytes.clear();
        data.emit(&mut bytes);
        bytes.extend_from_slice(b"hi");
        assert_eq!(hex(&bytes), "51fffeffffffababababababababababababababababb4123480004c4b406869");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Data(data, b"hi")));

        let news = News::Coming(ByteRange::new(10, 30));
        let echo = Echo { time: WireTime::from_micros(9), way: Way::from_be_bytes([1, 2]) };
        let notice = Notice { counter: 1, flow: FLOW, echo, news };
        bytes.clear();
        notice.emit(&mut bytes);
        assert_eq!(hex(&bytes), "600001000009abababababababababababababababab01020a14");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Notice(notice)));

        let news = News::NotNow(NotNow::new(Limit::Names, Duration::from_millis(300)));
        let notice = Notice { news, ..notice };
        bytes.clear();
        notice.emit(&mut bytes);
        assert_eq!(hex(&bytes), "620001000009abababababababababababababababab010202012c");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Notice(notice)));

        let news = News::Key(AnswererKey { number: 9, public: [0xcd; 32] });
        let notice = Notice { news, ..notice };
        bytes.clear();
        notice.emit(&mut bytes);
        assert_eq!(hex(&bytes), KEY_VECTOR);
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Notice(notice)));

        interest.code = Some(CodePlan { every: 24, overlap: 5, within: 40 });
        bytes.clear();
        interest.emit(&mut bytes);
        assert_eq!(
            hex(&bytes),
            "480007020304abababababababababababababababab20000074c5ffff180528410000410000"
        );
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Interest(interest)));

        let parity = ParityHeader {
            counter: 0x0102,
            echo,
            backlog: true,
            first: 0x00fe,
            count: 3,
            previous: 25,
            seed: 8,
        };
        bytes.clear();
        parity.emit(&mut bytes);
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        assert_eq!(hex(&bytes), "740102000009010200fe0003190801020304");
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Parity(parity, &[1, 2, 3, 4])));

        let segment = SegmentHeader { flow: FLOW, number: 300 };
        bytes.clear();
        segment.emit(&mut bytes);
        bytes.extend_from_slice(&[5; 17]);
        assert_eq!(hex(&bytes), SEGMENT_VECTOR);
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Segment(segment, &[5; 17])));
    }

    #[test]
    fn a_full_data_packet_costs_at_most_30_bytes_up_to_256_gib() {
        let data = DataHeader {
            counter: 0,
            flow: FLOW,
            offset: (1 << 38) - 1,
            echo: Echo::default(),
            flags: DataFlags::default(),
            waited: Waited::default(),
        };
        let mut bytes = Vec::new();
        data.emit(&mut bytes);
        assert_eq!(bytes.len(), 30);
    }

    /// An address that proved nothing is answered with no more bytes than came from it.
    #[test]
    fn not_now_is_shorter_than_any_interest() {
        let (mut asked, mut told) = (Vec::new(), Vec::new());
        Interest::feedback(FLOW, WireTime::default(), Rate::UNLIMITED).emit(&mut asked);
        let news = News::NotNow(NotNow::new(Limit::Neighbours, Duration::from_secs(65)));
        Notice { counter: 0, flow: FLOW, echo: Echo::default(), news }.emit(&mut told);
        assert!(told.len() < asked.len(), "{} bytes for {}", told.len(), asked.len());
    }

    #[test]
    fn bad_bytes_are_refused_by_field() {
        assert_eq!(Packet::parse(&[]), Err(ParseError::Truncated("kind")));
        assert_eq!(Packet::parse(&[0x80; 40]), Err(ParseError::Version(2)));
        assert_eq!(Packet::parse(&[0x71; 40]), Err(ParseError::Invalid("flags")));
        assert_eq!(Packet::parse(&[0x70; 40]), Err(ParseError::Invalid("count")));
        let mut notice = Vec::new();
        let news = News::Coming(ByteRange::new(10, 30));
        Notice {
            counter: 1,
            flow: FLOW,
            echo: Echo { time: WireTime::from_micros(9), way: Way::from_be_bytes([1, 2]) },
            news,
        }
        .emit(&mut notice);
        notice.push(0);
        assert_eq!(Packet::parse(&notice), Err(ParseError::TrailingBytes(1)));
    }

    /// A Responder that has sent a range marks its end with an empty range there.
    #[test]
    fn a_range_whose_end_could_not_be_named_is_refused() {
        for (end, is_fine) in [(varint::MAX, true), (varint::MAX + 1, false)] {
            let range = ByteRange::new(end - 10, end);
            let mut interest = Interest::feedback(FLOW, WireTime::default(), Rate::UNLIMITED);
            interest.ranges.push(range);
            let mut bytes = Vec::new();
            interest.emit(&mut bytes);
            assert_eq!(Packet::parse(&bytes).is_ok(), is_fine, "an Interest for {range:?}");
            bytes.clear();
            let flags = DataFlags::default();
            let (echo, waited) = (Echo::default(), Waited::default());
            DataHeader { counter: 0, flow: FLOW, offset: range.start, echo, flags, waited }.emit(&mut bytes);
            bytes.extend_from_slice(&[0; 10]);
            assert_eq!(Packet::parse(&bytes).is_ok(), is_fine, "Data with {range:?}");
        }
    }

    #[test]
    fn an_interest_with_too_many_ranges_is_refused() {
        let mut interest = Interest::feedback(FLOW, WireTime::default(), Rate::UNLIMITED);
        for start in 0..MAX_RANGES as u64 {
            interest.ranges.push(ByteRange::at(start * 10, 5));
        }
        let mut bytes = Vec::new();
        interest.emit(&mut bytes);
        assert!(Packet::parse(&bytes).is_ok());
        bytes.extend_from_slice(&[1, 1]);
        assert_eq!(Packet::parse(&bytes), Err(ParseError::Invalid("ranges")));
    }

    #[test]
    fn padding_is_zeros_to_the_end() {
        let mut interest = Interest::feedback(FLOW, WireTime::default(), Rate::UNLIMITED);
        interest.ranges.push(ByteRange::at(0, 10));
        interest.padding = 900;
        let mut bytes = Vec::new();
        interest.emit(&mut bytes);
        assert_eq!(Packet::parse(&bytes), Ok(Packet::Interest(interest)));
        bytes.push(1);
        assert_eq!(Packet::parse(&bytes), Err(ParseError::Invalid("padding")));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused_and_what_parses_emits_the_same_value(
            bytes in prop::collection::vec(any::<u8>(), 0..120)
        ) {
            let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
            let mut out = Vec::new();
            match packet {
                Packet::Interest(interest) => interest.emit(&mut out),
                Packet::Notice(notice) => notice.emit(&mut out),
                Packet::Data(data, payload) => { data.emit(&mut out); out.extend_from_slice(payload); }
                Packet::Parity(parity, sum) => { parity.emit(&mut out); out.extend_from_slice(sum); }
                Packet::Segment(header, sealed) => { header.emit(&mut out); out.extend_from_slice(sealed); }
            }
            prop_assert_eq!(Packet::parse(&out), Ok(packet));
        }
    }
}
