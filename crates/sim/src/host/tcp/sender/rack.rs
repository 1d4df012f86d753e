//! RACK (RFC 8985): a segment is lost when one that was sent sufficiently later has arrived.

use super::scoreboard::{Delivery, Transmission};
use starhop_proto::time::{Duration, Instant};

/// Three segments arrived beyond a hole (RFC 5681's threshold, which RACK keeps while it saw no reordering).
const DUP_THRESHOLD: u32 = 3;
/// The most quarters of the shortest round trip that the reordering window grows to.
const MOST_QUARTERS: u32 = 20;
/// Recoveries after which a grown window is back to a quarter.
const PATIENCE: u32 = 16;

/// The newest segment that arrived, and how much reordering the path showed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rack {
    newest: u64,
    rtt: Duration,
    has_reordering: bool,
    quarters: u32,
    recoveries_left: u32,
}

impl Rack {
    pub(crate) fn new() -> Self {
        Self { newest: 0, rtt: Duration::ZERO, has_reordering: false, quarters: 1, recoveries_left: 0 }
    }

    /// Records the segments that an acknowledgement delivered (RFC 8985, section 6.2, steps 2 and 3).
    pub(crate) fn on_delivery(&mut self, now: Instant, delivery: &Delivery, min_rtt: Duration) {
        self.has_reordering |= delivery.is_reordered;
        let Some(Transmission { at, serial, repeats, .. }) = delivery.newest else { return };
        let rtt = now.since(at);
        // The acknowledgement of a repeated segment that comes too soon answers its original.
        if repeats > 0 && rtt < min_rtt {
            return;
        }
        if serial > self.newest {
            (self.newest, self.rtt) = (serial, rtt);
        }
    }

    /// The round trip of the newest segment that arrived.
    pub(crate) fn rtt(&self) -> Duration {
        self.rtt
    }

    /// The peer saw a segment twice: a repair was not needed, and more patience is (RFC 8985, step 4).
    pub(crate) fn on_duplicate(&mut self) {
        self.has_reordering = true;
        self.quarters = (self.quarters + 1).min(MOST_QUARTERS);
        self.recoveries_left = PATIENCE;
    }

    /// A repair is over.
    pub(crate) fn on_recovered(&mut self) {
        self.recoveries_left = self.recoveries_left.saturating_sub(1);
        if self.recoveries_left == 0 {
            self.quarters = 1;
        }
    }

    /// Before which transmission everything is suspect, and how long after its own transmission it is lost.
    pub(crate) fn limits(
        &self,
        is_recovering: bool,
        sacked: u32,
        min_rtt: Duration,
        srtt: Duration,
    ) -> (u64, Duration) {
        let is_in_order = !self.has_reordering && (is_recovering || sacked >= DUP_THRESHOLD);
        let window =
            if is_in_order { Duration::ZERO } else { min_rtt.scaled(self.quarters.into(), 4).min(srtt) };
        (self.newest, self.rtt + window)
    }
}
