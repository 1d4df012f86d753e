use crate::time::{Duration, Instant};

/// A neighbour that still has measured nothing so long after all that it might be sent was sent has received none of it.
/// RFC 6298, section 2.1, waits so long for an answer on a path that nobody has measured.
const PATIENCE: Duration = Duration::from_secs(1);

/// The packets that may leave before the neighbour has measured the hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColdStart {
    packets: u32,
    left: u32,
    sent_at: Instant,
}

impl ColdStart {
    /// A start with `packets` to send.
    pub(super) fn new(now: Instant, packets: u32) -> Self {
        Self { packets, left: packets, sent_at: now }
    }

    /// A packet leaves.
    pub(super) fn on_sent(&mut self, now: Instant) {
        self.left = self.left.saturating_sub(1);
        self.sent_at = now;
    }

    /// The neighbour asks, and has measured nothing. Where everything was lost, it may be sent as much once more.
    pub(super) fn on_asked(&mut self, now: Instant) {
        if self.left == 0 && now.since(self.sent_at) >= PATIENCE {
            self.left = self.packets;
        }
    }

    /// Whether no packet may leave.
    pub(super) fn is_spent(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_received_nothing_of_the_first_packets_is_sent_more_after_a_second() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let mut start = ColdStart::new(at(0), 2);
        for millis in [10, 20] {
            assert!(!start.is_spent());
            start.on_sent(at(millis));
        }
        for (millis, is_spent) in [(30, true), (1010, true), (1020, false), (1021, false)] {
            start.on_asked(at(millis));
            assert_eq!(start.is_spent(), is_spent, "{millis} ms");
        }
    }
}
