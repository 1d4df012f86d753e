use super::decoder::{Decoder, Equation, Restored};
use super::plan::{Hop, plan};
use super::weather::Weather;
use crate::hop::counter::Arrival;
use crate::hop::flood::is_flooded;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{CodePlan, DataHeader, ParityHeader};

/// Interval of the plan's reviews.
const REVIEW: Duration = Duration::from_secs(1);
/// Parity is expected to come if some has come within this time, or within two round trips.
const COMES: Duration = Duration::from_secs(1);
/// Allowed lateness of parity: as long as a missing packet counts as late.
const LATE: Duration = Duration::from_millis(10);

/// The Requester's half of a hop's code: the plan that it asks for, and the decoder.
#[derive(Clone, Debug, Default)]
pub struct HopCode {
    weather: Weather,
    plan: Option<CodePlan>,
    next_review: Instant,
    decoder: Decoder,
    last_parity: Option<Instant>,
    is_flooded: bool,
}

impl HopCode {
    /// A packet of the hop arrived.
    #[inline]
    pub fn on_arrival(&mut self, now: Instant, arrival: &Arrival) {
        let (lost, runs) = if self.is_flooded { (0, 0) } else { (arrival.lost, arrival.runs) };
        self.weather.on_arrival(now, arrival.advance, lost, runs);
        if arrival.is_found {
            self.weather.on_found();
        }
    }

    /// A packet waited for `queue` on a hop whose round trip is `least` without one. Parity for what runs over would run over as well.
    #[inline]
    pub fn on_queue(&mut self, queue: Duration, least: Duration) {
        self.is_flooded = is_flooded(queue, least);
    }

    /// So many packets were lost, by time.
    pub fn on_lost(&mut self, now: Instant, lost: u32) {
        let lost = if self.is_flooded { 0 } else { lost };
        self.weather.on_arrival(now, 0, lost, u32::from(lost > 0));
    }

    /// Data arrived as packet `number`.
    #[inline]
    pub fn on_data(&mut self, number: u64, header: &DataHeader, payload: &[u8]) {
        self.decoder.on_data(number, header, payload);
    }

    /// A packet that is neither Data nor Parity arrived.
    pub fn on_other(&mut self, number: u64) {
        self.decoder.on_other(number);
    }

    /// A Parity packet arrived as packet `number`.
    pub fn on_parity(&mut self, now: Instant, number: u64, header: &ParityHeader, sum: &[u8]) {
        self.last_parity = Some(now);
        if header.previous > 0 {
            self.decoder.on_other(number.saturating_sub(u64::from(header.previous)));
        }
        self.decoder.on_other(number);
        let back = header.counter.wrapping_sub(header.first);
        let Some(first) = number.checked_sub(u64::from(back)) else { return };
        self.decoder.on_sum(Equation { first, count: header.count, seed: header.seed, bytes: sum });
    }

    /// A packet that was restored.
    pub fn poll(&mut self) -> Option<Restored> {
        self.decoder.poll()
    }

    /// The neighbour counts from elsewhere.
    pub fn clear(&mut self) {
        self.decoder.clear();
    }

    /// Whether a review of the plan is due.
    pub fn is_review_due(&self, now: Instant) -> bool {
        now >= self.next_review
    }

    /// Looks at the plan again; `may_begin` says whether there is room for one more hop with a code.
    pub fn review(&mut self, now: Instant, (rtt, rate, packet): (Duration, Rate, u64), may_begin: bool) {
        self.next_review = now + REVIEW;
        let plan = plan(Hop { loss: self.weather.loss(), rtt, rate, packet });
        self.plan = plan.filter(|_| self.plan.is_some() || may_begin);
        self.decoder.keep(self.plan.map_or(0, |plan| plan.reach()));
    }

    /// The parity that is wanted.
    pub fn plan(&self) -> Option<CodePlan> {
        self.plan
    }

    /// Time after a loss shows for which parity may still repair it, on a hop of this round trip and rate.
    pub fn patience(&self, now: Instant, hop_rtt: Duration, rate: Rate, packet: u64) -> Duration {
        let comes = COMES.max(hop_rtt.scaled(2, 1));
        let Some(plan) = self.plan.filter(|_| self.last_parity.is_some_and(|at| now.since(at) < comes))
        else {
            return Duration::ZERO;
        };
        let busy = rate.time_for((plan.reach() as u64 + u64::from(plan.overlap)) * packet);
        let idle = Duration::from_millis(u64::from(plan.within));
        // Waiting longer than a repair takes is no use.
        (busy.max(idle) + LATE).min(hop_rtt)
    }
}
