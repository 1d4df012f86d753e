//! The segments under way, in the order in which they left, and the losses that this order shows.

use crate::name::ByteRange;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// One transmission of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Departure {
    /// First byte of the segment.
    start: u64,
    at: Instant,
    /// Departures before this one.
    number: u64,
}

/// A segment that is not acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    end: u64,
    /// The number of its last departure.
    last: u64,
    first_at: Instant,
    copies: u32,
    /// Copies still to be sent: the segment counts as lost until they are.
    due: u32,
}

/// The segments that an acknowledgement covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acked {
    /// Bytes that it acknowledged first.
    pub bytes: u64,
    /// The last segment among them, by its first byte.
    pub rightmost: Option<u64>,
    /// The earliest departure of a segment among them that left only once: its round trip is a valid sample.
    pub left_at: Option<Instant>,
}

/// Every transmission since the last one known to have arrived, retransmissions included, sorted by departure.
///
/// A satellite keeps order. Once the last segment in the sequence that ever arrived is known, all that left before the
/// first transmission of it has arrived or is lost, retransmissions like first transmissions (paper, section III.B).
#[derive(Debug, Default)]
pub struct SentList {
    departures: VecDeque<Departure>,
    waiting: BTreeMap<u64, Waiting>,
    /// The end of all that was ever acknowledged.
    rightmost: u64,
    count: u64,
}

impl SentList {
    /// A segment leaves, for the first time or again.
    pub fn on_sent(&mut self, now: Instant, range: ByteRange) {
        let number = self.count;
        self.count += 1;
        self.departures.push_back(Departure { start: range.start, at: now, number });
        let waiting = self.waiting.entry(range.start).or_insert(Waiting {
            end: range.end,
            last: number,
            first_at: now,
            copies: 0,
            due: 0,
        });
        waiting.last = number;
        waiting.copies += 1;
        waiting.due = waiting.due.saturating_sub(1);
    }

    /// Whether the segment that starts here is not acknowledged.
    pub fn is_waiting(&self, start: u64) -> bool {
        self.waiting.contains_key(&start)
    }

    /// The segments that are not acknowledged.
    pub fn waiting(&self) -> impl Iterator<Item = ByteRange> + '_ {
        self.waiting.iter().map(|(start, waiting)| ByteRange::new(*start, waiting.end))
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes every segment that lies within `range`, which arrived; `released` is called with each.
    pub fn on_acknowledged(&mut self, range: ByteRange, acked: &mut Acked, released: &mut Vec<ByteRange>) {
        let mut from = range.start;
        while let Some((&start, &waiting)) = self.waiting.range(from..range.end).next() {
            from = waiting.end;
            if waiting.end > range.end {
                return;
            }
            self.waiting.remove(&start);
            released.push(ByteRange::new(start, waiting.end));
            acked.bytes += waiting.end - start;
            acked.rightmost = acked.rightmost.max(Some(start));
            if waiting.copies == 1 {
                acked.left_at = Some(acked.left_at.map_or(waiting.first_at, |at| at.min(waiting.first_at)));
            }
        }
    }

    /// Adds to `lost` the segments that an acknowledgement ending at `rightmost` shows to be lost. If `rightmost`
    /// does not advance, it shows nothing.
    pub fn find_lost(&mut self, rightmost: u64, acked: &Acked, lost: &mut Vec<ByteRange>) {
        let Some(segment) = acked.rightmost.filter(|_| rightmost > self.rightmost) else { return };
        self.rightmost = rightmost;
        // Of several transmissions the first has not necessarily arrived, but no earlier one has.
        let Some(end) = self.departures.iter().position(|departure| departure.start == segment) else {
            return;
        };
        for departure in self.departures.drain(..end) {
            let Some(waiting) = self.waiting.get_mut(&departure.start) else { continue };
            // A later transmission is under way, or about to be.
            if waiting.last == departure.number && waiting.due == 0 {
                waiting.due = 1;
                lost.push(ByteRange::new(departure.start, waiting.end));
            }
        }
    }

    /// Adds to `lost` the segments that left `patience` ago and were not acknowledged since; `copies` of each are
    /// to be sent.
    pub fn find_overdue(&mut self, now: Instant, patience: Duration, copies: u32, lost: &mut Vec<ByteRange>) {
        self.forget_arrived();
        for departure in self.departures.iter().take_while(|departure| departure.at + patience <= now) {
            let Some(waiting) = self.waiting.get_mut(&departure.start) else { continue };
            if waiting.last == departure.number && waiting.due == 0 {
                waiting.due = copies;
                lost.push(ByteRange::new(departure.start, waiting.end));
            }
        }
    }

    /// Departure time of the oldest transmission that may still be acknowledged.
    pub fn oldest(&self) -> Option<Instant> {
        let is_awaited = |departure: &&Departure| {
            let waiting = self.waiting.get(&departure.start);
            waiting.is_some_and(|waiting| waiting.last == departure.number && waiting.due == 0)
        };
        self.departures.iter().find(is_awaited).map(|departure| departure.at)
    }

