//! The sending half of a connection over the satellite: the next segment, and the losses.

use super::config::SplitConfig;
use super::repair_timer::RepairTimer;
use super::segment::{Acknowledgement, Message};
use super::sent_list::{Acked, SentList};
use super::state::SenderState;
use crate::name::ByteRange;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A segment that is found lost by the timer is sent this often (paper, section III.B).
const COPIES_AFTER_TIMEOUT: u32 = 2;

/// Counters of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderStats {
    /// Segments that it sent.
    pub segments: u64,
    /// Those of them that it had sent before.
    pub retransmitted: u64,
    /// Segments that the timer found lost.
    pub timeouts: u64,
}

impl SenderStats {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            segments: self.segments + other.segments,
            retransmitted: self.retransmitted + other.retransmitted,
            timeouts: self.timeouts + other.timeouts,
        }
    }
}

/// The sending half: no window but the client's, no congestion control.
#[derive(Debug)]
pub struct Sender {
    mss: u64,
    sent: SentList,
    timer: RepairTimer,
    repairs: VecDeque<ByteRange>,
    /// Bytes that the server gave, and whether these are all.
    given: u64,
    is_all: bool,
    /// The first byte that was never sent.
    next: u64,
    received: u64,
    cumulative: u64,
    /// The first byte for which the client has no room.
    right_edge: u64,
    stats: SenderStats,
    lost: Vec<ByteRange>,
}

impl Sender {
    /// A sender that nothing was given to.
    pub fn new(config: &SplitConfig) -> Self {
        Self {
            mss: u64::from(config.mss),
            sent: SentList::default(),
            timer: RepairTimer::new(config.granularity),
            repairs: VecDeque::new(),
            given: 0,
            is_all: false,
            next: 0,
            received: 0,
            cumulative: 0,
            right_edge: 0,
            stats: SenderStats::default(),
            lost: Vec::new(),
        }
    }

    /// The server has given `bytes` bytes in all, and no more will follow where `is_all`.
    pub fn give(&mut self, bytes: u64, is_all: bool) {
        self.given = self.given.max(bytes);
        self.is_all |= is_all;
    }

    /// The connection is open: a round trip takes `rtt`, and the client has room for `window` segments.
    pub fn open(&mut self, rtt: Duration, window: u16) {
        self.on_rtt(rtt);
        self.right_edge = self.right_edge.max(u64::from(window) * self.mss);
    }

    /// A round trip was measured otherwise, by the handshake.
    pub fn on_rtt(&mut self, rtt: Duration) {
        self.timer.on_sample(rtt);
    }

