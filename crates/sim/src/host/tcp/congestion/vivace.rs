//! PCC Vivace (Dong, Meng, Zarchy, Arslan, Gilad, Godfrey, Schapira: PCC Vivace: online-learning congestion
//! control, NSDI 2018): tries rates, measures the utility of each, and climbs the gradient.

use super::vivace_interval::{Interval, Purpose, Utility};
use super::{Ack, CongestionControl, Loss, LossKind, Recovery, Setup};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::VecDeque;

/// Options of Vivace: coefficients of the utility.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct VivaceOptions {
    /// t: how much more rate is worth.
    pub exponent: f64,
    /// b: cost of growing round trips.
    pub latency: f64,
    /// c: cost of losses.
    pub loss: f64,
}

impl Default for VivaceOptions {
    fn default() -> Self {
        Self { exponent: 0.9, latency: 900.0, loss: 11.35 }
    }
}

/// ε: how far probes lie from the rate.
const EPSILON: f64 = 0.05;
/// θ0: Mbit/s of change per unit of gradient.
const STEP: f64 = 1.0;
/// ω0 and δ: the first bound of a change, and the growth of the bound at each change that hits it, shares of the
/// rate.
const FIRST_BOUND: f64 = 0.05;
const BOUND_STEP: f64 = 0.1;
/// Two pairs of a higher and a lower rate, in random order; both must agree, as in the authors' code: one pair
/// points the wrong way too often where losses are random.
const PROBES: usize = 4;
/// An interval holds at least this many segments: fewer say nothing about losses.
const LEAST_SEGMENTS: f64 = 20.0;
/// The window only keeps a silent path from being flooded: it is this multiple of the window that the rate needs.
const WINDOW_GAIN: f64 = 2.0;
/// Segments per round trip at the least.
const LEAST_PER_RTT: f64 = 2.0;
/// Intervals whose outcome is open; more than that are beyond any path.
const MOST_OPEN: usize = 64;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    /// Doubles the rate every interval while its utility grows; `last` has the previous rate and its utility.
    Starting { last: Option<(f64, f64)> },
    /// Probes around the rate: the number begun, their order, and the utility of each.
    Probing { begun: usize, higher_first: [bool; 2], worth: [Option<f64>; PROBES] },
}

/// Sign, number and bound of consecutive changes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Momentum {
    is_up: bool,
    changes: u32,
    bounded: u32,
}

/// Learns its rate.
#[derive(Clone, Debug)]
pub struct Vivace {
    utility: Utility,
    packet_mbit: f64,
    receive_window: f64,
    initial_window: f64,
    mode: Mode,
    /// The present rate, Mbit/s on the wire.
    rate: f64,
    momentum: Momentum,
    /// Open intervals; the last is the one that is sent now.
    intervals: VecDeque<Interval>,
    srtt: Option<Duration>,
    newest_sent: Instant,
    rng: Rng,
}

impl Vivace {
    /// Vivace at the start of a connection.
    pub fn new(setup: &Setup, options: VivaceOptions) -> Self {
        let VivaceOptions { exponent, latency, loss } = options;
        Self {
            utility: Utility { exponent, latency, loss },
            packet_mbit: f64::from(setup.mss + setup.overhead) * 8.0 / 1e6,
            receive_window: setup.receive_window,
            initial_window: setup.initial_window,
            mode: Mode::Starting { last: None },
            rate: 0.0,
            momentum: Momentum::default(),
            intervals: VecDeque::new(),
            srtt: None,
            newest_sent: Instant::ZERO,
            rng: Rng::new(setup.seed),
        }
    }

    /// The rate of this many segments per round trip, Mbit/s.
    fn per_rtt(&self, segments: f64) -> f64 {
        let srtt = self.srtt.map_or(1.0, Duration::as_secs_f64).max(1e-6);
        segments * self.packet_mbit / srtt
    }

    fn set_rate(&mut self, rate: f64) {
        let (least, most) = (self.per_rtt(LEAST_PER_RTT), self.per_rtt(self.receive_window));
        self.rate = rate.max(least).min(most.max(least));
    }

