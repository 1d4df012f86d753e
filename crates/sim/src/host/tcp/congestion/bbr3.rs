//! BBR version 3 (draft-ietf-ccwg-bbr; Cardwell and others, IETF 117 to 119): BBR that bounds its flight by the
//! losses it sees, and probes for more at human pace, so that it shares with others.
//!
//! Left out of the draft: marks by routers (for data centres), and room for aggregated
//! acknowledgements (receivers here acknowledge every few segments).

use super::bbr_parts::{FullPipe, LEAST_WINDOW, Pace, Repair, Rounds, RttProbe, delivery_rate};
use super::bbr3_bounds::{BETA, Bounds, Signals, is_too_high};
use super::{Ack, CongestionControl, Loss, LossKind, RateSample, Recovery, Setup};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// 4·ln 2: doubles the delivered rate every round.
const STARTUP_PACING: f64 = 2.77;
const STARTUP_CWND: f64 = 2.0;
/// Drains in one round the queue of a window of twice the bandwidth-delay product.
const DRAIN_PACING: f64 = 0.5;
const UP_PACING: f64 = 1.25;
const UP_CWND: f64 = 2.25;
const DOWN_PACING: f64 = 0.9;
const CWND_GAIN: f64 = 2.0;
const PROBE_RTT_CWND: f64 = 0.5;
/// Lifetime of the estimate of the shortest round trip, and interval of its probes.
const MIN_RTT_LASTS: Duration = Duration::from_secs(10);
const PROBE_RTT_EVERY: Duration = Duration::from_secs(5);
/// A probe for bandwidth after two to three seconds, or after as many rounds as Reno would take to notice,
/// at most this many.
const LEAST_PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_SPREAD: Duration = Duration::from_secs(1);
const MOST_PROBE_ROUNDS: f64 = 63.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Down,
    Cruise,
    Refill,
    Up,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBw(Phase),
    ProbeRtt(RttProbe),
}

/// The phase of a probe whose segments the present acknowledgements cover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Acks {
    Settled,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The largest bandwidth of this and of the last probing cycle.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct CycleMax {
    last: f64,
    this: f64,
}

impl CycleMax {
    fn max(&self) -> f64 {
        self.last.max(self.this)
    }

    fn advance(&mut self) {
        if self.this > 0.0 {
            (self.last, self.this) = (self.this, 0.0);
        }
    }
}

/// The shortest round trip, and the one that decides when to look for it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct MinRtt {
    value: Option<Duration>,
    since: Instant,
    probed: Option<Duration>,
    probed_at: Instant,
}

impl MinRtt {
    /// Takes a round trip, and says whether it is time to look for the shortest.
    fn see(&mut self, ack: &Ack) -> bool {
        let is_due = self.probed.is_some() && ack.now > self.probed_at + PROBE_RTT_EVERY;
        if let Some(rtt) = ack.rtt
            && (is_due || self.probed.is_none_or(|least| rtt < least))
        {
            (self.probed, self.probed_at) = (Some(rtt), ack.now);
        }
        let is_old = ack.now > self.since + MIN_RTT_LASTS;
        if let Some(probed) = self.probed
            && (is_old || self.value.is_none_or(|least| probed < least))
        {
            (self.value, self.since) = (Some(probed), self.probed_at);
        }
        is_due
    }
}

/// The schedule of bandwidth probes: the next one is due `wait` after `since`, or after as many rounds as Reno would
/// need to use the path.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Cycle {
    since: Instant,
    wait: Duration,
    rounds: f64,
}

/// BBR that minds losses.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    mode: Mode,
    acks: Acks,
    max_bw: CycleMax,
    min_rtt: MinRtt,
    rounds: Rounds,
    pipe: FullPipe,
    signals: Signals,
    bounds: Bounds,
    cycle: Cycle,
    /// Losses of the present acknowledgements tell about a probe.
    is_judging: bool,
    repair: Repair,
    pace: Pace,
    cwnd: f64,
    initial_window: f64,
    rng: Rng,
}

