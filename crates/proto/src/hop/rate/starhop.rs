mod losses;

use super::base::{Base, Delays, Seen, Verdict};
use super::blocks::Blocks;
use super::capacity::Capacity;
use super::chirps::Chirps;
use super::clumps::Clumps;
use super::contest::{Contest, Tells};
use super::grants::Grants;
use super::growth::{Growth, HEADROOM, Spare};
use super::interval::{Interval, Intervals, LEAST_GAIN};
use super::leaps::{self, Leaps};
use super::overflow::{self, Overflow};
use super::policer::{Bound, Policer};
use super::pulses::{self, Pulses, Step};
use super::rivals::{Alone, Sight};
use super::train::Train;
use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Target of the standing queue on a link of [`TARGET_AT_BPS`]; it falls with the square root of the rate. Large
/// enough to measure, small against a hop. The fall with the rate makes controllers converge that share a link
/// without sharing an estimate: the faster one aims at less queue and gives way (the argument of FAST, Wei et al.
/// 2006, with a gentler slope).
const TARGET_QUEUE: f64 = 0.6e-3;
const TARGET_AT_BPS: f64 = 20.0e6;
/// Delays below this are noise from clocks and schedulers of real machines, not queueing.
const MIN_TARGET: f64 = 0.3e-3;
/// The target is never less than this many packets: a packet is delayed by those of its own burst before it.
const MIN_TARGET_PACKETS: f64 = 1.0;
/// From this share of the target on, the link counts as full and its rate as measured.
const QUEUE_SEEN: f64 = 0.3;
/// A queue of more targets is one, and no noise: no pulse has to show it.
const PULSED: f64 = 1.5;

/// A queue of less than this part of the round trip does not end the doubling, which makes up to half of one in a round trip.
/// A few requests that leave together wait for each other by as much on a slow way back.
const STARTUP_QUEUE: f64 = 1.0 / 128.0;
/// The largest steps of a grant up and down, while the link is full.
const MAX_RAISE: f64 = 0.05;
const MAX_CUT: f64 = 0.4;
/// Factor per interval of the grant of a sender that does not use up its grant but queues all the same.
const GENTLE_CUT: f64 = 0.9;
/// Lowest grant of such a sender when it queues, as a share of the arriving rate: just below it, so that the queue
/// drains, and not even that low if the delay is noisy and the queue may be none.
const FLOOR: f64 = 0.95;
/// The share of packets with a held sender from which on the grant counts as the limit of the rate: in an interval,
/// and in noise over several.
const HELD: f64 = 0.5;
const HELD_IN_NOISE: f64 = 0.9;

/// The share of the rate at which a standing queue is drained, so that the base delay shows.
const DRAIN: f64 = 0.9;

/// A grant shows in what comes after so many hopRTTs: numerator and denominator.
pub(super) const SETTLES: (u64, u64) = (5, 4);

/// Noise of more packets' times at the rate hides the delays within a chirp.
const CHIRP_NOISE: f64 = 2.0;

/// The spread of delays, as a multiple of the mean above the least.
const SPREAD: f64 = 2.0;

/// Up to this many targets no queue stands.
const NO_QUEUE: f64 = 2.0;

/// The least that may be granted: a hop must be able to find out that it got better.
pub(super) const MIN_RATE: f64 = 16_000.0;

/// Ours: measures the capacity of a link while a small queue shows that it is full, and holds that queue.
///
/// Every half hopRTT the smallest hopRTT of the interval shows the standing queue (jitter of milliseconds on single
/// packets does not disturb it), and the counter of the hop shows the carried rate, losses included. With a queue,
/// `rate = carried · (1 + (target - queue) / horizon)`; without one and with a sender that is held by the grant,
/// the rate grows; without one and with a sender that has no more to send, the grant keeps room above the carried
/// rate.
#[derive(Debug)]
pub struct Starhop {
    packet_bits: f64,
    rate: f64,
    /// The first rate, before anything is known of the link.
    initial: f64,
    growth: Growth,
    intervals: Intervals,
    grants: Grants,
    capacity: Capacity,
    base: Base,
    contest: Contest,
    /// Until then what comes was sent at a lower rate than this one, bit/s.
    settling: Option<(Instant, f64)>,
    was_noisy: bool,
    overflow: Overflow,
    /// The most that the link has shown to carry, bit/s: to the first packets, of whomever, and to blocks. It fades.
    link: f64,
    /// Share of packets lately whose sender was held by the grant.
    held: f64,
    /// The grant while a queue is drained.
    drain_rate: f64,
    blocks: Blocks,
    policer: Policer,
    train: Train,
    clumps: Clumps,
    chirps: Chirps,
    leaps: Leaps,
    pulses: Pulses,
}

