//! The lagged bound: the throughput of a sender that knows the link's changing capacity fully, but one lag late.

use crate::scenario::{Scenario, blueprint, link_configs};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::link::RateSchedule;
use std::collections::VecDeque;
use std::fmt::Write as _;

/// One step of the computation.
const STEP: Duration = Duration::from_millis(1);
/// The sender expects the mean capacity of the last seconds, with this gain per step, in the lag that it does not know.
const GAIN: f64 = 1.0 / 300.0;
/// The queues aimed at, milliseconds of the expected capacity.
const TARGETS_MS: [f64; 10] = [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0];

/// The result of one queue target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// Queue aimed at, milliseconds.
    pub target_ms: f64,
    /// Share of the capacity that is used.
    pub share: f64,
    /// Mean of the time that bits wait, milliseconds.
    pub mean_ms: f64,
    /// 99th percentile of the same.
    pub p99_ms: f64,
}

/// The bounds of a schedule over `span` for several targets.
///
/// At every moment the sender keeps in flight and queued the bits that the link is expected to carry within the
/// lag, plus the target: it sends as much as the link served one lag ago. The smaller the target, the more often
/// the link runs dry.
pub fn lagged(schedule: &RateSchedule, lag: Duration, span: Duration) -> Vec<Bound> {
    let steps = span.as_nanos() / STEP.as_nanos();
    let at = |step| Instant::ZERO + STEP.scaled(step, 1);
    let capacity: Vec<f64> = (0..steps).map(|step| schedule.bits_between(at(step), at(step + 1))).collect();
    let lag_steps = (lag.as_nanos().div_ceil(STEP.as_nanos()) as usize).max(1);
    TARGETS_MS.iter().map(|&target_ms| with_target(&capacity, lag_steps, target_ms)).collect()
}

fn with_target(capacity: &[f64], lag: usize, target_ms: f64) -> Bound {
    let total: f64 = capacity.iter().sum();
    let mut expected = total / capacity.len().max(1) as f64;
    // Bits served until the end of each step.
    let mut served = Vec::with_capacity(capacity.len());
    let (mut sent, mut done) = (0.0, 0.0);
    let mut queue: VecDeque<(usize, f64)> = VecDeque::new();
    let mut waits: Vec<f64> = Vec::new();
    for (step, &room) in capacity.iter().enumerate() {
        if let Some(past) = step.checked_sub(lag) {
            expected += (capacity[past] - expected) * GAIN;
        }
        let known = step.checked_sub(lag).map_or(0.0, |past| served[past]);
        let more = (known + expected * (lag as f64 + target_ms) - sent).max(0.0);
        sent += more;
        queue.push_back((step, more));
        done += serve(&mut queue, step, room, &mut waits);
        served.push(done);
    }
    let waited = waits.iter().enumerate().map(|(ms, bits)| ms as f64 * bits).sum::<f64>();
    let mut left = 0.99 * done;
    let p99 = waits.iter().position(|bits| {
        left -= bits;
        left <= 0.0
    });
    let p99_ms = p99.unwrap_or(0) as f64;
    Bound { target_ms, share: done / total, mean_ms: waited / done, p99_ms }
}

/// Serves up to `room` bits in order of their arrival and notes by milliseconds how long they waited.
fn serve(queue: &mut VecDeque<(usize, f64)>, step: usize, mut room: f64, waits: &mut Vec<f64>) -> f64 {
    let mut done = 0.0;
    while let Some((since, bits)) = queue.front_mut()
        && room > 0.0
    {
        let part = bits.min(room);
        let waited = step - *since;
        if waits.len() <= waited {
            waits.resize(waited + 1, 0.0);
        }
        waits[waited] += part;
        (done, room) = (done + part, room - part);
        *bits -= part;
        if *bits > 0.0 {
            break;
        }
        queue.pop_front();
    }
    done
}

/// The bounds of every direction of a link of `scenario` whose capacity changes, as a table.
pub fn table(scenario: &Scenario, lag: Duration) -> String {
    let names = blueprint(scenario).links;
    let mut text = String::new();
    for (config, link) in link_configs(scenario).iter().zip(&names) {
        if matches!(config.rate, RateSchedule::Constant(_)) {
            continue;
        }
        let _ = writeln!(
            text,
            "{} {}: {} late\n  target ms   share   mean ms   p99 ms",
            link.name,
            link.direction,
            lag.as_secs_f64()
        );
        for bound in lagged(&config.rate, lag, scenario.duration) {
            let Bound { target_ms, share, mean_ms, p99_ms } = bound;
            let _ = writeln!(text, "  {target_ms:9.0} {share:7.3} {mean_ms:9.1} {p99_ms:8.0}");
        }
    }
    if text.is_empty() { "no link of this scenario has a capacity that changes\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::units::Rate;
    use starhop_sim::link::Bursty;

    #[test]
    fn a_constant_link_is_full_with_the_queue_that_is_aimed_at() {
        let steady = RateSchedule::Constant(Rate::from_mbps(10));
        for bound in lagged(&steady, Duration::from_millis(20), Duration::from_secs(10)) {
            assert!((bound.share - 1.0).abs() < 1e-6, "{bound:?}");
            assert!((bound.mean_ms - bound.target_ms).abs() < 1.1, "{bound:?}");
        }
    }

    #[test]
    fn a_bursty_link_is_full_only_with_a_queue_as_long_as_its_pauses() {
        let period = Duration::from_secs(120);
        let bursty = RateSchedule::Trace(Bursty { seed: 1, period }.opportunities());
        let bounds = lagged(&bursty, Duration::from_millis(20), period);
        for bound in &bounds {
            println!("{bound:?}");
        }
        assert!(
            bounds.windows(2).all(|pair| pair[0].share < pair[1].share && pair[0].mean_ms < pair[1].mean_ms)
        );
        // Published for another seed: 0.949 at 7.0 / 23 ms, 0.992 at 15 / 33 ms.
        let full = bounds.iter().find(|bound| bound.share >= 0.99);
        assert!(
            full.is_some_and(|bound| (12.0..18.0).contains(&bound.mean_ms) && bound.p99_ms <= 40.0),
            "{full:?}"
        );
    }
}
