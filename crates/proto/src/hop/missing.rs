use super::counter::{Arrival, Arrivals};
use super::lateness::Lateness;
use crate::config::Config;
use crate::time::{Duration, Instant};

/// Packets that are missing: below `end`, and lost at `deadline` even if nothing follows. Those above it have time after that.
#[derive(Clone, Copy, Debug)]
struct Gap {
    end: u64,
    deadline: Instant,
}

/// Packets that count as lost because their time is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Overdue {
    /// All of them.
    pub(super) lost: u32,
    /// Those that no hole of a flow accounts for.
    pub(super) unexplained: u32,
}

/// Packets of any length that the counter and the clock have told of since a packet was measured last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Passed {
    /// Packets that the counter passed: the share of those that are lost is one of these.
    pub(super) packets: u32,
    /// Packets that count as lost, because others came or because their time is over.
    pub(super) lost: u32,
    /// Runs of lost packets without one in between that came.
    pub(super) runs: u32,
}

/// The packets of a hop that did not come. A packet is late until later ones or its time make it a loss; it counts as lost at
/// most once, and while one is late there is a time at which that ends.
#[derive(Debug)]
pub(super) struct Missing {
    arrivals: Arrivals,
    /// Missing packets that holes of flows account for.
    explained: u64,
    gap: Option<Gap>,
    reorder_time: Duration,
    /// `None` where the configuration says how late packets may be.
    lateness: Option<Lateness>,
    /// Packets since [`Missing::take_sent`] was called last.
    passed: Passed,
    last_arrival: Instant,
    /// After this long without a packet the neighbour has forgotten the hop, and counts from anywhere.
    forgotten_after: Duration,
}

impl Missing {
    /// Nothing has come yet.
    pub(super) fn new(config: &Config) -> Self {
        Self {
            arrivals: Arrivals::new(config.reorder_packets, config.reorder_limit),
            explained: 0,
            gap: None,
            reorder_time: config.reorder_time,
            lateness: (config.reorder_limit > config.reorder_packets).then(Lateness::default),
            passed: Passed::default(),
            last_arrival: Instant::ZERO,
            forgotten_after: config.flow_idle,
        }
    }

    /// Whether the neighbour has been silent for so long that it counts from anywhere: then [`Missing::resume`] comes before the
    /// next arrival.
    #[inline]
    pub(super) fn is_forgotten(&self, now: Instant) -> bool {
        now.since(self.last_arrival) >= self.forgotten_after
    }

    /// A packet with this counter came. [`Missing::learn`] follows once the arrival is measured.
    #[inline]
    pub(super) fn on_arrival(&mut self, now: Instant, counter: u16) -> Arrival {
        let arrival = self.arrivals.on_arrival(counter);
        self.last_arrival = now;
        self.passed.packets += arrival.advance;
        self.passed.lost += arrival.lost;
        self.passed.runs += arrival.runs;
        arrival
    }

    /// Packets that left the neighbour with this arrival, one of those that are measured: it, and those that are missing before it; and
    /// what has passed since the one before. The counter tells of these at once; but where packets overtake each other it jumps, and what
    /// counts as lost tells of them later and more evenly. Short packets between two that are measured are none: taken for full ones, the
    /// marks of 300 flows made a link carry half as much again as it could, and its queue was never drained.
    #[inline]
    pub(super) fn take_sent(&mut self, now: Instant, arrival: &Arrival) -> (u32, Passed) {
        let passed = core::mem::take(&mut self.passed);
        let came = u32::from(!arrival.is_duplicate);
        (if self.is_reordered(now) { came + passed.lost } else { arrival.advance }, passed)
    }

    /// Learns from an arrival how late packets come, and gives those that are missing their time.
    #[inline]
    pub(super) fn learn(&mut self, now: Instant, arrival: &Arrival, hop_rtt: Duration) {
        self.learn_lateness(now, arrival);
        let is_open = |gap: &Gap| self.arrivals.has_open_gap_below(gap.end);
        self.gap = self.gap.filter(is_open).or_else(|| self.open_gap(now, hop_rtt));
    }

