//! The parts of a user's IP packet that a gateway reads: its hosts, its flow, and the sign of QUIC. Packets are not changed.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP protocols that are told apart by ports.
const TCP: u8 = 6;
const UDP: u8 = 17;
const UDP_LITE: u8 = 136;
const SCTP: u8 = 132;
const DCCP: u8 = 33;

/// Extension headers of IPv6 between the header and its content (RFC 8200 section 4.1), beside the fragment header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
const FRAGMENT: u8 = 44;
/// More extension headers than any sender has a use for.
const MOST_EXTENSIONS: usize = 8;

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The bits of a long header's first byte: its form, and the one that is always set (RFC 9000 section 17.2).
const QUIC_LONG_HEADER: u8 = 0xc0;
/// The numbers of versions 1 and 2.
const QUIC_VERSIONS: [u32; 2] = [1, 0x6b33_43cf];
/// Bytes of the longest connection ID of both versions.
const QUIC_LONGEST_ID: u8 = 20;

/// The fields that the packets of a flow share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Their source.
    pub from: IpAddr,
    /// Their destination.
    pub to: IpAddr,
    /// Their protocol, as IP numbers it.
    pub protocol: u8,
    /// Source and destination port. `None` where there are none to be read: in fragments, encrypted packets, ICMP.
    pub ports: Option<(u16, u16)>,
}

impl FlowKey {
    /// The flow of an IP packet; `None` when it is no packet of IPv4 or IPv6, or not as long as its header says.
    pub fn of(packet: &[u8]) -> Option<Self> {
        Self::with_content(packet).map(|(key, _)| key)
    }

    /// The flow of an IP packet, and what follows its IP headers.
    fn with_content(packet: &[u8]) -> Option<(Self, &[u8])> {
        match packet.first()? >> 4 {
            4 => Self::of_v4(packet),
            6 => Self::of_v6(packet),
            _ => None,
        }
    }

    fn of_v4(packet: &[u8]) -> Option<(Self, &[u8])> {
        let header = packet.first_chunk::<20>()?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let is_whole = usize::from(u16::from_be_bytes([header[2], header[3]])) == packet.len();
        let content = packet.get(header_len..).filter(|_| is_whole && header_len >= 20)?;
        // More fragments, or an offset.
        let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 4] = header.get(at..at + 4)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        };
        let ports = if is_fragment { None } else { ports(header[9], content) };
        Some((Self { from: address(12)?, to: address(16)?, protocol: header[9], ports }, content))
    }

    fn of_v6(packet: &[u8]) -> Option<(Self, &[u8])> {
        let (header, mut content) = packet.split_first_chunk::<40>()?;
        if usize::from(u16::from_be_bytes([header[4], header[5]])) != content.len() {
            return None;
        }
        let mut protocol = header[6];
        for _ in 0..MOST_EXTENSIONS {
            if !matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION) {
                break;
            }
            let Some(([next, units], _)) = content.split_first_chunk::<2>() else { break };
            let Some(rest) = content.get(usize::from(*units) * 8 + 8..) else { break };
            (protocol, content) = (*next, rest);
        }
        // All fragments are told by the fragment header, so that those of a packet are of one flow.
        let ports = if protocol == FRAGMENT { None } else { ports(protocol, content) };
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        };
        Some((Self { from: address(8)?, to: address(24)?, protocol, ports }, content))
    }

    /// The flow of the answers.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ports: self.ports.map(|(from, to)| (to, from)), ..self }
    }

    /// Whether these are segments of TCP.
    pub fn is_tcp(&self) -> bool {
        self.protocol == TCP
    }

    /// Whether a router passes such packets on: they go to one host, and are not for the link alone.
    pub fn is_routed(&self) -> bool {
        let is_one = |address: IpAddr| match address {
            IpAddr::V4(v4) => {
                !(v4.is_multicast() || v4.is_broadcast() || v4.is_link_local() || v4.is_unspecified())
            }
            IpAddr::V6(v6) => {
                !(v6.is_multicast() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_loopback())
            }
        };
        is_one(self.from) && is_one(self.to)
    }
}

/// Whether an IP packet is one of those by which a connection of QUIC begins: a long header (RFC 8999 section 5.1) of
/// version 1 (RFC 9000 section 17.2) or 2 (RFC 9369 section 3.1), with connection IDs of at most 20 bytes.
pub fn begins_quic(packet: &[u8]) -> bool {
    let Some((FlowKey { protocol: UDP, ports: Some(_), .. }, datagram)) = FlowKey::with_content(packet)
    else {
        return false;
    };
    let Some((&[first, a, b, c, d, destination_len], rest)) =
        datagram.get(UDP_HEADER..).and_then(<[u8]>::split_first_chunk::<6>)
    else {
        return false;
    };
    let is_id_len = |len: u8| len <= QUIC_LONGEST_ID;
    first & QUIC_LONG_HEADER == QUIC_LONG_HEADER
        && QUIC_VERSIONS.contains(&u32::from_be_bytes([a, b, c, d]))
        && is_id_len(destination_len)
        && rest.get(usize::from(destination_len)).copied().is_some_and(is_id_len)
}

