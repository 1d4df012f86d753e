/// So many bytes show the rate of the hop.
const SHOWN: u64 = 16 << 10;

/// The bytes of a live flow that may be under way.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Until some have come and shown the rate of the hop: a whole window at the rate that a hop begins with would be a flood on a slow one.
    pub first: u64,
    /// Afterwards.
    pub usual: u64,
    /// Where the path holds more.
    pub most: u64,
}

/// The bytes of a live flow that are asked for ahead of arrivals.
///
/// Its sender says of each packet whether the requests of the flow had run out although its bytes were there. Where that is so of most that a
/// window brings, the path holds more than the window, which doubles. A larger one than the path needs costs nothing: the rate of the hop
/// decides what is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveWindow {
    window: Window,
    /// The first bytes have come.
    has_begun: bool,
    /// Bytes that came since the window was as large as it is, or since so many came; and those of them for which requests had run out.
    came: u64,
    dry: u64,
}

impl LiveWindow {
    /// Nothing has come.
    pub(super) fn new(window: Window) -> Self {
        Self { window, has_begun: false, came: 0, dry: 0 }
    }

    /// Bytes that may be under way.
    pub(super) fn size(&self) -> u64 {
        if self.has_begun { self.window.usual } else { self.window.first }
    }

    /// `bytes` of the flow that were new arrived.
    #[inline]
    pub(super) fn on_bytes(&mut self, bytes: u64, is_dry: bool) {
        self.came += bytes;
        self.has_begun |= self.came >= SHOWN;
        self.dry += if is_dry { bytes } else { 0 };
        if self.came >= self.window.usual {
            if 2 * self.dry >= self.came {
                self.window.usual = (2 * self.window.usual).min(self.window.most);
            }
            (self.came, self.dry) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window after many packets, of which one in `dry_in` found no request.
    fn after(dry_in: u64) -> u64 {
        let mut window = LiveWindow::new(Window { first: 1, usual: 100_000, most: 1_000_000 });
        (0..10_000).for_each(|n| window.on_bytes(1_000, n % dry_in == 0));
        window.size()
    }

    #[test]
    fn no_more_is_asked_for_at_first_than_shows_the_rate() {
        let mut window = LiveWindow::new(Window { first: 256 << 10, usual: 4 << 20, most: 64 << 20 });
        assert_eq!(window.size(), 256 << 10);
        window.on_bytes(SHOWN, false);
        assert_eq!(window.size(), 4 << 20);
    }

    #[test]
    fn a_path_that_holds_more_gets_more_and_single_lost_requests_change_nothing() {
        assert_eq!(after(1), 1_000_000, "no more than there may be");
        assert_eq!(after(3), 100_000);
    }
}