    fn learn_lateness(&mut self, now: Instant, arrival: &Arrival) {
        let Some(lateness) = &mut self.lateness else { return };
        match arrival.advance {
            0 if !arrival.is_duplicate => lateness.on_straggler(now, arrival.number),
            0 => {}
            _ => lateness.on_newest(now, arrival.number),
        }
        if !self.is_reordered(now) {
            self.arrivals.forget_reordering();
        }
    }

    /// Packets of the hop have overtaken each other lately.
    fn is_reordered(&self, now: Instant) -> bool {
        self.lateness.as_ref().is_some_and(|lateness| !lateness.expected(now).is_zero())
    }

    /// The gap of the packets that are missing now.
    fn open_gap(&self, now: Instant, hop_rtt: Duration) -> Option<Gap> {
        let gap = || Gap { end: self.arrivals.next(), deadline: now + self.reorder_time(now, hop_rtt) };
        self.arrivals.has_open_gap().then(gap)
    }

    /// Time after which a missing packet is lost even if nothing follows: the lateness of others, within a round trip.
    #[inline]
    pub(super) fn reorder_time(&self, now: Instant, hop_rtt: Duration) -> Duration {
        let late = self.lateness.as_ref().map_or(Duration::ZERO, |lateness| lateness.expected(now));
        late.min(hop_rtt).max(self.reorder_time)
    }

    /// Later packets that make a missing one a loss.
    #[inline]
    pub(super) fn reorder(&self) -> u32 {
        self.arrivals.reorder()
    }

    /// Packets missing between two numbers of [`Arrival`].
    pub(super) fn between(&self, after: u64, before: u64) -> u64 {
        self.arrivals.missing_between(after, before)
    }

    /// Time of the last arrival.
    pub(super) fn last_arrival(&self) -> Instant {
        self.last_arrival
    }

