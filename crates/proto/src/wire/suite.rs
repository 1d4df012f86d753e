//! The layer between a packet and the datagram that carries it: two bytes ([`Plain`]), or a seal.

use crate::peer::{Addressee, Face, Incarnation, Member, Opened, Peer, Refusal, Unsealable};
use crate::time::Instant;
use crate::wire::AnswererKey;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::net::SocketAddr;
use foldhash::fast::FixedState;

/// Turns packets into datagrams for a neighbour and back, and names their senders. Implementations bring their own
/// keys and crypto.
pub trait Suite {
    /// Bytes in front of the packet that [`Suite::seal`] fills in.
    fn room(&self) -> usize;

    /// Bytes that a datagram is longer than its packet.
    fn overhead(&self) -> usize;

    /// Seals in place the packet that begins [`Suite::room`] bytes behind `start` in `out`.
    ///
    /// # Errors
    /// [`Unsealable`] if no key is shared with the addressee; the bytes from `start` on must not be sent.
    fn seal(
        &mut self,
        now: Instant,
        to: &Addressee,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), Unsealable>;

    /// Checks and opens in place a datagram that arrived at `face`.
    ///
    /// # Errors
    /// [`Refusal`] says why it is not taken.
    fn open<'a>(&mut self, now: Instant, face: Face, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal>;

    /// A number that only a receiver at `remote` can know, or `None` if no proof is needed.
    fn token(&mut self, remote: SocketAddr) -> Option<u32>;

    /// Whether requests that this node answered and has forgotten may be played to it: it has just started, or its
    /// clock was set back. It serves only requests with the token then, which is of this start.
    fn is_young(&self) -> bool {
        false
    }

    /// The ephemeral key to tell a neighbour that has asked, unless it has it. Sealed replies alone need one.
    fn introduction(&mut self, now: Instant, peer: &Peer) -> Option<AnswererKey> {
        let _ = (now, peer);
        None
    }

    /// A sender has shown with its token that it receives where it says that it is.
    fn settle(&mut self, peer: &Peer) {
        let _ = peer;
    }
}

/// No protection: for tests, and for real programs behind an explicit flag.
///
/// Two bytes behind the packet name the sender's incarnation and, in a reply, the asker's. Each has eight bits: one
/// restart in 256 is not noticed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    own: u8,
    /// Keys the tokens of strangers' addresses; without it no token is asked for.
    secret: Option<u64>,
}

impl Plain {
    /// Bytes behind a packet.
    pub const TRAILER: usize = 2;

    /// A node that draws its incarnation from `seed`, and believes every address.
    pub const fn new(seed: u64) -> Self {
        Self { own: (seed ^ (seed >> 8) ^ (seed >> 32)) as u8, secret: None }
    }

    /// The number of this node's incarnation.
    pub const fn own(&self) -> u8 {
        self.own
    }

    /// A node that draws its incarnation from `seed`, and has strangers prove that they receive at their addresses.
    pub const fn guarded(seed: u64) -> Self {
        Self { secret: Some(seed), ..Self::new(seed) }
    }
}

impl Suite for Plain {
    fn room(&self) -> usize {
        0
    }

    fn overhead(&self) -> usize {
        Self::TRAILER
    }

    fn seal(
        &mut self,
        _now: Instant,
        to: &Addressee,
        out: &mut Vec<u8>,
        _start: usize,
    ) -> Result<(), Unsealable> {
        let asker = match to {
            Addressee::Asked(_) => 0,
            Addressee::Asker(peer) | Addressee::Stranger(peer) => peer.incarnation.boot as u8,
        };
        out.extend_from_slice(&[self.own, asker]);
        Ok(())
    }

    fn open<'a>(&mut self, _now: Instant, face: Face, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let [packet @ .., sender, asker] = &*datagram else { return Err(Refusal::Foreign) };
        // Packets have version 1, frames of the erasure code 0. Sealed datagrams have the leading bit.
        if packet.first().is_none_or(|first| first >> 6 > super::VERSION) {
            return Err(Refusal::Foreign);
        }
        if !super::is_interest(packet) && *asker != self.own {
            return Err(Refusal::NotForMe);
        }
        let incarnation = |own: u8| Incarnation { boot: u64::from(own), link: 0 };
        let asker = if super::is_interest(packet) { Incarnation::default() } else { incarnation(*asker) };
        let peer = Peer { face, incarnation: incarnation(*sender), asker, member: Member::default() };
        Ok(Opened { peer, packet })
    }

    fn token(&mut self, remote: SocketAddr) -> Option<u32> {
        let secret = self.secret?;
        Some(FixedState::with_seed(secret).hash_one(remote) as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{ByteRange, FlowId};
    use crate::time::WireTime;
    use crate::wire::{Echo, Interest, News, Notice};

    const NOW: Instant = Instant::ZERO;

    fn face(port: u16) -> Face {
        SocketAddr::from(([192, 0, 2, 1], port)).into()
    }

    #[test]
    fn a_plain_reply_is_for_the_incarnation_that_asked() {
        let (mut asker, mut answerer, mut next) = (Plain::new(1), Plain::new(2), Plain::new(3));
        let mut request = Vec::new();
        Interest::feedback(FlowId([1; 16]), WireTime::default(), crate::units::Rate::ZERO).emit(&mut request);
        asker.seal(NOW, &Addressee::Asked(face(1)), &mut request, 0).unwrap();
        let peer = answerer.open(NOW, face(9), &mut request).unwrap().peer;
        let mut reply = Vec::new();
        let news = News::Coming(ByteRange::new(0, 1));
        Notice { counter: 0, flow: FlowId([1; 16]), echo: Echo::default(), news }.emit(&mut reply);
        answerer.seal(NOW, &Addressee::Asker(peer), &mut reply, 0).unwrap();
        assert_eq!(next.open(NOW, face(1), &mut reply), Err(Refusal::NotForMe));
        assert!(asker.open(NOW, face(1), &mut reply).is_ok());
    }

    #[test]
    fn tokens_differ_by_address_and_by_node() {
        let (mut node, mut other) = (Plain::guarded(5), Plain::guarded(6));
        let tokens = [node.token(face(1).remote), node.token(face(2).remote), other.token(face(1).remote)];
        assert!(tokens[0].is_some() && tokens[0] != tokens[1] && tokens[0] != tokens[2]);
        assert_eq!(node.token(face(1).remote), tokens[0]);
        assert_eq!(Plain::new(5).token(face(1).remote), None);
    }
}
