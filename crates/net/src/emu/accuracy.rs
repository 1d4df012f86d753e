//! Accuracy of the links against their models, measured packet by packet.

use hdrhistogram::Histogram;
use serde::Serialize;
use starhop_proto::time::{Duration, Instant};

/// Rates are compared over windows of at least this length …
const WINDOW: Duration = Duration::from_secs(1);
/// … and this many packets: a window with fewer says more about its two ends than about its rate.
const WINDOW_PACKETS: u32 = 100;

/// Accuracy of the links against their models.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Accuracy {
    /// Median of the packets' delay beyond that of the model, µs.
    pub late_p50_us: f64,
    /// The 99th percentile of this, µs.
    pub late_p99_us: f64,
    /// The maximum of this, µs.
    pub late_max_us: f64,
    /// 99 % of the packets waited at most this long in front of their link before its model saw them, in µs.
    pub unseen_p99_us: f64,
    /// Packets counted.
    pub packets: u64,
    /// The rate at which packets came out, over a second, differed by at most this share from that of the model:
    /// in 99 % of the seconds of all directions.
    pub rate_error_p99: f64,
    /// The same for all seconds.
    pub rate_error_max: f64,
    /// Packets that the emulator itself lost: a device was full or down.
    pub failed: u64,
    /// CPU time of the thread.
    pub cpu_seconds: f64,
    /// The thread ran ahead of ordinary ones.
    pub is_real_time: bool,
}

/// Measures all directions.
pub(super) struct Meter {
    /// Nanoseconds.
    lateness: Histogram<u64>,
    /// Nanoseconds.
    unseen: Histogram<u64>,
    /// Millionths.
    rate_errors: Histogram<u64>,
    windows: Vec<Window>,
    pub(super) failed: u64,
}

/// Packets of one direction: real and due times of the first and of the last.
#[derive(Clone, Copy, Default)]
struct Window {
    packets: u32,
    first: (Instant, Instant),
    last: (Instant, Instant),
}

impl Window {
    /// Error of the window's length, as a share of its due length.
    fn error(&self) -> Option<f64> {
        let span =
            |of: fn(&(Instant, Instant)) -> Instant| of(&self.last).since(of(&self.first)).as_secs_f64();
        let (due, real) = (span(|times| times.0), span(|times| times.1));
        (self.packets >= WINDOW_PACKETS && due > 0.0).then(|| (real / due - 1.0).abs())
    }
}

impl Meter {
    pub(super) fn new(directions: usize) -> Self {
        let histogram =
            |max| Histogram::new_with_max(max, 2).unwrap_or_else(|_| unreachable!("the bounds are valid"));
        Self {
            lateness: histogram(60_000_000_000),
            unseen: histogram(60_000_000_000),
            rate_errors: histogram(1_000_000_000),
            windows: vec![Window::default(); directions],
            failed: 0,
        }
    }

    /// A packet may have waited for the thread since `since`.
    pub(super) fn on_seen(&mut self, since: Instant, now: Instant) {
        self.unseen.saturating_record(now.since(since).as_nanos());
    }

    /// A packet that was due at `due` came out of a direction at `now`.
    pub(super) fn on_delivered(&mut self, direction: usize, due: Instant, now: Instant) {
        self.lateness.saturating_record(now.since(due).as_nanos());
        let window = &mut self.windows[direction];
        if window.packets == 0 {
            window.first = (due, now);
        }
        window.packets += 1;
        window.last = (due, now);
        if due.since(window.first.0) < WINDOW {
            return;
        }
        if let Some(error) = window.error() {
            self.rate_errors.saturating_record((error * 1e6) as u64);
        }
        *window = Window::default();
    }

    pub(super) fn report(&self, cpu_seconds: f64, is_real_time: bool) -> Accuracy {
        let late = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1e3;
        Accuracy {
            late_p50_us: late(0.5),
            late_p99_us: late(0.99),
            late_max_us: self.lateness.max() as f64 / 1e3,
            unseen_p99_us: self.unseen.value_at_quantile(0.99) as f64 / 1e3,
            packets: self.lateness.len(),
            rate_error_p99: self.rate_errors.value_at_quantile(0.99) as f64 * 1e-6,
            rate_error_max: self.rate_errors.max() as f64 * 1e-6,
            failed: self.failed,
            cpu_seconds,
            is_real_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_slow_is_a_rate_error() {
        let mut meter = Meter::new(1);
        // Every packet 10 ms after the one before, and 1 % late on top.
        for i in 0..1000u64 {
            let due = Instant::from_nanos(i * 10_000_000);
            meter.on_delivered(0, due, Instant::from_nanos(i * 10_100_000));
        }
        let accuracy = meter.report(0.0, false);
        assert!((accuracy.rate_error_p99 - 0.01).abs() < 2e-4, "{accuracy:?}");
        assert!(accuracy.late_max_us > 90_000.0, "{accuracy:?}");
    }

    #[test]
    fn constant_lateness_is_no_rate_error() {
        let mut meter = Meter::new(1);
        for i in 0..1000u64 {
            let due = Instant::from_nanos(i * 5_000_000);
            meter.on_delivered(0, due, due + Duration::from_micros(300));
        }
        let accuracy = meter.report(0.0, false);
        assert_eq!(accuracy.rate_error_max, 0.0);
        assert!((accuracy.late_p50_us - 300.0).abs() < 5.0, "{accuracy:?}");
    }
}
