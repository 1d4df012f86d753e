//! Numbers of a flow that are sampled, or counted one by one, rather than measured by bytes.

use crate::scenario::{Built, Scenario};
use serde::{Deserialize, Serialize};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::run::FlowSample;

/// Distribution of a filling level, sampled at the step of the time series since the warm-up while the flow ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub sd: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The fullest.
    pub max: f64,
}

/// Time that a client waited for answers, from each question, or from the opening of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Responses {
    /// Number of answers.
    pub count: u64,
    /// Time of the first answer, which waits for the handshake.
    pub first_s: f64,
    /// Mean of all.
    pub mean_s: f64,
    /// Mean of all but the first; 0 where there is no other.
    pub later_s: f64,
}

/// Statistics of a client's waiting, if it waited at all.
pub(super) fn responses(took: &[Duration]) -> Option<Responses> {
    let mean = |took: &[Duration]| {
        took.iter().map(|took| took.as_secs_f64()).sum::<f64>() / took.len().max(1) as f64
    };
    let (first, later) = took.split_first()?;
    let first_s = first.as_secs_f64();
    Some(Responses { count: took.len() as u64, first_s, mean_s: mean(took), later_s: mean(later) })
}

/// Distribution of a series from the end of the warm-up to the end of the flow.
pub(super) fn level(
    scenario: &Scenario,
    built: &Built,
    index: usize,
    value: impl Fn(&FlowSample) -> f64,
) -> Level {
    let simulation = &built.simulation;
    let handle = &simulation.flows()[index];
    let finished = simulation.recorder().borrow().flow(handle.record).finished;
    let (from, to) = (handle.start.max(Instant::ZERO + scenario.warmup), finished.unwrap_or(handle.stop));
    let series = simulation.series();
    let ends = (1..).map(|number| Instant::ZERO + series.step.scaled(number, 1));
    let within = ends.zip(&series.flows[index]).filter(|(end, _)| *end > from && *end <= to);
    summary(within.map(|(_, sample)| value(sample)).filter(|value| value.is_finite()).collect())
}

fn summary(mut values: Vec<f64>) -> Level {
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let Some(&max) = values.last() else { return Level::default() };
    let at = |share: f64| super::rounded(values[((count - 1) as f64 * share).round() as usize]);
    let mean = values.iter().sum::<f64>() / count as f64;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
    let (mean, sd) = (super::rounded(mean), super::rounded(variance.sqrt()));
    Level { mean, sd, p5: at(0.05), p50: at(0.5), p99: at(0.99), max: super::rounded(max) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_its_mean_its_spread_and_its_quantiles() {
        let level = summary((0..=100).rev().map(f64::from).collect());
        assert_eq!((level.mean, level.p5, level.p50, level.p99, level.max), (50.0, 5.0, 50.0, 99.0, 100.0));
        assert_eq!(level.sd, 29.155);
        assert_eq!(summary(vec![]), Level::default());
    }

    #[test]
    fn the_first_answer_is_told_apart_from_those_after_it() {
        let took = [1000, 500, 750].map(Duration::from_millis);
        let expected = Responses { count: 3, first_s: 1.0, mean_s: 0.75, later_s: 0.625 };
        assert_eq!(responses(&took), Some(expected));
        assert_eq!(responses(&[]), None);
    }
}
