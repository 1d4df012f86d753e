use core::fmt;

/// The highest offset at which a flow may end: 2^62 - 1. The end of a range is also the start of the next packet,
/// which may be empty, so it too must be a [varint](crate::wire::varint).
pub const MAX_OFFSET: u64 = crate::wire::varint::MAX;

/// The bytes `[start, end)` of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

impl ByteRange {
    /// The bytes `[start, end)`; empty when `end <= start`.
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// `len` bytes from `start`.
    pub const fn at(start: u64, len: u64) -> Self {
        Self::new(start, start.saturating_add(len))
    }

    /// Number of bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes in both; empty where they do not meet.
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// Whether they share a byte.
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether every byte of `other` is in this one.
    pub fn contains(self, other: Self) -> bool {
        other.is_empty() || (self.start <= other.start && other.end <= self.end)
    }

    /// The first `len` bytes, or all when there are fewer.
    pub fn prefix(self, len: u64) -> Self {
        Self::new(self.start, self.end.min(self.start.saturating_add(len)))
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}
