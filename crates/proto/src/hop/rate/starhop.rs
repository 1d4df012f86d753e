use super::phantom::{Phantom, Sight};
use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// The standing queue that is aimed at on a link of [`TARGET_AT_BPS`]; it goes with the inverse square root of
/// the rate. Large enough to see, small against a hop. That it falls with the rate is what makes controllers
/// that share a link without sharing an estimate converge: the faster one aims at less queue and gives way
/// (the argument of FAST, Wei et al. 2006, with a gentler slope).
const TARGET_QUEUE: f64 = 0.6e-3;
const TARGET_AT_BPS: f64 = 20.0e6;
/// Below this, clocks and schedulers of real machines make queues that are none.
const MIN_TARGET: f64 = 0.3e-3;
/// The target is never less than this many packets: a packet sees those of its own burst before it.
const MIN_TARGET_PACKETS: f64 = 1.0;
/// From this share of the target on, the link counts as full and its rate as measured.
const QUEUE_SEEN: f64 = 0.3;

/// How fast the noise of the delay is learnt, what passes for none, and the most that is believed.
const NOISE_GAIN: f64 = 1.0 / 16.0;
const NOISE_FREE_PACKETS: f64 = 2.0;
const PEAK_DECAY: f64 = 0.999;
const NOISE_MARGIN: f64 = 4.0;
const NOISE_CEILING: f64 = 20.0e-3;

/// Growth per hopRTT while the link is not full: doubling until it was full once, afterwards from 4 % doubling
/// up to 25 %, so that a link that regains a fifth of its capacity is full again after three hopRTTs.
const STARTUP_GROWTH: f64 = 2.0;
const FIRST_GROWTH: f64 = 0.04;
const MAX_GROWTH: f64 = 0.25;
/// A rate is never granted further above what arrives than this, nor lowered faster.
const MAX_LEAD: f64 = 2.0;
const MAX_RAISE: f64 = 0.05;
const MAX_CUT: f64 = 0.4;
/// How fast the grant of a sender that does not use it up is lowered per interval when it queues all the same.
const GENTLE_CUT: f64 = 0.9;
/// Room that a hop keeps above what it carries when it is not the bottleneck: repairs and a bottleneck that
/// opens up must not find it closed.
const HEADROOM: f64 = 1.5;
/// … but no more than this above what it is known to carry: a sender that runs dry for a moment would
/// otherwise come back with a burst.
const CAPACITY_MARGIN: f64 = 1.02;
const CAPACITY_KNOWN: Duration = Duration::from_secs(10);
/// How far the grant of such a sender is lowered when it queues: just below what arrives, so that the queue
/// drains, and not even that far where the delay is noisy and the queue may be none.
const FLOOR: f64 = 0.95;
const LEAST_HEADROOM: f64 = 1.2;

/// A standing queue hides the length of the path: after this long without an empty queue it is drained, by a
/// tenth of the rate for as long as that takes (a millisecond of queue: 0.02 % of the capacity).
const DRAIN_EVERY: Duration = Duration::from_secs(4);
const DRAIN: f64 = 0.9;
const DRAIN_HORIZONS: f64 = 2.0;
/// A queue that stays above twice its target for this long is one, however noisy the delay is.
const STANDING: Duration = Duration::from_millis(250);
/// From this share of the target down, the queue counts as empty.
const QUEUE_EMPTY: f64 = 0.15;

/// Grants remembered, one per interval: with those of half a hopRTT, four hopRTTs.
const GRANTS: usize = 8;

/// A block of packets is judged for loss; loss well above the usual means a policer or a short queue, which
/// delay does not show.
const LOSS_BLOCK: u32 = 128;
const LOSS_ALARM: f64 = 0.15;

/// An interval must hold this many packets to be judged.
const MIN_PACKETS: u32 = 4;
/// The least that may be granted: a hop must be able to find out that it got better.
const MIN_RATE: f64 = 16_000.0;

/// What arrived since the interval began.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Instant,
    /// A packet that arrives later than this ends a pause, of the sender or of the path, and tells no rate.
    silent_at: Instant,
    packets: u32,
    /// Bytes that left the sender, by its counter: what a lossy link carried, it had capacity for.
    sent_bytes: u64,
    received_bytes: u64,
    /// Packets whose sender was held by the grant.
    held: u32,
    min_hop_rtt: Duration,
    /// Sum of the hopRTTs, for their mean.
    hop_rtts: Duration,
}

