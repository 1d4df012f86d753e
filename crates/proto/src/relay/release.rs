use crate::time::{Duration, Instant};
use crate::units::Rate;

/// The word that a flow is no longer held back, until it is known to have arrived.
///
/// A flow that was stopped goes on by a packet a second. All its requests may have left before, so that nothing else tells its
/// upstream of the release: one that is lost would stop the flow for seconds. It is repeated until packets come that left after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Release {
    /// The packets that show its arrival come from then on.
    shows_at: Instant,
    /// Those that came.
    shown: u32,
    again_at: Instant,
    pause: Duration,
}

/// A flow whose bound lets less than so many packets pass in a hopRTT is stopped.
const STOPPED_PACKETS: u64 = 2;
/// A bound of so many times the one before is a release.
const RELEASED: u64 = 2;
/// A packet comes each second without a release as well: so many show that it arrived.
const SHOWN: u32 = 2;
/// The first repetition comes after so many hopRTTs, and not before [`LEAST_PAUSE`]: numerator and denominator. Each pause is twice as long as the
/// one before, up to the longest.
const FIRST_PAUSE: (u64, u64) = (3, 2);
const LEAST_PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_secs(1);

impl Release {
    /// The upstream of a flow with packets of `packet` bytes, which knew of the bound `before`, is told `bound` now. `None` if that is no release.
    pub(super) fn of(
        now: Instant,
        (before, bound): (Rate, Rate),
        packet: u64,
        hop_rtt: Duration,
    ) -> Option<Self> {
        let was_stopped = before.bytes_in(hop_rtt) < STOPPED_PACKETS * packet;
        let is_release = was_stopped && bound.as_bps() / RELEASED >= before.as_bps();
        let pause = hop_rtt.scaled(FIRST_PAUSE.0, FIRST_PAUSE.1).max(LEAST_PAUSE);
        is_release.then(|| Self { shows_at: now + hop_rtt, shown: 0, again_at: now + pause, pause })
    }

    /// A packet of the flow arrived. True if it shows that the release has.
    pub(super) fn on_packet(&mut self, now: Instant) -> bool {
        self.shown += u32::from(now >= self.shows_at);
        self.shown >= SHOWN
    }

    /// Time of the next repetition.
    pub(super) fn again_at(&self) -> Instant {
        self.again_at
    }

    /// True if it is to be repeated now.
    pub(super) fn repeat(&mut self, now: Instant) -> bool {
        let is_due = self.again_at <= now;
        if is_due {
            self.pause = self.pause.scaled(2, 1).min(MOST_PAUSE);
            self.again_at = now + self.pause;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);
    const TRICKLE: Rate = Rate::from_bps(10_800);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1_000 + ms)
    }

    fn release(before: Rate, bound: Rate) -> Option<Release> {
        Release::of(at(0), (before, bound), 1350, RTT)
    }

    #[test]
    fn only_a_flow_that_was_stopped_is_released() {
        let (slow, fast) = (Rate::from_mbps(3), Rate::from_mbps(10));
        assert!(release(TRICKLE, fast).is_some() && release(TRICKLE, slow).is_some());
        assert_eq!(
            (release(slow, fast), release(fast, TRICKLE), release(TRICKLE, TRICKLE)),
            (None, None, None)
        );
        assert_eq!(release(Rate::UNLIMITED, Rate::UNLIMITED), None);
    }

    #[test]
    fn it_is_repeated_ever_more_rarely_until_two_packets_show_that_it_arrived() {
        let mut release = release(TRICKLE, Rate::from_mbps(10)).expect("a release");
        assert!(!release.on_packet(at(5)), "it was on its way");
        let times: alloc::vec::Vec<u64> = (0..4_000).filter(|&ms| release.repeat(at(ms))).collect();
        assert_eq!(times, [30, 90, 210, 450, 930, 1_890, 2_890, 3_890]);
        assert!(!release.on_packet(at(900)), "one comes each second without a release, too");
        assert!(release.on_packet(at(901)));
    }
}
