//! The SYN of a user's connection as an IP packet, and the answers to it that mean a refusal.

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::icmpv6::DestUnreachableCode;
use etherparse::{
    Icmpv4Type, Icmpv6Type, IpHeaders, PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice,
};
use starhop_proto::gateway::Opening;
use std::net::{IpAddr, SocketAddr};

/// The TTL of packets that begin here, as Linux has it.
const TTL: u8 = 64;
/// Bytes of a packet that its ICMP error repeats: all errors stay within 576 bytes (RFC 1812 section 4.3.2.3), which is also less
/// than the 1280 of RFC 4443 section 2.4.
const MOST_REPEATED: usize = 576 - 20 - 8;

/// A client's SYN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Syn {
    packet: Vec<u8>,
    opening: Opening,
    sequence: u32,
}

impl Syn {
    /// The SYN in an IP packet; `None` if the packet holds none.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let sliced = SlicedPacket::from_ip(packet).ok()?;
        let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return None };
        if !tcp.syn() || tcp.ack() || tcp.rst() {
            return None;
        }
        let (from, to, class): (IpAddr, IpAddr, u8) = match sliced.net? {
            etherparse::NetSlice::Ipv4(ip) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.dcp().value())
            }
            etherparse::NetSlice::Ipv6(ip) => {
                let header = ip.header();
                (header.source_addr().into(), header.destination_addr().into(), header.traffic_class() >> 2)
            }
            _ => return None,
        };
        let opening = Opening {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            dscp: class,
        };
        Some(Self { packet: packet.to_vec(), opening, sequence: tcp.sequence_number() })
    }

    /// The packet as it came.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// The connection that it asks for.
    pub(super) fn opening(&self) -> Opening {
        self.opening
    }

    /// The target's answer that nobody listens there: a reset (RFC 9293 section 3.10.7.1).
    pub(super) fn refused(&self) -> Vec<u8> {
        let Opening { from, to, .. } = self.opening;
        let acknowledged = self.sequence.wrapping_add(1);
        let reset = self.answer().tcp(to.port(), from.port(), 0, 0).rst().ack(acknowledged);
        let mut bytes = Vec::with_capacity(reset.size(0));
        // A vector takes all bytes.
        let _ = reset.write(&mut bytes, &[]);
        bytes
    }

    /// The answer that the target cannot be reached: an ICMP error (RFC 792, RFC 4443 section 3.1). It names the target as its
    /// sender; the router that said so over there is not known here.
    pub(super) fn unreachable(&self) -> Vec<u8> {
        let repeated = &self.packet[..self.packet.len().min(MOST_REPEATED)];
        let mut bytes = Vec::new();
        let answer = self.answer();
        let _ = match self.opening.to {
            SocketAddr::V4(_) => answer
                .icmpv4(Icmpv4Type::DestinationUnreachable(DestUnreachableHeader::Host))
                .write(&mut bytes, repeated),
            SocketAddr::V6(_) => answer
                .icmpv6(Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Address))
                .write(&mut bytes, repeated),
        };
        bytes
    }

    /// A packet from the target to the client.
    fn answer(&self) -> PacketBuilderStep<IpHeaders> {
        match (self.opening.from.ip(), self.opening.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(to.octets(), from.octets(), TTL),
            (from, to) => {
                let [from, to] = [from, to].map(|ip| match ip {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                });
                PacketBuilder::ipv6(to.octets(), from.octets(), TTL)
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A SYN from port 40,000 of `from` to `to`, of class 46.
    pub(in crate::gateway) fn syn(from: &str, to: &str) -> Vec<u8> {
        let to: SocketAddr = to.parse().unwrap();
        let mut bytes = Vec::new();
        match (from.parse().unwrap(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(ip)) => {
                let ip = etherparse::Ipv4Header {
                    dscp: etherparse::IpDscp::try_new(46).unwrap(),
                    ..etherparse::Ipv4Header::new(
                        0,
                        64,
                        etherparse::IpNumber::TCP,
                        from.octets(),
                        ip.octets(),
                    )
                    .unwrap()
                };
                let ip = PacketBuilder::ip(IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()));
                ip.tcp(40_000, to.port(), u32::MAX, 1000).syn().write(&mut bytes, &[]).unwrap();
            }
            (IpAddr::V6(from), IpAddr::V6(ip)) => {
                let ip = PacketBuilder::ipv6(from.octets(), ip.octets(), 64);
                ip.tcp(40_000, to.port(), 7, 1000).syn().write(&mut bytes, &[]).unwrap();
            }
            _ => unreachable!("one version"),
        }
        bytes
    }

    #[test]
    fn a_syn_tells_its_connection_and_its_class() {
        let packet = syn("10.0.0.1", "192.0.2.1:80");
        let syn = Syn::of(&packet).unwrap();
        let Opening { from, to, dscp } = syn.opening();
        assert_eq!((from, to), ("10.0.0.1:40000".parse().unwrap(), "192.0.2.1:80".parse().unwrap()));
        assert_eq!((dscp, syn.packet()), (46, packet.as_slice()));
        let mut answer = Vec::new();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], [10, 0, 0, 1], 64);
        builder.tcp(80, 40_000, 1, 1000).syn().ack(8).write(&mut answer, &[]).unwrap();
        assert_eq!(Syn::of(&answer), None, "the answer to a SYN");
        assert_eq!(Syn::of(&packet[..30]), None, "half a packet");
        assert_eq!(Syn::of(&[]), None);
    }

    #[test]
    fn a_refusal_is_the_reset_that_the_target_would_send() {
        for (from, to, acknowledged) in [("10.0.0.1", "192.0.2.1:80", 0), ("fd00::1", "[fd00::2]:80", 8)] {
            let reset = Syn::of(&syn(from, to)).unwrap().refused();
            let sliced = SlicedPacket::from_ip(&reset).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("no segment") };
            assert!(tcp.rst() && tcp.ack() && !tcp.syn());
            assert_eq!((tcp.source_port(), tcp.destination_port()), (80, 40_000));
            assert_eq!((tcp.sequence_number(), tcp.acknowledgment_number()), (0, acknowledged));
        }
    }

    #[test]
    fn an_unreachable_target_is_an_icmp_error_that_repeats_the_syn() {
        let packet = syn("10.0.0.1", "192.0.2.1:80");
        let error = Syn::of(&packet).unwrap().unreachable();
        assert_eq!((error[9], &error[12..16], &error[16..20]), (1, &[192, 0, 2, 1][..], &[10, 0, 0, 1][..]));
        assert_eq!((error[20], error[21], &error[28..]), (3, 1, packet.as_slice()), "host unreachable");
        let packet = syn("fd00::1", "[fd00::2]:80");
        let error = Syn::of(&packet).unwrap().unreachable();
        assert_eq!((error[6], error[40], error[41], &error[48..]), (58, 1, 3, packet.as_slice()));
    }
}
