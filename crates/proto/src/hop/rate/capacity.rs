use crate::time::{Duration, Instant};

/// A capacity counts for this long after the link was last seen full.
const KNOWN: Duration = Duration::from_secs(10);
/// A grant that nobody uses up may be no more than this above the capacity: a sender that runs dry for a moment would otherwise
/// come back with a burst.
const MARGIN: f64 = 1.02;

/// The rate that the link carried, bit/s, when it was last full of packets that waited for it, and the time of that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Capacity(Option<(f64, Instant)>);

impl Capacity {
    /// The link is full, and carries so much.
    pub(super) fn learn(&mut self, now: Instant, carried: f64) {
        self.0 = Some((carried, now));
    }

    /// The link was never full, or what is known is of another one.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }

    /// The most that the link is known to carry, infinite where nothing is known.
    pub(super) fn most(&self) -> f64 {
        self.0.map_or(f64::INFINITY, |(capacity, _)| capacity)
    }

    /// The most that may be granted to a sender that does not use up its grant. A capacity of long ago is forgotten.
    pub(super) fn ceiling(&mut self, now: Instant) -> f64 {
        self.0 = self.0.filter(|(_, at)| now.since(*at) < KNOWN);
        self.0.map_or(f64::INFINITY, |(capacity, _)| MARGIN * capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    #[test]
    fn a_full_link_bounds_what_is_granted_for_ten_seconds() {
        let mut capacity = Capacity::default();
        assert_eq!((capacity.ceiling(NOW), capacity.most()), (f64::INFINITY, f64::INFINITY));
        capacity.learn(NOW, 1e6);
        let end = NOW + KNOWN;
        assert_eq!((capacity.ceiling(end.before(Duration::from_nanos(1))), capacity.most()), (1.02e6, 1e6));
        assert_eq!((capacity.ceiling(end), capacity.most()), (f64::INFINITY, f64::INFINITY));
    }
}
