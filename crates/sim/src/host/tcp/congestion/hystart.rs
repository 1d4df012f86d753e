//! HyStart (Ha and Rhee, Computer Networks 2011) with the constants of the Linux kernel: slow start ends before
//! the queue overflows.

use super::Ack;
use starhop_proto::time::{Duration, Instant};

/// Acknowledgements closer to each other than this belong to one train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// Round trips of which the least is compared.
const SAMPLES: u32 = 8;
/// A round trip has grown when it exceeds the shortest by an eighth of it, but at least and at most by this.
const LEAST_GROWTH: Duration = Duration::from_millis(4);
const MOST_GROWTH: Duration = Duration::from_millis(16);
/// Below this window nothing is concluded, segments.
pub(super) const LOW_WINDOW: f64 = 16.0;

/// Watches the acknowledgements of each round.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HyStart {
    round_start: Instant,
    last_ack: Instant,
    least_rtt: Option<Duration>,
    samples: u32,
}

impl HyStart {
    /// Whether slow start is to end with this acknowledgement; `delay_min` is the control's shortest round trip.
    pub fn is_enough(&mut self, ack: &Ack, delay_min: Duration) -> bool {
        if ack.is_round_start {
            *self = Self { round_start: ack.now, last_ack: ack.now, least_rtt: None, samples: 0 };
        }
        self.is_train_long(ack.now, delay_min) || self.is_delay_grown(ack.rtt, delay_min)
    }

    /// The train of acknowledgements is as long as half the path: the window fills the path.
    fn is_train_long(&mut self, now: Instant, delay_min: Duration) -> bool {
        if now.since(self.last_ack) > TRAIN_GAP {
            return false;
        }
        self.last_ack = now;
        now.since(self.round_start) > delay_min.scaled(1, 2)
    }

    fn is_delay_grown(&mut self, rtt: Option<Duration>, delay_min: Duration) -> bool {
        let Some(rtt) = rtt else { return false };
        let least = self.least_rtt.map_or(rtt, |least| least.min(rtt));
        self.least_rtt = Some(least);
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        least > delay_min + delay_min.scaled(1, 8).max(LEAST_GROWTH).min(MOST_GROWTH)
    }
}
