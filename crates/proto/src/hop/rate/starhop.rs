use super::base::{Base, Seen, Verdict};
use super::policer::{Alarm, Bound, Policer};
use super::rivals::{Rivalry, Sight, Watch};
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

/// Growth per hopRTT while the link is not full: doubling until it was full once, afterwards from 4 % doubling
/// up to 25 %, so that a link that regains a fifth of its capacity is full again after three hopRTTs.
const STARTUP_GROWTH: f64 = 2.0;
const FIRST_GROWTH: f64 = 0.04;
const MAX_GROWTH: f64 = 0.25;
/// A queue of less than this part of the round trip does not end the doubling, which makes up to half of one in a round trip.
/// A few requests that leave together wait for each other by as much on a slow way back.
const STARTUP_QUEUE: f64 = 1.0 / 128.0;
/// Bounds of a grant: at most this multiple of the arriving rate; and the largest steps up and down.
const MAX_LEAD: f64 = 2.0;
const MAX_RAISE: f64 = 0.05;
const MAX_CUT: f64 = 0.4;
/// Factor per interval of the grant of a sender that does not use up its grant but queues all the same.
const GENTLE_CUT: f64 = 0.9;
/// Factor of the grant over the carried rate when the hop is not the bottleneck: repairs, and a bottleneck that
/// opens up, need the room.
const HEADROOM: f64 = 1.5;
/// … but no more than this above its known capacity: a sender that runs dry for a moment would otherwise come back
/// with a burst.
const CAPACITY_MARGIN: f64 = 1.02;
const CAPACITY_KNOWN: Duration = Duration::from_secs(10);
/// Lowest grant of such a sender when it queues, as a share of the arriving rate: just below it, so that the queue
/// drains, and not even that low if the delay is noisy and the queue may be none.
const FLOOR: f64 = 0.95;
/// The share of packets with a held sender from which on the grant counts as the limit of the rate: in an interval,
/// and in noise over several, with this gain.
const HELD: f64 = 0.5;
const HELD_IN_NOISE: f64 = 0.9;
const HELD_GAIN: f64 = 0.25;
/// From this patience on, delays vary by themselves by a large part of the target of the queue.
const NOISY: f64 = 1.05;

/// The share of the rate at which a standing queue is drained, so that the base delay shows.
const DRAIN: f64 = 0.9;

/// Others that are back this soon had not gone.
const RIVALS_BACK: Duration = Duration::from_secs(10);

/// Grants remembered, one per interval: with those of half a hopRTT, four hopRTTs.
const GRANTS: usize = 8;

/// A block of packets is judged for loss; loss well above the usual means a policer or a short queue, which
/// delay does not show.
const LOSS_BLOCK: u32 = 128;
const LOSS_ALARM: f64 = 0.15;
/// Up to this share of loss a block has passed; up to this many targets no queue stands.
const LOSS_PASSED: f64 = 0.01;
const NO_QUEUE: f64 = 2.0;

/// An interval must hold this many packets to be judged.
const MIN_PACKETS: u32 = 4;
/// The least that may be granted: a hop must be able to find out that it got better.
const MIN_RATE: f64 = 16_000.0;
/// Up to this rate growth doubles it: an interval of four packets takes 3 s at the least rate, and a quarter more after each
/// would keep a link that was gone for a moment at it for 15 s.
const UNKNOWN_RATE: f64 = 8.0 * MIN_RATE;

