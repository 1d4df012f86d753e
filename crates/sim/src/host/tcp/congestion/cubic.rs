//! Cubic (RFC 9438). Where the RFC leaves a choice, it follows the Linux kernel: HyStart in slow start, and an
//! epoch that begins at the first acknowledgement after a repair.

use super::{Ack, HyStart, LEAST_SSTHRESH, Loss, LossKind, Setup, Window, WindowControl, hystart};
use starhop_proto::time::{Duration, Instant};

/// Steepness of the cubic, segments per second cubed (RFC 9438, section 5.1).
const C: f64 = 0.4;
/// Factor by which a loss reduces the window (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// The window grows at most by half a segment per acknowledged segment, so that a burst of late growth does
/// not overrun the path, and at least by this share of a segment per window (both as in the kernel, whose count of
/// acknowledgements per segment is at most 100 windows).
const MOST_GROWTH: f64 = 0.5;
const LEAST_GROWTH: f64 = 0.01;
/// Growth per acknowledged segment before the first loss.
const FIRST_GROWTH: f64 = 0.05;
/// Round trips measured this soon after a loss say little about the path.
const SETTLING: Duration = Duration::from_secs(1);

/// The time since the window began to grow after a loss.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Epoch {
    start: Instant,
    /// Seconds until the window is where it was.
    k: f64,
    /// The plateau of the cubic, segments.
    origin: f64,
    /// The window of a Reno connection that began with this epoch (RFC 9438, section 4.3).
    reno: f64,
}

/// A window that is a cubic of the time since the last loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cubic {
    window: Window,
    /// The window before the last reduction, after fast convergence; 0 before the first.
    last_max: f64,
    epoch: Option<Epoch>,
    delay_min: Option<Duration>,
    hystart: Option<HyStart>,
    uses_hystart: bool,
    before_loss: f64,
}

impl Cubic {
    /// Cubic at the start of a connection.
    pub fn new(setup: &Setup) -> Self {
        let hystart = setup.hystart.then(HyStart::default);
        Self {
            window: Window::new(setup),
            last_max: 0.0,
            epoch: None,
            delay_min: None,
            hystart,
            uses_hystart: setup.hystart,
            before_loss: 0.0,
        }
    }

    fn measure(&mut self, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        if self.epoch.is_some_and(|epoch| ack.now.since(epoch.start) < SETTLING) {
            return;
        }
        let delay_min = self.delay_min.map_or(rtt, |least| least.min(rtt));
        self.delay_min = Some(delay_min);
        if !self.window.is_slow_start() || self.window.cwnd < hystart::LOW_WINDOW {
            return;
        }
        if self.hystart.as_mut().is_some_and(|hystart| hystart.is_enough(ack, delay_min)) {
            self.window.ssthresh = self.window.cwnd;
            self.hystart = None;
        }
    }

    /// Segments to grow by per acknowledged segment.
    fn growth(&mut self, now: Instant, acked: f64) -> f64 {
        let cwnd = self.window.cwnd;
        let last_max = self.last_max;
        let begin = || {
            let below = (last_max - cwnd).max(0.0);
            Epoch { start: now, k: libm::cbrt(below / C), origin: cwnd.max(last_max), reno: cwnd }
        };
        let epoch = self.epoch.get_or_insert_with(begin);
        // Time at which the window is evaluated: a round trip from now.
        let t = now.since(epoch.start).as_secs_f64() + self.delay_min.unwrap_or_default().as_secs_f64();
        let offset = t - epoch.k;
        let target = epoch.origin + C * offset * offset * offset;
        let mut growth = (target - cwnd).max(LEAST_GROWTH) / cwnd;
        if last_max == 0.0 {
            growth = growth.max(FIRST_GROWTH);
        }
        // RFC 9438, equation 4: 3 · (1 - beta) / (1 + beta) segments per round trip.
        epoch.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * acked / cwnd;
        growth.max((epoch.reno - cwnd) / cwnd).min(MOST_GROWTH)
    }
}

impl WindowControl for Cubic {
    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    fn grow(&mut self, ack: &Ack) {
        self.measure(ack);
        if ack.is_recovering || !ack.is_cwnd_limited {
            return;
        }
        let mut acked = ack.counted;
        if self.window.is_slow_start() {
            acked = self.window.slow_start(acked);
        }
        if acked > 0.0 {
            self.window.cwnd += acked * self.growth(ack.now, acked);
        }
    }

    fn shrink(&mut self, loss: &Loss) {
        let cwnd = self.window.cwnd;
        self.before_loss = self.last_max;
        // Fast convergence (RFC 9438, section 4.7): a window that never came back leaves room to others.
        self.last_max = if cwnd < self.last_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        self.epoch = None;
        self.window.reduce(cwnd, BETA, loss.kind);
        if loss.kind == LossKind::Timeout {
            self.forget();
        }
    }

    fn restart(&mut self) {
        self.window.cwnd = 1.0;
        self.forget();
    }

    fn restore(&mut self, cwnd: f64, ssthresh: f64) {
        self.window.undo(cwnd, ssthresh.max(LEAST_SSTHRESH));
        self.last_max = self.before_loss.max(self.last_max);
    }
}

impl Cubic {
    /// After a timeout the path may be another.
    fn forget(&mut self) {
        self.last_max = 0.0;
        self.epoch = None;
        self.delay_min = None;
        self.hystart = self.uses_hystart.then(HyStart::default);
    }
}