impl Bbr3 {
    /// BBRv3 at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        Self {
            mode: Mode::Startup,
            acks: Acks::Settled,
            max_bw: CycleMax::default(),
            min_rtt: MinRtt::default(),
            rounds: Rounds::default(),
            pipe: FullPipe::default(),
            signals: Signals::default(),
            bounds: Bounds::default(),
            cycle: Cycle { since: Instant::ZERO, wait: LEAST_PROBE_WAIT, rounds: 0.0 },
            is_judging: true,
            repair: Repair::default(),
            pace: Pace::new(setup, STARTUP_PACING),
            cwnd: setup.initial_window,
            initial_window: setup.initial_window,
            rng: Rng::new(setup.seed),
        }
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (STARTUP_PACING, STARTUP_CWND),
            Mode::Drain => (DRAIN_PACING, STARTUP_CWND),
            Mode::ProbeBw(Phase::Down) => (DOWN_PACING, CWND_GAIN),
            Mode::ProbeBw(Phase::Cruise | Phase::Refill) => (1.0, CWND_GAIN),
            Mode::ProbeBw(Phase::Up) => (UP_PACING, UP_CWND),
            Mode::ProbeRtt(_) => (1.0, PROBE_RTT_CWND),
        }
    }

    fn bandwidth(&self) -> f64 {
        self.max_bw.max().min(self.bounds.bw_lo)
    }

    /// `gain` times the bandwidth-delay product, segments.
    fn product(&self, bandwidth: f64, gain: f64) -> f64 {
        let Some(min_rtt) = self.min_rtt.value else { return self.initial_window };
        gain * bandwidth * min_rtt.as_secs_f64()
    }

    fn inflight(&self, bandwidth: f64, gain: f64) -> f64 {
        let probing = if self.mode == Mode::ProbeBw(Phase::Up) { 2.0 } else { 0.0 };
        self.pace.with_bursts(self.product(bandwidth, gain)).max(LEAST_WINDOW) + probing
    }

    fn update_model(&mut self, ack: &Ack, rate: Option<f64>) {
        self.rounds.see(ack);
        if self.rounds.is_start {
            self.cycle.rounds += 1.0;
        }
        self.signals.see(ack, rate);
        let is_limited = ack.sample.is_some_and(|sample| sample.is_app_limited);
        if let Some(rate) = rate.filter(|&rate| !is_limited || rate >= self.max_bw.max()) {
            self.max_bw.this = self.max_bw.this.max(rate);
        }
        let is_probing = matches!(self.mode, Mode::Startup | Mode::ProbeBw(Phase::Refill | Phase::Up));
        if self.signals.is_round_end && !is_probing {
            self.bounds.lower(&self.signals, self.max_bw.max(), self.cwnd);
        }
        if !is_limited {
            self.pipe.see(rate.unwrap_or(0.0), self.rounds.is_start);
        }
    }

    fn check_startup_and_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup {
            if !self.pipe.was_full && ack.sample.is_some_and(|sample| self.signals.ends_startup(&sample)) {
                (self.pipe.was_full, self.pipe.is_full_now) = (true, true);
                let product = self.product(self.max_bw.max(), 1.0);
                self.bounds.inflight_hi = product.max(self.signals.best_inflight);
            }
            if self.pipe.was_full {
                self.mode = Mode::Drain;
                self.signals.reset();
            }
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.inflight(self.max_bw.max(), 1.0) {
            self.begin_down(ack);
        }
    }

    fn begin_down(&mut self, ack: &Ack) {
        self.signals.reset();
        let spread = PROBE_WAIT_SPREAD.as_nanos();
        let wait = LEAST_PROBE_WAIT + Duration::from_nanos(self.rng.below(spread));
        self.cycle = Cycle { since: ack.now, wait, rounds: self.rng.below(2) as f64 };
        self.acks = Acks::ProbeStopping;
        self.rounds.restart(ack.delivered);
        self.mode = Mode::ProbeBw(Phase::Down);
    }

    fn begin_refill(&mut self, ack: &Ack) {
        self.bounds.lift();
        self.bounds.restart_slope();
        self.acks = Acks::Settled;
        self.rounds.restart(ack.delivered);
        self.mode = Mode::ProbeBw(Phase::Refill);
    }

    fn begin_up(&mut self, ack: &Ack, rate: Option<f64>) {
        self.is_judging = true;
        self.acks = Acks::ProbeStarting;
        self.rounds.restart(ack.delivered);
        self.pipe.reset(rate.unwrap_or(0.0));
        self.bounds.raise_slope(self.cwnd);
        self.mode = Mode::ProbeBw(Phase::Up);
    }

    fn is_time_to_probe(&self, now: Instant) -> bool {
        let reno_rounds = self.target_inflight().min(MOST_PROBE_ROUNDS);
        now.since(self.cycle.since) > self.cycle.wait || self.cycle.rounds >= reno_rounds
    }

    fn target_inflight(&self) -> f64 {
        self.product(self.bandwidth(), 1.0).min(self.cwnd)
    }

    fn update_cycle(&mut self, ack: &Ack, rate: Option<f64>) {
        let Mode::ProbeBw(phase) = self.mode else { return };
        match phase {
            Phase::Down | Phase::Cruise if self.is_time_to_probe(ack.now) => self.begin_refill(ack),
            Phase::Down => {
                let has_headroom = ack.in_flight <= self.bounds.with_headroom();
                if has_headroom && ack.in_flight <= self.inflight(self.max_bw.max(), 1.0) {
                    self.mode = Mode::ProbeBw(Phase::Cruise);
                }
            }
            Phase::Cruise => {}
            Phase::Refill => {
                if self.rounds.is_start {
                    self.begin_up(ack, rate);
                }
            }
            Phase::Up => self.check_up(ack, rate),
        }
    }

    fn check_up(&mut self, ack: &Ack, rate: Option<f64>) {
        if ack.is_cwnd_limited && self.cwnd >= self.bounds.inflight_hi {
            // The bound, not the path, stops the bandwidth from growing.
            self.pipe.reset(rate.unwrap_or(0.0));
        } else if self.pipe.is_full_now {
            self.begin_down(ack);
        }
    }

    /// The long-term bound, from how a probe went.
    fn update_long_term(&mut self, ack: &Ack) {
        if self.acks == Acks::ProbeStarting && self.rounds.is_start {
            self.acks = Acks::ProbeFeedback;
        }
        if self.acks == Acks::ProbeStopping && self.rounds.is_start {
            self.acks = Acks::Settled;
            if matches!(self.mode, Mode::ProbeBw(_)) {
                self.max_bw.advance();
            }
        }
        let Some(sample) = ack.sample else { return };
        if is_too_high(&sample) {
            if self.is_judging {
                self.flight_was_too_high(ack, &sample);
            }
        } else if self.bounds.inflight_hi.is_finite() {
            self.bounds.inflight_hi = self.bounds.inflight_hi.max(sample.tx_in_flight);
            if self.mode == Mode::ProbeBw(Phase::Up) {
                self.bounds.probe_upward(ack, self.cwnd, self.rounds.is_start);
            }
        }
    }

    fn flight_was_too_high(&mut self, ack: &Ack, sample: &RateSample) {
        self.is_judging = false;
        if !sample.is_app_limited {
            self.bounds.inflight_hi = sample.tx_in_flight.max(BETA * self.target_inflight());
        }
        if self.mode == Mode::ProbeBw(Phase::Up) {
            self.begin_down(ack);
        }
    }

    fn update_min_rtt(&mut self, ack: &Ack) {
        let is_due = self.min_rtt.see(ack);
        if is_due && !matches!(self.mode, Mode::ProbeRtt(_)) {
            self.repair.save(self.cwnd, false);
            self.acks = Acks::ProbeStopping;
            self.rounds.restart(ack.delivered);
            self.mode = Mode::ProbeRtt(RttProbe::default());
        }
        let window = self.probe_rtt_window();
        if let Mode::ProbeRtt(probe) = &mut self.mode
            && probe.see(ack, window, &mut self.rounds)
        {
            self.end_probe_rtt(ack);
        }
    }

    fn end_probe_rtt(&mut self, ack: &Ack) {
        self.min_rtt.probed_at = ack.now;
        self.cwnd = self.repair.restored(self.cwnd);
        self.bounds.lift();
        self.mode = Mode::Startup;
        if self.pipe.was_full {
            self.begin_down(ack);
            self.mode = Mode::ProbeBw(Phase::Cruise);
        }
    }

    fn probe_rtt_window(&self) -> f64 {
        self.product(self.bandwidth(), PROBE_RTT_CWND).max(LEAST_WINDOW)
    }

    fn set_cwnd(&mut self, ack: &Ack, gain: f64) {
        // Losses bound the window only through the bounds that the model learned from them.
        let most = self.inflight(self.bandwidth(), gain);
        if self.pipe.was_full {
            self.cwnd = (self.cwnd + ack.acked).min(most);
        } else if self.cwnd < most || self.cwnd < 2.0 * self.initial_window {
            self.cwnd += ack.acked;
        }
        self.cwnd = self.cwnd.max(LEAST_WINDOW).min(self.most_cwnd());
    }

    fn most_cwnd(&self) -> f64 {
        let long_term = match self.mode {
            Mode::ProbeBw(Phase::Cruise) => self.bounds.with_headroom(),
            Mode::ProbeBw(_) => self.bounds.inflight_hi,
            Mode::ProbeRtt(_) => self.bounds.with_headroom().min(self.probe_rtt_window()),
            Mode::Startup | Mode::Drain => f64::INFINITY,
        };
        long_term.min(self.bounds.inflight_lo).max(LEAST_WINDOW)
    }
}

