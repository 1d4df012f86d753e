//! Programs between the ends of a flow that transform its packets: the ends of a tunnel, and of an erasure code.
//!
//! Each knows its neighbours on both sides, and its counterpart is one of them. None of them knows TCP: they turn
//! packets into bytes and back.

use crate::engine::{Body, Host, Opaque, UDP_HEADER};
use starhop_proto::fec::{FecConfig, FecEnd};
use starhop_proto::peer::Face;
use starhop_proto::rng::Rng;
use starhop_proto::time::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Which end of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The end towards the flow's source: its counterpart lies downstream.
    Near,
    /// The end towards the flow's client.
    Far,
}

/// The transformation that a middle program performs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Middle {
    /// One end of a tunnel, IP in IP, whose contents no node on the way can read.
    Tunnel(Side),
    /// One end of an erasure code.
    Fec(FecConfig, Side),
}

/// The program's two neighbours: its counterpart, and the node on the side that sees plain packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Neighbours {
    peer: SocketAddr,
    local: SocketAddr,
}

impl Middle {
    /// The program between two neighbours; both ends of a tunnel share `key`.
    pub(crate) fn host(self, upstream: SocketAddr, downstream: SocketAddr, key: u64) -> Box<dyn Host> {
        let neighbours = |side| match side {
            Side::Near => Neighbours { peer: downstream, local: upstream },
            Side::Far => Neighbours { peer: upstream, local: downstream },
        };
        match self {
            Self::Tunnel(side) => Box::new(Tunnel::new(neighbours(side), side, key)),
            Self::Fec(config, side) => Box::new(Fec::new(neighbours(side), config)),
        }
    }
}

/// An end of a tunnel. Only the length of the contents and XCP's header are visible outside. The header is copied
/// outside, and the values that routers wrote there are copied back, as RFC 6040 does for the congestion bits of
/// IP.
#[derive(Debug)]
struct Tunnel {
    neighbours: Neighbours,
    key: u64,
    sequence: u64,
    outbox: VecDeque<(SocketAddr, Body)>,
}

/// ESP's header, initialisation vector, trailer and check value with AES-GCM (RFC 4303, RFC 4106), bytes.
const ESP: u32 = 8 + 8 + 2 + 16;
/// The parts of ESP that are carried as bytes with the contents: a sequence number in front, a check value behind.
const SEQUENCE: usize = 8;
const CHECK: usize = 8;

impl Tunnel {
    /// Two ends that share a key must not use a number twice: one has the even ones, the other the odd ones.
    fn new(neighbours: Neighbours, side: Side, key: u64) -> Self {
        Self { neighbours, key, sequence: side as u64, outbox: VecDeque::new() }
    }

    fn seal(&mut self, body: &Body) -> Option<Body> {
        let mut bytes = body.to_bytes()?;
        self.sequence = self.sequence.wrapping_add(2);
        let check = checksum(&bytes);
        scramble(self.key, self.sequence, &mut bytes);
        let mut sealed = self.sequence.to_be_bytes().to_vec();
        sealed.extend_from_slice(&bytes);
        sealed.extend_from_slice(&(check ^ self.key).to_be_bytes());
        let header = ESP - (SEQUENCE + CHECK) as u32;
        let xcp = body.xcp().copied();
        Some(Body::Opaque(Box::new(Opaque { xcp, header, bytes: sealed })))
    }

    fn open(&self, packet: &Opaque) -> Option<Body> {
        let (sequence, rest) = packet.bytes.split_first_chunk()?;
        let (bytes, check) = rest.split_last_chunk()?;
        let mut bytes = bytes.to_vec();
        scramble(self.key, u64::from_be_bytes(*sequence), &mut bytes);
        if checksum(&bytes) ^ self.key != u64::from_be_bytes(*check) {
            return None;
        }
        let mut body = Body::from_bytes(&bytes)?;
        if let (Some(inside), Some(outside)) = (body.xcp_mut(), packet.xcp) {
            *inside = outside;
        }
        Some(body)
    }
}

