//! The last hour of a node, for its page.

use super::desk::Bell;
use super::status::{Side, Status};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Between two samples.
const EVERY: Duration = Duration::from_secs(10);
/// An hour of them.
const SAMPLES: usize = 360;

/// A node at one moment, summed over its peers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Sample {
    timestamp: String,
    /// Bytes on the wire from upstream and to downstream since the sample before, in 10^6 bit/s.
    in_mbps: f64,
    out_mbps: f64,
    /// Bytes that wait to be sent.
    queued_bytes: u64,
    /// The longest queueing of an upstream hop.
    queueing_ms: f64,
    /// Packets lost from upstream since the sample before, of those sent here.
    loss: f64,
}

/// Counts since the start, from which differences are taken.
#[derive(Clone, Copy, Default)]
struct Totals {
    uptime: f64,
    arrived: u64,
    sent: u64,
    packets: u64,
    lost: u64,
}

#[derive(Default)]
struct Kept {
    samples: VecDeque<Sample>,
    last: Option<Totals>,
}

/// The samples of an hour.
#[derive(Default)]
pub(super) struct History(RefCell<Kept>);

impl History {
    /// Takes a sample every ten seconds, as long as the node lives.
    pub(super) async fn follow(self: Rc<Self>, bell: Bell) {
        let mut interval = tokio::time::interval(EVERY);
        loop {
            interval.tick().await;
            let Some(status) = bell.whole_status().await else { return };
            self.note(&status);
        }
    }

    /// The samples, oldest first.
    pub(super) fn samples(&self) -> Vec<Sample> {
        self.0.borrow().samples.iter().cloned().collect()
    }

    fn note(&self, status: &Status) {
        let mut kept = self.0.borrow_mut();
        let totals = totals(status);
        let last = kept.last.replace(totals).unwrap_or_default();
        let span = (totals.uptime - last.uptime).max(1e-3);
        // The totals shrink when a peer is forgotten, because its counters go with it: hence `saturating_sub`.
        let mbps = |now: u64, before: u64| now.saturating_sub(before) as f64 * 8e-6 / span;
        let lost = totals.lost.saturating_sub(last.lost);
        let sent_here = totals.packets.saturating_sub(last.packets) + lost;
        let sample = Sample {
            timestamp: status.timestamp.clone(),
            in_mbps: mbps(totals.arrived, last.arrived),
            out_mbps: mbps(totals.sent, last.sent),
            queued_bytes: status.peers.iter().map(|peer| peer.queued_bytes).sum(),
            queueing_ms: status.peers.iter().filter_map(|peer| peer.queueing_ms).fold(0.0, f64::max),
            loss: if sent_here == 0 { 0.0 } else { lost as f64 / sent_here as f64 },
        };
        if kept.samples.len() == SAMPLES {
            kept.samples.pop_front();
        }
        kept.samples.push_back(sample);
    }
}

fn totals(status: &Status) -> Totals {
    let mut totals = Totals { uptime: status.uptime_s, ..Totals::default() };
    for peer in &status.peers {
        match peer.side {
            Side::Upstream => {
                totals.arrived += peer.bytes;
                totals.packets += peer.packets;
                totals.lost += peer.lost;
            }
            Side::Downstream => totals.sent += peer.bytes,
        }
    }
    totals
}
