use super::{Delivery, RateController};
use crate::config::{BaseRtt, Divisor, LeotpRules};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Slow start doubles without looking whether the window is used; this only keeps the number finite.
const MAX_CWND: f64 = 1e9;
/// The window of a hop that carries next to nothing, in packets (the program's smallest).
const MIN_PACKETS: f64 = 0.2;

/// LEOTP's controller (section III.C, equations 6 to 8): once every hopRTT the window doubles, grows by a few packets, or
/// falls to a share of the bandwidth-delay product, by the queue that the hopRTT shows. [`LeotpRules`] are its constants.
#[derive(Debug)]
pub struct Leotp {
    rules: LeotpRules,
    packet: f64,
    cwnd: f64,
    slow_start: bool,
    round_started: Option<Instant>,
    round_bytes: u64,
    rounds_since_cut: u32,
    hop_rtt: Duration,
    base: Base,
}

impl Leotp {
    /// Starts with ten packets of `packet` bytes per `rtt0`.
    pub fn new(rules: LeotpRules, packet: u64, rtt0: Duration) -> Self {
        Self {
            rules,
            packet: packet as f64,
            cwnd: 10.0 * packet as f64,
            slow_start: true,
            round_started: None,
            round_bytes: 0,
            rounds_since_cut: u32::MAX,
            hop_rtt: rtt0,
            base: Base::new(rtt0),
        }
    }

    fn end_round(&mut self, elapsed: Duration) {
        let rules = self.rules;
        let throughput = self.round_bytes as f64 / elapsed.as_secs_f64();
        let base = self.base.least();
        let bdp = throughput * base.as_secs_f64();
        let queue = throughput * self.hop_rtt.saturating_sub(base).as_secs_f64();
        self.rounds_since_cut = self.rounds_since_cut.saturating_add(1);
        if self.rounds_since_cut < rules.cut_every {
            return;
        }
        let is_used = !rules.validates || throughput * self.hop_rtt.as_secs_f64() >= self.cwnd / 2.0;
        if queue > rules.m as f64 {
            self.slow_start = false;
            self.cwnd = (rules.k * bdp).max(MIN_PACKETS * self.packet);
            self.rounds_since_cut = 0;
        } else if !is_used {
            self.cwnd = (self.cwnd - 0.1 * self.packet).max(MIN_PACKETS * self.packet);
        } else if self.slow_start {
            self.cwnd = (2.0 * self.cwnd).min(MAX_CWND);
        } else {
            self.cwnd = (self.cwnd + rules.increment * self.packet).min(MAX_CWND);
        }
    }
}

impl RateController for Leotp {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        self.hop_rtt = rtt.smoothed();
        let sample = match self.rules.base_rtt {
            BaseRtt::Raw => delivery.hop_rtt,
            BaseRtt::Smoothed => self.hop_rtt,
        };
        self.base.on_sample(delivery.now, sample, self.rules.base_window);
        self.round_bytes += delivery.bytes;
        let started = *self.round_started.get_or_insert(delivery.now);
        let elapsed = delivery.now.since(started);
        if elapsed >= self.hop_rtt && !elapsed.is_zero() {
            self.end_round(elapsed);
            self.round_started = Some(delivery.now);
            self.round_bytes = 0;
        }
        None
    }

    fn rate(&self) -> Rate {
        let divisor = match self.rules.divisor {
            Divisor::Smoothed => self.hop_rtt,
            Divisor::Base => self.base.least(),
        };
        Rate::of(self.cwnd as u64, divisor.max(Duration::from_micros(1)))
    }
}

/// The smallest hopRTT of the last one to two half windows.
#[derive(Debug)]
struct Base {
    now: Option<Duration>,
    before: Option<Duration>,
    half_started: Instant,
    assumed: Duration,
}

impl Base {
    fn new(assumed: Duration) -> Self {
        Self { now: None, before: None, half_started: Instant::ZERO, assumed }
    }

    fn on_sample(&mut self, now: Instant, sample: Duration, window: Duration) {
        if now.since(self.half_started) > window.scaled(1, 2) {
            self.half_started = now;
            self.before = self.now.take();
        }
        self.now = Some(self.now.map_or(sample, |least| least.min(sample)));
    }

    fn least(&self) -> Duration {
        self.now.into_iter().chain(self.before).min().unwrap_or(self.assumed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::ways::Detained;
    use alloc::vec::Vec;

    const PACKET: u64 = 1406;
    const RTT: Duration = Duration::from_millis(20);

    /// A controller past its slow start over a hop of 20 Mbit/s, and its windows in rounds of `rtts`.
    fn windows(rules: LeotpRules, rtts: &[u64]) -> Vec<f64> {
        let mut leotp = Leotp::new(rules, PACKET, RTT);
        let mut rtt = HopRtt::new(RTT);
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let mut windows = Vec::new();
        leotp.slow_start = false;
        leotp.cwnd = 36.0 * PACKET as f64;
        for &millis in rtts {
            let sample = Duration::from_millis(millis);
            let end = now + sample + Duration::from_millis(1);
            while now < end {
                now += Duration::from_micros(562);
                rtt.on_echo(now, now.before(sample), Detained::default());
                let delivery = Delivery {
                    now,
                    bytes: PACKET,
                    lost: 0,
                    runs: 0,
                    passed: 1,
                    sent: 1,
                    hop_rtt: sample,
                    backlog: true,
                };
                leotp.on_delivery(delivery, &rtt);
            }
            windows.push(leotp.cwnd / PACKET as f64);
        }
        windows
    }

    #[test]
    fn printed_the_window_grows_by_a_packet_per_round_and_falls_to_four_fifths_of_the_product() {
        let windows = windows(LeotpRules::printed(1350), &[20, 20, 20, 40, 40]);
        let steps: Vec<f64> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((steps[1] - 1.0).abs() < 0.01, "{windows:?}");
        // 20 Mbit/s and 20 ms are 35.6 packets.
        assert!((windows[4] - 0.8 * 35.6).abs() < 1.5, "{windows:?}");
    }

    #[test]
    fn as_in_the_program_it_grows_by_ten_and_rests_for_two_rounds_after_a_cut() {
        let windows = windows(LeotpRules::PROGRAM, &[20, 20, 20, 40, 40, 20, 20, 20]);
        assert!((windows[2] - windows[1] - 10.0).abs() < 0.1, "{windows:?}");
        assert!(windows[4] < 30.0, "{windows:?}");
    }

    #[test]
    fn only_the_program_divides_by_the_base() {
        for (rules, is_base) in [(LeotpRules::printed(1350), false), (LeotpRules::PROGRAM, true)] {
            let mut leotp = Leotp::new(rules, PACKET, RTT);
            let mut rtt = HopRtt::new(RTT);
            for step in 0..200u64 {
                let sample = Duration::from_millis(20 + step / 10);
                let now = Instant::ZERO + Duration::from_millis(1_000 + step);
                rtt.on_echo(now, now.before(sample), Detained::default());
                let delivery = Delivery {
                    now,
                    bytes: 1,
                    passed: 1,
                    lost: 0,
                    runs: 0,
                    sent: 1,
                    hop_rtt: sample,
                    backlog: true,
                };
                leotp.on_delivery(delivery, &rtt);
            }
            let divisor = leotp.cwnd * 8.0 / leotp.rate().as_bps() as f64;
            assert_eq!((divisor - 0.020).abs() < 0.001, is_base, "{divisor}");
        }
    }
}
