use super::ByteRange;
use smallvec::SmallVec;

/// A set of bytes, as sorted, disjoint, non-adjacent ranges.
///
/// Lookup is O(log n) in the number of ranges; a change also moves the ranges behind it, which are few: a
/// transfer in good order is one range, and every user of a set bounds how many it keeps. That one range stands in the set
/// itself: a relay looks at six sets for each packet, and among a thousand flows none of them is in the processor's cache.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    ranges: SmallVec<[ByteRange; 1]>,
    bytes: u64,
}

impl PartialEq for RangeSet {
    fn eq(&self, other: &Self) -> bool {
        self.ranges == other.ranges
    }
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: SmallVec::new_const(), bytes: 0 }
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of disjoint ranges.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The number of bytes.
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = ByteRange> + '_ {
        self.ranges.iter().copied()
    }

    /// The lowest range.
    pub fn first(&self) -> Option<ByteRange> {
        self.ranges.first().copied()
    }

    /// The highest range.
    pub fn last(&self) -> Option<ByteRange> {
        self.ranges.last().copied()
    }

    /// Whether every byte of `range` is in the set.
    pub fn contains(&self, range: ByteRange) -> bool {
        range.is_empty()
            || self.ranges.get(self.first_ending_after(range.start)).is_some_and(|r| r.contains(range))
    }

    /// Whether some byte of `range` is in the set.
    pub fn overlaps(&self, range: ByteRange) -> bool {
        !range.is_empty()
            && self.ranges.get(self.first_ending_after(range.start)).is_some_and(|r| r.start < range.end)
    }

    /// Adds the bytes of `range`.
    pub fn insert(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        if let Some(last) = self.ranges.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
            self.bytes += range.len();
            return;
        }
        // Ranges that touch the new one, adjacent ones included, melt into it.
        let from = self.ranges.partition_point(|r| r.end < range.start);
        let to = from + self.ranges[from..].partition_point(|r| r.start <= range.end);
        if from == to {
            self.ranges.insert(from, range);
            self.bytes += range.len();
            return;
        }
        self.bytes -= self.ranges[from..to].iter().map(|r| r.len()).sum::<u64>();
        let merged =
            ByteRange::new(range.start.min(self.ranges[from].start), range.end.max(self.ranges[to - 1].end));
        self.bytes += merged.len();
        self.ranges[from] = merged;
        self.ranges.drain(from + 1..to);
    }

    /// Takes the bytes of `range` out.
    pub fn remove(&mut self, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        let from = self.first_ending_after(range.start);
        let touched = self.ranges[from..].iter().take_while(|r| r.start < range.end).count();
        let to = from + touched;
        if touched == 0 || (touched == 1 && self.trim(from, range)) {
            return;
        }
        self.bytes -= self.ranges[from..to].iter().map(|r| r.intersect(range).len()).sum::<u64>();
        let left = ByteRange::new(self.ranges[from].start, range.start.max(self.ranges[from].start));
        let right = ByteRange::new(range.end.min(self.ranges[to - 1].end), self.ranges[to - 1].end);
        match (left.is_empty(), right.is_empty()) {
            (true, true) => drop(self.ranges.drain(from..to)),
            (false, true) => self.replace(from, to, left),
            (true, false) => self.replace(from, to, right),
            (false, false) => {
                self.replace(from, to, left);
                self.ranges.insert(from + 1, right);
            }
        }
    }

    /// The bytes of `range` that are in the set, ascending.
    #[inline]
    pub fn intersect(&self, range: ByteRange) -> Intersection<'_> {
        Intersection { rest: self.ranges[self.first_ending_after(range.start)..].iter(), range }
    }

    /// The bytes of `range` that are not in the set, ascending.
    pub fn gaps(&self, range: ByteRange) -> Gaps<'_> {
        Gaps { rest: &self.ranges[self.first_ending_after(range.start)..], range }
    }

    /// Removes all bytes, keeping the memory.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.bytes = 0;
    }

    /// Takes `range` off one end of the range at `index`, the usual case of a transfer in order. False if `range`
    /// lies at neither end, or covers all.
    fn trim(&mut self, index: usize, range: ByteRange) -> bool {
        let held = &mut self.ranges[index];
        if range.start <= held.start && range.end < held.end {
            self.bytes -= range.end - held.start;
            held.start = range.end;
            return true;
        }
        if range.start > held.start && range.end >= held.end {
            self.bytes -= held.end - range.start;
            held.end = range.start;
            return true;
        }
        false
    }

    fn replace(&mut self, from: usize, to: usize, with: ByteRange) {
        self.ranges[from] = with;
        self.ranges.drain(from + 1..to);
    }

    fn first_ending_after(&self, offset: u64) -> usize {
        // In good order the search ends at one of the two ends.
        match &self.ranges[..] {
            [.., last] if last.end <= offset => self.ranges.len(),
            [first, ..] if first.end > offset => 0,
            [.., last_but_one, _] if last_but_one.end <= offset => self.ranges.len() - 1,
            ranges => ranges.partition_point(|r| r.end <= offset),
        }
    }
}

