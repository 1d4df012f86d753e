use crate::time::Duration;

/// The Consumer's retransmission timeout: RFC 6298 with a back-off of 1.5 (LEOTP section III.B), the last
/// resort end to end.
#[derive(Debug)]
pub(super) struct Rto {
    smoothed: Option<(Duration, Duration)>,
    initial: Duration,
    min: Duration,
    max: Duration,
}

impl Rto {
    pub(super) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        Self { smoothed: None, initial, min, max }
    }

    /// A sample of a range that was asked for once (Karn's rule). RFC 6298 section 2.3.
    pub(super) fn on_sample(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            None => (sample, sample.scaled(1, 2)),
            Some((mean, deviation)) => {
                let error = sample.saturating_sub(mean).max(mean.saturating_sub(sample));
                (mean.scaled(7, 8) + sample.scaled(1, 8), deviation.scaled(3, 4) + error.scaled(1, 4))
            }
        });
    }

    /// The timeout of a request that has timed out `tries` times.
    pub(super) fn timeout(&self, tries: u32) -> Duration {
        let base = match self.smoothed {
            None => self.initial,
            Some((mean, deviation)) => mean + deviation.scaled(4, 1),
        };
        let base = base.max(self.min);
        (0..tries.min(20)).fold(base, |timeout, _| timeout.scaled(3, 2)).min(self.max.max(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_round_trip_gives_the_minimum_and_a_first_one_three_times_itself() {
        let mut rto = Rto::new(ms(1_000), ms(200), ms(2_000));
        assert_eq!(rto.timeout(0), ms(1_000));
        rto.on_sample(ms(100));
        assert_eq!(rto.timeout(0), ms(300));
        (0..100).for_each(|_| rto.on_sample(ms(100)));
        assert_eq!(rto.timeout(0), ms(200));
    }

    #[test]
    fn the_back_off_is_one_and_a_half_and_bounded() {
        let rto = Rto::new(ms(1_000), ms(200), ms(2_000));
        assert_eq!(rto.timeout(1), ms(1_500));
        assert_eq!(rto.timeout(50), ms(2_000));
    }
}
