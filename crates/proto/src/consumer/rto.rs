use crate::smoothed::Smoothed;
use crate::time::Duration;

const MAX_BACK_OFF: u32 = 10;
/// A path that takes longer is not waited for (RFC 6298, section 2.5, allows a bound of 60 s and more).
const LONGEST: Duration = Duration::from_secs(60);

/// The Consumer's retransmission timeout: RFC 6298 with a back-off of 1.5 (LEOTP section III.B), the last
/// resort end to end.
#[derive(Debug)]
pub(super) struct Rto {
    smoothed: Option<Smoothed>,
    /// Number of times that timeouts were lengthened since the last sample.
    backed_off: u32,
    /// Extra waiting time for answers that wait for their turn; the samples do not contain it.
    patience: Duration,
    /// The round trip of the first hop: the path takes no less.
    hop_rtt: Duration,
    initial: Duration,
    min: Duration,
    max: Duration,
}

impl Rto {
    pub(super) fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        Self {
            smoothed: None,
            backed_off: 0,
            patience: Duration::ZERO,
            hop_rtt: Duration::ZERO,
            initial,
            min,
            max,
        }
    }

    /// A sample of a range that was asked for once (Karn's rule). RFC 6298 section 2.3.
    pub(super) fn on_sample(&mut self, sample: Duration) {
        self.backed_off = 0;
        match &mut self.smoothed {
            None => self.smoothed = Some(Smoothed::first(sample, sample.scaled(1, 2))),
            Some(smoothed) => smoothed.on_sample(sample),
        }
    }

    /// Answers wait for their turn; the samples do not count that.
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The first hop takes so long.
    pub(super) fn set_hop_rtt(&mut self, hop_rtt: Duration) {
        self.hop_rtt = hop_rtt;
    }

    /// Requests have timed out: until the next sample, timeouts are a tenth longer. Without this, a path that has
    /// become longer than the timeout would never be measured again. (RFC 6298 section 5.5 doubles. LEOTP's
    /// program, which has a timer for each request, adds a tenth, at most ten times.) The estimate itself stays as
    /// measured: a stretched estimate would be stretched again before a few samples have corrected it, without end
    /// if a path breaks off several times a second.
    pub(super) fn back_off(&mut self) {
        self.backed_off = (self.backed_off + 1).min(MAX_BACK_OFF);
    }

    /// The timeout of a request that has timed out `tries` times.
    pub(super) fn timeout(&self, tries: u32) -> Duration {
        let base = match self.smoothed {
            // Answers of a crowd come from the first hop's time on, and tell those behind them of their wait.
            None => self.initial.max(self.hop_rtt.scaled(2, 1)),
            Some(Smoothed { mean, deviation }) => mean + deviation.scaled(4, 1),
        };
        let base = (0..self.backed_off).fold(base, |timeout, _| timeout.scaled(11, 10));
        let base = base.max(self.min).min(LONGEST) + self.patience;
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
    fn timeouts_in_a_row_make_the_timeout_at_most_two_and_a_half_times_as_long() {
        let mut rto = Rto::new(ms(1_000), ms(20), ms(60_000));
        (0..100).for_each(|_| rto.on_sample(ms(100)));
        let before = rto.timeout(0);
        (0..1_000).for_each(|_| rto.back_off());
        let ratio = rto.timeout(0).as_secs_f64() / before.as_secs_f64();
        assert!((2.5..2.7).contains(&ratio), "{ratio}");
        rto.on_sample(ms(100));
        assert_eq!(rto.timeout(0), before, "the next sample counts again");
    }

    #[test]
    fn a_path_that_breaks_off_again_and_again_does_not_stretch_the_estimate() {
        let mut rto = Rto::new(ms(1_000), ms(20), ms(60_000));
        for _ in 0..100 {
            rto.on_sample(ms(100));
            (0..10).for_each(|_| rto.back_off());
        }
        assert!(rto.timeout(0) < ms(270), "{:?}", rto.timeout(0));
    }

    #[test]
    fn a_path_without_a_sample_takes_no_less_than_its_first_hop() {
        let mut rto = Rto::new(ms(1_000), ms(200), ms(60_000));
        rto.set_hop_rtt(ms(640));
        rto.set_patience(ms(30));
        assert_eq!(rto.timeout(0), ms(1_310));
        rto.on_sample(ms(650));
        assert_eq!(rto.timeout(0), ms(3 * 650 + 30));
    }

    #[test]
    fn the_back_off_is_one_and_a_half_and_bounded() {
        let rto = Rto::new(ms(1_000), ms(200), ms(2_000));
        assert_eq!(rto.timeout(1), ms(1_500));
        assert_eq!(rto.timeout(50), ms(2_000));
    }
}
