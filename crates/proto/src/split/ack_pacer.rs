//! Spreads the bytes that one acknowledgement of the client frees over the time until the next.

use crate::time::{Duration, Instant};

/// Holds back freed room and gives it out segment by segment, as many per time as the client acknowledges (paper,
/// section IV): the server hears of an even flow where the return channel of the satellite brings it in lumps.
#[derive(Clone, Debug)]
pub struct AckPacer {
    step: u64,
    longest: Duration,
    held: u64,
    interval: Duration,
    next: Instant,
    last: Option<Instant>,
}

impl AckPacer {
    /// A pacer that gives out `segment` bytes at a time, the freed room of one acknowledgement within `longest`.
    pub fn new(segment: u64, longest: Duration) -> Self {
        let (interval, next) = (Duration::ZERO, Instant::ZERO);
        Self { step: segment.max(1), longest, held: 0, interval, next, last: None }
    }

    /// An acknowledgement freed `bytes`. The rest of the previous bytes is released: its time has passed.
    pub fn on_freed(&mut self, now: Instant, bytes: u64) {
        let since = self.last.replace(now).map_or(Duration::ZERO, |last| now.since(last));
        self.held = bytes;
        self.interval = since.min(self.longest).scaled(1, bytes.div_ceil(self.step).max(1));
        self.next = now;
        self.on_timeout(now);
    }

    /// Releases the bytes that are due.
    pub fn on_timeout(&mut self, now: Instant) {
        while self.held > 0 && self.next <= now {
            self.held = if self.interval.is_zero() { 0 } else { self.held.saturating_sub(self.step) };
            self.next += self.interval;
        }
    }

    /// Freed bytes that are not to be reported to the server yet.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Time of the next release.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.held > 0).then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn sixteen_segments_of_one_acknowledgement_are_given_out_over_the_time_since_the_last() {
        let mut pacer = AckPacer::new(512, Duration::from_secs(1));
        pacer.on_freed(at(0), 16 * 512);
        assert_eq!(pacer.held(), 0, "there is no time to spread the first over");
        pacer.on_freed(at(160), 16 * 512);
        assert_eq!((pacer.held(), pacer.poll_timeout()), (15 * 512, Some(at(170))));
        for step in 1..16 {
            pacer.on_timeout(at(160 + 10 * step));
            assert_eq!(pacer.held(), (15 - step) * 512);
        }
        assert_eq!(pacer.poll_timeout(), None);
    }

    #[test]
    fn an_acknowledgement_that_comes_early_ends_the_turn_of_the_one_before() {
        let mut pacer = AckPacer::new(512, Duration::from_secs(1));
        pacer.on_freed(at(0), 512);
        pacer.on_freed(at(100), 4 * 512);
        pacer.on_freed(at(120), 2 * 512);
        assert_eq!((pacer.held(), pacer.poll_timeout()), (512, Some(at(130))));
    }

    #[test]
    fn nothing_is_held_back_for_longer_than_the_bound() {
        let mut pacer = AckPacer::new(512, Duration::from_millis(500));
        pacer.on_freed(at(0), 512);
        pacer.on_freed(at(60_000), 5 * 512);
        pacer.on_timeout(at(60_500));
        assert_eq!(pacer.held(), 0);
    }
}
