//! Which packets are carried, and which of them in order.

use crate::prefix::Prefix;
use starhop_proto::gateway::{FlowKey, Opening, begins_quic};

/// Packets that no gateway takes from where they are: they are for a link, for many, or for a host that has no address yet.
pub(super) const FOR_THE_LINK: &str = "    fib daddr type { broadcast, multicast, anycast } return
    ip saddr { 0.0.0.0, 169.254.0.0/16 } return
    ip daddr { 169.254.0.0/16, 224.0.0.0/4, 255.255.255.255 } return
    ip6 saddr { ::, fe80::/10 } return
    ip6 daddr { fe80::/10, ff00::/8 } return
    udp dport { 67, 68, 546, 547 } return
";

/// The protocols that policies can name.
const PROTOCOLS: [(&str, &[u8]); 9] = [
    ("tcp", &[6]),
    ("udp", &[17]),
    ("icmp", &[1, 58]),
    ("gre", &[47]),
    ("esp", &[50]),
    ("ah", &[51]),
    ("sctp", &[132]),
    ("dccp", &[33]),
    ("ipip", &[4]),
];

/// The numbers of a protocol that a policy names.
pub(super) fn protocol(name: &str) -> Option<&'static [u8]> {
    PROTOCOLS.iter().find(|(known, _)| *known == name).map(|(_, numbers)| *numbers)
}

/// The names of the protocols.
pub(super) fn protocol_names() -> String {
    PROTOCOLS.map(|(name, _)| name).join(", ")
}

/// A policy that carries, as far as the packets themselves tell whether it matches.
#[derive(Clone, Debug, Default)]
pub(super) struct CarryPolicy {
    pub(super) from: Vec<Prefix>,
    pub(super) to: Vec<Prefix>,
    pub(super) ports: Vec<u16>,
    pub(super) protocols: Vec<u8>,
    pub(super) dscp: Option<u8>,
    pub(super) order: Option<bool>,
    pub(super) weight: u8,
}

impl CarryPolicy {
    fn matches(&self, key: &FlowKey, dscp: u8) -> bool {
        let is_among = |list: &[Prefix], ip| list.is_empty() || list.iter().any(|one| one.contains(ip));
        let has_port = key.ports.is_some_and(|(_, to)| self.ports.contains(&to));
        is_among(&self.from, key.from)
            && is_among(&self.to, key.to)
            && (self.ports.is_empty() || has_port)
            && (self.protocols.is_empty() || self.protocols.contains(&key.protocol))
            && self.dscp.is_none_or(|wanted| wanted == dscp)
    }
}

/// The policies that carry, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct CarryPolicies(pub(super) Vec<CarryPolicy>);

impl CarryPolicies {
    /// Whether the packets of a flow that begins with `packet` are to be delivered in order. Where no policy says so, those
    /// of TCP and of QUIC are: both take what overtakes for lost, and slow down (RFC 9002 section 6.1.1: three packets).
    pub(super) fn is_ordered(&self, key: &FlowKey, packet: &[u8]) -> bool {
        self.of(key, packet)
            .and_then(|policy| policy.order)
            .unwrap_or_else(|| key.is_tcp() || begins_quic(packet))
    }

    /// The share of the flow of `packet` beside flows of weight 1. `key` is that of the flow's question.
    pub(super) fn weight(&self, key: &FlowKey, packet: &[u8]) -> u8 {
        self.of(key, packet).map_or(1, |policy| policy.weight.max(1))
    }

    /// Whether a policy gives flows a share.
    pub(super) fn has_weights(&self) -> bool {
        self.0.iter().any(|policy| policy.weight > 1)
    }

    fn of(&self, key: &FlowKey, packet: &[u8]) -> Option<&CarryPolicy> {
        let class = match *packet {
            [first, second, ..] if first >> 4 == 6 => (first << 4) | (second >> 4),
            [_, second, ..] => second,
            _ => 0,
        };
        self.0.iter().find(|policy| policy.matches(key, class >> 2))
    }
}

