//! An end of the code as a [`Node`]: frames in datagrams between two hosts, sealed.
//!
//! A frame begins with 0 to 3: to Starhop's roles that is version 0, which they refuse, and to the seal a request,
//! which is bound to the address that it is sent to. Neither end asks the other for anything, so neither sends more
//! than it is given, but for its parity.

use super::greeting::{Greeting, Hello, Verdict};
use super::{FecConfig, FecEnd, FecFrame};
use crate::node::{Node, Transmit};
use crate::peer::{Addressee, Face};
use crate::time::Instant;
use crate::wire::Suite;
use alloc::vec::Vec;

/// Counters of a node since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FecNodeStats {
    /// Datagrams that its suite refused.
    pub bad_datagrams: u64,
    /// Opened ones that are no frames, or come from another address than the other end's.
    pub bad_frames: u64,
    /// Frames for which no key is shared with the other end.
    pub unsealable: u64,
    /// Frames of a start of the other end that is over, or that has not repeated this one's token.
    pub untimely_frames: u64,
    /// Times that the other end started anew.
    pub starts: u64,
}

/// An end of the code, sealed by `C`. The application brings packets by [`FecNode::send`] and takes them by
/// [`FecNode::poll_packet`].
#[derive(Debug)]
pub struct FecNode<C> {
    end: FecEnd,
    suite: C,
    other: Face,
    greeting: Greeting,
    stats: FecNodeStats,
}

impl<C: Suite> FecNode<C> {
    /// An end whose other end is at `other`.
    pub fn new(config: FecConfig, other: Face, suite: C) -> Self {
        let (end, stats) = (FecEnd::new(config), FecNodeStats::default());
        Self { end, suite, other, greeting: Greeting::default(), stats }
    }

    /// A packet is to go to the other end.
    pub fn send(&mut self, now: Instant, packet: Vec<u8>) {
        self.end.on_packet(now, packet);
    }

    /// The next packet that came from there.
    pub fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.end.poll_packet()
    }

    /// The code.
    pub fn end(&self) -> &FecEnd {
        &self.end
    }

    /// The suite.
    pub fn suite(&self) -> &C {
        &self.suite
    }

    /// The suite, to change its keys.
    pub fn suite_mut(&mut self) -> &mut C {
        &mut self.suite
    }

    /// Counters since the start.
    pub fn stats(&self) -> FecNodeStats {
        self.stats
    }

    /// The other end takes what is sent to it. It does not before the two have met, and after 3.5 s of silence
    /// it is gone.
    pub fn is_heard(&self, now: Instant) -> bool {
        self.greeting.is_heard(now)
    }

    /// The number of this start for the other end; 0 where the suite asks for no proof.
    fn token(&mut self) -> u32 {
        self.suite.token(self.other.remote).unwrap_or(0)
    }

    /// The next frame, of the code or about the starts.
    fn next_frame(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.greeting.due() > now {
            return self.end.poll_transmit(now);
        }
        let token = self.token();
        Some(self.greeting.hello(now, token))
    }
}