    fn begin_interval(&mut self, now: Instant) {
        let (rate, purpose) = self.next_rate();
        let srtt = self.srtt.unwrap_or_default();
        let lasts = srtt.max(Duration::from_secs_f64(LEAST_SEGMENTS * self.packet_mbit / rate));
        self.intervals.push_back(Interval::new(rate, purpose, now, lasts));
        if self.intervals.len() > MOST_OPEN {
            self.intervals.pop_front();
        }
    }

    fn next_rate(&mut self) -> (f64, Purpose) {
        match &mut self.mode {
            Mode::Starting { .. } => {
                let rate = self.rate;
                self.set_rate(2.0 * rate);
                (rate, Purpose::Starting)
            }
            Mode::Probing { begun, higher_first, .. } if *begun < PROBES => {
                let index = *begun;
                *begun += 1;
                let sign = if is_higher(index, *higher_first) { 1.0 } else { -1.0 };
                (self.rate * (1.0 + sign * EPSILON), Purpose::Probe(index))
            }
            Mode::Probing { .. } => (self.rate, Purpose::Waiting),
        }
    }

    fn begin_probing(&mut self) {
        let higher_first = [self.rng.chance(0.5), self.rng.chance(0.5)];
        self.mode = Mode::Probing { begun: 0, higher_first, worth: [None; PROBES] };
        // Open intervals were sent for another purpose.
        for interval in &mut self.intervals {
            interval.purpose = Purpose::Waiting;
        }
    }

    fn finish(&mut self, interval: &Interval) {
        let worth = interval.utility(&self.utility);
        match (&mut self.mode, interval.purpose) {
            (Mode::Starting { last }, Purpose::Starting) => match *last {
                Some((rate, before)) if worth < before => {
                    self.set_rate(rate);
                    self.begin_probing();
                }
                _ => *last = Some((interval.rate, worth)),
            },
            (Mode::Probing { higher_first, worth: all, .. }, Purpose::Probe(index)) => {
                all[index] = Some(worth);
                if let [Some(a), Some(b), Some(c), Some(d)] = *all {
                    let higher_first = *higher_first;
                    let gradients = [(a, b, higher_first[0]), (c, d, higher_first[1])]
                        .map(
                            |(first, second, is_first)| {
                                if is_first { first - second } else { second - first }
                            },
                        )
                        .map(|difference| difference / (2.0 * EPSILON * self.rate));
                    self.decide(gradients);
                    self.begin_probing();
                }
            }
            _ => {}
        }
    }

    /// Climbs, if both pairs of probes point the same way.
    fn decide(&mut self, gradients: [f64; 2]) {
        let is_up = gradients[0] > 0.0;
        if is_up != (gradients[1] > 0.0) {
            self.momentum = Momentum::default();
            return;
        }
        let gradient = (gradients[0] + gradients[1]) / 2.0;
        let change = self.momentum.change(is_up, gradient, self.rate);
        self.set_rate(self.rate + change);
    }
}

fn is_higher(index: usize, higher_first: [bool; 2]) -> bool {
    index.is_multiple_of(2) == higher_first[index / 2 % 2]
}

impl Momentum {
    /// The change of `rate`. It grows with the number of changes in the same direction, within a bound that grows
    /// with the number of changes that hit it.
    fn change(&mut self, is_up: bool, gradient: f64, rate: f64) -> f64 {
        if self.changes == 0 || self.is_up != is_up {
            *self = Self { is_up, changes: 0, bounded: 0 };
        }
        self.changes = (self.changes + 1).min(1_000);
        let changes = f64::from(self.changes);
        let amplifier = if changes <= 3.0 { changes } else { 2.0 * changes - 3.0 };
        let change = amplifier * STEP * gradient;
        let bound = (FIRST_BOUND + BOUND_STEP * f64::from(self.bounded)) * rate;
        if change.abs() <= bound {
            self.bounded = 0;
            return change;
        }
        // The bound itself stays below half the rate: one wrong turn must not stop the flow.
        self.bounded = (self.bounded + 1).min(4);
        bound.copysign(change)
    }
}

