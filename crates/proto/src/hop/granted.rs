use super::cold::ColdStart;
use super::pacer::Pacer;
use crate::time::Instant;
use crate::units::Rate;

/// The pace of packets to a neighbour: its grant, within this node's own bound. Before the neighbour has measured the hop, some
/// packets may leave and no more.
#[derive(Debug)]
pub(super) struct Granted {
    pacer: Pacer,
    /// The bound of this node's configuration.
    most: Rate,
    /// Whether more packets waited when the last one left: the next one waits only for its time.
    had_backlog: bool,
    /// The packets that may leave before the neighbour's first measurement; `None` afterwards.
    cold: Option<ColdStart>,
}

impl Granted {
    /// Nothing is granted yet; at most `most` ever will be. Packets have `packet` bytes on the wire at most, and `first` of them
    /// may leave before the first measurement.
    pub(super) fn new(now: Instant, most: Rate, packet: u64, first: u32) -> Self {
        let pacer = Pacer::new(Rate::ZERO, packet);
        Self { pacer, most, had_backlog: false, cold: Some(ColdStart::new(now, first)) }
    }

    /// The neighbour grants `rate`; `is_cold` says that it has measured nothing.
    pub(super) fn on_grant(&mut self, now: Instant, rate: Rate, is_cold: bool) {
        self.pacer.set_rate(now, rate.min(self.most));
        match &mut self.cold {
            Some(cold) if is_cold => cold.on_asked(now),
            _ => self.cold = None,
        }
    }

    /// The rate.
    pub(super) fn rate(&self) -> Rate {
        self.pacer.rate()
    }

    /// Time from which on the rate lets the next packet leave.
    #[inline]
    pub(super) fn ready_at(&self) -> Instant {
        self.pacer.ready_at()
    }

    /// Whether no packet may leave until the neighbour has measured the hop, or asks again.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.cold.is_some_and(|cold| cold.is_spent())
    }

    /// A packet of `bytes` on the wire leaves in its turn.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        if self.had_backlog {
            self.pacer.on_sent_of_backlog(now, bytes);
        } else {
            self.pacer.on_sent(now, bytes);
        }
        if let Some(cold) = &mut self.cold {
            cold.on_sent(now);
        }
    }

    /// Tells whether more packets wait, now that one has left.
    #[inline]
    pub(super) fn note_backlog(&mut self, has_backlog: bool) {
        self.had_backlog = has_backlog;
    }

    /// A packet of `bytes` leaves out of turn: those after it wait for its time on the wire.
    pub(super) fn on_sent_between(&mut self, now: Instant, bytes: u64) {
        self.pacer.on_sent(now, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn granted() -> Granted {
        Granted::new(NOW, Rate::from_bps(8_000_000), 1000, 2)
    }

    #[test]
    fn no_neighbour_is_sent_more_than_this_nodes_bound() {
        let mut granted = granted();
        assert_eq!(granted.rate(), Rate::ZERO);
        granted.on_grant(NOW, Rate::from_bps(1_000_000), true);
        assert_eq!(granted.rate(), Rate::from_bps(1_000_000));
        granted.on_grant(NOW, Rate::from_bps(90_000_000), true);
        assert_eq!(granted.rate(), Rate::from_bps(8_000_000));
    }

    #[test]
    fn the_first_packets_leave_and_the_others_once_the_hop_is_measured() {
        let mut granted = granted();
        granted.on_grant(NOW, Rate::from_bps(8_000_000), true);
        granted.on_sent(NOW, 1000);
        assert!(!granted.is_spent());
        granted.on_sent(NOW, 1000);
        assert!(granted.is_spent());
        granted.on_grant(NOW, Rate::from_bps(8_000_000), false);
        (0..5).for_each(|_| granted.on_sent(NOW, 1000));
        assert!(!granted.is_spent());
    }

    #[test]
    fn a_packet_between_two_turns_takes_its_time_and_none_of_the_first_packets() {
        let mut granted = granted();
        granted.on_grant(NOW, Rate::from_bps(8_000_000), true);
        (0..9).for_each(|_| granted.on_sent_between(NOW, 1000));
        assert!(!granted.is_spent());
        assert!(granted.ready_at() > NOW + Duration::from_millis(5), "{:?}", granted.ready_at());
    }

    #[test]
    fn a_backlog_that_came_to_its_turn_late_loses_no_time() {
        let ready = [false, true].map(|has_backlog| {
            let mut granted = granted();
            granted.on_grant(NOW, Rate::from_bps(8_000_000), false);
            (0..9).for_each(|_| granted.on_sent(NOW, 1000));
            granted.note_backlog(has_backlog);
            // The next packet leaves three packets' time late, and so does the one after it.
            let late = granted.ready_at() + Duration::from_millis(3);
            (0..2).for_each(|_| granted.on_sent(late, 1000));
            granted.ready_at()
        });
        assert!(ready[1] < ready[0], "{ready:?}");
    }
}