impl Interval {
    fn starting(at: Instant) -> Self {
        Self {
            from: at,
            silent_at: Instant::from_nanos(u64::MAX),
            packets: 0,
            sent_bytes: 0,
            received_bytes: 0,
            held: 0,
            min_hop_rtt: Duration::MAX,
            hop_rtts: Duration::ZERO,
        }
    }
}

/// Ours: measures the capacity of a link while a small queue shows that it is full, and holds that queue.
///
/// Every half hopRTT the smallest hopRTT of the interval tells the standing queue (a jitter of milliseconds on
/// single packets does not), and the counter of the hop tells what the link carried, losses included. With a
/// queue, `rate = carried · (1 + (target - queue) / horizon)`; without one and with a sender that is held by the
/// grant, the rate grows; without one and with a sender that has no more to send, it keeps room.
#[derive(Debug)]
pub struct Starhop {
    packet_bits: f64,
    rate: f64,
    growth: f64,
    in_startup: bool,
    interval: Option<Interval>,
    raised_at: Option<Instant>,
    /// Packets in a row that saw a long queue during startup.
    queued_in_a_row: u32,
    /// The last grants and when each was decided.
    grants: [(Instant, f64); GRANTS],
    /// What the link carried when it was last full of packets that waited for it, and when that was.
    capacity: Option<(f64, Instant)>,
    /// The most that was carried lately.
    peak: f64,
    phantom: Phantom,
    /// When the queue was last empty.
    empty_at: Instant,
    /// When the queue was last no longer than noise explains.
    short_at: Instant,
    /// What is granted while a queue is drained.
    drain_rate: f64,
    /// How much hopRTTs differ that saw the same queue, seconds: the clocks' and schedulers' doing.
    noise: f64,
    last_min: Duration,
    usual_loss: f64,
    block_sent: u32,
    block_lost: u32,
    calm_until: Instant,
}

impl Starhop {
    /// Starts at `initial`, with packets of `packet` bytes on the wire.
    pub fn new(initial: Rate, packet: u64) -> Self {
        Self {
            packet_bits: packet as f64 * 8.0,
            rate: initial.as_bps() as f64,
            growth: STARTUP_GROWTH - 1.0,
            in_startup: true,
            interval: None,
            raised_at: None,
            queued_in_a_row: 0,
            grants: [(Instant::ZERO, f64::INFINITY); GRANTS],
            capacity: None,
            peak: 0.0,
            phantom: Phantom::default(),
            empty_at: Instant::ZERO,
            short_at: Instant::ZERO,
            drain_rate: 0.0,
            noise: 0.0,
            last_min: Duration::ZERO,
            usual_loss: 0.0,
            block_sent: 0,
            block_lost: 0,
            calm_until: Instant::ZERO,
        }
    }

    fn target(&self, carried: f64) -> f64 {
        let by_rate = TARGET_QUEUE * libm::sqrt(TARGET_AT_BPS / carried);
        let base = by_rate.max(MIN_TARGET).max(MIN_TARGET_PACKETS * self.packet_bits / carried);
        // A little noise is added, much of it has to be stood out from.
        base + self.noise + NOISE_MARGIN * (self.noise - base / 2.0).max(0.0)
    }

    /// Delays that vary by themselves hide a small queue: the target has to stand out from them. What varies
    /// within an interval and what its minimum does from one to the next are counted, less what packets of
    /// one burst see of each other.
    fn learn_noise(&mut self, interval: &Interval, carried: f64) {
        let mean = interval.hop_rtts.as_secs_f64() / f64::from(interval.packets);
        let within = mean - interval.min_hop_rtt.as_secs_f64();
        let between = (interval.min_hop_rtt.as_secs_f64() - self.last_min.as_secs_f64()).abs();
        self.peak = carried.max(self.peak * PEAK_DECAY);
        let burst = NOISE_FREE_PACKETS * self.packet_bits / self.peak;
        let noise = (within + between.min(NOISE_CEILING) - burst).clamp(0.0, NOISE_CEILING);
        self.noise += (noise - self.noise) * NOISE_GAIN;
        self.last_min = interval.min_hop_rtt;
    }

