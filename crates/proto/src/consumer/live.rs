/// The bytes of a live flow that are asked for ahead of arrivals.
///
/// Its sender says of each packet whether the requests of the flow had run out although its bytes were there. Where that is so of most that a
/// window brings, the path holds more than the window, which doubles. A larger one than the path needs costs nothing: the rate of the hop
/// decides what is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveWindow {
    size: u64,
    most: u64,
    /// Bytes that came since the window was as large as it is, or since so many came; and those of them for which requests had run out.
    came: u64,
    dry: u64,
}

impl LiveWindow {
    /// A window of `first` bytes that grows to `most` at most.
    pub(super) fn new(first: u64, most: u64) -> Self {
        Self { size: first, most: most.max(first), came: 0, dry: 0 }
    }

    /// Bytes that may be under way.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// `bytes` of the flow that were new arrived.
    #[inline]
    pub(super) fn on_bytes(&mut self, bytes: u64, is_dry: bool) {
        self.came += bytes;
        self.dry += if is_dry { bytes } else { 0 };
        if self.came >= self.size {
            if 2 * self.dry >= self.came {
                self.size = (2 * self.size).min(self.most);
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
        let mut window = LiveWindow::new(100_000, 1_000_000);
        (0..10_000).for_each(|n| window.on_bytes(1_000, n % dry_in == 0));
        window.size()
    }

    #[test]
    fn a_path_that_holds_more_gets_more_and_single_lost_requests_change_nothing() {
        assert_eq!(after(1), 1_000_000, "no more than there may be");
        assert_eq!(after(3), 100_000);
    }
}