/// Makes bytes unreadable to a model's router, and readable again. No cipher: a simulation has no attackers.
fn scramble(key: u64, sequence: u64, bytes: &mut [u8]) {
    let mut stream = Rng::new(key).fork(sequence);
    for chunk in bytes.chunks_mut(8) {
        let word = stream.next_u64().to_le_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, mask)| *byte ^= mask);
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Host for Tunnel {
    fn handle_packet(&mut self, _now: Instant, face: Face, body: &mut Body) {
        let Neighbours { peer, local } = self.neighbours;
        let out = if face.remote == peer {
            let Body::Opaque(packet) = body else { return };
            (local, self.open(packet))
        } else {
            (peer, self.seal(body))
        };
        if let (to, Some(body)) = out {
            self.outbox.push_back((to, body));
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, out: &mut Body) -> Option<Face> {
        let (to, body) = self.outbox.pop_front()?;
        *out = body;
        Some(to.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// An end of an erasure code.
#[derive(Debug)]
struct Fec {
    neighbours: Neighbours,
    end: FecEnd,
}

impl Fec {
    fn new(neighbours: Neighbours, config: FecConfig) -> Self {
        Self { neighbours, end: FecEnd::new(config) }
    }
}

impl Host for Fec {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        if face.remote != self.neighbours.peer {
            if let Some(bytes) = body.to_bytes() {
                self.end.on_packet(now, bytes);
            }
            return;
        }
        let Body::Opaque(frame) = body else { return };
        // Only the other end sends here, and it sends frames.
        let _ = self.end.on_frame(now, &frame.bytes);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.end.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        while let Some(packet) = self.end.poll_packet() {
            // Repaired from contradictory parity, which no encoder sends.
            let Some(body) = Body::from_bytes(&packet) else { continue };
            *out = body;
            return Some(self.neighbours.local.into());
        }
        let bytes = self.end.poll_transmit(now)?;
        *out = Body::Opaque(Box::new(Opaque { xcp: None, header: UDP_HEADER, bytes }));
        Some(self.neighbours.peer.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{HostId, TcpKind, TcpSegment};
    use crate::link::XcpHeader;
    use starhop_proto::time::Duration;

    fn data() -> Body {
        let xcp = XcpHeader { cwnd_bytes: 9e4, rtt: Duration::from_millis(640), feedback_bytes: 500.0 };
        let kind = TcpKind::Data;
        Body::Tcp(Box::new(TcpSegment {
            kind,
            len: 948,
            seq: 77_000,
            xcp: Some(xcp),
            ..TcpSegment::default()
        }))
    }

    fn ends() -> [Box<dyn Host>; 2] {
        let addr = |host| HostId(host).addr();
        [Side::Near, Side::Far].map(|side| {
            Middle::Tunnel(side).host(
                addr(if side == Side::Near { 0 } else { 1 }),
                addr(if side == Side::Near { 2 } else { 3 }),
                99,
            )
        })
    }

    fn through(host: &mut dyn Host, from: u32, mut body: Body) -> Option<(SocketAddr, Body)> {
        host.handle_packet(Instant::ZERO, HostId(from).addr().into(), &mut body);
        let mut out = Body::default();
        host.poll_transmit(Instant::ZERO, &mut out).map(|to| (to.remote, out))
    }

    #[test]
    fn a_tunnel_hides_all_but_the_length_and_xcp() {
        let [mut near, mut far] = ends();
        let Some((to, Body::Opaque(mut first))) = through(&mut *near, 0, data()) else { panic!() };
        let Some((_, Body::Opaque(second))) = through(&mut *near, 0, data()) else { panic!() };
        assert_eq!(to, HostId(2).addr());
        // The same packet twice has nothing in common on the way.
        let same = first.bytes.iter().zip(&second.bytes).filter(|(a, b)| a == b).count();
        assert!(same < 40, "{same} of {} bytes alike", first.bytes.len());
        // IP, ESP and XCP's header around an IP packet of 1020 bytes.
        assert_eq!(Body::Opaque(first.clone()).ip_len(), 1020 + 20 + 34 + 20);
        first.xcp.iter_mut().for_each(|xcp| xcp.feedback_bytes = -3.0);
        let Some((to, Body::Tcp(inner))) = through(&mut *far, 1, Body::Opaque(first)) else { panic!() };
        assert_eq!(
            (to, inner.seq, inner.xcp.map(|xcp| xcp.feedback_bytes)),
            (HostId(3).addr(), 77_000, Some(-3.0))
        );
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let [mut near, mut far] = ends();
        let Some((_, Body::Opaque(mut packet))) = through(&mut *near, 0, data()) else { panic!() };
        packet.bytes[100] ^= 1;
        assert!(through(&mut *far, 1, Body::Opaque(packet)).is_none());
    }
}