    /// The least round trip.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.timer.least_rtt()
    }

    /// The client acknowledges. The ranges that it has for the first time are added to `released`: the client keeps
    /// them, so the owner of their bytes may drop them.
    pub fn on_ack(&mut self, now: Instant, ack: &Acknowledgement, released: &mut Vec<ByteRange>) {
        self.right_edge = self.right_edge.max(ack.next + u64::from(ack.window) * self.mss);
        self.cumulative = self.cumulative.max(ack.next.min(self.next));
        let mut acked = Acked::default();
        let below = ByteRange::new(0, ack.next);
        for &range in core::iter::once(&below).chain(ack.blocks.as_slice()) {
            self.sent.on_acknowledged(range, &mut acked, released);
        }
        self.received += acked.bytes;
        if let Some(left_at) = acked.left_at {
            self.timer.on_sample(now.since(left_at));
        }
        // An acknowledgement of bytes that were never sent is not believed.
        self.sent.find_lost(ack.rightmost().min(self.next), &acked, &mut self.lost);
        self.repairs.extend(self.lost.drain(..));
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        self.sent.find_overdue(now, self.timer.patience(), COPIES_AFTER_TIMEOUT, &mut self.lost);
        self.stats.timeouts += self.lost.len() as u64;
        for lost in self.lost.drain(..) {
            self.repairs.extend([lost; COPIES_AFTER_TIMEOUT as usize]);
        }
    }

    /// Time of the next timeout.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sent.oldest().map(|left_at| self.timer.tick(left_at + self.timer.patience()))
    }

    /// Whether [`Self::poll`] would find something.
    pub fn has_work(&self) -> bool {
        self.repairs.iter().any(|repair| self.sent.is_waiting(repair.start)) || self.fresh().is_some()
    }

    /// There is something to send, the client has no room for it, and nothing is under way that it would answer.
    pub fn is_blocked(&self) -> bool {
        self.unsent() > 0 && self.sent.is_empty() && !self.has_work()
    }

    /// The segment that leaves next: repairs before new data.
    pub fn poll(&mut self, now: Instant) -> Option<Message> {
        let range = match self.next_repair() {
            Some(range) => {
                self.stats.retransmitted += 1;
                range
            }
            None => {
                let range = self.fresh()?;
                self.next = range.end;
                range
            }
        };
        self.stats.segments += 1;
        self.sent.on_sent(now, range);
        Some(Message::Data { range, is_last: self.is_all && range.end == self.given })
    }

    fn next_repair(&mut self) -> Option<ByteRange> {
        while let Some(repair) = self.repairs.pop_front() {
            if self.sent.is_waiting(repair.start) {
                return Some(repair);
            }
        }
        None
    }

    /// The next new segment, where there is one that the client has room for.
    fn fresh(&self) -> Option<ByteRange> {
        let range = ByteRange::new(self.next, self.given.min(self.next + self.mss));
        // A part of a segment does not wait to be filled up: the server's TCP has decided that before (RFC 896).
        (!range.is_empty() && range.end <= self.right_edge).then_some(range)
    }

    /// Bytes that the client has, in any order.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The client has everything below.
    pub fn cumulative(&self) -> u64 {
        self.cumulative
    }

    /// The client has all that will ever be given.
    pub fn is_done(&self) -> bool {
        self.is_all && self.cumulative == self.given
    }

    /// Bytes that were given.
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Bytes that were given and never sent.
    pub fn unsent(&self) -> u64 {
        self.given.saturating_sub(self.next)
    }

    /// The state, for a sender that goes on.
    pub fn state(&self) -> SenderState {
        SenderState {
            given: self.given,
            is_all: self.is_all,
            next: self.next,
            cumulative: self.cumulative,
            received: self.received,
            right_edge: self.right_edge,
            waiting: self.sent.waiting().map(|range| (range.start, range.end)).collect(),
            rtt: self.timer.least_rtt().unwrap_or_default(),
        }
    }

    pub(super) fn put_state(&mut self, state: &SenderState) {
        (self.given, self.is_all, self.next) = (state.given, state.is_all, state.next);
        (self.cumulative, self.received) = (state.cumulative, state.received);
        self.right_edge = state.right_edge;
    }

    pub(super) fn note_sent(&mut self, now: Instant, range: ByteRange) {
        self.sent.on_sent(now, range);
    }

    /// Its counters.
    pub fn stats(&self) -> SenderStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Blocks, SplitSettings};
    use super::*;
    use crate::units::Rate;
    use alloc::vec;

    const MSS: u64 = 512;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn sender(segments: u64) -> Sender {
        let settings = SplitSettings::new(Rate::from_mbps(1));
        let Ok(config) = SplitConfig::new(settings) else { unreachable!("the defaults are possible") };
        let mut sender = Sender::new(&config);
        sender.on_rtt(Duration::from_millis(500));
        sender.give(segments * MSS, true);
        sender.right_edge = 1000 * MSS;
        sender
    }

    fn ack(next: u64, window: u16, beyond: &[(u64, u64)]) -> Acknowledgement {
        let blocks = Blocks::of(beyond.iter().map(|&(from, to)| ByteRange::new(from * MSS, to * MSS)));
        Acknowledgement { next: next * MSS, window, blocks, asked: 0 }
    }

    /// The numbers of the segments that leave at `now`.
    fn sends(sender: &mut Sender, now: Instant) -> Vec<u64> {
        let start = |message| if let Message::Data { range, .. } = message { range.start / MSS } else { 0 };
        core::iter::from_fn(|| sender.poll(now)).map(start).collect()
    }

    #[test]
    fn repairs_leave_before_new_data() {
        let mut sender = sender(10);
        sender.right_edge = 5 * MSS;
        assert_eq!(sends(&mut sender, at(0)), [0, 1, 2, 3, 4]);
        sender.on_ack(at(500), &ack(1, 5, &[(2, 3)]), &mut vec![]);
        assert_eq!(sends(&mut sender, at(500)), [1, 5]);
    }

    #[test]
    fn the_window_counts_segments() {
        let mut sender = sender(2_000);
        sender.right_edge = 0;
        assert_eq!(sends(&mut sender, at(0)), []);
        sender.on_ack(at(1), &ack(0, 512, &[]), &mut vec![]);
        assert_eq!(sends(&mut sender, at(1)).len(), 512);
        assert!(!sender.has_work());
    }

    #[test]
    fn the_timer_sends_two_copies_and_does_not_back_off() {
        let mut sender = sender(1);
        assert_eq!(sends(&mut sender, at(0)), [0]);
        let mut gaps = vec![];
        let mut before = at(0);
        for _ in 0..4 {
            let Some(due) = sender.poll_timeout() else { unreachable!("a segment is under way") };
            sender.on_timeout(due.before(Duration::from_nanos(1)));
            assert_eq!(sends(&mut sender, due), [], "not before its time");
            sender.on_timeout(due);
            assert_eq!(sends(&mut sender, due), [0, 0]);
            gaps.push(due.since(before));
            before = due;
        }
        // One sample of 500 ms: 500 + 4 · 250, in ticks of 100.
        assert_eq!(gaps, [Duration::from_millis(1_500); 4]);
        assert_eq!((sender.stats().timeouts, sender.stats().retransmitted), (4, 8));
    }

    #[test]
    fn a_repair_is_not_sent_when_what_it_repairs_was_heard_of_meanwhile() {
        let mut sender = sender(4);
        assert_eq!(sends(&mut sender, at(0)), [0, 1, 2, 3]);
        sender.on_ack(at(500), &ack(0, 100, &[(2, 3)]), &mut vec![]);
        assert!(sender.has_work());
        sender.on_ack(at(501), &ack(4, 100, &[]), &mut vec![]);
        assert!(!sender.has_work());
        assert_eq!((sends(&mut sender, at(501)), sender.poll_timeout()), (vec![], None));
    }

    #[test]
    fn what_the_client_has_is_released_once_and_stays_released_after_a_timeout() {
        let mut sender = sender(4);
        sends(&mut sender, at(0));
        let mut released = vec![];
        sender.on_ack(at(500), &ack(0, 100, &[(1, 4)]), &mut released);
        assert_eq!(released.len(), 3);
        assert_eq!((sender.received(), sender.cumulative()), (3 * MSS, 0));
        assert_eq!(sends(&mut sender, at(500)), [0]);
        sender.on_timeout(at(5_000));
        assert_eq!(sends(&mut sender, at(5_000)), [0, 0]);
        sender.on_ack(at(5_500), &ack(0, 100, &[(1, 4)]), &mut released);
        assert_eq!(released.len(), 3);
    }

    #[test]
    fn an_acknowledgement_of_what_was_never_sent_does_no_harm() {
        let mut sender = sender(10);
        sender.right_edge = 4 * MSS;
        assert_eq!(sends(&mut sender, at(0)), [0, 1, 2, 3]);
        let mut released = vec![];
        sender.on_ack(at(500), &ack(0, 4, &[(900, 1000)]), &mut released);
        assert_eq!((released.len(), sender.received(), sender.cumulative()), (0, 0, 0));
        sender.on_ack(at(501), &ack(0, 4, &[(1, 2)]), &mut released);
        assert_eq!(sends(&mut sender, at(501)), [0], "losses are still found");
    }

    #[test]
    fn a_short_segment_leaves_at_once() {
        let mut sender = sender(0);
        sender.is_all = false;
        sender.give(MSS + 10, false);
        assert_eq!(sends(&mut sender, at(0)), [0, 1]);
        assert!(!sender.has_work());
    }
}