fn ports(protocol: u8, content: &[u8]) -> Option<(u16, u16)> {
    if !matches!(protocol, TCP | UDP | UDP_LITE | SCTP | DCCP) {
        return None;
    }
    let [a, b, c, d] = *content.first_chunk::<4>()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn v4(protocol: u8, fragment: u16, content: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![0x45, 0];
        packet.extend_from_slice(&(20 + content.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(&fragment.to_be_bytes());
        packet.extend_from_slice(&[64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend_from_slice(content);
        packet
    }

    fn v6(next: u8, content: &[u8]) -> Vec<u8> {
        let mut packet = alloc::vec![0x60, 0, 0, 0];
        packet.extend_from_slice(&(content.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[next, 64]);
        packet.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        packet.extend_from_slice(&Ipv6Addr::LOCALHOST.octets());
        packet.extend_from_slice(content);
        packet
    }

    #[test]
    fn a_flow_is_told_by_addresses_protocol_and_ports() {
        let key = FlowKey::of(&v4(UDP, 0x4000, &[0, 53, 0x10, 0, 9, 9])).unwrap();
        assert_eq!((key.protocol, key.ports), (UDP, Some((53, 4096))));
        assert_eq!((key.from, key.to), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        assert_eq!(key.reversed().reversed(), key);
        let key = FlowKey::of(&v6(TCP, &[0, 1, 0, 2])).unwrap();
        assert_eq!((key.protocol, key.ports), (TCP, Some((1, 2))));
    }

    #[test]
    fn fragments_and_encrypted_packets_are_told_by_their_addresses() {
        let first = FlowKey::of(&v4(UDP, 0x2000, &[0, 53, 0x10, 0])).unwrap();
        let second = FlowKey::of(&v4(UDP, 0x00b9, &[1, 2, 3, 4])).unwrap();
        assert_eq!((first, first.ports), (second, None));
        assert_eq!(FlowKey::of(&v4(50, 0, &[1, 2, 3, 4])).unwrap().ports, None);
        assert_eq!(
            FlowKey::of(&v6(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 7, 0, 53, 0, 53])).unwrap().ports,
            None
        );
    }

    #[test]
    fn ports_are_found_behind_extension_headers() {
        let mut content = alloc::vec![DESTINATION, 0, 1, 4, 0, 0, 0, 0];
        content.extend_from_slice(&[UDP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        content.extend_from_slice(&[0, 5, 0, 6]);
        let key = FlowKey::of(&v6(HOP_BY_HOP, &content)).unwrap();
        assert_eq!((key.protocol, key.ports), (UDP, Some((5, 6))));
    }

    /// A datagram of UDP with the beginning of a long header and two connection IDs.
    fn quic(first: u8, version: u32, ids: [u8; 2]) -> Vec<u8> {
        let mut datagram = alloc::vec![0xc0, 0x01, 0x01, 0xbb, 0, 0, 0, 0, first];
        datagram.extend_from_slice(&version.to_be_bytes());
        for len in ids {
            datagram.push(len);
            datagram.extend(core::iter::repeat_n(7, usize::from(len)));
        }
        datagram.extend_from_slice(&[0; 40]);
        datagram
    }

    #[test]
    fn a_connection_of_quic_is_known_by_its_long_header_and_version() {
        // RFC 9001 appendix A.2: the client's Initial, with a connection ID of 8 bytes and none of its own.
        let initial = quic(0xc0, 1, [8, 0]);
        assert!(begins_quic(&v4(UDP, 0x4000, &initial)) && begins_quic(&v6(UDP, &initial)));
        // Its Handshake with header protection, and version 2.
        assert!(begins_quic(&v4(UDP, 0x4000, &quic(0xef, 1, [20, 20]))));
        assert!(begins_quic(&v6(UDP, &quic(0xd3, 0x6b33_43cf, [0, 8]))));

        let short_header = quic(0x4f, 1, [8, 0]);
        assert!(!begins_quic(&v4(UDP, 0x4000, &short_header)));
        assert!(!begins_quic(&v4(UDP, 0x4000, &quic(0x80, 1, [8, 0]))), "the fixed bit is not set");
        assert!(!begins_quic(&v4(UDP, 0x4000, &quic(0xc0, 2, [8, 0]))), "an unknown version");
        assert!(!begins_quic(&v4(UDP, 0x4000, &quic(0xc0, 1, [21, 0]))), "a connection ID too long");
        assert!(!begins_quic(&v4(UDP, 0x4000, &quic(0xc0, 1, [8, 21]))), "a connection ID too long");
        assert!(!begins_quic(&v4(TCP, 0x4000, &initial)), "another protocol");
        assert!(!begins_quic(&v4(UDP, 0x2000, &initial)), "a fragment");
        for len in 0..8 + 6 + 8 + 1 {
            assert!(!begins_quic(&v4(UDP, 0x4000, &initial[..len])), "{len} bytes");
        }
    }

    #[test]
    fn packets_for_a_link_or_for_many_are_not_routed() {
        let to = |to: &str| FlowKey {
            from: [10, 0, 0, 1].into(),
            to: to.parse().unwrap(),
            protocol: UDP,
            ports: None,
        };
        for address in ["224.0.0.251", "255.255.255.255", "169.254.1.1", "ff02::1", "fe80::1"] {
            assert!(!to(address).is_routed(), "{address}");
        }
        assert!(to("192.0.2.1").is_routed() && to("2001:db8::1").is_routed());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_packet_or_are_not(bytes: Vec<u8>) {
            begins_quic(&bytes);
            if let Some(key) = FlowKey::of(&bytes) {
                prop_assert!(bytes.len() >= 20);
                prop_assert_eq!(key.reversed().reversed(), key);
            }
        }
    }
}
