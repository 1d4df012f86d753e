//! Percentiles in constant memory.

/// A histogram of durations in nanoseconds with a weight each (bytes): buckets of 1/256 relative width, so a
/// quantile is within 0.2 % of the true value, or within a quarter of a microsecond for the smallest.
///
/// Grows to the largest value seen: 36 KiB hold up to five minutes. Mean, maximum and total are exact.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: f64,
    max: u64,
}

/// Values are counted in units of 2^9 ns, about half a microsecond.
const UNIT_BITS: u32 = 9;
/// Buckets per doubling: 2^8.
const PRECISION_BITS: u32 = 8;

impl Histogram {
    /// Counts `value` nanoseconds with the given weight.
    pub fn record(&mut self, value: u64, weight: u64) {
        let index = index_of(value >> UNIT_BITS);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += weight;
        self.total += weight;
        self.sum += value as f64 * weight as f64;
        self.max = self.max.max(value);
    }

    /// Adds the values of another.
    pub fn add(&mut self, other: &Self) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// All weights together.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The weighted mean, nanoseconds; zero without values.
    pub fn mean(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.sum / self.total as f64 }
    }

    /// The largest value, nanoseconds.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The value below which the share `q` of the weight lies, nanoseconds; zero without values.
    pub fn quantile(&self, q: f64) -> f64 {
        (self.ascending())(q)
    }

    /// The same for shares that are asked for in ascending order, all in one pass: a flow has thousands of buckets, and a crowd thousands
    /// of flows.
    pub fn ascending(&self) -> impl FnMut(f64) -> f64 {
        let max = self.max as f64;
        let mut buckets = self.counts.iter().enumerate();
        let (mut seen, mut value) = (0, 0.0);
        move |q| {
            let wanted = (q * self.total as f64).max(1.0);
            while (seen as f64) < wanted {
                let Some((index, &count)) = buckets.next() else { return max };
                seen += count;
                value = middle_of(index);
            }
            value.min(max)
        }
    }
}

fn index_of(units: u64) -> usize {
    let doublings = (64 - units.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    ((u64::from(doublings) << PRECISION_BITS) + (units >> doublings)) as usize
}

fn middle_of(index: usize) -> f64 {
    let width = (index >> PRECISION_BITS).saturating_sub(1);
    let units = (index - (width << PRECISION_BITS)) as u64;
    let low = (units << width) as f64;
    (low + (1u64 << width) as f64 / 2.0) * f64::from(1u32 << UNIT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_found_again_within_half_a_percent() {
        for exponent in 0..40 {
            for step in [1000u64, 1003, 1337, 1999] {
                let value = (step << exponent).max(200_000);
                let mut histogram = Histogram::default();
                histogram.record(value, 1);
                histogram.record(value * 2, 1);
                let found = histogram.quantile(0.5);
                assert!((found - value as f64).abs() / (value as f64) < 0.005, "{value} became {found}");
            }
        }
    }

    #[test]
    fn buckets_follow_one_another_without_a_gap() {
        let mut last = 0;
        for units in 0..100_000 {
            let index = index_of(units);
            assert!(index == last || index == last + 1, "{units}: {last} to {index}");
            last = index;
        }
    }

    #[test]
    fn two_histograms_together_hold_the_values_of_both() {
        let mut all = Histogram::default();
        let mut parts = [Histogram::default(), Histogram::default()];
        for value in 0..1000u64 {
            all.record(value * value * 1000, value);
            parts[(value % 2) as usize].record(value * value * 1000, value);
        }
        let [mut sum, other] = parts;
        sum.add(&other);
        assert_eq!((sum.total(), sum.max(), sum.mean()), (all.total(), all.max(), all.mean()));
        assert_eq!(sum.quantile(0.99), all.quantile(0.99));
    }

    #[test]
    fn quantiles_are_weighted() {
        let mut histogram = Histogram::default();
        histogram.record(1_000_000, 99);
        histogram.record(9_000_000, 1);
        assert!((histogram.quantile(0.98) - 1e6).abs() < 5e3);
        assert!((histogram.quantile(0.995) - 9e6).abs() < 4.5e4);
        assert_eq!(histogram.mean(), 1_080_000.0);
        let shares = [0.0, 0.5, 0.99, 0.9901, 1.0];
        let together = shares.map(histogram.ascending());
        assert_eq!(together, shares.map(|q| histogram.quantile(q)));
        assert!(together[2] < 1.1e6 && together[3] > 8.9e6, "{together:?}");
    }
}