    fn forget_arrived(&mut self) {
        while self.departures.front().is_some_and(|first| !self.waiting.contains_key(&first.start)) {
            self.departures.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Segments of one byte, a millisecond apart.
    #[derive(Default)]
    struct Rig {
        list: SentList,
        now: Instant,
    }

    impl Rig {
        fn send(&mut self, segments: &[u64]) {
            for &segment in segments {
                self.now += Duration::from_millis(1);
                self.list.on_sent(self.now, ByteRange::at(segment, 1));
            }
        }

        /// An acknowledgement of all below `next` and of `beyond`; the segments that it shows to be lost.
        fn ack(&mut self, next: u64, beyond: &[(u64, u64)]) -> Vec<u64> {
            let (mut acked, mut released, mut lost) = (Acked::default(), vec![], vec![]);
            let blocks = beyond.iter().map(|&(from, to)| ByteRange::new(from, to));
            for range in core::iter::once(ByteRange::new(0, next)).chain(blocks) {
                self.list.on_acknowledged(range, &mut acked, &mut released);
            }
            let rightmost = beyond.iter().map(|block| block.1).fold(next, u64::max);
            self.list.find_lost(rightmost, &acked, &mut lost);
            lost.into_iter().map(|range| range.start).collect()
        }
    }

    #[test]
    fn what_left_before_the_rightmost_arrival_and_is_not_acknowledged_is_lost_at_once() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(rig.ack(1, &[]), []);
        assert_eq!(rig.ack(1, &[(3, 4)]), [1, 2], "one later arrival is enough, there is no reordering");
        assert_eq!(rig.ack(1, &[(3, 5)]), [], "and nothing is found twice");
    }

    #[test]
    fn a_lost_retransmission_is_found_by_the_next_new_segment_that_arrives() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2]);
        assert_eq!(rig.ack(0, &[(1, 2)]), [0]);
        rig.send(&[0, 3, 4]);
        // 2 left before the repair: it says nothing of it. 3 left after it.
        assert_eq!(rig.ack(0, &[(1, 3)]), []);
        assert_eq!(rig.ack(0, &[(1, 4)]), [0]);
        rig.send(&[0, 5]);
        assert_eq!(rig.ack(0, &[(1, 5)]), [], "4 left before the second repair");
        assert_eq!(rig.ack(0, &[(1, 6)]), [0], "lost three times, found three times");
    }

    #[test]
    fn a_repair_that_arrives_shows_no_loss_of_what_left_before_it() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2, 3]);
        assert_eq!(rig.ack(0, &[(1, 2)]), [0]);
        rig.send(&[0]);
        assert_eq!(rig.ack(2, &[]), [], "the right end has not advanced");
        assert_eq!(rig.ack(4, &[]), []);
        assert!(rig.list.is_empty());
    }

    #[test]
    fn lost_acknowledgements_cost_nothing_while_a_later_one_says_the_same() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2, 3, 4, 5, 6]);
        // Acknowledgements of 0, 2 and 3 were lost; the one of 5 names all that arrived: 1 and 4 are missing.
        assert_eq!(rig.ack(1, &[(5, 6), (2, 4)]), [1, 4]);
    }

    #[test]
    fn a_segment_of_which_every_acknowledgement_was_lost_is_sent_again_needlessly_and_no_more_than_that() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2, 3]);
        assert_eq!(rig.ack(0, &[(3, 4)]), [0, 1, 2], "1 and 2 arrived, and nothing said so");
        rig.send(&[0, 1, 2, 4]);
        assert_eq!(rig.ack(5, &[]), []);
        assert!(rig.list.is_empty());
    }

    #[test]
    fn a_timeout_leaves_the_first_transmission_in_the_list() {
        let mut rig = Rig::default();
        rig.send(&[0, 1, 2]);
        let mut lost = vec![];
        rig.list.find_overdue(rig.now, Duration::from_millis(1), 2, &mut lost);
        assert_eq!(lost.len(), 2, "2 has just left");
        rig.send(&[0, 0, 1, 1, 3]);
        // The first transmission of 2 left before all repairs: its arrival condemns none of them.
        assert_eq!(rig.ack(0, &[(2, 3)]), []);
        assert_eq!(rig.ack(0, &[(2, 4)]), [0, 1], "one loss each, although two copies were lost");
    }

    #[test]
    fn both_copies_must_be_sent_before_either_can_be_missed() {
        let mut rig = Rig::default();
        rig.send(&[0, 1]);
        let mut lost = vec![];
        rig.list.find_overdue(rig.now, Duration::ZERO, 2, &mut lost);
        rig.send(&[0]);
        assert_eq!(rig.ack(0, &[(1, 2)]), []);
        rig.list.find_overdue(rig.now, Duration::ZERO, 2, &mut lost);
        assert_eq!(lost.len(), 2, "the second copy is still due");
        rig.send(&[0]);
        rig.list.find_overdue(rig.now, Duration::ZERO, 2, &mut lost);
        assert_eq!(lost.len(), 3);
    }

    #[test]
    fn only_a_segment_that_left_once_tells_the_round_trip() {
        let mut rig = Rig::default();
        rig.send(&[0, 0, 1, 2]);
        let (mut acked, mut released) = (Acked::default(), vec![]);
        rig.list.on_acknowledged(ByteRange::new(0, 3), &mut acked, &mut released);
        assert_eq!(acked.left_at, Some(Instant::ZERO + Duration::from_millis(3)));
        assert_eq!((acked.bytes, released.len()), (3, 3));
    }
}
