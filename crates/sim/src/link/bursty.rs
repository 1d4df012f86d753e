//! Synthetic traces with the statistics of a satellite terminal's downlink.

use super::rate::Opportunities;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};

/// The terminal gets a new level of capacity and a new delay this often, milliseconds.
const LEVEL_MS: u64 = 15_000;
/// Least and greatest level, packets per millisecond of 1500 bytes: 23 and 74 Mbit/s, 48.5 in the mean.
const LEVELS: (f64, f64) = (23.0 / 12.0, 74.0 / 12.0);
/// The most packets that leave within one millisecond.
const MOST_PACKETS: u64 = 70;
/// Shares of the distances of 1, 2, … ms between milliseconds that carry packets.
const DISTANCES: [f64; 10] = [0.070, 0.170, 0.357, 0.250, 0.080, 0.035, 0.016, 0.0123, 0.006, 0.003];
const MEAN_DISTANCE_MS: f64 = 3.41;
/// Share of the distances that are pauses of the link, mean extra length of a pause, and its bound.
const PAUSES: f64 = 0.0007;
const MEAN_PAUSE_MS: f64 = 25.0;
const LONGEST_PAUSE_MS: f64 = 135.0;
/// Spread of one burst (of its logarithm), and of the capacity around its level over [`SLOW_MS`].
const BURST_SPREAD: f64 = 0.5;
const SLOW_SPREAD: f64 = 0.065;
const SLOW_MS: f64 = 400.0;
/// One-way delay: its range, the spread of its points every 100 ms, the share of spikes, and their largest delay.
const DELAYS_MS: (f64, f64) = (7.0, 20.0);
const DELAY_SPREAD_MS: f64 = 1.0;
const SPIKES: f64 = 0.004;
const LONGEST_DELAY_MS: f64 = 68.0;
const DELAY_STEP_MS: u64 = 100;

/// A satellite terminal's downlink: capacity that comes in bursts and moves every 15 s, and a delay that does, too.
///
/// Capacity comes in milliseconds of up to 70 packets of 1500 bytes; seven milliseconds of ten carry nothing, gaps are 3 ms
/// in the median and up to 135 ms. Neighbouring windows of 20 ms differ by a third, of 500 ms by 9 %. The mean is 48 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bursty {
    /// Equal seeds give equal traces.
    pub seed: u64,
    /// The trace repeats after this long, at least 1 s.
    pub period: Duration,
}

impl Bursty {
    fn millis(&self) -> u64 {
        (self.period.as_nanos() / 1_000_000).max(1_000)
    }

    /// The times at which 1500 bytes may leave.
    pub fn opportunities(&self) -> Opportunities {
        let mut rng = Rng::new(self.seed).fork(1);
        let (mut times, mut at, mut slow, mut level) = (Vec::new(), 1, 0.0, 0.0);
        let (mut level_until, mut carry) = (0, 0.0_f64);
        while at < self.millis() {
            if at >= level_until {
                (level_until, level) = (at + LEVEL_MS, between(LEVELS, &mut rng));
            }
            let kept = libm::exp(-MEAN_DISTANCE_MS / SLOW_MS);
            slow = kept * slow + libm::sqrt(1.0 - kept * kept) * SLOW_SPREAD * normal(&mut rng);
            let mean = level * MEAN_DISTANCE_MS * (1.0 + slow);
            carry += mean * libm::exp(BURST_SPREAD * normal(&mut rng) - BURST_SPREAD * BURST_SPREAD / 2.0);
            let packets = (carry as u64).min(MOST_PACKETS);
            // Fractions of packets are carried over, but the excess over the largest burst is not.
            carry = (carry - packets as f64).min(1.0);
            times.extend((0..packets).map(|_| at * 1_000_000));
            at += distance(&mut rng);
        }
        Opportunities::repeating(times, self.millis() * 1_000_000)
    }

    /// The one-way delay over time, as points of straight lines.
    pub fn delays(&self) -> Vec<(Instant, Duration)> {
        let mut rng = Rng::new(self.seed).fork(2);
        let mut level = 0.0;
        (0..self.millis() / DELAY_STEP_MS)
            .map(|step| {
                if step.is_multiple_of(LEVEL_MS / DELAY_STEP_MS) {
                    level = between(DELAYS_MS, &mut rng);
                }
                let usual = (level + DELAY_SPREAD_MS * normal(&mut rng)).clamp(DELAYS_MS.0, DELAYS_MS.1);
                let spike = rng.chance(SPIKES).then(|| between((DELAYS_MS.1, LONGEST_DELAY_MS), &mut rng));
                let at = Instant::ZERO + Duration::from_millis(step * DELAY_STEP_MS);
                (at, Duration::from_secs_f64(spike.unwrap_or(usual) / 1e3))
            })
            .collect()
    }
}