/// Interval over which arrivals are counted before they are judged.
fn interval_of(rtt: &HopRtt) -> Duration {
    rtt.min().scaled(1, 2).max(Duration::from_millis(1)).min(Duration::from_millis(50))
}

impl Starhop {
    /// Starts at `initial`, with packets of `packet` bytes on the wire. `chirps` says whether the sender may be asked for chirps.
    pub fn new(initial: Rate, packet: u64, chirps: bool) -> Self {
        Self {
            packet_bits: packet as f64 * 8.0,
            rate: initial.as_bps() as f64,
            initial: initial.as_bps() as f64,
            growth: Growth::new(),
            intervals: Intervals::default(),
            grants: Grants::new(),
            capacity: Capacity::default(),
            base: Base::new(),
            contest: Contest::default(),
            settling: None,
            was_noisy: false,
            overflow: Overflow::default(),
            link: 0.0,
            held: 0.0,
            drain_rate: 0.0,
            blocks: Blocks::new(),
            policer: Policer::default(),
            train: Train::new(initial.time_for(packet)),
            clumps: Clumps::default(),
            chirps: Chirps::new(chirps),
            leaps: Leaps::default(),
            pulses: Pulses::default(),
        }
    }

    fn packet_bytes(&self) -> u64 {
        (self.packet_bits / 8.0) as u64
    }

    /// The queue to aim at on a link without noise.
    fn usual_target(&self, carried: f64) -> f64 {
        let by_rate = TARGET_QUEUE * libm::sqrt(TARGET_AT_BPS / carried);
        by_rate.max(MIN_TARGET).max(MIN_TARGET_PACKETS * self.packet_bits / carried)
    }

    /// A silence of this length is no gap between two packets.
    fn pause(&self, now: Instant, rtt: &HopRtt) -> Duration {
        // The first packets come as two for a stranger's request, and the others a round trip later.
        let path = if self.growth.has_begun() { rtt.smoothed().scaled(2, 1) } else { rtt.min().scaled(1, 2) };
        Duration::from_secs_f64(self.packet_bits / self.rate).scaled(8, 1)
            + path.max(self.clumps.silence(now))
    }

    /// A packet came while the grant doubles.
    fn watch_startup(&mut self, delivery: &Delivery, rtt: &HopRtt, carried: Option<f64>) {
        let limit = (rtt.min().as_secs_f64() / 8.0).max(2.0 * self.base.target(self.usual_target(self.rate)));
        let queue = delivery.hop_rtt.saturating_sub(rtt.floor()).as_secs_f64();
        let has_queue = queue > limit;
        if let Some(rate) = self.growth.watch_startup((has_queue, delivery.backlog), self.rate, carried) {
            self.rate = rate;
            self.leaps.forget();
        }
    }

    /// A full link: hold the queue at its target.
    fn steer(&mut self, now: Instant, carried: f64, verdict: &Verdict, is_held: bool) {
        let Verdict { queue, target, horizon, is_drain_due, .. } = *verdict;
        let steered = carried * (1.0 + ((target - queue) / horizon).clamp(-MAX_CUT, MAX_RAISE));
        let rate = if is_drain_due { steered.min(self.drain_rate) } else { steered };
        if is_held && (!verdict.is_noisy() || queue >= target) {
            self.capacity.learn(now, carried);
        }
        // A sender that has no more to send shows little about the capacity of the link, even if it queues.
        self.rate = match (is_held, queue > target) {
            (true, _) => rate,
            (false, true) => {
                rate.max(self.rate * GENTLE_CUT).max(self.room_above(carried, verdict)).min(self.rate)
            }
            (false, false) => self.rate.max(rate),
        };
        self.growth.leave_startup();
    }

