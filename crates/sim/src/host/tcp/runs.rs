//! A set of numbers as runs, for sets with many holes: every operation is O(log n) in the number of runs.

use std::collections::BTreeMap;

/// Sorted, disjoint, non-adjacent runs `[start, end)`.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs {
    ends: BTreeMap<u64, u64>,
}

impl Runs {
    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The highest runs first.
    pub(super) fn iter_down(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().rev().map(|(&start, &end)| (start, end))
    }

    /// Adds `[start, end)` and calls `new` with every part of it that was missing. The run that it is in now.
    pub(super) fn insert(&mut self, start: u64, end: u64, mut new: impl FnMut(u64, u64)) -> (u64, u64) {
        if start >= end {
            return (start, end);
        }
        let mut run = (start, end);
        let mut at = start;
        if let Some((&before, last)) = self.ends.range_mut(..=start).next_back()
            && *last >= start
        {
            if *last >= end {
                return (before, *last);
            }
            run.0 = before;
            at = *last;
        }
        // Runs that follow and touch are merged into the run.
        while let Some((&next, &next_end)) = self.ends.range(run.0 + 1..=end).next() {
            if next > at {
                new(at, next);
            }
            at = at.max(next_end);
            run.1 = run.1.max(next_end);
            self.ends.remove(&next);
        }
        if at < end {
            new(at, end);
        }
        self.ends.insert(run.0, run.1);
        run
    }

    /// Drops everything below `floor`.
    pub(super) fn remove_below(&mut self, floor: u64) {
        while let Some(entry) = self.ends.first_entry() {
            if *entry.key() >= floor {
                return;
            }
            let end = entry.remove();
            if end > floor {
                self.ends.insert(floor, end);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::rng::Rng;

    #[test]
    fn what_is_new_is_told_exactly_once() {
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let (mut runs, mut seen) = (Runs::default(), [false; 100]);
            for _ in 0..60 {
                let start = rng.below(90);
                let end = start + rng.below(10);
                let before = seen;
                let run = runs.insert(start, end, |from, to| {
                    for number in from..to {
                        assert!(!seen[number as usize], "{number} was told twice");
                        seen[number as usize] = true;
                    }
                });
                (start..end).for_each(|number| assert!(seen[number as usize]));
                assert!(
                    (0..100).all(|n| before[n as usize] == seen[n as usize] || (start..end).contains(&n))
                );
                assert!(start == end || run.0 <= start && run.1 >= end);
            }
            let all: Vec<(u64, u64)> = runs.iter_down().collect();
            assert!(all.windows(2).all(|pair| pair[1].1 < pair[0].0), "{all:?}");
            let count: u64 = all.iter().map(|(start, end)| end - start).sum();
            assert_eq!(count as usize, seen.iter().filter(|is| **is).count());
        }
    }

    #[test]
    fn what_lies_below_is_cut() {
        let mut runs = Runs::default();
        for (start, end) in [(0, 3), (5, 9), (12, 14)] {
            runs.insert(start, end, |_, _| ());
        }
        runs.remove_below(7);
        assert_eq!(runs.iter_down().collect::<Vec<_>>(), [(12, 14), (7, 9)]);
    }
}