impl CongestionControl for Bbr3 {
    fn on_ack(&mut self, ack: &Ack) {
        self.pace.see_rtt(ack.srtt);
        let rate = ack.sample.and_then(|sample| delivery_rate(&sample, self.min_rtt.value));
        self.update_model(ack, rate);
        self.check_startup_and_drain(ack);
        if self.pipe.was_full {
            self.update_long_term(ack);
            self.update_cycle(ack, rate);
        }
        self.update_min_rtt(ack);
        self.signals.advance(ack, rate);
        let (pacing_gain, cwnd_gain) = self.gains();
        self.pace.set(self.bandwidth(), pacing_gain, self.pipe.was_full);
        self.set_cwnd(ack, cwnd_gain);
    }

    fn on_loss(&mut self, loss: &Loss) {
        let is_probing_rtt = matches!(self.mode, Mode::ProbeRtt(_));
        self.cwnd = self.repair.on_loss(loss, self.cwnd, is_probing_rtt);
        if loss.kind == LossKind::Timeout {
            self.pipe.reset(0.0);
        }
    }

    fn on_recovered(&mut self, _now: Instant) {
        self.cwnd = self.repair.on_recovered(self.cwnd).min(self.most_cwnd());
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
    use super::super::NewReno;
    use super::super::harness::{Bottleneck, Pipe, ms, setup};
    use super::*;

    fn bbr3(seed: u64) -> Box<dyn CongestionControl> {
        Box::new(Bbr3::new(&Setup { seed, ..setup() }))
    }

    fn pipe(queue: usize, loss: f64, flows: Vec<Box<dyn CongestionControl>>) -> Pipe {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue, loss, is_xcp: false };
        let flows = flows.into_iter().enumerate();
        Pipe::new(bottleneck, flows.map(|(index, cc)| (cc, ms(100), ms(5_000 * index as u64))).collect())
    }