/// The parts of a range that a [`RangeSet`] holds. See [`RangeSet::intersect`].
#[derive(Clone, Debug)]
pub struct Intersection<'a> {
    rest: core::slice::Iter<'a, ByteRange>,
    range: ByteRange,
}

impl Iterator for Intersection<'_> {
    type Item = ByteRange;

    // Inline, because every packet comes by several times with one part at most: handed over in memory, the
    // part would cost more than finding it.
    #[inline]
    fn next(&mut self) -> Option<ByteRange> {
        // Ranges that end before the range begins were skipped: the rest meets it, up to the first that begins
        // behind.
        let held = self.rest.next().filter(|held| held.start < self.range.end)?;
        let part = held.intersect(self.range);
        if part.is_empty() { None } else { Some(part) }
    }
}

/// The parts of a range that a [`RangeSet`] lacks. See [`RangeSet::gaps`].
#[derive(Clone, Debug)]
pub struct Gaps<'a> {
    rest: &'a [ByteRange],
    range: ByteRange,
}

impl Iterator for Gaps<'_> {
    type Item = ByteRange;

    fn next(&mut self) -> Option<ByteRange> {
        while !self.range.is_empty() {
            let Some((first, rest)) = self.rest.split_first() else {
                return Some(core::mem::take(&mut self.range));
            };
            let gap = ByteRange::new(self.range.start, first.start.min(self.range.end));
            self.range = ByteRange::new(first.end.min(self.range.end).max(self.range.start), self.range.end);
            self.rest = rest;
            if !gap.is_empty() {
                return Some(gap);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn adjacent_ranges_melt_and_a_hole_splits() {
        let mut set = RangeSet::new();
        set.insert(ByteRange::new(0, 10));
        set.insert(ByteRange::new(10, 20));
        assert_eq!(set.range_count(), 1);
        set.remove(ByteRange::new(5, 15));
        assert_eq!(set.iter().collect::<Vec<_>>(), [ByteRange::new(0, 5), ByteRange::new(15, 20)]);
        assert_eq!(
            set.gaps(ByteRange::new(0, 30)).collect::<Vec<_>>(),
            [ByteRange::new(5, 15), ByteRange::new(20, 30)]
        );
    }

    fn bytes_of(ranges: impl Iterator<Item = ByteRange>) -> BTreeSet<u64> {
        ranges.flat_map(|r| r.start..r.end).collect()
    }

    proptest! {
        #[test]
        fn a_range_set_is_a_set_of_bytes(ops in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..24), 0..60),
                                         probe in (0u64..80, 0u64..40)) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (add, start, len) in ops {
                let range = ByteRange::at(start, len);
                if add { set.insert(range); model.extend(start..start + len); }
                else { set.remove(range); model.retain(|b| !(start..start + len).contains(b)); }
            }
            let probe = ByteRange::at(probe.0, probe.1);
            let inside: BTreeSet<u64> = (probe.start..probe.end).filter(|b| model.contains(b)).collect();
            let outside: BTreeSet<u64> = (probe.start..probe.end).filter(|b| !model.contains(b)).collect();
            prop_assert_eq!(bytes_of(set.iter()), model.clone());
            prop_assert_eq!(set.byte_count(), model.len() as u64);
            prop_assert_eq!(set.contains(probe), outside.is_empty());
            prop_assert_eq!(set.overlaps(probe), !inside.is_empty());
            prop_assert_eq!(bytes_of(set.intersect(probe)), inside);
            prop_assert_eq!(bytes_of(set.gaps(probe)), outside);
            let ranges: Vec<_> = set.iter().collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "sorted, disjoint, not adjacent");
        }
    }
}