/// Milliseconds from one that carries something to the next.
fn distance(rng: &mut Rng) -> u64 {
    if rng.chance(PAUSES) {
        let longer = -MEAN_PAUSE_MS * libm::log(1.0 - rng.unit());
        return (DISTANCES.len() as f64 + longer).min(LONGEST_PAUSE_MS) as u64;
    }
    let mut left = rng.unit();
    let found = DISTANCES.iter().position(|share| {
        left -= share;
        left < 0.0
    });
    found.unwrap_or(2) as u64 + 1
}

fn between((least, most): (f64, f64), rng: &mut Rng) -> f64 {
    least + (most - least) * rng.unit()
}

/// Nearly normal with variance 1: the sum of twelve uniform draws less its mean (Irwin and Hall).
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: u64 = 600;

    /// Packets per millisecond.
    fn capacity(seed: u64) -> Vec<f64> {
        let trace = Bursty { seed, period: Duration::from_secs(SECONDS) }.opportunities();
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        (0..SECONDS * 1_000).map(|ms| trace.bits_between(at(ms), at(ms + 1)) / 12_000.0).collect()
    }

    /// Mean difference of neighbouring windows, as a share of the mean.
    fn change(capacity: &[f64], window: usize) -> f64 {
        let sums: Vec<f64> = capacity.chunks_exact(window).map(|chunk| chunk.iter().sum()).collect();
        let changes: f64 = sums.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum();
        changes / sums.iter().sum::<f64>()
    }

    #[test]
    fn capacity_comes_in_bursts_as_a_terminals_does() {
        for seed in 1..=3 {
            let capacity = capacity(seed);
            let busy: Vec<usize> = (0..capacity.len()).filter(|&ms| capacity[ms] > 0.0).collect();
            let empty = 1.0 - busy.len() as f64 / capacity.len() as f64;
            let mut gaps: Vec<usize> = busy.windows(2).map(|pair| pair[1] - pair[0]).collect();
            gaps.sort_unstable();
            let gap = |share: f64| gaps[(share * gaps.len() as f64) as usize];
            let most = capacity.iter().fold(0.0, |most: f64, &packets| most.max(packets));
            let longest = gaps[gaps.len() - 1];
            let mean = capacity.iter().sum::<f64>() * 12.0 / capacity.len() as f64;
            let (short, long) = (change(&capacity, 20), change(&capacity, 500));
            println!(
                "seed {seed}: {mean:.1} Mbit/s, {empty:.3} empty, at most {most} packets, gaps {} {} {longest} ms, \
                 windows differ by {short:.3} and {long:.3}",
                gap(0.5),
                gap(0.99)
            );
            assert!((42.0..55.0).contains(&mean), "{mean} Mbit/s");
            assert!((0.69..0.71).contains(&empty), "{empty}");
            assert_eq!((gap(0.5), gap(0.99)), (3, 8));
            assert!((90..=135).contains(&longest), "{longest}");
            assert!((60.0..=70.0).contains(&most), "{most}");
            assert!((0.30..0.36).contains(&short), "{short}");
            assert!((0.08..0.10).contains(&long), "{long}");
        }
    }

    #[test]
    fn levels_lie_between_23_and_74_mbit_per_second_and_change_every_15_seconds() {
        let capacity = capacity(1);
        let levels: Vec<f64> =
            capacity.chunks_exact(15_000).map(|chunk| chunk.iter().sum::<f64>() * 12.0 / 15_000.0).collect();
        assert!(levels.iter().all(|level| (21.0..76.0).contains(level)), "{levels:?}");
        assert!(change(&capacity, 15_000) > 0.2);
    }

    #[test]
    fn delays_lie_between_7_and_20_ms_with_spikes_up_to_68() {
        let delays = Bursty { seed: 1, period: Duration::from_secs(SECONDS) }.delays();
        let ms = |delay: &Duration| delay.as_secs_f64() * 1e3;
        let spikes = delays.iter().filter(|(_, delay)| ms(delay) > 20.0).count();
        let most = delays.iter().map(|(_, delay)| ms(delay)).fold(0.0, f64::max);
        assert!((10..60).contains(&spikes), "{spikes}");
        assert!((50.0..=68.0).contains(&most), "{most}");
        assert!(delays.iter().all(|(_, delay)| ms(delay) >= 7.0));
    }

    #[test]
    fn a_seed_gives_one_trace() {
        let trace = |seed| Bursty { seed, period: Duration::from_secs(10) }.opportunities();
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }
}
