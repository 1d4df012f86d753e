//! Packets of models as bytes, for programs that must not look into them: tunnels seal them, erasure codes add them up.
//!
//! A packet is as long as on the wire wherever its model fits into that, which is so for all but some acknowledgements
//! with XCP's header, by a few bytes.

use super::packet::{Body, Opaque};
use super::segment::{SackBlocks, TcpKind, TcpSegment};
use crate::link::XcpHeader;
use starhop_proto::name::ByteRange;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::wire::varint;

const TCP: u8 = 1;
const OPAQUE: u8 = 2;

const IS_LAST: u8 = 1 << 2;
const HAS_DSACK: u8 = 1 << 3;
const IS_MARKED: u8 = 1 << 4;
const HAS_ECHO: u8 = 1 << 5;
const HAS_XCP: u8 = 1 << 6;

impl Body {
    /// The IP packet as bytes; `None` for bodies that have no byte form.
    pub(crate) fn to_bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.ip_len() as usize);
        match self {
            Self::Tcp(segment) => write_tcp(segment, &mut out),
            Self::Opaque(packet) => {
                out.extend_from_slice(&[OPAQUE, if packet.xcp.is_some() { HAS_XCP } else { 0 }]);
                packet.xcp.iter().for_each(|xcp| write_xcp(xcp, &mut out));
                varint::write(u64::from(packet.header), &mut out);
                varint::write(packet.bytes.len() as u64, &mut out);
                out.extend_from_slice(&packet.bytes);
            }
            Self::Datagram(_) | Self::Segment(_) | Self::Split(_) => return None,
        }
        if out.len() < self.ip_len() as usize {
            out.resize(self.ip_len() as usize, 0);
        }
        Some(out)
    }

    /// The packet of which these are the bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[kind, flags], rest) = bytes.split_first_chunk()?;
        let mut rest = Reader(rest);
        match kind {
            TCP => read_tcp(flags, &mut rest).map(|segment| Self::Tcp(Box::new(segment))),
            OPAQUE => {
                let xcp = if flags & HAS_XCP != 0 { Some(rest.xcp()?) } else { None };
                let (header, len) = (rest.varint()? as u32, rest.varint()? as usize);
                let bytes = rest.0.get(..len)?.to_vec();
                Some(Self::Opaque(Box::new(Opaque { xcp, header, bytes })))
            }
            _ => None,
        }
    }
}

fn write_tcp(segment: &TcpSegment, out: &mut Vec<u8>) {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = segment.kind as u8
        | flag(segment.is_last, IS_LAST)
        | flag(segment.has_dsack, HAS_DSACK)
        | flag(segment.is_marked, IS_MARKED)
        | flag(segment.echo.is_some(), HAS_ECHO)
        | flag(segment.xcp.is_some(), HAS_XCP);
    out.extend_from_slice(&[TCP, flags]);
    let numbers = [
        u64::from(segment.flow),
        u64::from(segment.len),
        segment.seq,
        segment.ack,
        segment.window.min(varint::MAX),
        segment.timestamp.as_nanos(),
        segment.marks,
    ];
    numbers.into_iter().for_each(|number| varint::write(number, out));
    segment.echo.iter().for_each(|echo| varint::write(echo.as_nanos(), out));
    segment.xcp.iter().for_each(|xcp| write_xcp(xcp, out));
    out.push(segment.sack.as_slice().len() as u8);
    for block in segment.sack.as_slice() {
        varint::write(block.start, out);
        varint::write(block.len(), out);
    }
}

fn read_tcp(flags: u8, rest: &mut Reader<'_>) -> Option<TcpSegment> {
    let kind = match flags & 3 {
        0 => TcpKind::Syn,
        1 => TcpKind::SynAck,
        2 => TcpKind::Data,
        _ => TcpKind::Ack,
    };
    let (flow, len) = (rest.varint()? as u32, rest.varint()? as u32);
    let (seq, ack, window) = (rest.varint()?, rest.varint()?, rest.varint()?);
    let (timestamp, marks) = (Instant::from_nanos(rest.varint()?), rest.varint()?);
    let echo = if flags & HAS_ECHO != 0 { Some(Instant::from_nanos(rest.varint()?)) } else { None };
    let xcp = if flags & HAS_XCP != 0 { Some(rest.xcp()?) } else { None };
    let mut sack = SackBlocks::default();
    for _ in 0..rest.byte()? {
        sack.push(ByteRange::at(rest.varint()?, rest.varint()?));
    }
    let (is_last, has_dsack, is_marked) =
        (flags & IS_LAST != 0, flags & HAS_DSACK != 0, flags & IS_MARKED != 0);
    Some(TcpSegment {
        flow,
        kind,
        len,
        seq,
        is_last,
        ack,
        sack,
        has_dsack,
        window,
        timestamp,
        echo,
        is_marked,
        marks,
        xcp,
    })
}

fn write_xcp(xcp: &XcpHeader, out: &mut Vec<u8>) {
    out.extend_from_slice(&xcp.cwnd_bytes.to_be_bytes());
    out.extend_from_slice(&xcp.rtt.as_nanos().to_be_bytes());
    out.extend_from_slice(&xcp.feedback_bytes.to_be_bytes());
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, rest) = varint::read(self.0)?;
        self.0 = rest;
        Some(value)
    }

    fn word(&mut self) -> Option<[u8; 8]> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*word)
    }

    fn xcp(&mut self) -> Option<XcpHeader> {
        Some(XcpHeader {
            cwnd_bytes: f64::from_be_bytes(self.word()?),
            rtt: Duration::from_nanos(u64::from_be_bytes(self.word()?)),
            feedback_bytes: f64::from_be_bytes(self.word()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xcp() -> XcpHeader {
        XcpHeader { cwnd_bytes: 1234.5, rtt: Duration::from_millis(640), feedback_bytes: -7.25 }
    }

    #[test]
    fn what_is_written_is_read_and_is_as_long_as_on_the_wire() {
        let mut ack =
            TcpSegment { flow: 3, ack: 1 << 40, window: u64::MAX, marks: 9, ..TcpSegment::default() };
        ack.timestamp = Instant::from_nanos(3_600_000_000_123);
        ack.echo = Some(Instant::from_nanos(3_600_000_000_001));
        ack.has_dsack = true;
        (0..3).for_each(|i| ack.sack.push(ByteRange::at((1 << 33) + i * 5000, 1000)));
        let syn = TcpSegment { kind: TcpKind::Syn, ..TcpSegment::default() };
        let data = TcpSegment {
            kind: TcpKind::Data,
            len: 948,
            seq: 1 << 35,
            is_last: true,
            is_marked: true,
            xcp: Some(xcp()),
            ..TcpSegment::default()
        };
        for segment in [ack, syn, data] {
            let body = Body::Tcp(Box::new(segment));
            let bytes = body.to_bytes().unwrap_or_default();
            assert_eq!(bytes.len(), body.ip_len() as usize);
            let Some(Body::Tcp(mut back)) = Body::from_bytes(&bytes) else { panic!("{bytes:?}") };
            let Body::Tcp(segment) = body else { panic!() };
            back.window = back.window.max(segment.window);
            assert_eq!(back, segment);
        }
    }

    #[test]
    fn an_opaque_packet_can_be_inside_another() {
        let body = Body::Opaque(Box::new(Opaque { xcp: Some(xcp()), header: 18, bytes: vec![7; 900] }));
        let bytes = body.to_bytes().unwrap_or_default();
        assert_eq!(Body::from_bytes(&bytes), Some(body));
        assert_eq!(Body::from_bytes(&bytes[..500]), None);
    }
}
