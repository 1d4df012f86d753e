//! BBR version 1 (Cardwell, Cheng, Gunn, Yeganeh, Jacobson: BBR: congestion-based congestion control, ACM Queue
//! 14(5), 2016), as Linux' tcp_bbr.c does it: sends at the bandwidth that the path was seen to deliver, with twice
//! the bandwidth-delay product in flight at most, and does not care for losses.
//!
//! Left out of tcp_bbr.c: the long-term bandwidth of policed paths (no link of ours polices), and room for
//! aggregated acknowledgements (receivers here acknowledge every few segments).

use super::bbr_parts::{FullPipe, LEAST_WINDOW, MaxFilter, Pace, Repair, Rounds, RttProbe, delivery_rate};
use super::{Ack, CongestionControl, Loss, Recovery, Setup};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// 2/ln 2: the least gain that doubles the delivered rate every round.
const HIGH_GAIN: f64 = 2.885;
/// With this gain a round drains the queue that startup built.
const DRAIN_GAIN: f64 = 1.0 / HIGH_GAIN;
/// Twice the product: acknowledgements may be delayed.
const CWND_GAIN: f64 = 2.0;
/// Probes for more, drains it again, cruises for six round trips.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds for which a bandwidth counts: a cycle and two.
const BANDWIDTH_ROUNDS: u64 = 10;
/// Lifetime of the estimate of the shortest round trip.
const MIN_RTT_LASTS: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Startup,
    Drain,
    /// Phase of the cycle and its beginning.
    ProbeBw {
        phase: usize,
        since: Instant,
    },
    ProbeRtt(RttProbe),
}

/// Bottleneck bandwidth and round-trip propagation time.
#[derive(Clone, Debug)]
pub struct Bbr {
    mode: Mode,
    bandwidth: MaxFilter,
    min_rtt: Option<Duration>,
    min_rtt_since: Instant,
    rounds: Rounds,
    pipe: FullPipe,
    repair: Repair,
    pace: Pace,
    cwnd: f64,
    initial_window: f64,
    rng: Rng,
}