    /// The lowest grant of a sender that does not use up its grant. In noise it has to lie above the arriving rate:
    /// otherwise hops that each give way to the one above would lower each other without end. A standing queue is
    /// not due to noise: the repairs of a lossy hop, in addition to the packets of an equally fast link above, make
    /// it grow although the grant never holds the sender.
    fn room_above(&self, carried: f64, verdict: &Verdict) -> f64 {
        if !verdict.is_noisy() || verdict.is_standing {
            return FLOOR * carried;
        }
        (HEADROOM * carried).min(self.capacity.most())
    }

    /// Returns the base delay when the path has become longer.
    fn end_interval(&mut self, now: Instant, interval: &Interval, rtt: &HopRtt) -> Option<Duration> {
        let carried = self.carried(now, interval, rtt).max(MIN_RATE);
        self.held += interval.gain(now) * (interval.held() - self.held);
        // The share of a link that we have beside others says little about its rate.
        let link = self.contest.rivalry().map_or(carried, |rivalry| carried.max(rivalry.before()));
        let usual_target = self.usual_target(link);
        let sight = Sight {
            now,
            delay: interval.least.as_secs_f64(),
            level: interval.least.as_secs_f64(),
            feedback: (interval.least + rtt.detained()).as_secs_f64(),
            base: rtt.floor().as_secs_f64(),
            queue: 0.0,
            target: self.base.target(usual_target),
            carried,
            packet: self.packet_bits / link,
            patience: 1.0,
            is_held: interval.held() >= HELD,
            is_longer: false,
        };
        let delays = self.delays(now, interval);
        if let Some(rivalry) = self.contest.rivalry() {
            let level = self.base.level(delays, usual_target).delay;
            let alone = rivalry.on_interval(Sight { level, ..sight });
            let rate = rivalry.rate();
            self.grant(now, rate);
            return alone.map(|alone| self.be_alone(now, alone, rtt));
        }
        if let Some(rate) = self.promised(now, interval, sight) {
            self.grant(now, rate);
            return None;
        }
        let verdict = self.judge(now, interval, delays, carried, rtt);
        self.on_verdict(now, interval, sight, verdict, rtt)
    }

    /// The rate that the link carries, bit/s.
    fn carried(&mut self, now: Instant, interval: &Interval, rtt: &HopRtt) -> f64 {
        if self.contest.rivalry().is_some() {
            return interval.sent_rate(now).unwrap_or_default();
        }
        let (rate, packet_bits, usual_loss) = (self.link(), self.packet_bits, self.blocks.usual());
        self.overflow.carried(now, interval, overflow::Hop { rtt, rate, packet_bits, usual_loss })
    }

    /// The grant while an offer of the contest goes on, or until what came shows the grant of now.
    fn promised(&mut self, now: Instant, interval: &Interval, sight: Sight) -> Option<f64> {
        if let Some(offer) = self.contest.offer() {
            return Some(offer);
        }
        // A queue that shows has been made by the new rate.
        let has_queue = sight.delay - sight.base > NO_QUEUE * sight.target;
        self.settling = self.settling.filter(|&(until, _)| now < until && !has_queue);
        let (_, rate) = self.settling?;
        self.base.skip(rate, interval.mean());
        Some(rate)
    }

    /// The delays of an interval have this meaning. Returns the base delay when the path has become longer.
    fn on_verdict(
        &mut self,
        now: Instant,
        interval: &Interval,
        sight: Sight,
        verdict: Verdict,
        rtt: &HopRtt,
    ) -> Option<Duration> {
        let sight = Sight {
            base: verdict.base,
            level: verdict.level,
            queue: verdict.queue,
            target: verdict.target,
            carried: verdict.carried,
            patience: verdict.patience,
            is_longer: verdict.longer.is_some(),
            ..sight
        };
        if let Some(rate) = self.leap(now, interval, &verdict, rtt) {
            self.grant(now, rate);
            return None;
        }
        let step = self.pulse(now, interval, &verdict, rtt);
        match step {
            Step::Hold(rate) => {
                self.grant(now, rate);
                return None;
            }
            // The queue is ours: nobody else is looked for.
            Step::Drain => {}
            Step::ByDelay | Step::Raise(_) => {
                if let Some(rate) = self.contest.watch(sight, self.packet_bytes(), rtt) {
                    // Others fill the queue: from now on they are competed with.
                    self.grant(now, rate);
                    self.growth.leave_startup();
                    return None;
                }
            }
        }
        self.follow(now, interval, &verdict, rtt, step);
        verdict.longer.map(|_| interval.least)
    }

