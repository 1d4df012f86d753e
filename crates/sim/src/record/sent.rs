//! The times at which each byte of a flow first left its source.

use starhop_proto::name::ByteRange;
use starhop_proto::time::Instant;
use std::collections::VecDeque;

/// A range that the source sent at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) range: ByteRange,
    pub(crate) at: Instant,
    /// A copy of it was lost somewhere.
    pub(crate) is_lost: bool,
}

/// The first transmissions of the bytes that are still under way, ascending and disjoint.
#[derive(Debug, Default)]
pub(crate) struct SentLog {
    entries: VecDeque<Sent>,
    /// Everything below was forgotten.
    floor: u64,
}

/// The most entries kept: 4 MB. For readers that lag further behind, the delay means little.
const MOST_ENTRIES: usize = 100_000;

impl SentLog {
    /// The source sent `range`: the bytes that it had not sent before get this time.
    pub(crate) fn on_sent(&mut self, now: Instant, range: ByteRange) {
        let range = ByteRange::new(range.start.max(self.floor), range.end);
        if range.is_empty() {
            return;
        }
        if self.entries.back().is_none_or(|last| last.range.end <= range.start) {
            self.entries.push_back(Sent { range, at: now, is_lost: false });
            if self.entries.len() > MOST_ENTRIES {
                self.forget_first();
            }
            return;
        }
        self.fill_gaps(now, range);
    }

    fn fill_gaps(&mut self, now: Instant, range: ByteRange) {
        let mut index = self.first_after(range.start);
        let mut at = range.start;
        while at < range.end {
            let next = self.entries.get(index).map_or(ByteRange::at(u64::MAX, 0), |entry| entry.range);
            if next.start > at {
                let gap = ByteRange::new(at, next.start.min(range.end));
                self.entries.insert(index, Sent { range: gap, at: now, is_lost: false });
                at = gap.end;
            } else {
                at = next.end;
            }
            index += 1;
        }
    }

    /// A packet with `range` was lost.
    pub(crate) fn on_lost(&mut self, range: ByteRange) {
        let from = self.first_after(range.start);
        for entry in self.entries.range_mut(from..).take_while(|entry| entry.range.start < range.end) {
            entry.is_lost = true;
        }
    }

    /// The transmissions that `range` came from, each cut to it.
    pub(crate) fn within(&self, range: ByteRange) -> impl Iterator<Item = Sent> + '_ {
        let from = self.first_after(range.start);
        let overlapping = self.entries.range(from..).take_while(move |entry| entry.range.start < range.end);
        overlapping.map(move |entry| Sent { range: entry.range.intersect(range), ..*entry })
    }

    /// No reader will ask for bytes below `floor`.
    pub(crate) fn forget_below(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while self.entries.front().is_some_and(|first| first.range.end <= floor) {
            self.entries.pop_front();
        }
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.entries.pop_front() {
            self.floor = first.range.end;
        }
    }

    /// The first entry that ends after `offset`.
    fn first_after(&self, offset: u64) -> usize {
        // In good order the search ends at one of the two ends.
        if self.entries.front().is_none_or(|first| first.range.end > offset) {
            return 0;
        }
        self.entries.partition_point(|entry| entry.range.end <= offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn times(log: &SentLog, range: ByteRange) -> Vec<(u64, u64, u64)> {
        log.within(range).map(|s| (s.range.start, s.range.end, s.at.as_nanos())).collect()
    }

    #[test]
    fn a_repair_does_not_change_when_bytes_were_first_sent() {
        let mut log = SentLog::default();
        log.on_sent(at(1), ByteRange::new(0, 100));
        log.on_sent(at(3), ByteRange::new(200, 300));
        log.on_sent(at(9), ByteRange::new(50, 250));
        assert_eq!(times(&log, ByteRange::new(0, 300)), [(0, 100, 1), (100, 200, 9), (200, 300, 3)]);
        assert_eq!(times(&log, ByteRange::new(90, 110)), [(90, 100, 1), (100, 110, 9)]);
    }

    #[test]
    fn what_was_delivered_is_forgotten_and_stays_so() {
        let mut log = SentLog::default();
        (0..10).for_each(|i| log.on_sent(at(i), ByteRange::at(i * 100, 100)));
        log.forget_below(500);
        log.on_sent(at(99), ByteRange::new(0, 600));
        assert_eq!(times(&log, ByteRange::new(0, 600)), [(500, 600, 5)]);
        assert_eq!(log.entries.len(), 5);
    }

    #[test]
    fn a_lost_packet_marks_its_ranges() {
        let mut log = SentLog::default();
        (0..3).for_each(|i| log.on_sent(at(i), ByteRange::at(i * 100, 100)));
        log.on_lost(ByteRange::new(100, 200));
        let lost: Vec<bool> = log.within(ByteRange::new(0, 300)).map(|s| s.is_lost).collect();
        assert_eq!(lost, [false, true, false]);
    }
}