    #[test]
    fn the_path_is_full_and_its_queue_short() {
        let mut pipe = pipe(1000, 0.0, vec![bbr3(1)]);
        pipe.run(Duration::from_secs(5));
        let share = pipe.shares(Duration::from_secs(30))[0];
        assert!(share > 0.95 * pipe.capacity(), "{share}");
        assert!(pipe.queued / 30.0 < 50.0, "{}", pipe.queued / 30.0);
        assert_eq!(pipe.flows[0].lost, 0.0);
    }

    #[test]
    fn losses_below_two_percent_are_borne_and_more_are_not() {
        let [clean, some, many] = [0.0, 0.01, 0.1].map(|loss| {
            let mut pipe = pipe(1000, loss, vec![bbr3(1)]);
            pipe.run(Duration::from_secs(10));
            pipe.shares(Duration::from_secs(100))[0] / pipe.capacity()
        });
        assert!(clean > 0.95 && some > 0.6, "{clean} {some}");
        assert!(many < 0.6 * some, "{many} against {some}");
    }

    #[test]
    fn in_a_short_queue_it_loses_less_than_the_first_version() {
        let [ours, firsts] = [bbr3(1), Box::new(super::super::Bbr::new(&setup())) as _].map(|cc| {
            let reno = Box::new(NewReno::new(&setup()));
            let mut pipe = pipe(20, 0.0, vec![cc, reno]);
            pipe.run(Duration::from_secs(100));
            pipe.flows[0].lost / pipe.flows[0].delivered
        });
        assert!(ours < 0.5 * firsts, "{ours} against {firsts}");
    }

    #[test]
    fn two_flows_share() {
        let mut pipe = pipe(200, 0.0, vec![bbr3(1), bbr3(2)]);
        pipe.run(Duration::from_secs(60));
        let shares = pipe.shares(Duration::from_secs(120));
        let total: f64 = shares.iter().sum();
        let jain = total * total / (2.0 * shares.iter().map(|share| share * share).sum::<f64>());
        assert!(jain > 0.95 && total > 0.95 * pipe.capacity(), "{shares:?}");
    }
}
