//! The mean of samples, and their deviation from it.

use crate::time::Duration;

/// A smoothed time and its mean deviation, with gains of 1/8 and 1/4 (RFC 6298, section 2.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Smoothed {
    pub(crate) mean: Duration,
    pub(crate) deviation: Duration,
}

impl Smoothed {
    /// The first sample, whose deviation is assumed.
    pub(crate) fn first(sample: Duration, deviation: Duration) -> Self {
        Self { mean: sample, deviation }
    }

    pub(crate) fn on_sample(&mut self, sample: Duration) {
        self.deviation = self.deviation.scaled(3, 4) + sample.abs_diff(self.mean).scaled(1, 4);
        self.mean = self.mean.scaled(7, 8) + sample.scaled(1, 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_moves_the_mean_by_an_eighth_and_the_deviation_from_the_mean_before_by_a_quarter() {
        let ms = Duration::from_millis;
        for sample in [0, 160] {
            let mut smoothed = Smoothed::first(ms(80), ms(40));
            smoothed.on_sample(ms(sample));
            assert_eq!((smoothed.mean, smoothed.deviation), (ms(70 + sample / 8), ms(50)));
        }
    }
}
