use serde::Serialize;
use starhop_net::proto::name::{ByteRange, RangeSet};
use starhop_net::proto::time::Instant;
use std::collections::BTreeMap;

/// A distribution of delays, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Delays {
    /// Mean.
    pub mean: f64,
    /// 5th percentile.
    pub p5: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Worst.
    pub max: f64,
}

impl Delays {
    /// The distribution of `samples`, in milliseconds.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let Some(&max) = samples.last() else { return Self::default() };
        let at = |quantile: f64| samples[((samples.len() - 1) as f64 * quantile).round() as usize];
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        Self { mean, p5: at(0.05), p50: at(0.5), p95: at(0.95), p99: at(0.99), max }
    }
}

/// The times at which ranges of bytes passed one end.
pub(super) type Passings = Vec<(Instant, ByteRange)>;

/// A piece that was delivered in order: its time, its bytes, and its delay since it was first sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Delivery {
    pub(super) at: Instant,
    pub(super) bytes: u64,
    pub(super) delay_ms: f64,
}

/// Joins transmissions with arrivals; both in the order of time, on one clock.
pub(super) fn deliveries(sent: &Passings, arrived: &Passings) -> Vec<Delivery> {
    let mut first_sent = BTreeMap::new();
    let mut seen = RangeSet::new();
    for &(at, range) in sent {
        for fresh in seen.gaps(range).collect::<Vec<_>>() {
            first_sent.insert(fresh.start, at);
        }
        seen.insert(range);
    }
    let mut end = 0;
    let mut waiting = BTreeMap::new();
    let mut delivered = Vec::new();
    for &(now, range) in arrived {
        waiting.insert(range.start, range.end);
        while let Some((&start, &stop)) = waiting.first_key_value().filter(|&(&start, _)| start <= end) {
            waiting.pop_first();
            end = end.max(stop);
            let sent = first_sent.range(..=start).next_back().map_or(now, |(_, &at)| at);
            let delay_ms = now.since(sent).as_millis_f64();
            delivered.push(Delivery { at: now, bytes: stop - start, delay_ms });
        }
    }
    delivered
}

/// Bytes delivered by the end of each tenth of a second after `start`.
pub(super) fn series(start: Instant, deliveries: &[Delivery]) -> Vec<u64> {
    let mut series: Vec<u64> = Vec::new();
    let mut sum = 0;
    for delivery in deliveries {
        let slot = (delivery.at.since(start).as_secs_f64() * 10.0) as usize;
        series.resize(slot.max(series.len()), sum);
        sum += delivery.bytes;
    }
    series.push(sum);
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, start: u64, end: u64) -> (Instant, ByteRange) {
        (Instant::from_nanos(ms * 1_000_000), ByteRange::new(start, end))
    }

    #[test]
    fn bytes_count_from_their_first_transmission_to_their_turn() {
        let sent = vec![at(0, 0, 10), at(1, 10, 20), at(2, 20, 30), at(50, 10, 20)];
        let arrived = vec![at(10, 0, 10), at(12, 20, 30), at(60, 10, 20)];
        let delays: Vec<_> = deliveries(&sent, &arrived).iter().map(|d| d.delay_ms).collect();
        assert_eq!(delays, [10.0, 59.0, 58.0]);
    }

    #[test]
    fn a_series_tells_what_had_been_delivered_by_then() {
        let sent = vec![at(0, 0, 30)];
        let arrived = vec![at(50, 0, 10), at(250, 10, 30)];
        assert_eq!(series(Instant::ZERO, &deliveries(&sent, &arrived)), [10, 10, 30]);
    }
}
