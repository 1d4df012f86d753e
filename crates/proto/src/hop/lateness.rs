use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// Arrival times are remembered once in this time, for so many of them: packets of one hop are late by milliseconds.
const STRIDE: Duration = Duration::from_millis(1);
const MARKS: usize = 64;
/// The longest lateness counts for one to two of these spans.
const SPAN: Duration = Duration::from_secs(10);

/// The time by which packets arrive later than others that were sent after them (compare RFC 8985, section 6.2: the reordering
/// window). Whoever takes a packet for lost before that repairs what is on its way.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// Numbers of packets and when they came, oldest first.
    marks: VecDeque<(u64, Instant)>,
    longest: Duration,
    longest_before: Duration,
    span_began: Instant,
}

impl Lateness {
    /// Packet `number` came, the newest so far.
    #[inline]
    pub(super) fn on_newest(&mut self, now: Instant, number: u64) {
        if self.marks.back().is_some_and(|(_, at)| now.since(*at) < STRIDE) {
            return;
        }
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((number, now));
    }

    /// Packet `number` came behind newer ones.
    pub(super) fn on_straggler(&mut self, now: Instant, number: u64) {
        // The first remembered packet that overtook it came up to a stride after the first that did.
        let passed = self.marks.iter().find(|(newer, _)| *newer > number);
        let late = passed.map_or(Duration::ZERO, |(_, passed)| now.since(*passed)) + STRIDE;
        if now.since(self.span_began) >= SPAN {
            let is_recent = now.since(self.span_began) < SPAN.scaled(2, 1);
            self.longest_before = if is_recent { self.longest } else { Duration::ZERO };
            (self.longest, self.span_began) = (Duration::ZERO, now);
        }
        self.longest = self.longest.max(late);
    }

    /// The longest lateness of the last ten to twenty seconds, and a quarter more: the next may be later.
    pub(super) fn expected(&self, now: Instant) -> Duration {
        let age = now.since(self.span_began);
        let longest = match age < SPAN {
            true => self.longest.max(self.longest_before),
            false if age < SPAN.scaled(2, 1) => self.longest,
            false => Duration::ZERO,
        };
        longest.scaled(5, 4)
    }

    /// Another node answers, or counts anew.
    pub(super) fn restart(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + millis)
    }

    #[test]
    fn a_packet_is_as_late_as_the_first_that_overtook_it_is_early() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.expected(at(0)), Duration::ZERO);
        for millis in 0..30 {
            if millis != 12 {
                lateness.on_newest(at(millis), millis);
            }
        }
        lateness.on_straggler(at(21), 12);
        // Overtaken at 13 ms, here at 21 ms; a millisecond of doubt, and a quarter.
        assert_eq!(lateness.expected(at(21)), Duration::from_micros(11_250));
    }

    #[test]
    fn an_old_lateness_counts_no_more() {
        let mut lateness = Lateness::default();
        lateness.on_newest(at(0), 5);
        lateness.on_straggler(at(8), 4);
        assert!(lateness.expected(at(9_000)) > Duration::ZERO);
        assert_eq!(lateness.expected(at(21_000)), Duration::ZERO);
    }
}
