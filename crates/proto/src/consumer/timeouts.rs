use super::rto::Rto;
use crate::name::ByteRange;
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug)]
struct Entry {
    range: ByteRange,
    /// Time of the last request, or of the last Notice that the range is on its way.
    since: Instant,
    tries: u32,
}

/// The requests that have waited longer than the timeout (LEOTP section III.B: one timer per Interest).
///
/// Entries are not removed when their bytes arrive but when their time comes: most are satisfied by then.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    /// Asked for once, oldest first.
    first: VecDeque<Entry>,
    /// Asked for again. Few.
    again: Vec<Entry>,
}

impl Timeouts {
    /// `range` has been asked for.
    pub(super) fn on_ask(&mut self, now: Instant, range: ByteRange) {
        self.first.push_back(Entry { range, since: now, tries: 0 });
    }

    /// `range` is on its way: its timers start anew.
    pub(super) fn on_notice(&mut self, now: Instant, range: ByteRange) {
        for entry in self.again.iter_mut().chain(&mut self.first).filter(|entry| entry.range.overlaps(range))
        {
            entry.since = now;
        }
        // One entry out of turn in the queue is only found late: it waits behind older ones, which are due first.
    }

    /// Time at which the next request has waited too long.
    pub(super) fn next_due(&self, rto: &Rto) -> Option<Instant> {
        // Called with every packet. No timeout is shorter than the first, so most entries need only a comparison
        // with it.
        let shortest = rto.timeout(0);
        let first = self.first.front().map_or(Instant::NEVER, |entry| entry.since + shortest);
        let due = self.again.iter().fold(first, |due, entry| {
            if entry.since + shortest < due { due.min(entry.since + rto.timeout(entry.tries)) } else { due }
        });
        due.if_ever()
    }

    /// Takes the next request out that has waited too long.
    pub(super) fn take_due(&mut self, now: Instant, rto: &Rto) -> Option<(ByteRange, u32)> {
        if self.first.front().is_some_and(|entry| entry.since + rto.timeout(0) <= now) {
            return self.first.pop_front().map(|entry| (entry.range, 0));
        }
        let index = self.again.iter().position(|entry| entry.since + rto.timeout(entry.tries) <= now)?;
        let entry = self.again.swap_remove(index);
        Some((entry.range, entry.tries))
    }

    /// `range` is asked for once more, or will be looked at again later (with the same `tries`).
    pub(super) fn put_back(&mut self, now: Instant, range: ByteRange, tries: u32) {
        self.again.push(Entry { range, since: now, tries });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn each_request_times_out_by_itself_and_backs_off_by_itself() {
        let rto = Rto::new(Duration::from_millis(100), Duration::from_millis(10), Duration::from_secs(9));
        let mut timeouts = Timeouts::default();
        timeouts.on_ask(at(0), ByteRange::new(0, 10));
        timeouts.on_ask(at(30), ByteRange::new(10, 20));
        assert_eq!(timeouts.next_due(&rto), Some(at(100)));
        assert_eq!(timeouts.take_due(at(100), &rto), Some((ByteRange::new(0, 10), 0)));
        assert_eq!(timeouts.take_due(at(100), &rto), None);
        timeouts.put_back(at(100), ByteRange::new(0, 10), 1);
        assert_eq!(timeouts.take_due(at(130), &rto), Some((ByteRange::new(10, 20), 0)));
        assert_eq!(timeouts.next_due(&rto), Some(at(250)), "1.5 times the timeout after the second request");
    }

    #[test]
    fn a_notice_restarts_the_timer() {
        let rto = Rto::new(Duration::from_millis(100), Duration::from_millis(10), Duration::from_secs(9));
        let mut timeouts = Timeouts::default();
        timeouts.on_ask(at(0), ByteRange::new(0, 10));
        timeouts.on_notice(at(80), ByteRange::new(5, 6));
        assert_eq!(timeouts.next_due(&rto), Some(at(180)));
    }
}