    /// The delays of an interval. During startup the filters are slow: a queue that is none would end it, and growth afterwards takes
    /// ten times as long.
    fn delays(&self, now: Instant, interval: &Interval) -> Delays {
        let gain = if self.growth.is_startup() { LEAST_GAIN } else { interval.gain(now) };
        Delays { least: interval.least.as_secs_f64(), mean: interval.mean(), gain }
    }

    /// The meaning of the delays of an interval.
    fn judge(
        &mut self,
        now: Instant,
        interval: &Interval,
        delays: Delays,
        carried: f64,
        rtt: &HopRtt,
    ) -> Verdict {
        self.base.on_interval(Seen {
            now,
            span: interval.span(now).as_secs_f64(),
            carried,
            granted: self.grants.of_arrivals(now, interval.least + rtt.detained()),
            floor: rtt.floor().as_secs_f64(),
            detained: rtt.detained().as_secs_f64(),
            delays,
            usual_target: self.usual_target(carried),
            packet_bits: self.packet_bits,
        })
    }

    /// Holds the queue of a full link, and grows on one that is not full, as one where `step` says so.
    fn follow(&mut self, now: Instant, interval: &Interval, verdict: &Verdict, rtt: &HopRtt, step: Step) {
        let carried = verdict.carried;
        // The grant holds clumps of arrivals from further up for moments, although it is not used up.
        let is_noisy = verdict.is_noisy();
        let is_held = if is_noisy { self.held >= HELD_IN_NOISE } else { interval.held() >= HELD };
        self.watch_noise(is_noisy);
        if !verdict.is_drain_due {
            self.drain_rate = DRAIN * carried;
        }
        if let Some(before) = verdict.longer {
            return self.settle(now, self.rate.max(before), interval.least + rtt.detained());
        }
        let span = interval.span(now).as_secs_f64();
        self.growth.learn(carried, span);
        let is_full = match step {
            Step::Raise(rate) => {
                self.base.rebase(verdict.target);
                self.rate = self.rate.max(rate);
                false
            }
            _ => self.seems_full(verdict, is_held, rtt),
        };
        if is_full {
            self.steer(now, carried, verdict, is_held);
        } else {
            let spare = Spare { carried, is_held, hop_rtt: rtt.smoothed(), room: self.chirps.room(now) };
            self.rate = self.growth.grow(now, self.rate, spare, || self.capacity.ceiling(now));
        }
        self.grant(now, self.rate);
    }

    /// The noise of the delays has just been found: the link that looked full before need not have been.
    fn watch_noise(&mut self, is_noisy: bool) {
        if is_noisy && !self.was_noisy {
            self.capacity.forget();
            self.growth.hurry();
            if self.base.is_young() {
                self.growth.begin_anew();
            }
        }
        self.was_noisy = is_noisy;
    }

    /// True if the delays look like a queue in front of a full link.
    fn seems_full(&self, verdict: &Verdict, is_held: bool, rtt: &HopRtt) -> bool {
        let is_startup = self.growth.is_startup();
        let seen_from = if is_startup || (verdict.is_noisy() && !is_held) { 1.0 } else { QUEUE_SEEN };
        let least = if is_startup { STARTUP_QUEUE * rtt.min().as_secs_f64() } else { 0.0 };
        verdict.queue >= least.max(seen_from * verdict.target)
    }

    /// Noise hides what chirps show.
    fn hides_chirps(&self) -> bool {
        self.base.noise() > CHIRP_NOISE * self.packet_bits / self.rate
    }

