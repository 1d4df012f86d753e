//! The part of a window that waits in queues: the estimate that Vegas, Veno and Hybla-Veno share.

use super::Ack;
use starhop_proto::time::Duration;

/// The shortest round trip of the connection and that of the present round, of data alone: the handshake's small packets
/// take less time on each link, and would make the transmission of a full segment look like a queue.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Backlog {
    base: Option<Duration>,
    /// The shortest of this round: delayed acknowledgements and jitter only ever add to it.
    round: Option<Duration>,
    samples: u32,
}

impl Backlog {
    pub(super) fn see(&mut self, ack: &Ack) {
        let Some(rtt) = ack.rtt else { return };
        self.base = Some(self.base.map_or(rtt, |old| old.min(rtt)));
        self.round = Some(self.round.map_or(rtt, |old| old.min(rtt)));
        self.samples += 1;
    }

    /// Segments of `cwnd` that wait: (cwnd/base - cwnd/rtt)·base, as Vegas calls it "diff" and Veno "N". Zero
    /// while nothing was measured.
    pub(super) fn segments(&self, cwnd: f64) -> f64 {
        cwnd * (1.0 - self.base_by_rtt())
    }

    /// base / rtt, the share of the window that is under way.
    pub(super) fn base_by_rtt(&self) -> f64 {
        let (Some(base), Some(round)) = (self.base, self.round) else { return 1.0 };
        if round.is_zero() { 1.0 } else { base.as_secs_f64() / round.as_secs_f64() }
    }

    /// Round trips measured in this round.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// A new round is measured afresh.
    pub(super) fn begin_round(&mut self) {
        (self.round, self.samples) = (None, 0);
    }
}
