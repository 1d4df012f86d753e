//! The parts of a user's IP packet that a gateway reads: its hosts, and its flow. Packets are not changed.

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
        match packet.first()? >> 4 {
            4 => Self::of_v4(packet),
            6 => Self::of_v6(packet),
            _ => None,
        }
    }

    fn of_v4(packet: &[u8]) -> Option<Self> {
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
        Some(Self { from: address(12)?, to: address(16)?, protocol: header[9], ports })
    }

    fn of_v6(packet: &[u8]) -> Option<Self> {
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
        Some(Self { from: address(8)?, to: address(24)?, protocol, ports })
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
            if let Some(key) = FlowKey::of(&bytes) {
                prop_assert!(bytes.len() >= 20);
                prop_assert_eq!(key.reversed().reversed(), key);
            }
        }
    }
}
