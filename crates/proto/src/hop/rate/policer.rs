//! A policer on the way: it drops what is above a rate, and keeps no queue that would tell of it.

use crate::time::{Duration, Instant};

/// Alarms that make a verdict, and the time that they count.
const ALARMS: usize = 5;
const MEMORY: Duration = Duration::from_secs(600);
/// A policer lets the same rate through each time: at most this ratio lies between the greatest and the least.
const SPREAD: f64 = 1.15;
/// A faster block without loss refutes it, at this multiple of the rate: a policer's bucket lets a burst pass.
const FASTER: f64 = 1.35;

/// Tells a policer from a lossy link by the rates that come through when many packets are lost.
#[derive(Debug, Default)]
pub(super) struct Policer {
    /// Time of each of the last alarms, and the rate that came through, bit/s.
    alarms: [(Instant, f64); ALARMS],
    count: usize,
    last: Instant,
    verdict: Option<f64>,
}

impl Policer {
    /// Many packets were lost while no queue stood, and `bps` came through.
    pub(super) fn on_alarm(&mut self, now: Instant, bps: f64) {
        self.alarms[self.count % ALARMS] = (now, bps);
        (self.count, self.last) = (self.count + 1, now);
        let rates = || self.alarms.iter().filter(|(at, _)| now.since(*at) < MEMORY).map(|(_, bps)| *bps);
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        if self.count >= ALARMS && rates().count() == ALARMS && most <= SPREAD * least {
            self.verdict = Some(rates().sum::<f64>() / ALARMS as f64);
        }
    }

    /// Nothing was lost at `bps`.
    pub(super) fn on_passed(&mut self, now: Instant, bps: f64) {
        let is_refuted = self.verdict.is_some_and(|rate| bps > FASTER * rate);
        if is_refuted || now.since(self.last) > MEMORY {
            *self = Self::default();
        }
    }

    /// The rate above which packets are dropped, bit/s.
    pub(super) fn rate(&self) -> Option<f64> {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(alarms: &[f64]) -> Policer {
        let mut policer = Policer::default();
        for (second, bps) in (1..).zip(alarms) {
            policer.on_alarm(Instant::ZERO + Duration::from_secs(second), *bps);
        }
        policer
    }

    #[test]
    fn the_same_rate_five_times_is_a_policer() {
        assert_eq!(after(&[20e6; 4]).rate(), None);
        assert_eq!(after(&[19e6, 20e6, 21e6, 20e6, 20e6]).rate(), Some(20e6));
    }

    #[test]
    fn losses_that_let_another_rate_through_each_time_are_the_links() {
        assert_eq!(after(&[20e6, 14e6, 17e6, 20e6, 16e6]).rate(), None);
    }

    #[test]
    fn a_faster_block_without_loss_refutes_it() {
        let (mut policer, now) = (after(&[20e6; 5]), Instant::ZERO + Duration::from_secs(6));
        policer.on_passed(now, 26e6);
        assert!(policer.rate().is_some());
        policer.on_passed(now, 28e6);
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn old_alarms_do_not_count() {
        let mut policer = after(&[20e6; 4]);
        policer.on_alarm(Instant::ZERO + Duration::from_secs(700), 20e6);
        assert_eq!(policer.rate(), None);
        let mut policer = after(&[20e6; 5]);
        policer.on_passed(Instant::ZERO + Duration::from_secs(700), 19e6);
        assert_eq!(policer.rate(), None);
    }
}