    /// Whether delays vary by themselves by a good part of the queue that is aimed at.
    fn is_noisy(&self, carried: f64) -> bool {
        5.0 * self.noise > self.target(carried)
    }

    /// The doubling overshoots within one hopRTT: it ends with the first packets that see a queue, not with
    /// the interval.
    fn watch_startup(&mut self, delivery: &Delivery, rtt: &HopRtt, carried: Option<f64>) {
        let limit = (rtt.min().as_secs_f64() / 8.0).max(2.0 * self.target(self.rate));
        let queue = delivery.hop_rtt.saturating_sub(rtt.min()).as_secs_f64();
        self.queued_in_a_row = if queue > limit { self.queued_in_a_row + 1 } else { 0 };
        if self.queued_in_a_row >= MIN_PACKETS {
            self.leave_startup();
            self.rate = carried.unwrap_or(self.rate / STARTUP_GROWTH).min(self.rate);
        }
    }

    fn leave_startup(&mut self) {
        self.in_startup = false;
        self.growth = FIRST_GROWTH;
    }

    /// A full link: hold the queue at its target.
    fn steer(&mut self, now: Instant, carried: f64, queue: f64, is_held: bool, horizon: f64) {
        let target = self.target(carried);
        let steered = carried * (1.0 + ((target - queue) / horizon).clamp(-MAX_CUT, MAX_RAISE));
        let rate = self.drained(now, carried, horizon).map_or(steered, |drained| steered.min(drained));
        if is_held {
            self.capacity = Some((carried, now));
        }
        // A sender that has no more to send says little about what the link could carry, even if it queues.
        self.rate = match (is_held, queue > target) {
            (true, _) => rate,
            (false, true) => {
                rate.max(self.rate * GENTLE_CUT).max(self.room_above(now, carried)).min(self.rate)
            }
            (false, false) => self.rate.max(rate),
        };
        self.leave_startup();
    }

    /// The rate at which a queue that has stood for too long is drained, while that lasts: until it is empty, or
    /// for a few hopRTTs.
    fn drained(&mut self, now: Instant, carried: f64, horizon: f64) -> Option<f64> {
        let overdue = now.since(self.empty_at).saturating_sub(DRAIN_EVERY);
        if overdue.is_zero() {
            self.drain_rate = DRAIN * carried;
            return None;
        }
        if overdue.as_secs_f64() > DRAIN_HORIZONS * horizon {
            self.empty_at = now;
            return None;
        }
        Some(self.drain_rate)
    }

    /// The least that a sender keeps that does not use up its grant. In noise it has to lie above what arrives:
    /// hops that each give way to the one above would otherwise lower each other without end.
    /// A queue that stands is none of noise's doing: the repairs of a lossy hop on top of what a link of the same rate
    /// brings make it grow without ever being held by the grant.
    fn room_above(&self, now: Instant, carried: f64) -> f64 {
        if !self.is_noisy(carried) || now.since(self.short_at) > STANDING {
            return FLOOR * carried;
        }
        (LEAST_HEADROOM * carried).min(self.capacity.map_or(f64::INFINITY, |(capacity, _)| capacity))
    }

    /// A link that is not full.
    fn grow(&mut self, now: Instant, carried: f64, is_held: bool, rtt: &HopRtt) {
        if now < self.calm_until || self.raised_at.is_some_and(|at| now.since(at) < rtt.smoothed()) {
            return;
        }
        self.raised_at = Some(now);
        if is_held {
            self.rate = (self.rate.max(carried) * (1.0 + self.growth)).min(self.rate.max(MAX_LEAD * carried));
            if !self.in_startup {
                self.growth = (2.0 * self.growth).min(MAX_GROWTH);
            }
        } else {
            self.capacity = self.capacity.filter(|(_, at)| now.since(*at) < CAPACITY_KNOWN);
            let ceiling = self.capacity.map_or(f64::INFINITY, |(capacity, _)| CAPACITY_MARGIN * capacity);
            self.rate = self.rate.max((HEADROOM * carried).min(ceiling));
            self.growth = if self.in_startup { self.growth } else { FIRST_GROWTH };
        }
    }