    /// Time of the next [`Missing::on_timeout`].
    #[inline]
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.gap.map(|gap| gap.deadline)
    }

    /// Counts the packets as lost whose time is over; `None` if it is not.
    pub(super) fn on_timeout(&mut self, now: Instant, hop_rtt: Duration) -> Option<Overdue> {
        let gap = self.gap.filter(|gap| gap.deadline <= now)?;
        let (lost, runs) = self.arrivals.condemn_below(gap.end);
        self.gap = self.open_gap(now, hop_rtt);
        self.passed.lost += lost;
        self.passed.runs += runs;
        Some(Overdue { lost, unexplained: self.take_unexplained(lost) })
    }

    /// Packet `number` was repaired by other means. True if it had not counted as lost: it counts now.
    pub(super) fn fill(&mut self, number: u64) -> bool {
        let is_loss = self.arrivals.fill(number);
        self.passed.lost += u32::from(is_loss);
        self.passed.runs += u32::from(is_loss);
        is_loss
    }

    /// Holes of a flow account for `explained` more missing packets, and `lost` are counted as lost. Returns how
    /// many of these no hole accounts for.
    pub(super) fn settle(&mut self, explained: u64, lost: u32) -> u32 {
        self.explained += explained;
        let unexplained = self.take_unexplained(lost);
        if !self.arrivals.has_open_gap() {
            // Missing packets that still arrived must not explain a later loss.
            self.explained = 0;
        }
        unexplained
    }

    fn take_unexplained(&mut self, lost: u32) -> u32 {
        let explained = self.explained.min(u64::from(lost));
        self.explained -= explained;
        lost - explained as u32
    }

    /// Packets that the neighbour sent until now to no receiver were not lost: counting goes on from the next one.
    pub(super) fn resume(&mut self) {
        self.arrivals.resume();
        self.explained = 0;
        self.gap = None;
        self.lateness.iter_mut().for_each(Lateness::restart);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Profile, Settings};

    const RTT: Duration = Duration::from_millis(40);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + millis)
    }

    fn missing() -> Missing {
        let settings = Settings { reorder_packets: 3, reorder_limit: 32, ..Profile::default().settings() };
        Missing::new(&Config::new(settings).expect("three of 32"))
    }

    fn arrive(missing: &mut Missing, millis: u64, counter: u16) -> Arrival {
        let arrival = missing.on_arrival(at(millis), counter);
        missing.learn(at(millis), &arrival, RTT);
        arrival
    }

    #[test]
    fn a_packet_that_nothing_follows_is_lost_at_its_time_and_once() {
        let mut missing = missing();
        for (millis, counter) in [(0, 1), (1, 2), (2, 4)] {
            assert_eq!(arrive(&mut missing, millis, counter).lost, 0);
        }
        let due = missing.next_timeout().expect("packet 3 is late");
        assert_eq!(due, at(2) + missing.reorder_time(at(2), RTT));
        assert_eq!(missing.on_timeout(due.before(Duration::from_nanos(1)), RTT), None);
        assert_eq!(missing.on_timeout(due, RTT), Some(Overdue { lost: 1, unexplained: 1 }));
        assert_eq!((missing.on_timeout(due, RTT), missing.next_timeout()), (None, None));
        let later = [5, 6, 7, 8].map(|counter| arrive(&mut missing, 60, counter).lost);
        assert_eq!(later, [0; 4]);
    }

    #[test]
    fn the_hole_of_a_flow_explains_a_loss_and_no_later_one() {
        let mut missing = missing();
        let first = arrive(&mut missing, 0, 1).number;
        let newest = arrive(&mut missing, 1, 4).number;
        assert_eq!(missing.between(first, newest), 2);
        assert_eq!(missing.settle(1, 0), 0);
        assert_eq!(missing.settle(0, 2), 1, "one of the two has no hole");
        // The two come late after all: what is explained by then is void.
        missing.settle(1, 0);
        [2, 3].into_iter().for_each(|counter| _ = arrive(&mut missing, 2, counter));
        assert_eq!(missing.settle(0, 0), 0);
        assert_eq!(missing.settle(0, 1), 1);
    }

    /// Marks are short: as full packets, they made a link carry more than it could.
    #[test]
    fn short_packets_between_two_that_are_measured_tell_of_no_bytes() {
        let mut missing = missing();
        [1, 3, 2].into_iter().for_each(|counter| _ = arrive(&mut missing, 0, counter));
        let before = missing.on_arrival(at(1), 4);
        missing.take_sent(at(1), &before);
        [5, 6, 7].into_iter().for_each(|counter| _ = arrive(&mut missing, 2, counter));
        let full = missing.on_arrival(at(3), 8);
        let (sent, passed) = missing.take_sent(at(3), &full);
        assert_eq!((sent, passed.packets), (1, 4));
    }

    #[test]
    fn where_packets_overtake_each_other_what_came_and_was_lost_tells_what_was_sent() {
        let mut missing = missing();
        let sent = |missing: &mut Missing, millis, counter| {
            let arrival = missing.on_arrival(at(millis), counter);
            let (sent, _) = missing.take_sent(at(millis), &arrival);
            missing.learn(at(millis), &arrival, RTT);
            sent
        };
        assert_eq!([1, 2, 4].map(|counter| sent(&mut missing, 0, counter)), [1, 1, 2], "the counter jumps");
        // Packet 3 was overtaken; from now on only arrivals and losses count.
        assert_eq!(sent(&mut missing, 5, 3), 0);
        assert_eq!([6, 7].map(|counter| sent(&mut missing, 6, counter)), [1, 1]);
    }

    #[test]
    fn a_packet_that_parity_restored_is_a_loss_that_time_does_not_count_again() {
        let mut missing = missing();
        arrive(&mut missing, 0, 1);
        let newest = arrive(&mut missing, 1, 3).number;
        assert!(missing.fill(newest - 1) && !missing.fill(newest - 1));
        let due = missing.next_timeout().expect("the gap was open");
        assert_eq!(missing.on_timeout(due, RTT), Some(Overdue { lost: 0, unexplained: 0 }));
    }

    #[test]
    fn a_neighbour_that_was_silent_for_long_may_count_from_anywhere() {
        let mut missing = missing();
        arrive(&mut missing, 0, 1);
        arrive(&mut missing, 1, 3);
        let later = at(1) + Config::default().flow_idle;
        assert!(!missing.is_forgotten(later.before(Duration::from_nanos(1))) && missing.is_forgotten(later));
        missing.resume();
        assert_eq!(missing.next_timeout(), None);
        assert_eq!(missing.on_arrival(later, 20_000).lost, 0);
    }
}
