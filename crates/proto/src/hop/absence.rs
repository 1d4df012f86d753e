use crate::time::{Duration, Instant};

/// A node that runs so much later than it asked to was stopped, or its machine slept. Less is a busy machine, whose delays
/// the controllers see in the trend of 80 ms that they follow.
const LATE: Duration = Duration::from_millis(100);

/// Times in which this node did not run.
///
/// Datagrams that come meanwhile wait for the node, which takes them all at once. Where nobody tells when they arrived, the delay that
/// they show is its own, and says nothing about the link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Absence {
    /// When the node ran last. Datagrams that arrived before are taken later: their times go back.
    ran: Instant,
    /// When it came back last.
    back: Option<Instant>,
}

impl Absence {
    /// The node runs at `now`. True if it may have been away: then [`Absence::note_due`] is to tell.
    #[inline]
    pub(super) fn run(&mut self, now: Instant) -> bool {
        let latest = now.max(self.ran);
        latest.since(core::mem::replace(&mut self.ran, latest)) > LATE
    }

    /// The node, which runs at `now` and did not for a while, had asked to run at `due`.
    pub(super) fn note_due(&mut self, now: Instant, due: Option<Instant>) {
        if due.is_some_and(|due| now.since(due) > LATE) {
            self.back = Some(now);
        }
    }

    /// True for a packet whose delay is that of the link. Either it arrived, at `now`, before the node came back: then the host knows
    /// when. Or it left its sender late enough to have found this node running. `answered` is the send time of the Interest that it
    /// answers, plus the time since the sender had that.
    pub(super) fn is_over_for(&self, now: Instant, answered: Instant) -> bool {
        self.back.is_none_or(|back| now < back || answered > back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_node_that_was_not_late_was_not_away() {
        let mut absence = Absence::default();
        // It had nothing to do for long, or is a little late, or has no alarm.
        for (now, due) in [(5000, Some(5000)), (9000, Some(8950)), (20_000, None)] {
            assert!(absence.run(at(now)));
            absence.note_due(at(now), due.map(at));
        }
        assert!(absence.is_over_for(at(20_000), at(1)));
    }

    #[test]
    fn what_was_sent_while_a_node_was_away_shows_its_own_delay_and_later_packets_do_not() {
        let mut absence = Absence::default();
        absence.run(at(1000));
        assert!(absence.run(at(8000)));
        absence.note_due(at(8000), Some(at(1010)));
        assert!(!absence.run(at(8005)), "it is busy, not away");
        assert!(!absence.is_over_for(at(8005), at(1005)) && !absence.is_over_for(at(8005), at(8000)));
        assert!(absence.is_over_for(at(8005), at(8001)));
    }

    #[test]
    fn a_busy_node_that_takes_what_arrived_before_was_not_away() {
        let mut absence = Absence::default();
        absence.run(at(1000));
        for now in (1000..2000).step_by(10) {
            assert!(!absence.run(at(now)), "it runs every ten milliseconds");
            assert!(!absence.run(at(now - 200)), "and its socket holds datagrams for 200");
        }
    }

    #[test]
    fn what_the_host_saw_arrive_while_a_node_was_away_shows_the_link() {
        let mut absence = Absence::default();
        absence.run(at(1000));
        assert!(absence.run(at(8000)));
        absence.note_due(at(8000), Some(at(1010)));
        assert!(absence.is_over_for(at(7999), at(7980)));
        assert!(!absence.is_over_for(at(8000), at(7980)));
    }
}
