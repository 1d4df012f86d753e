//! The path between two gateways: whether segments get through, of which length, and how long they take.

use super::super::handover::parts;
use super::content::{Content, Terms};
use crate::time::{Duration, Instant};

/// Lengths that are tried when full segments do not get through: those of a path with the least MTU of IPv6 (1,280
/// bytes, RFC 8200, section 5), and of one that hardly carries anything else (576 bytes, RFC 1122, section 3.3.2).
const SHORTER: [u16; 2] = [1_100, 430];
/// Openings of one length before the next one is tried.
const TRIES: u32 = 3;
/// Between two openings: more than the round trip over a satellite.
const AGAIN: Duration = Duration::from_secs(1);
/// Without an answer for this long, the operator is told.
const TOLD_AFTER: Duration = Duration::from_secs(5);

/// The state of both directions.
#[derive(Debug)]
pub(super) struct Path {
    largest: u16,
    window: u32,
    began: Instant,
    tries: u32,
    next: Instant,
    /// Our direction was accepted: full segments of this many bytes get through.
    mss: Option<u16>,
    /// Of the peer's direction, and the room that it has.
    theirs: Option<u16>,
    room: u32,
    rtt: Duration,
    /// An opening of the peer is to be answered: its length and time.
    answer: Option<(u16, u64)>,
    is_told: bool,
}

parts!(Path { largest, window, began, tries, next, mss, theirs, room, rtt, answer, is_told });

impl Path {
    /// A path on which segments of at most `largest` bytes are tried, at a gateway that has room for `window` bytes of a
    /// connection.
    pub(super) fn new(now: Instant, largest: u16, window: u64) -> Self {
        Self {
            largest,
            window: u32::try_from(window).unwrap_or(u32::MAX),
            began: now,
            tries: 0,
            next: now,
            mss: None,
            theirs: None,
            room: 0,
            rtt: Duration::ZERO,
            answer: None,
            is_told: false,
        }
    }

    /// Payload bytes of our full segments, once it is known that they get through.
    pub(super) fn mss(&self) -> Option<u16> {
        self.mss
    }

    /// The same of the peer's.
    pub(super) fn their_mss(&self) -> Option<u16> {
        self.theirs
    }

    /// The peer has room for so many bytes of a connection.
    pub(super) fn room(&self) -> u64 {
        u64::from(self.room)
    }

    /// The round trip of the opening that was accepted.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The peer speaks the protocol.
    pub(super) fn is_heard(&self) -> bool {
        self.theirs.is_some() || self.mss.is_some()
    }

    /// The peer opens its direction.
    pub(super) fn on_open(&mut self, terms: Terms) {
        (self.theirs, self.room) = (Some(terms.mss), terms.window);
        self.answer = Some((terms.mss, terms.time));
    }

    /// The peer accepts our direction. True if that was not known.
    pub(super) fn on_accept(&mut self, now: Instant, terms: Terms) -> bool {
        if self.mss.is_some() || !self.lengths().any(|length| length == terms.mss) {
            return false;
        }
        self.mss = Some(terms.mss);
        self.room = terms.window;
        self.rtt = Duration::from_micros(micros(now).saturating_sub(terms.time).max(1));
        true
    }

    /// The message that is due.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Content<'static>> {
        let window = self.window;
        if let Some((mss, time)) = self.answer.take() {
            return Some(Content::Accept(Terms { mss, window, time }));
        }
        if self.mss.is_some() || self.next > now {
            return None;
        }
        let tried = (self.tries / TRIES) as usize;
        let mss = self.lengths().nth(tried % self.lengths().count()).unwrap_or(self.largest);
        self.tries += 1;
        self.next = now + AGAIN;
        Some(Content::Open(Terms { mss, window, time: micros(now) }))
    }

    /// Time of the next message.
    pub(super) fn next_timeout(&self) -> Instant {
        match (self.answer, self.mss) {
            (Some(_), _) => Instant::ZERO,
            (None, Some(_)) => Instant::NEVER,
            (None, None) => self.next,
        }
    }

    /// True once, when the peer should have answered long ago.
    pub(super) fn is_overdue(&mut self, now: Instant) -> bool {
        let is_overdue = self.mss.is_none() && now.since(self.began) >= TOLD_AFTER && !self.is_told;
        self.is_told |= is_overdue;
        is_overdue
    }

    fn lengths(&self) -> impl Iterator<Item = u16> + use<> {
        let largest = self.largest;
        core::iter::once(largest).chain(SHORTER.into_iter().filter(move |length| *length < largest))
    }
}

fn micros(now: Instant) -> u64 {
    now.since(Instant::ZERO).as_micros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// The lengths of the openings until `end`.
    fn lengths(path: &mut Path, end: u64) -> Vec<u16> {
        let opened = |content| if let Content::Open(terms) = content { terms.mss } else { 0 };
        (0..end).step_by(100).filter_map(|millis| path.poll(at(millis))).map(opened).collect()
    }

    #[test]
    fn shorter_segments_are_tried_when_full_ones_get_no_answer() {
        let mut path = Path::new(at(0), 1_294, 1 << 20);
        assert_eq!(
            lengths(&mut path, 10_000),
            [1_294, 1_294, 1_294, 1_100, 1_100, 1_100, 430, 430, 430, 1_294]
        );
        let terms = Terms { mss: 1_100, window: 9_000, time: 3_000_000 };
        assert!(!path.on_accept(at(3_600), Terms { mss: 1_200, ..terms }), "that was never offered");
        assert!(path.on_accept(at(3_600), terms));
        assert!(!path.on_accept(at(3_700), terms), "known");
        assert_eq!((path.mss(), path.room(), path.rtt()), (Some(1_100), 9_000, Duration::from_millis(600)));
        assert_eq!((path.poll(at(60_000)), path.next_timeout()), (None, Instant::NEVER));
    }

    #[test]
    fn every_opening_of_the_peer_is_answered() {
        let mut path = Path::new(at(0), 1_294, 5_000);
        path.poll(at(0));
        for _ in 0..2 {
            path.on_open(Terms { mss: 1_000, window: 7_000, time: 9 });
            let answer = Content::Accept(Terms { mss: 1_000, window: 5_000, time: 9 });
            assert_eq!((path.poll(at(1)), path.poll(at(1))), (Some(answer), None));
        }
        assert!(path.is_heard() && path.mss().is_none());
    }

    #[test]
    fn silence_is_told_of_once() {
        let mut path = Path::new(at(0), 1_294, 5_000);
        assert!(!path.is_overdue(at(4_999)));
        assert!(path.is_overdue(at(5_000)));
        assert!(!path.is_overdue(at(6_000)));
    }
}