/// A policy that splits, as far as a connection itself tells whether it matches.
#[derive(Clone, Debug)]
pub(super) struct SplitPolicy {
    pub(super) from: Vec<Prefix>,
    pub(super) to: Vec<Prefix>,
    pub(super) ports: Vec<u16>,
    pub(super) dscp: Option<u8>,
    pub(super) weight: u8,
    /// The place of the peer to which its connections go while that answers.
    pub(super) peer: Option<u16>,
}

/// The policies that split, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct SplitPolicies(pub(super) Vec<SplitPolicy>);

impl SplitPolicies {
    /// The share of the link that a connection has, beside those of weight 1.
    pub(super) fn weight(&self, opening: &Opening) -> u8 {
        self.of(opening).map_or(1, |policy| policy.weight)
    }

    /// The peer to which a connection goes while that answers, where a policy names one.
    pub(super) fn peer(&self, opening: &Opening) -> Option<u16> {
        self.of(opening).and_then(|policy| policy.peer)
    }

    fn of(&self, opening: &Opening) -> Option<&SplitPolicy> {
        let is_among = |list: &[Prefix], ip| list.is_empty() || list.iter().any(|one| one.contains(ip));
        let matches = |policy: &&SplitPolicy| {
            is_among(&policy.from, opening.from.ip())
                && is_among(&policy.to, opening.to.ip())
                && (policy.ports.is_empty() || policy.ports.contains(&opening.to.port()))
                && policy.dscp.is_none_or(|wanted| wanted == opening.dscp)
        };
        self.0.iter().find(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: &str, to: &str, protocol: u8, port: u16) -> FlowKey {
        let [from, to] = [from, to].map(|ip| ip.parse().unwrap());
        FlowKey { from, to, protocol, ports: Some((40_000, port)) }
    }

    #[test]
    fn tcp_and_quic_are_delivered_in_order_and_the_rest_as_it_comes_unless_a_policy_says_otherwise() {
        let video = CarryPolicy {
            ports: vec![5004],
            protocols: vec![17],
            to: vec![Prefix::parse("192.0.2.0/24").unwrap()],
            order: Some(true),
            ..CarryPolicy::default()
        };
        let marked = CarryPolicy { dscp: Some(46), order: Some(false), weight: 8, ..CarryPolicy::default() };
        let policies = CarryPolicies(vec![video, marked]);
        let v4 = |dscp: u8| [0x45, dscp << 2];
        assert!(policies.is_ordered(&key("10.0.0.1", "192.0.2.9", 17, 5004), &v4(0)));
        assert!(!policies.is_ordered(&key("10.0.0.1", "192.0.3.9", 17, 5004), &v4(0)));
        assert!(policies.is_ordered(&key("10.0.0.1", "192.0.3.9", 6, 80), &v4(0)));
        assert!(!policies.is_ordered(&key("10.0.0.1", "192.0.3.9", 6, 80), &v4(46)));
        let v6 = [0x60 | (46 >> 2), (46 & 3) << 6];
        assert!(!policies.is_ordered(&key("fd00::1", "fd00::2", 6, 80), &v6));
        assert_eq!(policies.weight(&key("fd00::1", "fd00::2", 6, 80), &v6), 8);
        assert_eq!(policies.weight(&key("10.0.0.1", "192.0.2.9", 17, 5004), &v4(0)), 1);

        // The client's Initial: a long header of version 1, connection IDs of 8 and 0 bytes.
        let mut initial = [0; 70];
        (initial[0], initial[3], initial[9]) = (0x45, 70, 17);
        initial[20..24].copy_from_slice(&[0xc0, 0x01, 0x01, 0xbb]);
        (initial[28], initial[32], initial[33]) = (0xc0, 1, 8);
        let to_web = key("10.0.0.1", "198.51.100.7", 17, 443);
        assert!(policies.is_ordered(&to_web, &initial));
        initial[1] = 46 << 2;
        assert!(!policies.is_ordered(&to_web, &initial), "a policy says otherwise");
    }
}
