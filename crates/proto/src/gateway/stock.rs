use super::turns::ANSWER;
use crate::time::{Duration, Instant};

/// A stream holds the bytes of its user that leave in this time: the user's application decides late what goes next, and a slow stream of a
/// crowd does not store a minute's worth …
const LASTS: Duration = Duration::from_millis(250);
/// … but no less and no more than these: four segments, and 8 Mbit/s.
const LEAST: u64 = 6 << 10;
const MOST: u64 = 256 << 10;
/// Before anything is known of the stream. Most answers are shorter.
const FIRST: u64 = 32 << 10;
/// The rate is counted over this time; a longer pause tells nothing.
const SPAN: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_secs(2);
/// The user's socket holds in addition what leaves in so many round trips to the user: a stream that may have more doubles in each; but no
/// less than leaves in [`LASTS`], and than this.
const IN_SOCKET_RTTS: u64 = 2;
const LEAST_IN_SOCKET: u64 = 8 << 10;
/// Where the round trip is not known: users are nearer.
const FAR: Duration = Duration::from_millis(500);

/// The bytes of a user that may be stored here: in the stream, and in the socket before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    /// Bytes that leave in [`LASTS`].
    lasting: u64,
    /// That was measured, and no guess.
    is_measured: bool,
    /// Bytes that left since then.
    left: u64,
    since: Instant,
    last: Instant,
    /// The bytes that left in [`LASTS`] when the socket was told its bound; 0: it has its own.
    told: u64,
}

impl Default for Stock {
    fn default() -> Self {
        Self {
            lasting: FIRST,
            is_measured: false,
            left: 0,
            since: Instant::ZERO,
            last: Instant::ZERO,
            told: 0,
        }
    }
}

impl Stock {
    /// Bytes that the stream holds at most.
    pub(super) fn size(&self) -> usize {
        self.lasting.clamp(LEAST, MOST) as usize
    }

    /// `bytes` of the stream left.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        let pause = now.since(core::mem::replace(&mut self.last, now));
        if pause >= PAUSE {
            (self.left, self.since) = (0, now);
            return;
        }
        self.left += bytes;
        let (span, size) = (now.since(self.since), self.size() as u64);
        // An answer in one turn is no sign of a fast stream: the next turn may be far.
        let is_short = self.left >= size.max(ANSWER + size / 4) && span <= SPAN.scaled(1, 2);
        if !is_short && span < SPAN {
            return;
        }
        let lasting = if is_short {
            2 * size
        } else {
            (self.left * LASTS.as_nanos() / span.as_nanos()).max(self.lasting / 2)
        };
        (self.lasting, self.is_measured, self.left, self.since) = (lasting.min(MOST), !is_short, 0, now);
    }

    /// The bytes that the user's socket may hold, if that is much more or less than before. `rtt` gives the round trip to the user. A fast
    /// stream leaves it to the socket.
    pub(super) fn bound_of_socket(&mut self, rtt: impl FnOnce() -> Option<Duration>) -> Option<u64> {
        let is_news = match self.told {
            0 => self.is_measured && self.lasting < MOST,
            told => self.lasting / 2 >= told || self.lasting <= told / 2,
        };
        if !is_news {
            return None;
        }
        self.told = self.lasting;
        if self.lasting == MOST {
            return Some(u64::MAX);
        }
        let time = rtt().unwrap_or(FAR).scaled(IN_SOCKET_RTTS, 1).max(LASTS);
        Some((self.lasting * time.as_nanos() / LASTS.as_nanos()).max(LEAST_IN_SOCKET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;

    /// The stock after packets of `bytes` that left at `kbps` for some seconds.
    fn after(stock: Stock, kbps: u64, bytes: u64) -> Stock {
        let gap = Rate::from_bps(1_000 * kbps).time_for(bytes);
        let start = stock.last + Duration::from_millis(100);
        let count = Duration::from_secs(4).as_nanos() / gap.as_nanos();
        (0..count).fold(stock, |mut stock, n| {
            stock.on_sent(start + gap.scaled(n, 1), bytes);
            stock
        })
    }

    #[test]
    fn a_stream_holds_what_leaves_in_a_quarter_of_a_second() {
        let sizes = [50, 1_000, 4_000, 100_000].map(|kbps| after(Stock::default(), kbps, 1_250).size());
        assert_eq!((sizes[0], sizes[3]), (LEAST as usize, MOST as usize));
        assert!((30_000..34_000).contains(&sizes[1]) && (120_000..130_000).contains(&sizes[2]), "{sizes:?}");
    }

    #[test]
    fn a_stream_that_slows_down_holds_less_and_one_that_has_room_more() {
        let fast = after(Stock::default(), 100_000, 1_250);
        let slow = after(fast, 100, 1_250);
        assert_eq!((slow.size(), after(slow, 100_000, 1_250).size()), (LEAST as usize, MOST as usize));
    }

    #[test]
    fn the_socket_is_told_what_it_may_hold_when_that_is_news() {
        let mut stock = Stock::default();
        let bound = |stock: &mut Stock, millis| stock.bound_of_socket(|| Some(Duration::from_millis(millis)));
        assert_eq!(bound(&mut stock, 20), None, "nothing is known");
        stock = after(stock, 100, 1_250);
        let mut far = stock;
        assert_eq!((bound(&mut stock, 20), bound(&mut stock, 20)), (Some(LEAST_IN_SOCKET), None));
        assert_eq!(bound(&mut far, 600), Some(15_000), "two round trips");
        stock = after(stock, 100_000, 1_250);
        assert_eq!(bound(&mut stock, 20), Some(u64::MAX));
        let mut fast = after(Stock::default(), 100_000, 1_250);
        assert_eq!(bound(&mut fast, 20), None, "it is as it was");
    }
}
