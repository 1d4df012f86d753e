//! A policer on the way: it drops what is above a rate, and keeps no queue that would tell of it.

use crate::time::{Duration, Instant};

/// Alarms that make a verdict, and the time that they count.
const ALARMS: usize = 5;
const MEMORY: Duration = Duration::from_secs(600);
/// A policer lets the same rate through each time: at most this ratio lies between the greatest and the least that came.
const SPREAD: f64 = 1.15;
/// A link that loses a share of all packets does so as well where the same rate is sent each time. So either the rates that were
/// sent differ by this factor …
const TRIED: f64 = 1.5;
/// … or a block of no more than this multiple of the rate has passed without loss in between.
const NEAR: f64 = 1.1;
/// A faster block without loss refutes it, at this multiple of the rate: a policer's bucket lets a burst pass.
const FASTER: f64 = 1.35;

/// The share of the rate that is granted: its measurement holds the burst that the bucket let pass.
const KEPT: f64 = 0.97;
/// So often more is granted for a moment, by this factor: enough to refute a policer that is gone.
const PROBE_EVERY: Duration = Duration::from_secs(30);
const PROBE: f64 = 1.5;
/// Packets of that moment: a block of 128 lies within it.
const PROBE_PACKETS: f64 = 256.0;

/// The bound of the grant below a policer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Bound {
    /// Nothing is known of a policer.
    None,
    /// The most that it lets through, bit/s.
    Keep(f64),
    /// More than that is granted for a moment, bit/s.
    Probe(f64),
}

/// Tells a policer from a lossy link by the rates that come through when many packets are lost.
#[derive(Debug, Default)]
pub(super) struct Policer {
    alarms: [Alarm; ALARMS],
    count: usize,
    last: Instant,
    /// Time at which a block of about the rate that came at the last alarm passed without loss.
    calm_at: Instant,
    verdict: Option<f64>,
    probe_at: Instant,
}

/// Many packets were lost while no queue stood. Rates in bit/s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    pub(super) at: Instant,
    /// Rates at which packets were sent, and came through.
    pub(super) sent: f64,
    pub(super) came: f64,
}

impl Policer {
    /// Many packets were lost while no queue stood.
    pub(super) fn on_alarm(&mut self, alarm: Alarm) {
        self.alarms[self.count % ALARMS] = alarm;
        (self.count, self.last) = (self.count + 1, alarm.at);
        let ratio = |rate: fn(&Alarm) -> f64| {
            let rates = || self.alarms.iter().map(rate);
            rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min)
        };
        let are_recent = self.alarms.iter().all(|past| alarm.at.since(past.at) < MEMORY);
        let is_calm_below = self.alarms.iter().any(|past| past.at < self.calm_at);
        let is_for_the_rate = is_calm_below || ratio(|alarm| alarm.sent) >= TRIED;
        if self.count >= ALARMS && are_recent && ratio(|alarm| alarm.came) <= SPREAD && is_for_the_rate {
            if self.verdict.is_none() {
                self.probe_at = alarm.at + PROBE_EVERY;
            }
            self.verdict = Some(self.alarms.iter().map(|alarm| alarm.came).sum::<f64>() / ALARMS as f64);
        }
    }

    /// Nothing was lost at `bps`.
    pub(super) fn on_passed(&mut self, now: Instant, bps: f64) {
        let last = self.count.checked_sub(1).map(|last| self.alarms[last % ALARMS]);
        if last.is_some_and(|alarm| bps <= NEAR * alarm.came) {
            self.calm_at = now;
        }
        let is_refuted = self.verdict.is_some_and(|rate| bps > FASTER * rate);
        if is_refuted || now.since(self.last) > MEMORY {
            *self = Self::default();
        }
    }

    /// The bound of the grant now, in packets of `packet_bits`.
    pub(super) fn bound(&mut self, now: Instant, packet_bits: f64) -> Bound {
        let Some(rate) = self.verdict else { return Bound::None };
        if now < self.probe_at {
            return Bound::Keep(KEPT * rate);
        }
        let probe = PROBE * rate;
        if now.since(self.probe_at) > Duration::from_secs_f64(PROBE_PACKETS * packet_bits / probe) {
            self.probe_at = now + PROBE_EVERY;
            return Bound::Keep(KEPT * rate);
        }
        Bound::Probe(probe)
    }

    /// The rate above which packets are dropped, bit/s.
    pub(super) fn rate(&self) -> Option<f64> {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(second: u64, sent: f64, came: f64) -> Alarm {
        Alarm { at: Instant::ZERO + Duration::from_secs(second), sent, came }
    }

    /// After alarms at which these rates came through; each time more was sent.
    fn after(alarms: &[f64]) -> Policer {
        let mut policer = Policer::default();
        for (second, came) in (1..).zip(alarms) {
            policer.on_alarm(alarm(second, came * (1.0 + 0.2 * second as f64), *came));
        }
        policer
    }

    #[test]
    fn the_same_rate_five_times_is_a_policer() {
        assert_eq!(after(&[20e6; 4]).rate(), None);
        assert_eq!(after(&[19e6, 20e6, 21e6, 20e6, 20e6]).rate(), Some(20e6));
    }

    #[test]
    fn less_than_the_rate_is_granted_and_more_twice_a_minute_for_256_packets() {
        let mut policer = after(&[20e6; 5]);
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!(Policer::default().bound(at(0), 11_200.0), Bound::None);
        for (ms, bound) in [
            (5_001, Bound::Keep(19.4e6)),
            (34_999, Bound::Keep(19.4e6)),
            (35_000, Bound::Probe(30e6)),
            // 256 packets take 95.6 ms.
            (35_095, Bound::Probe(30e6)),
            (35_096, Bound::Keep(19.4e6)),
            (65_095, Bound::Keep(19.4e6)),
            (65_096, Bound::Probe(30e6)),
        ] {
            assert_eq!(policer.bound(at(ms), 11_200.0), bound, "{ms}");
        }
    }

    #[test]
    fn losses_that_let_another_rate_through_each_time_are_the_links() {
        assert_eq!(after(&[20e6, 14e6, 17e6, 20e6, 16e6]).rate(), None);
    }

    #[test]
    fn a_link_that_loses_a_share_of_what_is_sent_is_none() {
        let mut policer = Policer::default();
        (1..100).for_each(|second| policer.on_alarm(alarm(second, 20e6, 14e6)));
        assert_eq!(policer.rate(), None);
    }

    #[test]
    fn the_same_rate_is_a_policer_if_nothing_is_lost_below_it() {
        for (passed, verdict) in [(20e6, None), (14e6, Some(14e6))] {
            let mut policer = Policer::default();
            for second in 1..10 {
                policer.on_alarm(alarm(2 * second, 18e6, 14e6));
                policer.on_passed(Instant::ZERO + Duration::from_secs(2 * second + 1), passed);
            }
            assert_eq!(policer.rate(), verdict);
        }
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
        policer.on_alarm(alarm(700, 30e6, 20e6));
        assert_eq!(policer.rate(), None);
        let mut policer = after(&[20e6; 5]);
        policer.on_passed(Instant::ZERO + Duration::from_secs(700), 19e6);
        assert_eq!(policer.rate(), None);
    }
}
