use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Rounds over which the highest rate counts.
const ROUNDS: usize = 8;
const MIN_ROUND: Duration = Duration::from_millis(10);

/// The bytes that a Consumer asks for ahead of arrivals.
///
/// A request is a credit: too many cost only memory upstream (the hops' rates govern the sending), too few leave
/// the path idle. So the window is one and a half times the bytes that the path carries in its shortest round trip,
/// and never less than a first window with which 20 Mbit/s fill 100 ms.
#[derive(Debug)]
pub(super) struct Window {
    limit: u64,
    /// Asked for beyond the capacity of the path, for caches to store.
    ahead: u64,
    floor: u64,
    min_rtt: Option<Duration>,
    /// `min_rtt` is that of a path before.
    is_old_path: bool,
    rates: [Rate; ROUNDS],
    round: usize,
    round_started: Option<Instant>,
    round_bytes: u64,
}

impl Window {
    pub(super) fn new(limit: u64, span: u64, ahead: u64) -> Self {
        Self {
            limit,
            ahead,
            floor: (4 * span).max(256 * 1024).min(limit),
            min_rtt: None,
            is_old_path: false,
            rates: [Rate::ZERO; ROUNDS],
            round: 0,
            round_started: None,
            round_bytes: 0,
        }
    }

    /// A range asked for once was answered after `rtt`.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        let known = self.min_rtt.filter(|_| !core::mem::take(&mut self.is_old_path));
        self.min_rtt = Some(known.map_or(rtt, |min| min.min(rtt)));
    }

    /// New bytes arrived.
    pub(super) fn on_bytes(&mut self, now: Instant, bytes: u64) {
        self.round_bytes += bytes;
        let started = *self.round_started.get_or_insert(now);
        let length = self.min_rtt.unwrap_or(MIN_ROUND).max(MIN_ROUND);
        let elapsed = now.since(started);
        if elapsed >= length {
            self.rates[self.round % ROUNDS] = Rate::of(self.round_bytes, elapsed);
            self.round += 1;
            self.round_started = Some(now);
            self.round_bytes = 0;
        }
    }

    /// The bytes that may be asked for and missing.
    pub(super) fn size(&self) -> u64 {
        let rate = self.rates.iter().copied().max().unwrap_or(Rate::ZERO);
        let in_flight = self.min_rtt.map_or(0, |rtt| rate.bytes_in(rtt));
        let size = if self.is_old_path {
            // A request takes as long as the path, or as the requests before it. A full window would time itself,
            // and grow with every change of the path.
            self.floor.max(in_flight - in_flight / 5)
        } else {
            self.floor + in_flight + in_flight / 2
        };
        size.saturating_add(self.ahead).min(self.limit)
    }

    /// The path has changed: its round trip has to be measured anew. Until then the old one is a better guess than
    /// none.
    pub(super) fn on_new_path(&mut self) {
        self.is_old_path = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_path_do_not_inflate_the_window() {
        let mut window = Window::new(16 << 20, 64 << 10, 0);
        let (rate, mut now) = (Rate::from_mbps(20), Instant::ZERO);
        window.on_rtt(Duration::from_millis(200));
        for _ in 0..50 {
            for _ in 0..2_000 {
                now += Duration::from_millis(1);
                window.on_bytes(now, 2_500);
            }
            assert!(window.size() < 1_100_000, "{}", window.size());
            window.on_new_path();
            assert!(window.size() > 390_000, "most of what the old path held is asked of the new one");
            // The answer comes after all that was asked before it.
            let behind = rate.time_for(window.size());
            window.on_rtt(behind.max(Duration::from_millis(200)));
        }
    }

    #[test]
    fn the_window_follows_the_path_and_stays_within_its_limit() {
        let mut window = Window::new(16 << 20, 64 << 10, 0);
        assert_eq!(window.size(), 256 << 10);
        window.on_rtt(Duration::from_millis(500));
        let mut now = Instant::ZERO;
        for _ in 0..2_000 {
            now += Duration::from_millis(1);
            window.on_bytes(now, 2_500);
        }
        // 20 Mbit/s over 500 ms are 1.25 MB.
        assert!((2_000_000..2_400_000).contains(&window.size()), "{}", window.size());
        for _ in 0..2_000 {
            now += Duration::from_millis(1);
            window.on_bytes(now, 250_000);
        }
        assert_eq!(window.size(), 16 << 20);
    }
}
