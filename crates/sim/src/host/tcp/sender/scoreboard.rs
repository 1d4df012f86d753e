//! The state of every segment between the cumulative acknowledgement and the newest one sent.
//!
//! Segments are numbered from 0. Every operation is O(1) per segment that changes its state, or O(log n) in the
//! number of runs of SACKed segments: a long SACK block that is repeated in every acknowledgement costs nothing.

use super::super::runs::Runs;
use starhop_proto::time::{Duration, Instant};
use std::collections::{BTreeSet, VecDeque};

/// Progress of the connection when a segment was sent; the segment's delivery rate sample is computed from it
/// (draft-ietf-ccwg-bbr, section 4.1.2).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) delivered: u64,
    pub(crate) delivered_at: Instant,
    pub(crate) first_sent_at: Instant,
    pub(crate) in_flight: u32,
    pub(crate) lost: u64,
    pub(crate) is_app_limited: bool,
}

/// The last transmission of a segment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Transmission {
    pub(crate) at: Instant,
    /// Its place in the order of all transmissions.
    pub(crate) serial: u64,
    /// Number of earlier transmissions of the segment.
    pub(crate) repeats: u32,
    pub(crate) snapshot: Snapshot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Under way, as far as is known.
    InFlight,
    /// Deemed lost and not sent again yet.
    Lost,
    /// Arrived beyond a hole.
    Sacked,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    sent: Transmission,
    state: State,
    /// It was deemed lost, and no repair has arrived.
    is_broken: bool,
}

/// The segments that an acknowledgement delivered.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Delivery {
    /// Number of segments.
    pub(crate) count: u32,
    /// The delivered segment that was sent last.
    pub(crate) newest: Option<Transmission>,
    /// Send time of the first delivered segment that was never repeated, if the cumulative acknowledgement covers
    /// it.
    pub(crate) first_sent: Option<Instant>,
    /// Send time of the first delivered segment that was never repeated, if SACK covers it.
    pub(crate) first_sacked: Option<Instant>,
    /// Send time of the last delivered segment that was never repeated.
    pub(crate) last_sent: Option<Instant>,
    /// A segment that was sent once arrived after a later one.
    pub(crate) is_reordered: bool,
    /// Send time of the first delivered segment that was repeated.
    pub(crate) first_repeat: Option<Instant>,
    /// The cumulative acknowledgement did not move.
    pub(crate) is_sacked_only: bool,
    /// The cumulative acknowledgement covered a segment that was repeated.
    pub(crate) has_repeated: bool,
}

/// The scoreboard.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    first: u64,
    slots: VecDeque<Slot>,
    sacked: Runs,
    sacked_count: u32,
    highest_sacked: Option<u64>,
    lost: BTreeSet<u64>,
    /// Transmissions in their order; entries of segments that arrived or were sent again are stale.
    order: VecDeque<(u64, u64)>,
    serial: u64,
    in_flight: u32,
    lost_total: u64,
    lost_repeats: u64,
    broken: u32,
    /// Everything below was looked at by [`Self::lose_below`].
    examined: u64,
}

impl Scoreboard {
    /// The first segment that is not acknowledged.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The first segment that was never sent.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Segments sent, neither acknowledged nor deemed lost.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Segments beyond the cumulative acknowledgement that arrived.
    pub(crate) fn sacked_count(&self) -> u32 {
        self.sacked_count
    }

