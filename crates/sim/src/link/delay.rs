//! The propagation delay of a link.

use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};

/// The propagation delay of a link over time.
#[derive(Clone, Debug, PartialEq)]
pub enum DelayModel {
    /// Always the same.
    Fixed(Duration),
    /// Each delay from its instant on; the first also before it. Never empty, ascending.
    Steps(Vec<(Instant, Duration)>),
    /// Straight lines between points; the first and last values hold outside. Never empty, ascending.
    Trace(Vec<(Instant, Duration)>),
    /// Uniform in `[mean - spread, mean + spread]`, drawn per packet.
    Jitter {
        /// The middle.
        mean: Duration,
        /// Half of the range; at most `mean`.
        spread: Duration,
        /// A packet never arrives before one that was sent earlier.
        keeps_order: bool,
    },
}

impl DelayModel {
    /// The delay at `at`, without the random part of each packet.
    pub fn at(&self, at: Instant) -> Duration {
        match self {
            Self::Fixed(delay) | Self::Jitter { mean: delay, .. } => *delay,
            Self::Steps(steps) => steps[steps.partition_point(|(from, _)| *from <= at).saturating_sub(1)].1,
            Self::Trace(points) => interpolate(points, at),
        }
    }

    /// Whether packets arrive in the order in which they were sent.
    pub fn keeps_order(&self) -> bool {
        !matches!(self, Self::Jitter { keeps_order: false, .. })
    }

    /// The delay of the packet that is sent at `at`.
    pub fn sample(&self, at: Instant, rng: &mut Rng) -> Duration {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Jitter { mean, spread, .. } => {
                let draw = rng.below(2 * spread.as_nanos() + 1);
                mean.saturating_sub(*spread) + Duration::from_nanos(draw)
            }
            _ => self.at(at),
        }
    }
}

fn interpolate(points: &[(Instant, Duration)], at: Instant) -> Duration {
    let next = points.partition_point(|(from, _)| *from <= at);
    let (Some(&(t1, d1)), Some(previous)) = (points.get(next), next.checked_sub(1)) else {
        return points[next.saturating_sub(1).min(points.len() - 1)].1;
    };
    let (t0, d0) = points[previous];
    let (done, whole) = (at.since(t0).as_nanos(), t1.since(t0).as_nanos());
    if d1 >= d0 { d0 + (d1 - d0).scaled(done, whole) } else { d0 - (d0 - d1).scaled(done, whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    #[test]
    fn a_trace_runs_in_straight_lines() {
        let trace = DelayModel::Trace(vec![(at(100), ms(10)), (at(200), ms(30)), (at(300), ms(20))]);
        let delays = [0, 100, 150, 200, 250, 900].map(|t| trace.at(at(t)));
        assert_eq!(delays, [ms(10), ms(10), ms(20), ms(30), ms(25), ms(20)]);
    }

    #[test]
    fn steps_hold_until_the_next() {
        let steps = DelayModel::Steps(vec![(at(0), ms(10)), (at(200), ms(30))]);
        assert_eq!([0, 199, 200, 900].map(|t| steps.at(at(t))), [ms(10), ms(10), ms(30), ms(30)]);
    }

    #[test]
    fn jitter_fills_its_band_and_no_more() {
        let (jitter, mut rng) =
            (DelayModel::Jitter { mean: ms(10), spread: ms(4), keeps_order: true }, Rng::new(1));
        let draws: Vec<u64> = (0..10_000).map(|_| jitter.sample(at(0), &mut rng).as_nanos()).collect();
        let (low, high) = (draws.iter().min().copied(), draws.iter().max().copied());
        assert!(low >= Some(6_000_000) && low < Some(6_010_000), "{low:?}");
        assert!(high <= Some(14_000_000) && high > Some(13_990_000), "{high:?}");
    }
}