/// Arrivals since the interval began.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Instant,
    /// A packet that arrives later than this ends a pause, of the sender or of the path, and shows no rate.
    silent_at: Instant,
    packets: u32,
    /// Bytes that left the sender: a lossy link had capacity for them all.
    sent_bytes: u64,
    received_bytes: u64,
    /// Packets whose sender was held by the grant.
    held: u32,
    min_hop_rtt: Duration,
    max_hop_rtt: Duration,
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
            max_hop_rtt: Duration::ZERO,
            hop_rtts: Duration::ZERO,
        }
    }
}

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
    growth: f64,
    in_startup: bool,
    interval: Option<Interval>,
    /// Start of the round of growth, and the rate then.
    raised_at: Option<Instant>,
    raised_from: f64,
    /// Packets in a row that saw a long queue during startup.
    queued_in_a_row: u32,
    /// The last grants and when each was decided.
    grants: [(Instant, f64); GRANTS],
    /// The rate that the link carried when it was last full of packets that waited for it, and the time of that.
    capacity: Option<(f64, Instant)>,
    base: Base,
    watch: Watch,
    /// Set while others fill the queue of the link.
    rivalry: Option<Rivalry>,
    /// Time at which the others seemed to have gone.
    rivals_left_at: Option<Instant>,
    was_noisy: bool,
    /// Share of packets lately whose sender was held by the grant.
    held: f64,
    /// The grant while a queue is drained.
    drain_rate: f64,
    usual_loss: f64,
    block_sent: u32,
    block_lost: u32,
    block_bytes: u64,
    block_from: Instant,
    policer: Policer,
    train: Train,
    calm_until: Instant,
    /// Arrival of the last packet.
    last_at: Instant,
}

/// Interval over which arrivals are counted before they are judged.
fn interval_of(rtt: &HopRtt) -> Duration {
    rtt.min().scaled(1, 2).max(Duration::from_millis(1)).min(Duration::from_millis(50))
}

impl Starhop {
    /// Starts at `initial`, with packets of `packet` bytes on the wire.
    pub fn new(initial: Rate, packet: u64) -> Self {
        Self {
            packet_bits: packet as f64 * 8.0,
            rate: initial.as_bps() as f64,
            initial: initial.as_bps() as f64,
            growth: STARTUP_GROWTH - 1.0,
            in_startup: true,
            interval: None,
            raised_at: None,
            raised_from: 0.0,
            queued_in_a_row: 0,
            grants: [(Instant::ZERO, f64::INFINITY); GRANTS],
            capacity: None,
            base: Base::new(),
            watch: Watch::default(),
            rivalry: None,
            rivals_left_at: None,
            was_noisy: false,
            held: 0.0,
            drain_rate: 0.0,
            usual_loss: 0.0,
            block_sent: 0,
            block_lost: 0,
            block_bytes: 0,
            block_from: Instant::ZERO,
            policer: Policer::default(),
            train: Train::new(initial.time_for(packet)),
            calm_until: Instant::ZERO,
            last_at: Instant::ZERO,
        }
    }

    /// The queue to aim at on a link without noise.
    fn usual_target(&self, carried: f64) -> f64 {
        let by_rate = TARGET_QUEUE * libm::sqrt(TARGET_AT_BPS / carried);
        by_rate.max(MIN_TARGET).max(MIN_TARGET_PACKETS * self.packet_bits / carried)
    }

