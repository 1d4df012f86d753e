//! One line of the log for each transfer that ended, and their number by reason.

use crate::clock;
use starhop_proto::hop::Transfer;
use starhop_proto::time::{Duration, Instant};
use std::collections::BTreeMap;

/// A transfer whose end was sent this long ago is over, unless it was requested since.
pub const QUIET: Duration = Duration::from_secs(1);

/// A role's memory of its transfers.
#[derive(Debug)]
pub struct Record {
    started: Instant,
    endings: BTreeMap<String, u64>,
}

impl Default for Record {
    fn default() -> Self {
        Self { started: clock::now(), endings: BTreeMap::new() }
    }
}

impl Record {
    /// Logs and counts a transfer; `name` is the source's name of the flow, if known.
    ///
    /// Times are in seconds, rates in 10^6 bit/s of payload, from the first to the last packet.
    pub fn note(&mut self, transfer: &Transfer, name: Option<&str>) {
        let Transfer { flow, to, bytes, repair_bytes, ending, .. } = *transfer;
        *self.endings.entry(ending.word().to_owned()).or_default() += 1;
        let seconds = transfer.last_sent.since(transfer.began).as_secs_f64();
        let mbps = if seconds > 0.0 { (bytes as f64 * 8e-6 / seconds * 1e3).round() / 1e3 } else { 0.0 };
        tracing::info!(
            target: "starhop::transfer",
            %flow, name, %to, bytes, repair_bytes, seconds, mbps, reason = ending.word(),
            "transfer ended"
        );
    }

    /// Counts a user's connection that ended.
    pub fn count(&mut self, reason: &str) {
        *self.endings.entry(reason.to_owned()).or_default() += 1;
    }

    /// Start of the role.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Transfers that ended, by reason.
    pub fn endings(&self) -> &BTreeMap<String, u64> {
        &self.endings
    }
}