impl CongestionControl for Vivace {
    fn on_ack(&mut self, ack: &Ack) {
        if self.srtt.is_none() && !ack.srtt.is_zero() {
            self.srtt = Some(ack.srtt);
            let rate = self.per_rtt(self.initial_window);
            self.set_rate(rate);
            self.begin_interval(ack.now);
        }
        if !ack.srtt.is_zero() {
            self.srtt = Some(ack.srtt);
        }
        if let Some(rtt) = ack.rtt {
            self.newest_sent = self.newest_sent.max(ack.now.before(rtt));
        }
        let sent = self.newest_sent;
        let covers = |interval: &&mut Interval| interval.began <= sent && sent < interval.ends;
        if let Some(interval) = self.intervals.iter_mut().find(covers) {
            interval.see(sent, ack.rtt, ack.acked, ack.lost);
        }
        // An interval is over when something sent after it was acknowledged; the present one never is.
        while self.intervals.len() > 1
            && let Some(first) = self.intervals.front().copied().filter(|first| first.ends <= sent)
        {
            self.intervals.pop_front();
            self.finish(&first);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        // No acknowledgements, no measures: half the rate, and a fresh look.
        if loss.kind == LossKind::Timeout && self.srtt.is_some() {
            self.set_rate(self.rate / 2.0);
            self.momentum = Momentum::default();
            self.begin_probing();
        }
    }

    fn on_timer(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.begin_interval(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.intervals.back().map(|interval| interval.ends)
    }

    fn cwnd(&self) -> f64 {
        let Some(srtt) = self.srtt else { return self.initial_window };
        let rate = self.intervals.back().map_or(self.rate, |interval| interval.rate);
        self.initial_window + WINDOW_GAIN * rate * srtt.as_secs_f64() / self.packet_mbit
    }

    fn pacing_rate(&self) -> Option<Rate> {
        let rate = self.intervals.back()?.rate;
        Some(Rate::from_bps((rate * 1e6) as u64))
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

    fn vivace(seed: u64) -> Box<dyn CongestionControl> {
        Box::new(Vivace::new(&Setup { seed, ..setup() }, VivaceOptions::default()))
    }

    fn pipe(loss: f64, cc: Box<dyn CongestionControl>) -> Pipe {
        let bottleneck = Bottleneck { rate: Rate::from_mbps(12), queue: 1000, loss, is_xcp: false };
        Pipe::new(bottleneck, vec![(cc, ms(100), ms(0))])
    }

    #[test]
    fn it_finds_the_capacity_and_keeps_the_queue_short() {
        let mut pipe = pipe(0.0, vivace(1));
        pipe.run(Duration::from_secs(20));
        let share = pipe.shares(Duration::from_secs(60))[0];
        assert!(share > 0.9 * pipe.capacity(), "{share}");
        assert!(pipe.queued / 60.0 < 50.0, "{}", pipe.queued / 60.0);
    }

    #[test]
    fn random_losses_of_a_percent_cost_it_far_less_than_reno() {
        let [ours, renos] = [vivace(1), Box::new(NewReno::new(&setup())) as _].map(|cc| {
            let mut pipe = pipe(0.01, cc);
            pipe.run(Duration::from_secs(20));
            pipe.shares(Duration::from_secs(100))[0] / pipe.capacity()
        });
        assert!(ours > 0.7 && ours > 5.0 * renos, "{ours} against {renos}");
    }

    #[test]
    fn changes_grow_while_they_go_the_same_way() {
        let mut momentum = Momentum::default();
        let changes: Vec<f64> = (0..5).map(|_| momentum.change(true, 0.1, 100.0)).collect();
        for (change, expected) in changes.iter().zip([0.1, 0.2, 0.3, 0.5, 0.7]) {
            assert!((change - expected).abs() < 1e-9, "{changes:?}");
        }
        assert!((momentum.change(false, -0.1, 100.0) + 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_steep_gradient_moves_the_rate_by_a_bound_that_grows() {
        let mut momentum = Momentum::default();
        let changes: Vec<f64> = (0..3).map(|_| momentum.change(false, -900.0, 100.0)).collect();
        for (change, expected) in changes.iter().zip([-5.0, -15.0, -25.0]) {
            assert!((change - expected).abs() < 1e-9, "{changes:?}");
        }
    }
}
