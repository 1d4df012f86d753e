/// The most disjoint ranges that are kept; of more, the shortest is forgotten.
const MAX_RANGES: usize = 6;

/// Some of the bytes of a block: sorted, disjoint, non-adjacent `[start, end)`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes {
    ranges: [(u16, u16); MAX_RANGES],
    count: u8,
}

impl Bytes {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.ranges[..usize::from(self.count)]
            .iter()
            .map(|&(start, end)| (usize::from(start), usize::from(end)))
    }

    pub(super) fn contains(&self, start: usize, end: usize) -> bool {
        self.iter().any(|(s, e)| s <= start && end <= e)
    }

    /// Writes `piece` at `at` into those of `bytes` that are not valid yet, then marks it valid.
    pub(super) fn write(&mut self, bytes: &mut [u8], at: usize, piece: &[u8]) {
        let end = at + piece.len();
        let mut from = at;
        for (s, e) in self.iter().filter(|&(s, e)| s < end && e > at) {
            if from < s {
                bytes[from..s].copy_from_slice(&piece[from - at..s - at]);
            }
            from = from.max(e);
        }
        if from < end {
            bytes[from..end].copy_from_slice(&piece[from - at..]);
        }
        self.mark(at, end);
    }

    /// Adds the bytes from `start` to `end`.
    pub(super) fn mark(&mut self, mut start: usize, mut end: usize) {
        // In order, the new bytes prolong the last range: the common case.
        if let Some(last) = self.ranges[..usize::from(self.count)].last_mut()
            && usize::from(last.1) == start
        {
            last.1 = end as u16;
            return;
        }
        let old = *self;
        self.count = 0;
        for (s, e) in old.iter() {
            if e < start || s > end {
                self.push(s, e);
            } else {
                // Ranges are sorted and disjoint, so the ranges merged so far cannot reach a later range early.
                start = start.min(s);
                end = end.max(e);
            }
        }
        if usize::from(self.count) == MAX_RANGES {
            self.forget_shortest();
        }
        self.push(start, end);
        self.ranges[..usize::from(self.count)].sort_unstable();
    }

    pub(super) fn remove(&mut self, start: usize, end: usize) {
        let old = *self;
        self.count = 0;
        for (s, e) in old.iter() {
            for (s, e) in [(s, e.min(start)), (s.max(end), e)] {
                if s < e {
                    if usize::from(self.count) == MAX_RANGES {
                        self.forget_shortest();
                    }
                    self.push(s, e);
                }
            }
        }
    }

    fn forget_shortest(&mut self) {
        let count = usize::from(self.count);
        let shortest = (0..count).min_by_key(|&i| self.ranges[i].1 - self.ranges[i].0).unwrap_or(0);
        self.ranges.copy_within(shortest + 1..count, shortest);
        self.count -= 1;
    }

    fn push(&mut self, start: usize, end: usize) {
        self.ranges[usize::from(self.count)] = (start as u16, end as u16);
        self.count += 1;
    }
}