impl<C: Suite> Node for FecNode<C> {
    type Event = ();

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        let Ok(opened) = self.suite.open(now, face, datagram) else {
            self.stats.bad_datagrams += 1;
            return;
        };
        if face.remote != self.other.remote {
            self.stats.bad_frames += 1;
            return;
        }
        let start = opened.peer.incarnation;
        match FecFrame::parse(opened.packet) {
            Ok(FecFrame::Hello { token, echo, is_met }) => {
                let (own, hello) = (self.token(), Hello { token, echo, is_met });
                if self.greeting.on_hello(now, start, own, hello) == (Verdict::New { is_another: true }) {
                    self.end.other_began_anew();
                    self.stats.starts += 1;
                }
            }
            Ok(_) if !self.greeting.on_frame(now, start) => self.stats.untimely_frames += 1,
            Ok(_) | Err(_) => {
                self.stats.bad_frames += u64::from(self.end.on_frame(now, opened.packet).is_err());
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.end.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let start = out.len();
        while let Some(frame) = self.next_frame(now) {
            out.resize(start + self.suite.room(), 0);
            out.extend_from_slice(&frame);
            let to = self.other;
            if self.suite.seal(now, &Addressee::Asked(to), out, start).is_ok() {
                return Some(Transmit { to, len: out.len() - start });
            }
            self.stats.unsealable += 1;
            out.truncate(start);
        }
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.end.poll_timeout().map_or(self.greeting.due(), |at| at.min(self.greeting.due())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::time::Duration;
    use crate::wire::Plain;
    use core::net::SocketAddr;

    fn address(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 4434))
    }

    fn node(other: u8, seed: u64) -> FecNode<Plain> {
        FecNode::new(FecConfig::default(), Face::towards(address(other)), Plain::guarded(seed))
    }

    /// Two ends, a path that loses, and the packets that came out of it.
    struct Pair {
        ends: [FecNode<Plain>; 2],
        now: Instant,
        rng: Rng,
        loss: f64,
        came: Vec<Vec<u8>>,
    }

    impl Pair {
        fn new(loss: f64) -> Self {
            let ends = [node(2, 11), node(1, 22)];
            let mut pair = Self { ends, now: Instant::ZERO, rng: Rng::new(5), loss, came: Vec::new() };
            pair.meet();
            pair
        }

        /// Hellos go there and back.
        fn meet(&mut self) {
            (0..2_000).for_each(|_| self.step());
            assert!(self.ends.iter().all(|end| end.is_heard(self.now)));
        }

        /// A millisecond of both ends; what the second one hands on is kept.
        fn step(&mut self) {
            self.now += Duration::from_millis(1);
            for from in [0, 1] {
                if self.ends[from].poll_timeout().is_some_and(|at| at <= self.now) {
                    self.ends[from].handle_timeout(self.now);
                }
                let mut out = Vec::new();
                while self.ends[from].poll_transmit(self.now, &mut out).is_some() {
                    let mut datagram = core::mem::take(&mut out);
                    if self.rng.unit() >= self.loss {
                        let face = Face { remote: address(from as u8 + 1), local: address(2 - from as u8) };
                        self.ends[1 - from].handle_datagram(self.now, face, &mut datagram);
                    }
                }
            }
            while let Some(packet) = self.ends[1].poll_packet() {
                self.came.push(packet);
            }
        }

        fn send(&mut self, count: u32) {
            for n in 0..count {
                let len = 20 + (n as usize * 37) % 1300;
                self.ends[0].send(self.now, n.to_be_bytes().repeat(len / 4));
                self.step();
            }
            (0..300).for_each(|_| self.step());
        }
    }

    #[test]
    fn packets_come_in_order_and_whole_over_a_lossy_path() {
        let mut pair = Pair::new(0.03);
        pair.send(10_000);
        let numbers: Vec<u32> =
            pair.came.iter().map(|p| u32::from_be_bytes([p[0], p[1], p[2], p[3]])).collect();
        assert!(numbers.is_sorted() && numbers.len() >= 9_999, "{} of 10000", numbers.len());
        let stats = pair.ends[1].end().stats();
        assert!((200..400).contains(&stats.repaired), "{stats:?}");
        assert!((0.02..0.04).contains(&pair.ends[0].end().loss()), "{}", pair.ends[0].end().loss());
    }

    #[test]
    fn an_end_that_starts_anew_is_heard_at_once_and_late_frames_of_before_change_nothing() {
        let mut pair = Pair::new(0.0);
        pair.send(100);
        pair.ends[0].send(pair.now, b"late".to_vec());
        let mut late = Vec::new();
        assert!(pair.ends[0].poll_transmit(pair.now, &mut late).is_some());
        pair.ends[0] = node(2, 33);
        assert!(!pair.ends[0].is_heard(pair.now));
        pair.meet();
        pair.send(100);
        assert_eq!(pair.came.len(), 200);
        let face = Face { remote: address(1), local: address(2) };
        pair.ends[1].handle_datagram(pair.now, face, &mut late);
        assert_eq!((pair.ends[1].poll_packet(), pair.ends[1].stats().starts), (None, 1));
        assert_eq!(pair.ends[1].stats().untimely_frames, 1);
        // And the end that stayed is heard by the new one.
        pair.ends[1].send(pair.now, b"there".to_vec());
        pair.step();
        assert_eq!(pair.ends[0].poll_packet().as_deref(), Some(&b"there"[..]));
    }

    #[test]
    fn ends_meet_whatever_is_lost_and_silence_is_noticed() {
        for seed in 0..50 {
            let mut pair = Pair {
                ends: [node(2, 11), node(1, 22)],
                now: Instant::ZERO,
                rng: Rng::new(seed),
                loss: 0.4,
                came: Vec::new(),
            };
            let is_heard = |pair: &Pair| pair.ends.iter().all(|end| end.is_heard(pair.now));
            let met = (0..10_000).find(|_| {
                pair.step();
                is_heard(&pair)
            });
            assert!(met.is_some(), "seed {seed}");
            pair.loss = 1.0;
            (0..3_500).for_each(|_| pair.step());
            assert!(!pair.ends[0].is_heard(pair.now) && !pair.ends[1].is_heard(pair.now));
            pair.loss = 0.0;
            (0..1_100).for_each(|_| pair.step());
            assert!(is_heard(&pair), "seed {seed}");
        }
    }

    /// Plain packets have no replay windows; an end that starts anew has empty ones, too.
    #[test]
    fn what_was_recorded_before_an_end_started_counts_for_nothing() {
        let mut pair = Pair::new(0.0);
        let mut recorded = Vec::new();
        pair.ends[0].send(pair.now, b"recorded".to_vec());
        let mut out = Vec::new();
        while pair.ends[0].poll_transmit(pair.now, &mut out).is_some() {
            recorded.push(core::mem::take(&mut out));
        }
        recorded.push(hello_of_before());
        pair.ends[1] = node(1, 55);
        let face = Face { remote: address(1), local: address(2) };
        for datagram in &mut recorded {
            pair.ends[1].handle_datagram(pair.now, face, datagram);
        }
        assert_eq!((pair.ends[1].poll_packet(), pair.ends[1].is_heard(pair.now)), (None, false));
        assert_eq!(pair.ends[1].stats().untimely_frames, 1);
        pair.meet();
        pair.send(10);
        // The block of the recorded packet was open: its parity restores what was sent in vain.
        assert_eq!(pair.came.len(), 11);
    }

    /// A hello that the first end of a pair sent to the second one when they had met.
    fn hello_of_before() -> Vec<u8> {
        let (mut first, mut second) = (node(2, 11), node(1, 22));
        let mut out = Vec::new();
        assert!(second.poll_transmit(Instant::ZERO, &mut out).is_some());
        let face = Face { remote: address(2), local: address(1) };
        first.handle_datagram(Instant::ZERO, face, &mut out);
        out.clear();
        assert!(first.poll_transmit(Instant::ZERO, &mut out).is_some());
        out
    }

    #[test]
    fn nobody_else_is_listened_to() {
        let mut pair = Pair::new(0.0);
        let mut stranger = node(2, 44);
        stranger.send(pair.now, b"not for you".to_vec());
        let mut out = Vec::new();
        assert!(stranger.poll_transmit(pair.now, &mut out).is_some());
        let face = Face { remote: address(3), local: address(2) };
        pair.ends[1].handle_datagram(pair.now, face, &mut out);
        pair.ends[1].handle_datagram(pair.now, Face { remote: address(1), ..face }, &mut [7; 40]);
        assert_eq!(pair.ends[1].poll_packet(), None);
        assert_eq!(pair.ends[1].stats().bad_frames, 2);
    }
}