    /// In noise a long hop that was never full is offered far more for a moment. Returns the grant while that goes on, and what it has
    /// shown.
    fn leap(&mut self, now: Instant, interval: &Interval, verdict: &Verdict, rtt: &HopRtt) -> Option<f64> {
        let step = self.leaps.on_interval(leaps::Seen {
            now,
            hop_rtt: rtt.smoothed(),
            spread: self.base.noise().max(SPREAD * (interval.mean() - interval.least.as_secs_f64())),
            granted: self.rate,
            carried: verdict.carried.max(self.initial),
            is_wanted: self.growth.is_startup()
                && self.chirps.are_worth_it()
                && self.chirps.room(now).is_none()
                && (self.chirps.have_found_noise() || self.leaps.have_begun())
                && verdict.queue <= verdict.target
                && interval.held() >= HELD,
        });
        match step {
            leaps::Step::None => None,
            leaps::Step::Hold(rate) | leaps::Step::Carried(rate) => Some(rate),
            leaps::Step::Full(rate) => {
                self.growth.leave_startup();
                // Its noise is no reason to hurry.
                self.was_noisy = true;
                Some(rate)
            }
        }
    }

    /// In noise a link that seems to be full is offered more for a moment.
    fn pulse(&mut self, now: Instant, interval: &Interval, verdict: &Verdict, rtt: &HopRtt) -> Step {
        if verdict.longer.is_some() {
            // Nothing is known of the link that the path leads over now.
            self.pulses.forget();
            return Step::ByDelay;
        }
        if !verdict.is_noisy() {
            self.pulses.stop();
            return Step::ByDelay;
        }
        let queued = verdict.queue / verdict.target;
        let is_queue =
            (QUEUE_SEEN..=PULSED).contains(&queued) && !verdict.is_drain_due && !verdict.is_standing;
        self.pulses.on_interval(pulses::Seen {
            now,
            span: interval.span(now).as_secs_f64(),
            hop_rtt: rtt.smoothed(),
            granted: self.rate,
            carried: verdict.carried,
            received: interval.received_rate(now).unwrap_or_default(),
            delay: verdict.level,
            noise: self.base.noise(),
            seems_full: is_queue && self.held >= HELD && self.growth.is_calm(now),
            is_long: queued > PULSED,
        })
    }

    /// Grants `rate`, bit/s, after less had been offered than the link carries. What comes for a hopRTT from now on shows neither rate
    /// nor queue.
    fn settle(&mut self, now: Instant, rate: f64, hop_rtt: Duration) {
        self.pulses.stop();
        self.settling = Some((now + hop_rtt.scaled(SETTLES.0, SETTLES.1), rate));
        self.grant(now, rate);
    }

    fn grant(&mut self, now: Instant, rate: f64) {
        let rate = match self.policer.bound(now, self.packet_bits) {
            Bound::None => rate,
            Bound::Keep(most) => rate.min(most),
            Bound::Probe(least) => rate.max(least),
        };
        self.rate = rate.max(MIN_RATE);
        self.grants.add(now, self.rate);
    }

    /// Nobody else is there. Returns the base delay.
    fn be_alone(&mut self, now: Instant, alone: Alone, rtt: &HopRtt) -> Duration {
        let before = self.contest.rivalry().map_or(0.0, |rivalry| rivalry.before());
        self.contest.end(now, alone);
        self.capacity.forget();
        self.growth.be_alone(before);
        let (before, base) = match alone {
            Alone::Gone { before, base } => {
                // The delay that was learnt meanwhile was theirs.
                self.base = Base::new();
                (before, base.min(rtt.floor().as_secs_f64()))
            }
            Alone::Longer { before, base } => {
                self.base.forget();
                (before, base)
            }
        };
        self.rate = self.rate.max(before);
        Duration::from_secs_f64(base)
    }

    /// The rate of the link as far as it is known, bit/s: at least what is granted of it.
    fn link(&self) -> f64 {
        self.rate.max(self.link)
    }
}

