use alloc::vec::Vec;

/// Packets of a sender that are told apart, counted from its newest; an older one is refused. WireGuard has as many.
pub const WINDOW: u32 = 8192;

const WORDS: usize = WINDOW as usize / 64;

/// The counters of one sender in one epoch that were taken (RFC 4303 section 3.4.3). The window is only as large as
/// these counters need: most senders of a crowd say little, and an epoch begins at 0.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    /// One more than the highest counter taken.
    next: u32,
    /// Counters beyond the end of this list were not taken.
    taken: Vec<u64>,
}

impl ReplayWindow {
    /// Whether `counter` was not taken, as far as is remembered.
    #[inline]
    pub fn is_fresh(&self, counter: u32) -> bool {
        if counter >= self.next {
            return true;
        }
        self.next - counter <= WINDOW && self.word(counter) & bit(counter) == 0
    }

    /// Takes `counter`, which must be fresh and authentic.
    #[inline]
    pub fn take(&mut self, counter: u32) {
        let words = (counter / 64) as usize + 1;
        if self.taken.len() < words.min(WORDS) {
            self.taken.resize(words.next_power_of_two().min(WORDS), 0);
        }
        if counter >= self.next {
            // The skipped numbers have not been accepted; they are cleared a word at a time if there are many.
            for skipped in self.next.max(counter.saturating_sub(WINDOW))..counter {
                self.taken[index(skipped)] &= !bit(skipped);
            }
            self.next = counter + 1;
        }
        self.taken[index(counter)] |= bit(counter);
    }

    fn word(&self, counter: u32) -> u64 {
        self.taken.get(index(counter)).copied().unwrap_or(0)
    }
}

fn index(counter: u32) -> usize {
    (counter / 64) as usize % WORDS
}

fn bit(counter: u32) -> u64 {
    1 << (counter % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    #[test]
    fn a_counter_is_taken_once_and_old_ones_never() {
        let mut window = ReplayWindow::default();
        assert!(window.is_fresh(5));
        window.take(5);
        assert!(!window.is_fresh(5) && window.is_fresh(4) && window.is_fresh(6));
        window.take(5 + WINDOW);
        assert!(!window.is_fresh(5) && window.is_fresh(6));
        window.take(6 + WINDOW);
        assert!(!window.is_fresh(6), "beyond the window nobody can tell");
    }

    proptest! {
        #[test]
        fn no_counter_is_ever_taken_twice(
            jumps in prop::collection::vec((0u32..20_000, prop::bool::weighted(0.6)), 1..400)
        ) {
            let (mut window, mut taken, mut at) = (ReplayWindow::default(), BTreeSet::new(), 0u32);
            for (jump, ahead) in jumps {
                let counter = if ahead { at + jump % 5 } else { at.saturating_sub(jump) };
                let newest = taken.last().copied().unwrap_or(0);
                let is_recent = taken.is_empty() || counter + WINDOW > newest;
                prop_assert_eq!(window.is_fresh(counter), !taken.contains(&counter) && is_recent);
                if window.is_fresh(counter) {
                    window.take(counter);
                    taken.insert(counter);
                    at = at.max(counter);
                }
            }
        }
    }
}
