use starhop_proto::time::{Duration, Instant};

/// Window of a socket that nobody has read from yet: Linux gives half of tcp_rmem's default of 128 KiB.
const FIRST: u64 = 64 << 10;
/// Segments that count as read in the round trip before the first (TCP_INIT_CWND), and those that are added to a window.
const FIRST_SEGMENTS: u64 = 10;
const SPARE_SEGMENTS: u64 = 16;

/// The window that a socket gives its sender, as Linux sizes it (net/ipv4/tcp_input.c, `tcp_rcv_space_adjust`): it grows with the bytes that
/// the application reads in a round trip, and never shrinks. An application that reads slowly holds little.
#[derive(Clone, Copy, Debug)]
pub(in crate::host) struct ReceiveBuffer {
    window: u64,
    most: u64,
    /// The application's bound.
    bound: u64,
    mss: u64,
    /// The most that was read in a round trip.
    read_before: u64,
    /// Read since then.
    read: u64,
    since: Instant,
}

impl ReceiveBuffer {
    /// The buffer of a new connection with segments of `mss` bytes, of at most `most` bytes.
    pub(in crate::host) fn new(most: u64, mss: u32) -> Self {
        let mss = u64::from(mss);
        let read_before = FIRST_SEGMENTS * mss;
        Self {
            window: FIRST.min(most),
            most,
            bound: u64::MAX,
            mss,
            read_before,
            read: 0,
            since: Instant::ZERO,
        }
    }

    /// The bytes that the socket holds at most.
    pub(in crate::host) fn window(&self) -> u64 {
        self.window.min(self.bound)
    }

    /// The application has another bound for the window (TCP_WINDOW_CLAMP), if any.
    pub(in crate::host) fn bound(&mut self, bound: Option<u64>) {
        self.bound = bound.unwrap_or(self.bound);
    }

    /// The application has read `bytes` of a connection with round trips of `rtt`.
    pub(in crate::host) fn on_read(&mut self, now: Instant, bytes: u64, rtt: Duration) {
        self.read += bytes;
        if now.since(self.since) < rtt {
            return;
        }
        if self.read > self.read_before {
            let wanted = 2 * self.read + SPARE_SEGMENTS * self.mss;
            let growth = wanted * (self.read - self.read_before) / self.read_before;
            self.window = self.window.max(wanted + 2 * growth).min(self.most);
            self.read_before = self.read;
        }
        (self.read, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// The window after a second in which `bytes` were read in each round trip.
    fn after(bytes: u64) -> u64 {
        let mut buffer = ReceiveBuffer::new(16 << 20, 1448);
        (1..50).for_each(|n| buffer.on_read(Instant::ZERO + RTT.scaled(n, 1), bytes, RTT));
        buffer.window()
    }

    #[test]
    fn who_reads_slowly_holds_little_and_who_reads_fast_is_not_held_back() {
        assert_eq!(after(10_000), FIRST);
        assert!(after(250_000) >= 2 * 250_000, "100 Mbit/s");
        assert_eq!(after(25_000_000), 16 << 20, "no more than there may be");
        let mut bounded = ReceiveBuffer::new(16 << 20, 1448);
        bounded.bound(Some(10_000));
        bounded.bound(None);
        assert_eq!(bounded.window(), 10_000);
    }
}
