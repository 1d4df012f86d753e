use super::cold::ColdStart;
use super::pacer::Pacer;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Requests count on the link with one byte for so many of the packets, so that they never stop these: where a low rate is granted because
/// little was sent, the requests for a gigabit would be more than it.
const PER_REQUESTED: u64 = 8;
/// Bytes of requests that may be saved up.
const MOST_REQUESTED: u64 = 4096;

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
    /// Bytes of requests that still count.
    requested: u64,
    /// Packets leave in chirps; the state of the present one.
    chirp: Option<Chirp>,
}

impl Granted {
    /// Nothing is granted yet; at most `most` ever will be. Packets have `packet` bytes on the wire at most, and `first` of them
    /// may leave before the first measurement.
    pub(super) fn new(now: Instant, most: Rate, packet: u64, first: u32) -> Self {
        let pacer = Pacer::new(Rate::ZERO, packet);
        Self {
            pacer,
            most,
            had_backlog: false,
            cold: Some(ColdStart::new(now, first)),
            requested: 0,
            chirp: None,
        }
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

    /// Packets leave in chirps from now on, or evenly.
    pub(super) fn set_chirps(&mut self, is_wanted: bool) {
        let rate = self.pacer.rate();
        match &mut self.chirp {
            Some(chirp) if !is_wanted => chirp.left = 0,
            Some(chirp) if rate < chirp.rate.scaled(NEW_RATE) => {}
            chirp => *chirp = is_wanted.then(|| Chirp::begin(rate)),
        }
    }

    /// Time from which on the rate lets the next packet leave.
    #[inline]
    pub(super) fn ready_at(&self) -> Instant {
        match self.chirp {
            Some(chirp) if chirp.left > 0 && self.pacer.rate() > Rate::ZERO => chirp.ready_at(&self.pacer),
            _ => self.pacer.ready_at(),
        }
    }

    /// Time since which the rate lets the next packet leave, where that is past.
    #[inline]
    pub(super) fn ready_since(&self) -> Instant {
        self.ready_at().max(self.pacer.ready_since())
    }

    /// Whether no packet may leave until the neighbour has measured the hop, or asks again.
    #[inline]
    pub(super) fn is_spent(&self) -> bool {
        self.cold.is_some_and(|cold| cold.is_spent())
    }

    /// A packet of `bytes` on the wire leaves in its turn, and could have left `late` ago.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, late: Duration, bytes: u64) {
        self.take(now, late, bytes);
        self.requested = (self.requested + bytes / PER_REQUESTED).min(MOST_REQUESTED);
        if let Some(chirp) = self.chirp.as_mut().filter(|chirp| chirp.left > 0) {
            chirp.on_sent(now, self.pacer.rate().time_for(bytes));
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

    /// A request of `bytes` leaves for the neighbour. It takes its part of the rate, within its share.
    pub(super) fn on_request(&mut self, now: Instant, bytes: u64) {
        let counted = bytes.min(self.requested);
        if counted > 0 {
            self.requested -= counted;
            self.take(now, Duration::ZERO, counted);
        }
    }

    /// Takes the time of `bytes` on the wire, which could have left `late` ago.
    #[inline]
    fn take(&mut self, now: Instant, late: Duration, bytes: u64) {
        if self.had_backlog {
            self.pacer.on_sent_of_backlog(now, bytes);
        } else {
            self.pacer.on_sent_late(now, late, bytes);
        }
    }

    /// A packet of `bytes` leaves out of turn: those after it wait for its time on the wire.
    pub(super) fn on_sent_between(&mut self, now: Instant, bytes: u64) {
        self.pacer.on_sent(now, bytes);
    }
}

/// Packets of a chirp.
const CHIRP: u8 = 32;
/// Chirps at each new rate. They show the room of the link; more would only be bursts.
const CHIRPS: u8 = 5;
/// A rate is new if it is so many times the one that chirps have been sent at.
const NEW_RATE: f64 = 1.25;
/// The gap between two packets of a chirp over the one before it: the last packets leave at seventeen times the rate.
const SHRINK: (u64, u64) = (10, 11);

/// A group of packets that leave ever closer together, and a pause after it that keeps the rate.
#[derive(Clone, Copy, Debug)]
struct Chirp {
    /// Packets that leave in chirps yet.
    left: u8,
    /// The grant at which the chirps began.
    rate: Rate,
    gap: Duration,
    next: Instant,
}

impl Chirp {
    fn begin(rate: Rate) -> Self {
        Self { left: CHIRPS * CHIRP, rate, gap: Duration::ZERO, next: Instant::ZERO }
    }

    /// The next packet is the first of a group, or leaves evenly.
    fn is_at_pause(&self) -> bool {
        self.left.is_multiple_of(CHIRP)
    }

    fn ready_at(&self, pacer: &Pacer) -> Instant {
        if self.is_at_pause() { pacer.conforms_at() } else { self.next }
    }

    /// A packet leaves that takes `turn` at the rate.
    fn on_sent(&mut self, now: Instant, turn: Duration) {
        if self.is_at_pause() {
            (self.gap, self.next) = (turn, now + turn);
        } else {
            self.gap = self.gap.scaled(SHRINK.0, SHRINK.1);
            // A driver that is late is late once.
            self.next += self.gap;
        }
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

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
    fn requests_take_their_part_of_the_rate_and_never_stop_the_packets() {
        let ready_after = |requests: usize| {
            let mut granted = granted();
            granted.on_grant(NOW, Rate::from_bps(8_000_000), false);
            granted.on_sent(NOW, Duration::ZERO, 1000);
            granted.on_sent(NOW, Duration::ZERO, 1000);
            (0..requests).for_each(|_| granted.on_request(NOW, 80));
            granted.ready_at()
        };
        assert_eq!(ready_after(1), ready_after(0) + Duration::from_micros(80), "a byte each microsecond");
        assert_eq!(
            ready_after(1_000),
            ready_after(0) + Duration::from_micros(250),
            "an eighth of two packets"
        );
    }

    #[test]
    fn the_first_packets_leave_and_the_others_once_the_hop_is_measured() {
        let mut granted = granted();
        granted.on_grant(NOW, Rate::from_bps(8_000_000), true);
        granted.on_sent(NOW, Duration::ZERO, 1000);
        assert!(!granted.is_spent());
        granted.on_sent(NOW, Duration::ZERO, 1000);
        assert!(granted.is_spent());
        granted.on_grant(NOW, Rate::from_bps(8_000_000), false);
        (0..5).for_each(|_| granted.on_sent(NOW, Duration::ZERO, 1000));
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
            (0..9).for_each(|_| granted.on_sent(NOW, Duration::ZERO, 1000));
            granted.note_backlog(has_backlog);
            // The next packet leaves three packets' time late, and so does the one after it.
            let late = granted.ready_at() + Duration::from_millis(3);
            (0..2).for_each(|_| granted.on_sent(late, Duration::ZERO, 1000));
            granted.ready_at()
        });
        assert!(ready[1] < ready[0], "{ready:?}");
    }

    /// The times at which packets leave, milliseconds, of a sender that always has one.
    fn departures(granted: &mut Granted, from: Instant, count: usize) -> Vec<f64> {
        let mut now = from;
        let mut times = Vec::new();
        for _ in 0..count {
            now = now.max(granted.ready_at());
            granted.on_sent(now, Duration::ZERO, 1000);
            times.push(now.since(NOW).as_secs_f64() * 1e3);
        }
        times
    }

    #[test]
    fn packets_of_a_chirp_leave_ever_closer_together_at_the_same_rate() {
        let mut granted = granted();
        granted.on_grant(NOW, Rate::from_bps(8_000_000), false);
        granted.set_chirps(true);
        let times = departures(&mut granted, NOW, 1 + 2 * usize::from(CHIRP));
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (chirp, pause) = (&gaps[..usize::from(CHIRP) - 1], gaps[usize::from(CHIRP) - 1]);
        assert!(chirp.windows(2).all(|pair| pair[1] < pair[0]) && pause > 15.0, "{gaps:?}");
        // A packet takes a millisecond.
        assert_eq!(times[usize::from(CHIRP)].round(), f64::from(CHIRP));
        assert_eq!(times[2 * usize::from(CHIRP)].round(), 2.0 * f64::from(CHIRP));
    }

    #[test]
    fn chirps_end_and_begin_anew_with_a_new_rate() {
        let mut granted = granted();
        granted.on_grant(NOW, Rate::from_bps(4_000_000), false);
        granted.set_chirps(true);
        let all = usize::from(CHIRP) * usize::from(CHIRPS);
        let times = departures(&mut granted, NOW, all + 20);
        let even = |times: &[f64]| times.windows(2).all(|pair| (pair[1] - pair[0] - 2.0).abs() < 0.1);
        assert!(even(&times[all + 8..]) && !even(&times[all - 10..]), "{times:?}");
        let now = granted.ready_at();
        granted.on_grant(now, Rate::from_bps(4_500_000), false);
        granted.set_chirps(true);
        assert_eq!(granted.chirp.map(|chirp| chirp.left), Some(0));
        granted.on_grant(now, Rate::from_bps(8_000_000), false);
        granted.set_chirps(true);
        assert_eq!(granted.chirp.map(|chirp| usize::from(chirp.left)), Some(all));
        granted.set_chirps(false);
        assert_eq!(granted.chirp.map(|chirp| chirp.left), Some(0));
    }
}
