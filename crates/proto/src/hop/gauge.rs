use super::rtt::{HopRtt, StampClock};
use super::ways::Ways;
use crate::time::{Duration, Instant, WireTime};
use crate::wire::Way;

/// Measures the hopRTT with full packets alone. Shorter ones take less time on the wire: beside them a full one would look as if it
/// had waited in a queue.
#[derive(Clone, Debug)]
pub(super) struct Gauge {
    clock: StampClock,
    rtt: HopRtt,
    /// `None` where the whole delay counts.
    ways: Option<Ways>,
    /// Largest packet seen.
    full_packet: u64,
}

/// Delays that are longer by less are as those before: clocks drift by as much in a minute.
const COMPARABLE: Duration = Duration::from_millis(1);

/// A packet was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Measured {
    /// Without what its Interest was detained.
    pub(super) hop_rtt: Duration,
    /// Delays from before cannot be compared with this one.
    pub(super) is_new_way: bool,
}

impl Gauge {
    /// A gauge that answers `assumed` until it has measured. `one_way` says whether what Interests waited on their way is left out.
    pub(super) fn new(assumed: Duration, one_way: bool) -> Self {
        let ways = one_way.then(Ways::default);
        Self { clock: StampClock::default(), rtt: HopRtt::new(assumed), ways, full_packet: 0 }
    }

    /// The stamp of an Interest that leaves now.
    pub(super) fn stamp(&mut self, now: Instant) -> WireTime {
        self.clock.stamp(now)
    }

    /// Send time of the Interest that a packet with `echo` answers, plus the time since the neighbour had it;
    /// `None` if the packet answers none of ours.
    #[inline]
    pub(super) fn read(&self, now: Instant, echo: WireTime) -> Option<Instant> {
        self.clock.read(now, echo)
    }

    /// A packet of `wire_bytes` came. Returns its hopRTT if it is full, and if `answered` tells: the result of [`Gauge::read`], and the
    /// way of the Interest.
    #[inline]
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        wire_bytes: u64,
        answered: Option<(Instant, Way)>,
    ) -> Option<Measured> {
        if wire_bytes * 9 > self.full_packet * 10 {
            // The packets so far were short: the longer time of this one on the wire must not look like a queue.
            self.rtt.rebase(Duration::MAX);
        }
        self.full_packet = self.full_packet.max(wire_bytes);
        let is_full = wire_bytes * 10 >= self.full_packet * 9;
        let (left, way) = answered.filter(|_| is_full)?;
        let whole = now.since(left);
        let detained = self.ways.as_mut().map(|ways| ways.on_packet(now, way, whole)).unwrap_or_default();
        let hop_rtt = self.rtt.on_echo(now, left, detained);
        Some(Measured { hop_rtt, is_new_way: detained.shift.is_some_and(|shift| shift >= COMPARABLE) })
    }

    /// Another node answers: nothing that was known of the path holds.
    pub(super) fn forget(&mut self) {
        self.rtt.rebase(Duration::MAX);
        self.ways.iter_mut().for_each(Ways::forget);
    }

    /// The path itself became longer: forgets that it was ever shorter than `base`.
    pub(super) fn rebase(&mut self, base: Duration) {
        self.rtt.rebase(base);
    }

    /// The hopRTT of full packets.
    #[inline]
    pub(super) fn rtt(&self) -> &HopRtt {
        &self.rtt
    }

    /// Bytes on the wire of the largest packet seen.
    pub(super) fn full_packet(&self) -> u64 {
        self.full_packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_short_packet_measures_nothing_beside_full_ones() {
        let mut gauge = Gauge::new(Duration::from_millis(100), true);
        let rtt = |gauge: &mut Gauge, now, bytes, asked| {
            gauge
                .on_packet(at(now), bytes, Some((at(asked), Way::default())))
                .map(|measured| measured.hop_rtt)
        };
        assert_eq!(rtt(&mut gauge, 50, 1400, 5), Some(Duration::from_millis(45)));
        assert_eq!(rtt(&mut gauge, 60, 90, 30), None);
        assert_eq!(rtt(&mut gauge, 90, 1300, 40), Some(Duration::from_millis(50)), "nearly full");
        assert_eq!((gauge.rtt().min(), gauge.full_packet()), (Duration::from_millis(45), 1400));
    }

    #[test]
    fn a_longer_packet_begins_the_smallest_round_trip_anew() {
        let mut gauge = Gauge::new(Duration::from_millis(100), true);
        gauge.on_packet(at(50), 90, Some((at(10), Way::default())));
        assert_eq!(gauge.rtt().min(), Duration::from_millis(40));
        gauge.on_packet(at(100), 1400, Some((at(55), Way::default())));
        assert_eq!(gauge.rtt().min(), Duration::from_millis(45));
    }

    #[test]
    fn a_packet_that_answers_nothing_of_ours_measures_nothing() {
        let mut gauge = Gauge::new(Duration::from_millis(100), true);
        assert_eq!(gauge.read(at(10), WireTime::at(at(5))), None, "no Interest has left");
        let stamp = gauge.stamp(at(10));
        assert_eq!(gauge.read(at(50), stamp), Some(at(10)));
        assert_eq!(gauge.on_packet(at(50), 1400, None), None);
        assert!(!gauge.rtt().is_measured());
    }
}