impl RateController for Starhop {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        let now = delivery.now;
        let on_wire = self.train.on_packet(now, delivery.hop_rtt);
        if let Some(on_wire) = on_wire.filter(|_| !self.growth.has_begun()) {
            let link = delivery.bytes as f64 * 8.0 / on_wire.as_secs_f64();
            self.rate = self.initial.min(link).max(MIN_RATE);
            self.link = self.rate;
        }
        let delay = self.clumps.on_delivery(&delivery, self.rate());
        let interval = self.intervals.add(&delivery, delay, self.pause(now, rtt))?;
        if self.growth.is_looking() {
            self.chirps.on_packet(&delivery, rtt);
        }
        if let Some(rate) = self.leaps.rate(now).filter(|&rate| rate < self.rate) {
            self.grant(now, rate);
        }
        if delay.is_some() && self.growth.is_startup() && !self.leaps.on_packet(&delivery) {
            self.watch_startup(&delivery, rtt, interval.sent_rate(now));
        }
        let length = interval_of(rtt);
        if let Some(block) = self.blocks.add(&delivery, length, self.contest.doubts_losses()) {
            self.on_block(&delivery, block, &interval, rtt);
        }
        if let Some(rivalry) = self.contest.rivalry() {
            rivalry.on_delivery(delivery, rtt);
            self.rate = rivalry.rate().max(MIN_RATE);
        } else {
            if let Some(delay) = delay {
                self.base.on_packet(now, delay);
            }
            match self.contest.on_delivery(&delivery, self.packet_bytes(), rtt) {
                Some(Tells::Rate(rate)) => self.settle(now, rate, rtt.smoothed()),
                Some(Tells::Alone(alone)) => return Some(self.be_alone(now, alone, rtt)),
                None => {}
            }
        }
        if !interval.is_over(now, length) {
            return None;
        }
        self.intervals.begin(now);
        self.end_interval(now, &interval, rtt)
    }

    fn on_new_path(&mut self) {
        self.contest.on_new_path();
        self.base.forget();
        self.growth.forget();
        self.link = 0.0;
        self.chirps.forget();
        self.leaps.forget();
        self.pulses.forget();
    }

    fn noise(&self) -> Duration {
        Duration::from_secs_f64(self.base.noise())
    }

    fn is_ready(&self) -> bool {
        self.train.is_over()
    }

    fn policed(&self) -> Option<Rate> {
        self.policer.rate().map(|bps| Rate::from_bps(bps as u64))
    }

    fn has_shown_room(&self, now: Instant) -> bool {
        self.chirps.have_shown(now, self.rate) || self.leaps.have_shown(now)
    }

    fn wants_chirps(&self) -> bool {
        self.growth.is_looking()
            && self.chirps.are_worth_it()
            && !self.hides_chirps()
            && self.rate >= self.initial
    }

    fn rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::ways::Detained;

    const BASE: Duration = Duration::from_millis(50);

    /// A controller on a hop of 50 ms, which has seen packets one each `gap` for five seconds. From the second second on they are
    /// delayed by `queue` more; `backlog` says whether the grant held their sender.
    fn after(gap: Duration, queue: Duration, backlog: bool) -> (Starhop, Rate) {
        let first = Rate::from_mbps(14);
        let (mut controller, mut rtt) = (Starhop::new(first, 1_400, true), HopRtt::new(BASE));
        let (start, mut now) =
            (Instant::ZERO + Duration::from_secs(1), Instant::ZERO + Duration::from_secs(1));
        let mut before = first;
        while now.since(start) < Duration::from_secs(5) {
            let is_late = now.since(start) >= Duration::from_secs(1);
            before = if is_late { before } else { controller.rate() };
            let hop_rtt = if is_late { BASE + queue } else { BASE };
            rtt.on_echo(now, now.before(hop_rtt), Detained::default());
            let delivery =
                Delivery { now, bytes: 1_400, passed: 1, lost: 0, runs: 0, sent: 1, hop_rtt, backlog };
            controller.on_delivery(delivery, &rtt);
            now += gap;
        }
        (controller, before)
    }

    #[test]
    fn delays_that_a_sender_without_more_to_send_has_not_made_leave_its_grant() {
        // 0.56 Mbit/s of the first 14, while requests wait for 8 ms behind what this node sends.
        let (controller, before) = after(Duration::from_millis(20), Duration::from_millis(8), false);
        assert!(controller.rate() >= before, "{:?} of {before:?}", controller.rate());
    }

    #[test]
    fn a_queue_of_a_sender_that_is_held_by_its_grant_lowers_that() {
        let (controller, before) = after(Duration::from_millis(1), Duration::from_millis(8), true);
        assert!(controller.rate() < before.scaled(0.5), "{:?} of {before:?}", controller.rate());
    }
}
