//! The repairs of a flow that may leave before everybody's new data.

use crate::time::{Duration, Instant};

/// Bytes count for this long, in which the flow sends.
const LATELY: Duration = Duration::from_secs(4);
/// A longer pause of the flow counts as this one: whatever an outage swallowed may leave first after it.
const PAUSE: Duration = Duration::from_millis(100);

/// The account of a flow: as many bytes may leave first as were sent of its new data lately. What is lost was sent before, so a loss of
/// less than half never ends the account. A flow that calls all that it asks for a repair would leave the others nothing. Where no
/// others wait the account is not asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    bytes: u64,
    counted_at: Instant,
}

impl Ahead {
    /// `bytes` of new data leave.
    #[inline]
    pub(super) fn on_new(&mut self, now: Instant, bytes: u64) {
        let span = now.since(self.counted_at).min(PAUSE);
        // 137 GB times the pause are the most that 64 bits hold.
        let faded = self.bytes.saturating_mul(span.as_nanos()) / LATELY.as_nanos();
        self.bytes += bytes;
        self.bytes -= faded;
        self.counted_at = now;
    }

    /// True if `bytes` of repairs may leave first. Then they count as sent.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(self.bytes);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000);

    /// The account of a flow that was sent 1,000 bytes each millisecond for `millis`.
    fn after(millis: u64) -> Ahead {
        let mut ahead = Ahead::default();
        (1..=millis).for_each(|at| ahead.on_new(START + Duration::from_millis(at), 1000));
        ahead
    }

    #[test]
    fn as_many_bytes_leave_first_as_were_sent() {
        assert!(!Ahead::default().take(1));
        let mut ahead = after(10);
        let taken = (0..20).filter(|_| ahead.take(1000)).count();
        assert_eq!(taken, 9, "the last of ten has faded by a few bytes");
    }

    #[test]
    fn the_account_holds_four_seconds_however_long_the_flow_lives() {
        let held = after(60_000).bytes;
        assert!((3_990_000..4_010_000).contains(&held), "{held}");
    }

    #[test]
    fn a_pause_costs_a_fortieth() {
        let mut ahead = after(60_000);
        let before = ahead.bytes;
        ahead.on_new(START + Duration::from_secs(100), 0);
        assert_eq!(ahead.bytes, before - before / 40);
    }
}
