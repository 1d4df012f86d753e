//! The channel for which codes are planned.

/// Gilbert's channel (Gilbert: Capacity of a burst-noise channel, Bell System Technical Journal 1960): every packet in the
/// bad state is lost, none in the good one, and states last geometrically.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Gilbert {
    /// The share of packets that find the bad state.
    pub(crate) share: f64,
    /// The chance, from packet to packet, that the good state ends.
    pub(crate) to_bad: f64,
    /// The chance, from packet to packet, that the bad state ends.
    pub(crate) to_good: f64,
}

impl Gilbert {
    /// A channel that loses `share` of its packets in runs of `burst` on average. Losses are at least as close together as
    /// independent ones, however few were seen.
    pub(crate) fn new(share: f64, burst: f64) -> Self {
        let share = share.clamp(0.0, 0.99);
        let to_good = 1.0 / burst.max(1.0 / (1.0 - share));
        Self { share, to_good, to_bad: (to_good * share / (1.0 - share)).min(1.0) }
    }

    /// The chances of the two states, good and bad, one packet later.
    pub(crate) fn step(&self, good: f64, bad: f64) -> (f64, f64) {
        (good * (1.0 - self.to_bad) + bad * self.to_good, good * self.to_bad + bad * (1.0 - self.to_good))
    }
}
