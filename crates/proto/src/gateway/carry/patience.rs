//! The times until which missing bytes of a peer's packets are waited for.

use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;

/// Ends that were heard of within this time are noted as one, with the time of the first.
const GRAIN: Duration = Duration::from_millis(2);

/// The peer's progress over time: bytes below an end that are missing after the deadline are given up.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Ends that were heard of, ascending, and when.
    ends: VecDeque<(u64, Instant)>,
}

impl Patience {
    /// The peer has sent all up to `end`; everything below `complete` has come or was given up.
    pub(super) fn on_end(&mut self, now: Instant, end: u64, complete: u64) {
        while self.ends.front().is_some_and(|(end, _)| *end <= complete) {
            self.ends.pop_front();
        }
        if end <= complete || self.ends.back().is_some_and(|(back, _)| *back >= end) {
            return;
        }
        match self.ends.back_mut() {
            Some((back, since)) if now.since(*since) < GRAIN => *back = end,
            _ => self.ends.push_back((end, now)),
        }
    }

    /// Time of the next [`Patience::given_up`].
    pub(super) fn next_timeout(&self, deadline: Duration) -> Instant {
        self.ends.front().map_or(Instant::NEVER, |(_, since)| *since + deadline)
    }

    /// The end of the bytes that are given up now.
    pub(super) fn given_up(&mut self, now: Instant, deadline: Duration) -> Option<u64> {
        let mut last = None;
        while let Some((end, since)) = self.ends.front()
            && now.since(*since) >= deadline
        {
            last = Some(*end);
            self.ends.pop_front();
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(75);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_hole_is_given_up_a_deadline_after_it_showed() {
        let mut patience = Patience::default();
        patience.on_end(at(0), 1_000, 1_000);
        assert_eq!(patience.next_timeout(DEADLINE), Instant::NEVER, "nothing is missing");
        patience.on_end(at(10), 3_000, 1_000);
        patience.on_end(at(11), 4_000, 1_000);
        patience.on_end(at(50), 6_000, 1_000);
        assert_eq!(patience.next_timeout(DEADLINE), at(85));
        assert_eq!(patience.given_up(at(84), DEADLINE), None);
        assert_eq!(patience.given_up(at(85), DEADLINE), Some(4_000));
        assert_eq!(patience.given_up(at(125), DEADLINE), Some(6_000));
    }

    #[test]
    fn what_came_in_time_is_not_given_up() {
        let mut patience = Patience::default();
        patience.on_end(at(0), 3_000, 1_000);
        patience.on_end(at(60), 3_000, 3_000);
        assert_eq!(patience.given_up(at(500), DEADLINE), None);
    }
}
