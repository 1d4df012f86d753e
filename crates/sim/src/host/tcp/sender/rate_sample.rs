//! Delivery rate samples (draft-ietf-ccwg-bbr, section 4.1) and rounds.

use super::super::congestion::RateSample;
use super::scoreboard::{Delivery, Snapshot};
use starhop_proto::time::{Duration, Instant};

/// Progress of the connection, from which rate samples are made.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct RateMeter {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// The application had too little to send until this much is delivered.
    app_limited_until: u64,
    /// A round ends when something is acknowledged that was sent after this much was delivered.
    next_round: u64,
}

impl RateMeter {
    /// Segments delivered in the whole connection.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The progress to be stored with a segment that is sent now.
    pub(crate) fn snapshot(&mut self, now: Instant, in_flight: u32, lost: u64) -> Snapshot {
        if in_flight == 0 {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight: in_flight + 1,
            lost,
            is_app_limited: self.app_limited_until > 0,
        }
    }

    /// The application has nothing to send although it might.
    pub(crate) fn on_app_limited(&mut self, in_flight: u32) {
        self.app_limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Takes note of a delivery. Whether it begins a round, and the rate that it shows.
    pub(crate) fn on_delivery(
        &mut self,
        now: Instant,
        delivery: &Delivery,
        lost: u64,
        min_rtt: Duration,
    ) -> (bool, Option<RateSample>) {
        let Some(newest) = delivery.newest else { return (false, None) };
        self.delivered += u64::from(delivery.count);
        self.delivered_at = now;
        self.first_sent_at = newest.at;
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let before = newest.snapshot;
        let is_round_start = before.delivered >= self.next_round;
        if is_round_start {
            self.next_round = self.delivered;
        }
        let sending = newest.at.since(before.first_sent_at);
        let interval = sending.max(now.since(before.delivered_at));
        // Faster than the shortest round trip is an artefact of acknowledgements that came together.
        let sample = (interval >= min_rtt && !interval.is_zero()).then(|| RateSample {
            delivered: (self.delivered - before.delivered) as f64,
            interval,
            prior_delivered: before.delivered as f64,
            tx_in_flight: f64::from(before.in_flight),
            lost: (lost - before.lost) as f64,
            is_app_limited: before.is_app_limited,
        });
        (is_round_start, sample)
    }
}
