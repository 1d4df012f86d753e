use crate::time::{Duration, Instant};

/// The Consumer's retransmission timeout: RFC 6298 with a back-off of 1.5 (LEOTP section III.B), the last
/// resort end to end.
#[derive(Debug)]
pub(super) struct Rto {
    smoothed: Option<(Duration, Duration)>,
    initial: Duration,
    min: Duration,
    max: Duration,
    /// Timeouts in a row.
    count: u32,
}

impl Rto {
    pub(super) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        Self { smoothed: None, initial, min, max, count: 0 }
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

    /// New bytes arrived.
    pub(super) fn on_progress(&mut self) {
        self.count = 0;
    }

    /// The timeout passed; returns how many have passed in a row.
    pub(super) fn on_timeout(&mut self) -> u32 {
        self.count += 1;
        self.count
    }

    /// Timeouts since the last new byte.
    pub(super) fn in_a_row(&self) -> u32 {
        self.count
    }

    /// The timeout in force.
    pub(super) fn timeout(&self) -> Duration {
        let base = match self.smoothed {
            None => self.initial,
            Some((mean, deviation)) => mean + deviation.scaled(4, 1),
        };
        let base = base.max(self.min);
        (0..self.count.min(20)).fold(base, |timeout, _| timeout.scaled(3, 2)).min(self.max.max(base))
    }

    /// When the timeout passes if nothing has arrived since `since`.
    pub(super) fn due(&self, since: Instant) -> Instant {
        since + self.timeout()
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
        assert_eq!(rto.timeout(), ms(1_000));
        rto.on_sample(ms(100));
        assert_eq!(rto.timeout(), ms(300));
        (0..100).for_each(|_| rto.on_sample(ms(100)));
        assert_eq!(rto.timeout(), ms(200));
    }

    #[test]
    fn the_back_off_is_one_and_a_half_and_bounded() {
        let mut rto = Rto::new(ms(1_000), ms(200), ms(2_000));
        rto.on_timeout();
        assert_eq!(rto.timeout(), ms(1_500));
        for _ in 0..50 {
            rto.on_timeout();
        }
        assert_eq!(rto.timeout(), ms(2_000));
        rto.on_progress();
        assert_eq!(rto.timeout(), ms(1_000));
    }
}
