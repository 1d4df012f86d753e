//! Whose a queue is: what waits in front of a link is missing at its end.

use super::grants::Grants;
use super::interval::Interval;
use crate::time::Instant;

/// A queue is of packets that were granted if so much of it is missing: up to an interval of it is not counted yet.
const OURS: f64 = 0.5;
/// Packets have come as they were granted if this share of them has: the first ones wait until the hop is measured.
const ALL_CAME: f64 = 0.8;

/// The packets that were granted and did not come, while there is a queue. Where none are missing, the Interests wait for one another on
/// a narrow way back, and the hopRTT grows although nothing waits in front of the link.
#[derive(Debug, Default)]
pub(super) struct Shortfall {
    /// Bits missing since the queue began, or since `all_came`.
    missing: f64,
    /// Packets have come as they were granted.
    all_came: bool,
}

impl Shortfall {
    /// An interval ended in which the link carried so much, bit/s.
    pub(super) fn on_interval(
        &mut self,
        now: Instant,
        interval: &Interval,
        grants: &Grants,
        (carried, has_queue): (f64, bool),
    ) {
        let granted = grants.in_force(now.before(interval.least));
        let missing = (granted - carried).max(0.0) * interval.span(now).as_secs_f64();
        let is_first = !self.all_came && carried >= ALL_CAME * granted;
        self.all_came |= is_first;
        self.missing = if has_queue && !is_first { self.missing + missing } else { 0.0 };
    }

    /// Packets have come as they were granted: before that they are missing without a queue.
    pub(super) fn is_certain(&self) -> bool {
        self.all_came
    }

    /// True if so much is missing that it may be a queue of this many seconds on a link that carries `carried` bit/s.
    pub(super) fn explains(&self, queue: f64, carried: f64) -> bool {
        self.missing >= OURS * queue * carried
    }
}