    /// Segments between the cumulative acknowledgement and the newest one sent.
    pub(crate) fn outstanding(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Segments ever deemed lost.
    pub(crate) fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Repetitions ever deemed lost.
    pub(crate) fn lost_repeats(&self) -> u64 {
        self.lost_repeats
    }

    /// Segments that were deemed lost, sent again or not, and that have not arrived (Linux' lost_out).
    pub(crate) fn broken(&self) -> u32 {
        self.broken
    }

    /// The last transmission of a segment that is not acknowledged.
    pub(crate) fn sent(&self, segment: u64) -> Option<Transmission> {
        self.slots.get(segment.checked_sub(self.first)? as usize).map(|slot| slot.sent)
    }

    /// The first segment that waits to be sent again.
    pub(crate) fn first_lost(&self) -> Option<u64> {
        self.lost.first().copied()
    }

    /// The next segment is sent for the first time; its number.
    pub(crate) fn send_next(&mut self, now: Instant, snapshot: Snapshot) -> u64 {
        let segment = self.next();
        let sent = self.transmission(segment, now, 0, snapshot);
        self.slots.push_back(Slot { sent, state: State::InFlight, is_broken: false });
        self.in_flight += 1;
        segment
    }

    /// A segment is sent again.
    pub(crate) fn send_again(&mut self, segment: u64, now: Instant, snapshot: Snapshot) {
        let Some(repeats) = self.sent(segment).map(|sent| sent.repeats + 1) else { return };
        let sent = self.transmission(segment, now, repeats, snapshot);
        let Some(slot) = self.slots.get_mut((segment - self.first) as usize) else { return };
        slot.sent = sent;
        if slot.state == State::Lost {
            slot.state = State::InFlight;
            self.in_flight += 1;
            self.lost.remove(&segment);
        }
    }

    fn transmission(&mut self, segment: u64, at: Instant, repeats: u32, snapshot: Snapshot) -> Transmission {
        self.serial += 1;
        self.order.push_back((self.serial, segment));
        Transmission { at, serial: self.serial, repeats, snapshot }
    }

    /// Everything below `segment` arrived.
    pub(crate) fn acknowledge(&mut self, segment: u64, delivery: &mut Delivery) {
        while self.first < segment
            && let Some(slot) = self.slots.pop_front()
        {
            let number = self.first;
            self.first += 1;
            delivery.has_repeated |= slot.sent.repeats > 0;
            if slot.state == State::Sacked {
                self.sacked_count -= 1;
                continue;
            }
            if slot.sent.repeats > 0 {
                // If a segment was sent more than twice, the acknowledgement does not tell which copy arrived.
                let at = if slot.sent.repeats == 1 { slot.sent.at } else { Instant::ZERO };
                delivery.first_repeat = Some(delivery.first_repeat.map_or(at, |first| first.min(at)));
            }
            self.settle(number, &slot, delivery);
            if slot.sent.repeats == 0 {
                delivery.first_sent.get_or_insert(slot.sent.at);
            }
        }
        if !self.sacked.is_empty() {
            self.sacked.remove_below(self.first);
        }
        self.examined = self.examined.max(self.first);
        self.skip_stale();
    }

    /// The segments `[start, end)` arrived.
    pub(crate) fn sack(&mut self, start: u64, end: u64, delivery: &mut Delivery) {
        let (start, end) = (start.max(self.first), end.min(self.next()));
        if start >= end {
            return;
        }
        let mut gaps = [(0, 0); 8];
        let mut count = 0;
        let mut rest = Vec::new();
        self.sacked.insert(start, end, |from, to| match gaps.get_mut(count) {
            Some(gap) => (*gap, count) = ((from, to), count + 1),
            None => rest.push((from, to)),
        });
        for (from, to) in gaps.into_iter().take(count).chain(rest) {
            for segment in from..to {
                self.sack_one(segment, delivery);
            }
        }
        self.highest_sacked = self.highest_sacked.max(Some(end - 1));
    }

    fn sack_one(&mut self, segment: u64, delivery: &mut Delivery) {
        let Some(slot) = self.slots.get_mut((segment - self.first) as usize) else { return };
        let before = *slot;
        (slot.state, slot.is_broken) = (State::Sacked, false);
        self.sacked_count += 1;
        self.settle(segment, &before, delivery);
        if before.sent.repeats == 0 {
            delivery.first_sacked.get_or_insert(before.sent.at);
        }
    }

    /// A segment arrived for the first time.
    fn settle(&mut self, segment: u64, slot: &Slot, delivery: &mut Delivery) {
        match slot.state {
            State::InFlight => self.in_flight -= 1,
            State::Lost => {
                self.lost.remove(&segment);
            }
            State::Sacked => {}
        }
        self.broken -= u32::from(slot.is_broken);
        delivery.count += 1;
        if delivery.newest.is_none_or(|newest| newest.serial < slot.sent.serial) {
            delivery.newest = Some(slot.sent);
        }
        if slot.sent.repeats == 0 {
            delivery.last_sent = delivery.last_sent.max(Some(slot.sent.at));
            delivery.is_reordered |= self.highest_sacked.is_some_and(|highest| segment < highest);
        }
    }

    /// The first segment is deemed lost, if it was not repaired before.
    pub(crate) fn lose_first(&mut self) {
        if self.slots.front().is_some_and(|slot| slot.sent.repeats == 0) {
            self.lose(self.first);
        }
    }

    /// Counts segments that arrived beyond a hole as under way again: the acknowledgement does not say which they
    /// were.
    pub(crate) fn forget_sacked(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.state == State::Sacked) {
            slot.state = State::InFlight;
            self.in_flight += 1;
        }
        self.sacked = Runs::default();
        self.sacked_count = 0;
        self.highest_sacked = None;
    }

