//! The times at which the bytes of a TCP connection first left their host.

use starhop_proto::name::ByteRange;
use starhop_proto::time::Instant;

/// The part of a TCP segment's header that names its connection and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpSegment {
    /// Port of its sender.
    pub from: u16,
    /// Port of its receiver.
    pub to: u16,
    /// Number of its first byte.
    pub sequence: u32,
    /// It opens a connection.
    pub is_syn: bool,
    /// Bytes of payload.
    pub payload: u32,
}

impl TcpSegment {
    /// The segment in an IP packet (RFC 791; RFC 8200 without extension headers); `None` for anything else.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        const TCP: u8 = 6;
        const SYN: u8 = 2;
        let (header, protocol) = match packet.first()? >> 4 {
            4 => (usize::from(packet[0] & 15) * 4, *packet.get(9)?),
            _ => (40, *packet.get(6)?),
        };
        let segment = packet.get(header..).filter(|segment| protocol == TCP && segment.len() >= 20)?;
        let two = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        let header = usize::from(segment[12] >> 4) * 4;
        Some(Self {
            from: two(0),
            to: two(2),
            sequence: u32::from(two(4)) << 16 | u32::from(two(6)),
            is_syn: segment[13] & SYN != 0,
            payload: segment.len().saturating_sub(header) as u32,
        })
    }
}

/// The first transmission of every byte that one end of a connection sends. TCP sends new bytes in order, so only
/// bytes beyond the highest byte seen are new; all others are sent again.
///
/// A stamp in the stream would be older: the kernel lets written bytes wait for its window.
#[derive(Debug, Default)]
pub struct Departures {
    /// The sequence number of the connection's first byte.
    first: Option<u32>,
    /// The offset behind the highest byte seen.
    next: u64,
    passed: Vec<(Instant, ByteRange)>,
}

impl Departures {
    /// A segment of that end leaves its host.
    pub fn on_segment(&mut self, at: Instant, segment: &TcpSegment) {
        if segment.is_syn {
            let first = segment.sequence.wrapping_add(1);
            if self.first != Some(first) {
                *self = Self { first: Some(first), ..Self::default() };
            }
        }
        let Some(first) = self.first.filter(|_| segment.payload > 0) else { return };
        // Sequence numbers wrap, so only the distance from the highest byte is known.
        let distance = segment.sequence.wrapping_sub(first).wrapping_sub(self.next as u32) as i32;
        let end = self.next.saturating_add_signed(i64::from(distance)) + u64::from(segment.payload);
        if end > self.next {
            self.passed.push((at, ByteRange::new(self.next, end)));
            self.next = end;
        }
    }

    /// The ranges of the stream that left since the last call, with their times.
    pub fn take(&mut self) -> Vec<(Instant, ByteRange)> {
        std::mem::take(&mut self.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn segment(sequence: u32, payload: u32) -> TcpSegment {
        TcpSegment { from: 5001, to: 9, sequence, is_syn: false, payload }
    }

    #[test]
    fn payload_is_what_lies_behind_both_headers() {
        let mut packet = vec![0; 20 + 32 + 100];
        packet[0] = 0x45;
        packet[9] = 6;
        packet[20..22].copy_from_slice(&5001u16.to_be_bytes());
        packet[22..24].copy_from_slice(&5002u16.to_be_bytes());
        packet[24..28].copy_from_slice(&0x1234_5678u32.to_be_bytes());
        packet[32] = 8 << 4;
        let expected = TcpSegment { to: 5002, ..segment(0x1234_5678, 100) };
        assert_eq!(TcpSegment::parse(&packet), Some(expected));
        packet[9] = 17;
        assert_eq!(TcpSegment::parse(&packet), None);
    }

    #[test]
    fn bytes_depart_once_whatever_is_sent_again_and_across_the_wrap_of_their_numbers() {
        let mut departures = Departures::default();
        departures.on_segment(at(0), &TcpSegment { is_syn: true, ..segment(u32::MAX - 1000, 0) });
        let first = (u32::MAX - 1000).wrapping_add(1);
        departures.on_segment(at(1), &segment(first, 800));
        departures.on_segment(at(2), &segment(first.wrapping_add(800), 800));
        departures.on_segment(at(3), &segment(first, 800));
        departures.on_segment(at(4), &segment(first.wrapping_add(1200), 800));
        let expected = [(at(1), 0, 800), (at(2), 800, 1600), (at(4), 1600, 2000)];
        assert_eq!(departures.take(), expected.map(|(at, start, end)| (at, ByteRange::new(start, end))));
    }

    #[test]
    fn a_second_connection_begins_anew() {
        let mut departures = Departures::default();
        for first in [100, 900] {
            departures.on_segment(at(0), &TcpSegment { is_syn: true, ..segment(first, 0) });
            departures.on_segment(at(1), &segment(first + 1, 10));
        }
        assert_eq!(departures.take(), [(at(1), ByteRange::new(0, 10))]);
    }
}
