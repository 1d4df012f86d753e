use crate::config::Config;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Bytes of queue that are no congestion (the M of LEOTP eq. 8, as in its hops).
const QUEUE_ALLOWED: f64 = 3_000.0;
/// A longer path is recognised after at most two of these: LEOTP's filter of 10 s in parts.
const MIN_SPELL: Duration = Duration::from_secs(5);
/// Share of the bandwidth-delay product that remains after congestion (k of eq. 8).
const BACK_OFF: f64 = 0.8;

/// LEOTP's control of a hop, eq. 6 to 8, over the whole path: congestion control at the end points alone. The
/// paper's ablation compares its hops with this.
#[derive(Debug)]
pub(super) struct Congestion {
    window: f64,
    payload: f64,
    /// Queue that is no congestion, bytes.
    allowed: f64,
    in_slow_start: bool,
    /// The least round trip of the spell before and of this one, and when this one began.
    min_rtt: [Option<Duration>; 2],
    min_since: Instant,
    round_started: Option<Instant>,
    round_bytes: u64,
}

impl Congestion {
    pub(super) fn new(config: &Config) -> Self {
        let payload = config.payload as f64;
        Self {
            window: f64::from(config.initial_window) * payload,
            payload,
            // Requests come in steps, and so do their answers.
            allowed: QUEUE_ALLOWED.max(2.0 * config.step_bytes() as f64),
            in_slow_start: true,
            min_rtt: [None; 2],
            min_since: Instant::ZERO,
            round_started: None,
            round_bytes: 0,
        }
    }

    /// New bytes arrived.
    pub(super) fn on_bytes(&mut self, bytes: u64) {
        self.round_bytes += bytes;
    }

    /// A range asked for once was answered after `rtt`: once every round trip, the window follows.
    pub(super) fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        let min_rtt = self.least(now, rtt);
        let started = *self.round_started.get_or_insert(now);
        let elapsed = now.since(started);
        if elapsed < rtt {
            return;
        }
        let throughput = Rate::of(core::mem::take(&mut self.round_bytes), elapsed).as_bps() as f64 / 8.0;
        self.round_started = Some(now);
        let queue = throughput * rtt.saturating_sub(min_rtt).as_secs_f64();
        if queue > self.allowed {
            self.in_slow_start = false;
            self.window = BACK_OFF * throughput * min_rtt.as_secs_f64();
        } else if self.in_slow_start {
            self.window *= 2.0;
        } else {
            self.window += self.payload;
        }
        self.window = self.window.max(2.0 * self.payload);
    }

    /// The least round trip of the last [`MIN_SPELL`] to two of them.
    fn least(&mut self, now: Instant, rtt: Duration) -> Duration {
        if now.since(self.min_since) >= MIN_SPELL {
            self.min_rtt = [self.min_rtt[1], None];
            self.min_since = now;
        }
        let this = self.min_rtt[1].map_or(rtt, |min| min.min(rtt));
        self.min_rtt[1] = Some(this);
        self.min_rtt[0].map_or(this, |before| before.min(this))
    }

    /// Bytes that may be asked for and missing.
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_until_a_queue_stands_and_falls_below_what_the_path_holds() {
        let mut control = Congestion::new(&Config::default());
        let (mut now, least) = (Instant::ZERO, Duration::from_millis(100));
        let first = control.window();
        for _ in 0..4 {
            now += least;
            control.on_bytes(control.window());
            control.on_rtt(now, least);
        }
        assert_eq!(control.window(), 8 * first);
        let held = control.window();
        now += least + Duration::from_millis(50);
        control.on_bytes(held * 3 / 2);
        control.on_rtt(now, least + Duration::from_millis(50));
        let expected = (0.8 * held as f64) as u64;
        assert!(control.window().abs_diff(expected) < 1_400, "{} of {held}", control.window());
    }
}