impl Bbr {
    /// BBR at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self {
            mode: Mode::Startup,
            bandwidth: MaxFilter::new(BANDWIDTH_ROUNDS),
            min_rtt: None,
            min_rtt_since: Instant::ZERO,
            rounds: Rounds::default(),
            pipe: FullPipe::default(),
            repair: Repair::default(),
            pace: Pace::new(setup, HIGH_GAIN),
            cwnd: setup.initial_window,
            initial_window: setup.initial_window,
            rng: Rng::new(setup.seed),
        }
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBw { phase, .. } => (CYCLE[phase % CYCLE.len()], CWND_GAIN),
            Mode::ProbeRtt(_) => (1.0, 1.0),
        }
    }

    /// `gain` times the bandwidth-delay product, with room for bursts.
    fn inflight(&self, gain: f64) -> f64 {
        let Some(min_rtt) = self.min_rtt else { return self.initial_window };
        let product = self.bandwidth.max() * min_rtt.as_secs_f64();
        let probing = if matches!(self.mode, Mode::ProbeBw { phase: 0, .. }) { 2.0 } else { 0.0 };
        self.pace.with_bursts(product * gain) + probing
    }

    fn update_bandwidth(&mut self, ack: &Ack) {
        self.rounds.see(ack);
        let Some(sample) = ack.sample else { return };
        let Some(rate) = delivery_rate(&sample, self.min_rtt) else { return };
        if !sample.is_app_limited || rate >= self.bandwidth.max() {
            self.bandwidth.see(self.rounds.count, rate);
        }
    }

    fn update_cycle(&mut self, ack: &Ack) {
        let Mode::ProbeBw { phase, since } = self.mode else { return };
        let is_long_enough = ack.now.since(since) > self.min_rtt.unwrap_or_default();
        let gain = CYCLE[phase % CYCLE.len()];
        let is_over = if gain > 1.0 {
            // The phase lasts until the flight has the intended size, or until that size does not fit.
            is_long_enough && (ack.lost > 0.0 || ack.prior_in_flight >= self.inflight(gain))
        } else if gain < 1.0 {
            is_long_enough || ack.prior_in_flight <= self.inflight(1.0)
        } else {
            is_long_enough
        };
        if is_over {
            self.mode = Mode::ProbeBw { phase: (phase + 1) % CYCLE.len(), since: ack.now };
        }
    }

    fn check_full_pipe(&mut self, ack: &Ack) {
        let is_limited = ack.sample.is_some_and(|sample| sample.is_app_limited);
        if !self.pipe.was_full && self.rounds.is_start && !is_limited {
            self.pipe.see(self.bandwidth.max(), true);
        }
        if self.mode == Mode::Startup && self.pipe.was_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.inflight(1.0) {
            self.begin_probe_bw(ack.now);
        }
    }

    /// Anywhere in the cycle but where it drains, so that flows do not probe together.
    fn begin_probe_bw(&mut self, now: Instant) {
        let drawn = self.rng.below(CYCLE.len() as u64 - 1) as usize;
        self.mode = Mode::ProbeBw { phase: (CYCLE.len() - drawn) % CYCLE.len(), since: now };
    }

    fn update_min_rtt(&mut self, ack: &Ack) {
        let is_expired = self.min_rtt.is_some() && ack.now > self.min_rtt_since + MIN_RTT_LASTS;
        if let Some(rtt) = ack.rtt
            && (is_expired || self.min_rtt.is_none_or(|least| rtt < least))
        {
            (self.min_rtt, self.min_rtt_since) = (Some(rtt), ack.now);
        }
        if is_expired && !matches!(self.mode, Mode::ProbeRtt(_)) {
            self.repair.save(self.cwnd, false);
            self.mode = Mode::ProbeRtt(RttProbe::default());
        }
        if let Mode::ProbeRtt(probe) = &mut self.mode
            && probe.see(ack, LEAST_WINDOW, &mut self.rounds)
        {
            self.end_probe_rtt(ack.now);
        }
    }

    fn end_probe_rtt(&mut self, now: Instant) {
        self.min_rtt_since = now;
        self.cwnd = self.repair.restored(self.cwnd);
        if self.pipe.was_full {
            self.begin_probe_bw(now);
        } else {
            self.mode = Mode::Startup;
        }
    }

    fn set_cwnd(&mut self, ack: &Ack, gain: f64) {
        let (cwnd, is_final) = self.repair.on_ack(ack, &mut self.rounds, self.cwnd);
        self.cwnd = cwnd;
        if !is_final {
            let target = self.inflight(gain);
            if self.pipe.was_full {
                self.cwnd = (self.cwnd + ack.acked).min(target);
            } else if self.cwnd < target || ack.delivered < self.initial_window {
                self.cwnd += ack.acked;
            }
        }
        self.cwnd = self.cwnd.max(LEAST_WINDOW);
        if matches!(self.mode, Mode::ProbeRtt(_)) {
            self.cwnd = self.cwnd.min(LEAST_WINDOW);
        }
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &Ack) {
        self.pace.see_rtt(ack.srtt);
        self.update_bandwidth(ack);
        self.update_cycle(ack);
        self.check_full_pipe(ack);
        self.update_min_rtt(ack);
        let (pacing_gain, cwnd_gain) = self.gains();
        self.pace.set(self.bandwidth.max(), pacing_gain, self.pipe.was_full);
        self.set_cwnd(ack, cwnd_gain);
    }

    fn on_loss(&mut self, loss: &Loss) {
        let is_probing_rtt = matches!(self.mode, Mode::ProbeRtt(_));
        self.cwnd = self.repair.on_loss(loss, self.cwnd, is_probing_rtt);
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.cwnd = self.repair.on_recovered(self.cwnd);
        if matches!(self.mode, Mode::ProbeRtt(_)) {
            self.cwnd = self.cwnd.min(LEAST_WINDOW);
        }
    }

    fn on_undo(&mut self, now: Instant, _cwnd: f64, _ssthresh: f64) {
        self.on_recovered(now);
    }

    fn cwnd(&self) -> f64 {
        self.cwnd
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.pace.rate())
    }

    fn recovery(&self) -> Recovery {
        Recovery::Own
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{Bottleneck, Pipe, ms, setup};
    use super::super::{LossKind, NewReno};
    use super::*;

    fn pipe(cc: Box<dyn CongestionControl>, loss: f64) -> Pipe {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue: 1000, loss, is_xcp: false };
        Pipe::new(bottleneck, vec![(cc, ms(100), ms(0))])
    }

    #[test]
    fn the_path_is_full_and_its_queue_short() {
        let mut pipe = pipe(Box::new(Bbr::new(&setup())), 0.0);
        pipe.run(Duration::from_secs(5));
        let share = pipe.shares(Duration::from_secs(30))[0];
        assert!(share > 0.95 * pipe.capacity(), "{share}");
        // Less than half a bandwidth-delay product of 100 packets.
        assert!(pipe.queued / 30.0 < 50.0, "{}", pipe.queued / 30.0);
        assert_eq!(pipe.flows[0].lost, 0.0);
    }

    #[test]
    fn the_window_falls_to_four_segments_every_ten_seconds() {
        let mut pipe = pipe(Box::new(Bbr::new(&setup())), 0.0);
        pipe.run(Duration::from_secs(2));
        let mut small = 0;
        for _ in 0..3_000 {
            pipe.run(ms(10));
            small += u32::from(pipe.flows[0].cc.cwnd() <= LEAST_WINDOW);
        }
        // Three times 200 ms and the round trip that drains the path before it counts.
        assert!((60..=150).contains(&small), "{small} times 10 ms");
    }

    #[test]
    fn random_losses_of_a_percent_cost_it_little_and_reno_nearly_all() {
        let [bbr, reno] =
            [Box::new(Bbr::new(&setup())) as _, Box::new(NewReno::new(&setup())) as _].map(|cc| {
                let mut pipe = pipe(cc, 0.01);
                pipe.run(Duration::from_secs(10));
                pipe.shares(Duration::from_secs(60))[0] / pipe.capacity()
            });
        assert!(bbr > 0.8 && reno < 0.2, "{bbr} {reno}");
    }

    #[test]
    fn startup_finds_a_hundred_times_the_rate_in_a_dozen_rounds() {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(120), queue: 4000, loss: 0.0, is_xcp: false };
        let mut pipe = Pipe::new(bottleneck, vec![(Box::new(Bbr::new(&setup())), ms(100), ms(0))]);
        pipe.run(ms(1_500));
        let share = pipe.shares(ms(1_000))[0];
        assert!(share > 0.9 * pipe.capacity(), "{share}");
    }

    #[test]
    fn after_a_timeout_one_segment_and_after_the_repair_the_window_of_before() {
        let mut bbr = Bbr::new(&setup());
        bbr.cwnd = 100.0;
        bbr.on_loss(&super::super::harness::loss(LossKind::Timeout, 100.0));
        assert_eq!(bbr.cwnd(), 1.0);
        bbr.on_recovered(Instant::ZERO);
        assert_eq!(bbr.cwnd(), 100.0);
    }
}
