use hdrhistogram::Histogram;
use serde::Serialize;
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::time::Instant;
use std::collections::BTreeMap;

/// Waiting times of arrived bytes for earlier ones, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Waits {
    /// Mean over all pieces.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Worst.
    pub max: f64,
}

/// Follows the in-order end of a flow whose bytes arrive in any order.
#[derive(Debug)]
pub(super) struct InOrder {
    end: u64,
    /// Pieces beyond the end by their start: their end, and their arrival time (`None` for resumed pieces).
    waiting: BTreeMap<u64, (u64, Option<Instant>)>,
    /// Microseconds.
    waits: Histogram<u64>,
}

impl InOrder {
    pub(super) fn new(have: &RangeSet) -> Self {
        // Up to an hour; two digits are enough for a report.
        let waits = Histogram::new_with_max(3_600_000_000, 2)
            .unwrap_or_else(|_| unreachable!("the bounds are valid"));
        let waiting = have.iter().map(|range| (range.start, (range.end, None))).collect();
        let mut this = Self { end: 0, waiting, waits };
        this.advance(Instant::ZERO);
        this
    }

    pub(super) fn arrived(&mut self, now: Instant, range: ByteRange) {
        if range.start != self.end {
            self.waiting.insert(range.start, (range.end, Some(now)));
            return;
        }
        self.end = range.end;
        self.waits.saturating_record(0);
        self.advance(now);
    }

    fn advance(&mut self, now: Instant) {
        while let Some((&start, &(end, at))) = self.waiting.first_key_value() {
            if start > self.end {
                return;
            }
            self.waiting.pop_first();
            self.end = self.end.max(end);
            if let Some(at) = at {
                self.waits.saturating_record(now.since(at).as_micros());
            }
        }
    }

    pub(super) fn waits(&self) -> Waits {
        if self.waits.is_empty() {
            return Waits::default();
        }
        Waits {
            mean: self.waits.mean() / 1e3,
            p99: self.waits.value_at_quantile(0.99) as f64 / 1e3,
            max: self.waits.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_a_hole_wait_until_it_closes() {
        let mut order = InOrder::new(&RangeSet::new());
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        order.arrived(at(0), ByteRange::new(0, 10));
        order.arrived(at(1), ByteRange::new(20, 30));
        order.arrived(at(9), ByteRange::new(10, 20));
        assert_eq!(order.end, 30);
        assert!((order.waits().max - 8.0).abs() < 0.1, "{:?}", order.waits());
    }

    #[test]
    fn bytes_of_an_earlier_attempt_did_not_wait() {
        let mut have = RangeSet::new();
        have.insert(ByteRange::new(0, 10));
        have.insert(ByteRange::new(20, 30));
        let mut order = InOrder::new(&have);
        order.arrived(Instant::from_nanos(5), ByteRange::new(10, 20));
        assert_eq!((order.end, order.waits().max), (30, 0.0));
    }
}
