use crate::time::Duration;

/// Losses beside a queue of this length, or of this part of the round trip, ran over.
const LENGTH: Duration = Duration::from_millis(50);
const PART: (u64, u64) = (1, 4);

/// True if losses on a hop whose packets waited for `queue` ran over, because no more had room; `least` is its round trip without a queue.
#[inline]
pub(super) fn is_flooded(queue: Duration, least: Duration) -> bool {
    queue > LENGTH.max(least.scaled(PART.0, PART.1))
}