    /// A segment in flight is deemed lost.
    fn lose(&mut self, segment: u64) {
        let Some(slot) = self.slots.get_mut((segment - self.first) as usize) else { return };
        if slot.state == State::InFlight {
            slot.state = State::Lost;
            self.in_flight -= 1;
            self.broken += u32::from(!slot.is_broken);
            slot.is_broken = true;
            self.lost_total += 1;
            self.lost_repeats += u64::from(slot.sent.repeats > 0);
            self.lost.insert(segment);
        }
    }

    fn is_stale(&self, (serial, segment): (u64, u64)) -> bool {
        let Some(index) = segment.checked_sub(self.first) else { return true };
        let slot = self.slots.get(index as usize);
        slot.is_none_or(|slot| slot.sent.serial != serial || slot.state != State::InFlight)
    }

    fn skip_stale(&mut self) {
        while let Some(&entry) = self.order.front()
            && self.is_stale(entry)
        {
            self.order.pop_front();
        }
    }

    /// Deems lost the segments that were sent before the transmission `serial` and longer than `patience` ago, in
    /// the order in which they were sent. Returns the time at which the next one will be deemed lost.
    pub(crate) fn lose_older(&mut self, serial: u64, patience: Duration, now: Instant) -> Option<Instant> {
        loop {
            self.skip_stale();
            let &(oldest, segment) = self.order.front()?;
            if oldest >= serial {
                return None;
            }
            let due = self.sent(segment)?.at + patience;
            if due > now {
                return Some(due);
            }
            self.order.pop_front();
            self.lose(segment);
        }
    }

    /// Deems lost the segments with at least three SACKed segments above them (RFC 6675, IsLost), each segment
    /// once.
    pub(crate) fn lose_below_three(&mut self) {
        let mut needed = 3;
        let mut bound = None;
        for (start, end) in self.sacked.iter_down() {
            if end - start >= needed {
                bound = Some(end - needed);
                break;
            }
            needed -= end - start;
        }
        let Some(bound) = bound else { return };
        for segment in self.examined..bound {
            self.lose(segment);
        }
        self.examined = self.examined.max(bound);
    }

    /// Deems lost everything in flight that was sent at or before `latest`, and the first segment in any case.
    pub(crate) fn lose_all(&mut self, latest: Instant) {
        for segment in self.first..self.next() {
            let is_due = self.sent(segment).is_some_and(|sent| sent.at <= latest);
            if segment == self.first || is_due {
                self.lose(segment);
            }
        }
        // Sent again, they may be lost again.
        self.examined = self.first;
    }

    /// Nothing that is marked lost was: it is in flight after all.
    pub(crate) fn find_all(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.is_broken = false);
        self.broken = 0;
        for segment in std::mem::take(&mut self.lost) {
            if let Some(slot) = self.slots.get_mut((segment - self.first) as usize) {
                slot.state = State::InFlight;
                self.in_flight += 1;
                self.order.push_back((slot.sent.serial, segment));
            }
        }
        self.order.make_contiguous().sort_unstable();
    }
}