    fn end_interval(&mut self, now: Instant, interval: Interval, rtt: &mut HopRtt) {
        let span = now.since(interval.from).as_secs_f64();
        let carried = (interval.sent_bytes as f64 * 8.0 / span).max(MIN_RATE);
        // The smallest hopRTT was seen when a packet took as long as it does at the peak rate.
        let slower = self.packet_bits / carried - self.packet_bits / self.peak.max(carried);
        let queue = (interval.min_hop_rtt.saturating_sub(rtt.min()).as_secs_f64() - slower).max(0.0);
        let is_held = 2 * interval.held >= interval.packets;
        self.learn_noise(&interval, carried);
        let target = self.target(carried);
        if queue <= QUEUE_EMPTY * target {
            self.empty_at = now;
        }
        if queue <= 2.0 * target {
            self.short_at = now;
        }
        let granted = self.granted(now, interval.min_hop_rtt);
        let (is_long, packet_bits) = (queue > target, self.packet_bits);
        let before = self.phantom.on_interval(Sight { span, carried, granted, queue, is_long, packet_bits });
        if let Some(before) = before {
            rtt.rebase(interval.min_hop_rtt);
            self.rate = self.rate.max(before);
        }
        let is_full = queue >= if self.in_startup { target } else { QUEUE_SEEN * target };
        if is_full {
            let horizon = 2.0 * (rtt.min().as_secs_f64() + span);
            self.steer(now, carried, queue, is_held, horizon);
        } else {
            self.grow(now, carried, is_held, rtt);
        }
        self.rate = self.rate.max(MIN_RATE);
        self.grants.rotate_right(1);
        self.grants[0] = (now, self.rate);
    }

    /// The least and the most that was granted to what arrives now: that of a hopRTT ago, and up to one more for the
    /// feedback and the packets that waited.
    fn granted(&self, now: Instant, hop_rtt: Duration) -> Option<(f64, f64)> {
        let span = now.before(hop_rtt.scaled(2, 1))..=now.before(hop_rtt);
        let grants = || self.grants.iter().filter(|(at, _)| span.contains(at)).map(|(_, grant)| *grant);
        Some((grants().reduce(f64::min)?, grants().reduce(f64::max)?))
    }

    fn watch_loss(&mut self, delivery: &Delivery, received: impl FnOnce() -> Option<f64>, rtt: &HopRtt) {
        self.block_sent += delivery.advance;
        self.block_lost += delivery.lost;
        if self.block_sent < LOSS_BLOCK {
            return;
        }
        let loss = f64::from(self.block_lost) / f64::from(self.block_sent);
        (self.block_sent, self.block_lost) = (0, 0);
        if loss > LOSS_ALARM + 1.5 * self.usual_loss {
            self.leave_startup();
            self.rate = received().unwrap_or(self.rate / 2.0).min(self.rate);
            self.calm_until = delivery.now + rtt.smoothed().scaled(8, 1);
        } else {
            self.usual_loss += (loss - self.usual_loss) / 8.0;
        }
    }
}

impl RateController for Starhop {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &mut HopRtt) {
        let now = delivery.now;
        let Some(interval) = self.interval.as_mut().filter(|interval| now < interval.silent_at) else {
            self.interval = Some(Interval::starting(now));
            return;
        };
        let packet_time = Duration::from_secs_f64(self.packet_bits / self.rate);
        interval.silent_at = now + packet_time.scaled(8, 1) + rtt.smoothed().scaled(2, 1);
        interval.packets += 1;
        interval.sent_bytes += delivery.bytes * u64::from(delivery.advance);
        interval.received_bytes += delivery.bytes;
        interval.held += u32::from(delivery.backlog);
        interval.min_hop_rtt = interval.min_hop_rtt.min(delivery.hop_rtt);
        interval.hop_rtts += delivery.hop_rtt;
        let interval = *interval;
        let span = now.since(interval.from);
        let per_second = |bytes: u64| {
            (interval.packets >= MIN_PACKETS && !span.is_zero())
                .then(|| bytes as f64 * 8.0 / span.as_secs_f64())
        };
        if self.in_startup {
            self.watch_startup(&delivery, rtt, per_second(interval.sent_bytes));
        }
        self.watch_loss(&delivery, || per_second(interval.received_bytes), rtt);
        let length = rtt.min().scaled(1, 2).max(Duration::from_millis(1)).min(Duration::from_millis(50));
        if interval.packets >= MIN_PACKETS && span >= length {
            self.end_interval(now, interval, rtt);
            self.interval = Some(Interval::starting(now));
        }
    }

    fn rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }
}