    /// The doubling overshoots within one hopRTT: it ends with the first packets that see a queue, not with
    /// the interval.
    fn watch_startup(&mut self, delivery: &Delivery, rtt: &HopRtt, carried: Option<f64>) {
        let limit = (rtt.min().as_secs_f64() / 8.0).max(2.0 * self.base.target(self.usual_target(self.rate)));
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
    fn steer(&mut self, now: Instant, carried: f64, verdict: &Verdict, is_held: bool, span: f64) {
        let Verdict { base, queue, target, patience, is_drain_due, .. } = *verdict;
        let horizon = 2.0 * (base + span) * patience;
        let steered = carried * (1.0 + ((target - queue) / horizon).clamp(-MAX_CUT, MAX_RAISE));
        let rate = if is_drain_due { steered.min(self.drain_rate) } else { steered };
        let is_noisy = patience >= NOISY;
        if is_held && (!is_noisy || queue >= target) {
            self.capacity = Some((carried, now));
        }
        // A sender that has no more to send shows little about the capacity of the link, even if it queues.
        self.rate = match (is_held, queue > target) {
            (true, _) => rate,
            (false, true) => {
                rate.max(self.rate * GENTLE_CUT).max(self.room_above(carried, verdict)).min(self.rate)
            }
            (false, false) => self.rate.max(rate),
        };
        self.leave_startup();
    }

    /// The lowest grant of a sender that does not use up its grant. In noise it has to lie above the arriving rate:
    /// otherwise hops that each give way to the one above would lower each other without end. A standing queue is
    /// not due to noise: the repairs of a lossy hop, in addition to the packets of an equally fast link above, make
    /// it grow although the grant never holds the sender.
    fn room_above(&self, carried: f64, verdict: &Verdict) -> f64 {
        if verdict.patience < NOISY || verdict.is_standing {
            return FLOOR * carried;
        }
        (HEADROOM * carried).min(self.capacity.map_or(f64::INFINITY, |(capacity, _)| capacity))
    }

    /// A link that is not full.
    fn grow(&mut self, now: Instant, carried: f64, is_held: bool, rtt: &HopRtt) {
        if now < self.calm_until {
            return;
        }
        let is_due = self.raised_at.is_none_or(|at| now.since(at) >= rtt.smoothed());
        if is_due {
            (self.raised_at, self.raised_from) = (Some(now), self.rate.max(carried));
        }
        if is_held && self.in_startup {
            let doubled = (STARTUP_GROWTH * self.raised_from).min(MAX_LEAD * carried);
            self.rate = self.rate.max(doubled);
            return;
        }
        if !is_due {
            return;
        }
        if is_held {
            let growth = if self.rate <= UNKNOWN_RATE { STARTUP_GROWTH - 1.0 } else { self.growth };
            self.rate = (self.rate.max(carried) * (1.0 + growth)).min(self.rate.max(MAX_LEAD * carried));
            self.growth = (2.0 * self.growth).min(MAX_GROWTH);
        } else {
            self.capacity = self.capacity.filter(|(_, at)| now.since(*at) < CAPACITY_KNOWN);
            let ceiling = self.capacity.map_or(f64::INFINITY, |(capacity, _)| CAPACITY_MARGIN * capacity);
            self.rate = self.rate.max((HEADROOM * carried).min(ceiling));
            self.growth = if self.in_startup { self.growth } else { FIRST_GROWTH };
        }
    }

    /// Returns the base delay when the path has become longer.
    fn end_interval(&mut self, now: Instant, interval: Interval, rtt: &HopRtt) -> Option<Duration> {
        let span = now.since(interval.from).as_secs_f64();
        let carried = (interval.sent_bytes as f64 * 8.0 / span).max(MIN_RATE);
        let held = f64::from(interval.held) / f64::from(interval.packets);
        self.held += HELD_GAIN * (held - self.held);
        let mut sight = Sight {
            now,
            delay: interval.min_hop_rtt.as_secs_f64(),
            queue: 0.0,
            target: self.base.target(self.usual_target(carried)),
            carried,
            packet: self.packet_bits / carried,
            is_held: held >= HELD,
            is_longer: false,
        };
        if let Some(rivalry) = &mut self.rivalry {
            let have_gone = rivalry.on_interval(sight);
            let (rate, base) = (rivalry.rate(), rivalry.base());
            self.grant(now, rate);
            if let Some(before) = have_gone {
                self.leave_rivalry(before);
                return Some(Duration::from_secs_f64(base.min(rtt.min().as_secs_f64())));
            }
            return None;
        }
        let verdict = self.base.on_interval(Seen {
            now,
            span,
            carried,
            granted: self.granted(now, interval.min_hop_rtt),
            floor: rtt.min().as_secs_f64(),
            least: interval.min_hop_rtt.as_secs_f64(),
            mean: interval.hop_rtts.as_secs_f64() / f64::from(interval.packets),
            most: interval.max_hop_rtt.as_secs_f64(),
            usual_target: self.usual_target(carried),
            packet_bits: self.packet_bits,
        });
        sight.queue = verdict.queue;
        sight.target = verdict.target;
        sight.is_longer = verdict.longer.is_some();
        if let Some(before) = self.watch.on_interval(sight) {
            self.enter_rivalry(sight, before, rtt);
            return None;
        }
        let carried = verdict.carried;
        // The grant holds clumps of arrivals from further up for moments, although it is not used up.
        let is_noisy = verdict.patience >= NOISY;
        let is_held = if is_noisy { self.held >= HELD_IN_NOISE } else { held >= HELD };
        if is_noisy && !core::mem::replace(&mut self.was_noisy, is_noisy) {
            // The apparently full link was noise.
            (self.capacity, self.growth) = (None, MAX_GROWTH);
            if self.base.is_young() {
                (self.in_startup, self.growth) = (true, STARTUP_GROWTH - 1.0);
            }
        }
        self.was_noisy = is_noisy;
        if !verdict.is_drain_due {
            self.drain_rate = DRAIN * carried;
        }
        if let Some(before) = verdict.longer {
            self.rate = self.rate.max(before);
        }
        let seen_from = if self.in_startup || (is_noisy && !is_held) { 1.0 } else { QUEUE_SEEN };
        let least = if self.in_startup { STARTUP_QUEUE * rtt.min().as_secs_f64() } else { 0.0 };
        if verdict.queue >= least.max(seen_from * verdict.target) {
            self.steer(now, carried, &verdict, is_held, span);
        } else {
            self.grow(now, carried, is_held, rtt);
        }
        self.grant(now, self.rate);
        verdict.longer.map(|_| interval.min_hop_rtt)
    }

    fn grant(&mut self, now: Instant, rate: f64) {
        let rate = match self.policer.bound(now, self.packet_bits) {
            Bound::None => rate,
            Bound::Keep(most) => rate.min(most),
            Bound::Probe(least) => rate.max(least),
        };
        self.rate = rate.max(MIN_RATE);
        self.grants.rotate_right(1);
        self.grants[0] = (now, self.rate);
    }

    /// Others fill the queue: from now on they are competed with.
    fn enter_rivalry(&mut self, sight: Sight, before: f64, rtt: &HopRtt) {
        let packet = (self.packet_bits / 8.0) as u64;
        let base = self.watch.least().min(rtt.min().as_secs_f64());
        let believes_gone = self.rivals_left_at.is_none_or(|at| sight.now.since(at) > RIVALS_BACK);
        let rivalry = Rivalry::new(sight.now, packet, rtt.smoothed(), before, base, believes_gone);
        self.grant(sight.now, rivalry.rate());
        self.leave_startup();
        self.rivalry = Some(rivalry);
    }

    /// The others have gone, and the queue with them. What was learnt of the delay meanwhile was theirs.
    fn leave_rivalry(&mut self, before: f64) {
        self.rivalry = None;
        self.rivals_left_at = Some(self.last_at);
        self.base = Base::new();
        self.watch = Watch::default();
        (self.capacity, self.growth) = (None, MAX_GROWTH);
        self.rate = self.rate.max(before);
    }

    /// The least and the greatest grant for the present arrivals: the grants of a hopRTT ago, and up to one more
    /// for the feedback and the packets that waited.
    fn granted(&self, now: Instant, hop_rtt: Duration) -> Option<(f64, f64)> {
        let span = now.before(hop_rtt.scaled(2, 1))..=now.before(hop_rtt);
        let grants = || self.grants.iter().filter(|(at, _)| span.contains(at)).map(|(_, grant)| *grant);
        Some((grants().reduce(f64::min)?, grants().reduce(f64::max)?))
    }

    /// Counts losses for the loss rate. Losses after a silence of an interval's length do not count: the path was
    /// gone, which is an outage, not congestion.
    fn watch_loss(&mut self, delivery: &Delivery, received: impl FnOnce() -> Option<f64>, rtt: &HopRtt) {
        let silence = delivery.now.since(core::mem::replace(&mut self.last_at, delivery.now));
        if delivery.lost > 0 && silence >= interval_of(rtt) {
            return;
        }
        self.block_sent += delivery.sent;
        self.block_lost += delivery.lost;
        self.block_bytes += delivery.bytes;
        if self.block_sent < LOSS_BLOCK {
            return;
        }
        let loss = f64::from(self.block_lost) / f64::from(self.block_sent);
        (self.block_sent, self.block_lost) = (0, 0);
        self.watch_policer(delivery, loss, rtt);
        if loss > LOSS_ALARM + 1.5 * self.usual_loss {
            self.leave_startup();
            self.rate = received().unwrap_or(self.rate / 2.0).min(self.rate);
            self.calm_until = delivery.now + rtt.smoothed().scaled(8, 1);
        } else {
            self.usual_loss += (loss - self.usual_loss) / 8.0;
        }
    }

    /// A block of packets has ended, of which the share `loss` was lost.
    fn watch_policer(&mut self, delivery: &Delivery, loss: f64, rtt: &HopRtt) {
        let at = delivery.now;
        let from = core::mem::replace(&mut self.block_from, at);
        let bits = core::mem::take(&mut self.block_bytes) as f64 * 8.0;
        let span = at.since(from).as_secs_f64();
        if from == Instant::ZERO || span == 0.0 {
            return;
        }
        let queue = delivery.hop_rtt.saturating_sub(rtt.min()).as_secs_f64();
        let has_queue = queue > NO_QUEUE * self.base.target(self.usual_target(self.rate));
        let came = bits / span;
        if loss > LOSS_ALARM && !has_queue {
            self.policer.on_alarm(Alarm { at, sent: came / (1.0 - loss), came });
        } else if loss <= LOSS_PASSED {
            self.policer.on_passed(at, came);
        }
    }
}

impl RateController for Starhop {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        let now = delivery.now;
        let on_wire = self.train.on_packet(now, delivery.hop_rtt);
        if let Some(on_wire) = on_wire.filter(|_| self.raised_at.is_none()) {
            let link = delivery.bytes as f64 * 8.0 / on_wire.as_secs_f64();
            self.rate = self.initial.min(link).max(MIN_RATE);
        }
        let Some(interval) = self.interval.as_mut().filter(|interval| now < interval.silent_at) else {
            self.interval = Some(Interval::starting(now));
            return None;
        };
        let packet_time = Duration::from_secs_f64(self.packet_bits / self.rate);
        // The first packets come as two for a stranger's request, and the others a round trip later.
        let pause =
            if self.raised_at.is_none() { rtt.min().scaled(1, 2) } else { rtt.smoothed().scaled(2, 1) };
        interval.silent_at = now + packet_time.scaled(8, 1) + pause;
        interval.packets += 1;
        interval.sent_bytes += delivery.bytes * u64::from(delivery.sent);
        interval.received_bytes += delivery.bytes;
        interval.held += u32::from(delivery.backlog);
        interval.min_hop_rtt = interval.min_hop_rtt.min(delivery.hop_rtt);
        interval.max_hop_rtt = interval.max_hop_rtt.max(delivery.hop_rtt);
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
        if let Some(rivalry) = &mut self.rivalry {
            rivalry.on_delivery(delivery, rtt);
            self.rate = rivalry.rate().max(MIN_RATE);
        }
        let length = interval_of(rtt);
        if interval.packets < MIN_PACKETS || span < length {
            return None;
        }
        self.interval = Some(Interval::starting(now));
        self.end_interval(now, interval, rtt)
    }

    fn on_new_path(&mut self) {
        self.watch = Watch::default();
        self.base.forget();
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

    fn rate(&self) -> Rate {
        Rate::from_bps(self.rate as u64)
    }
}
