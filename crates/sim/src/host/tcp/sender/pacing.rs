//! Pacing: the time at which the next segment may leave.

use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// Factor of the pacing rate over a window per round trip: in slow start, and after it (as in Linux).
const SLOW_START: f64 = 2.0;
const AVOIDANCE: f64 = 1.2;
/// The longest gap between two segments, at any rate.
const LONGEST_GAP: Duration = Duration::from_secs(1);

/// Spaces segments.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Pacer {
    next: Instant,
}

impl Pacer {
    /// The time at which the next segment may leave.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// A segment of `bytes` on the wire leaves at `rate`.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u32, rate: Rate) {
        // A control with a rate near zero stops the flow for a while, not for good.
        self.next = self.next.max(now) + rate.time_for(u64::from(bytes)).min(LONGEST_GAP);
    }
}

/// The rate at which a window leaves over its round trip, for controls that set none.
pub(crate) fn window_rate(cwnd: f64, ssthresh: f64, srtt: Duration, bytes: u32) -> Rate {
    let factor = if cwnd < ssthresh / 2.0 { SLOW_START } else { AVOIDANCE };
    let seconds = srtt.as_secs_f64();
    if seconds == 0.0 {
        return Rate::UNLIMITED;
    }
    // A window that is shut while losses are repaired opens with the next acknowledgement.
    Rate::from_bps((factor * cwnd.max(1.0) * f64::from(bytes) * 8.0 / seconds) as u64)
}
