use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Control packets take at most this share of the bytes that they control: one byte in 128.
const CONTROL_SHARE: u64 = 128;
/// An Interest on the wire with IPv4 and UDP, roughly.
const CONTROL_BYTES: u64 = 64;

/// The facts of a hop that its Interests report.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Fact {
    /// The rate that the hop is granted.
    pub(super) rate: Rate,
    /// The hop has been measured, and the neighbour may be told its rate.
    pub(super) is_warm: bool,
}

/// The Interests that left on a hop. Each has the number after the one before, and the last one tells what the neighbour knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reports {
    counter: u16,
    last: Fact,
    at: Instant,
    /// Bytes received since the last one.
    unreported: u64,
}

impl Reports {
    /// None has left; the first one has the number after `counter`.
    pub(super) fn new(counter: u16) -> Self {
        Self { counter, last: Fact { rate: Rate::ZERO, is_warm: false }, at: Instant::ZERO, unreported: 0 }
    }

    /// The neighbour's packets brought so many bytes on the wire.
    #[inline]
    pub(super) fn on_brought(&mut self, bytes: u64) {
        self.unreported += bytes;
    }

    /// An Interest with `fact` leaves now. Returns its number.
    pub(super) fn on_interest(&mut self, now: Instant, fact: Fact) -> u16 {
        *self = Self { counter: self.counter.wrapping_add(1), last: fact, at: now, unreported: 0 };
        self.counter
    }

    /// Whether the neighbour should be sent `fact` although nothing is asked of it. For most packets the answer is no, whatever
    /// the fact is.
    #[inline]
    pub(super) fn is_due(&self, now: Instant, hop_rtt: Duration, fact: impl FnOnce() -> Fact) -> bool {
        let is_worth_it = self.unreported >= CONTROL_SHARE * CONTROL_BYTES;
        if self.last.is_warm && !is_worth_it {
            return false;
        }
        let fact = fact();
        if !self.last.is_warm && fact.is_warm {
            return true;
        }
        let age = now.since(self.at);
        is_worth_it && (age >= hop_rtt || (age >= hop_rtt.scaled(1, 4) && self.has_changed(fact.rate)))
    }

    /// Whether `rate` is no longer the one that the neighbour knows.
    fn has_changed(&self, rate: Rate) -> bool {
        let (old, new) = (self.last.rate.as_mbps(), rate.as_mbps());
        (new - old).abs() > 0.02 * old
    }

    /// The neighbour knows of less than half of `rate`.
    pub(super) fn holds_back(&self, rate: Rate) -> bool {
        self.last.rate.as_bps() < rate.as_bps() / 2
    }

    /// Time of the last Interest.
    pub(super) fn last_at(&self) -> Instant {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn fact(mbps: u64, is_warm: bool) -> Fact {
        Fact { rate: Rate::from_bps(mbps * 1_000_000), is_warm }
    }

    fn reports(told: Fact) -> Reports {
        let mut reports = Reports::new(u16::MAX);
        assert_eq!(reports.on_interest(at(1000), told), 0);
        reports
    }

    #[test]
    fn a_neighbour_is_told_at_once_that_its_hop_is_measured() {
        let reports = reports(fact(10, false));
        assert!(!reports.is_due(at(1000), RTT, || fact(10, false)));
        assert!(reports.is_due(at(1000), RTT, || fact(10, true)));
    }

    #[test]
    fn a_report_costs_one_byte_in_128_of_those_that_came() {
        let mut reports = reports(fact(10, true));
        reports.on_brought(8191);
        assert!(!reports.is_due(at(2000), RTT, || fact(90, true)));
        reports.on_brought(1);
        assert!(reports.is_due(at(2000), RTT, || fact(90, true)));
        reports.on_interest(at(2000), fact(90, true));
        assert!(!reports.is_due(at(3000), RTT, || fact(10, true)), "nothing came since");
    }

    #[test]
    fn a_changed_rate_is_told_after_a_quarter_of_a_round_trip_and_the_same_one_after_a_whole() {
        let mut reports = reports(fact(100, true));
        reports.on_brought(100_000);
        for (millis, mbps, is_due) in [(9, 103, false), (10, 103, true), (10, 102, false), (39, 102, false)] {
            let now = at(1000 + millis);
            assert_eq!(reports.is_due(now, RTT, || fact(mbps, true)), is_due, "{mbps} Mbit/s at {millis} ms");
        }
        assert!(reports.is_due(at(1040), RTT, || fact(100, true)));
    }

    #[test]
    fn a_neighbour_that_knows_of_less_than_half_of_the_rate_is_held_back() {
        let reports = reports(fact(10, true));
        assert!(!reports.holds_back(fact(20, true).rate) && reports.holds_back(fact(21, true).rate));
        assert_eq!(reports.last_at(), at(1000));
    }
}
