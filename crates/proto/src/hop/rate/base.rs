//! The base delay of a hop, and the cause of delay above it: a queue, noise, or a longer path.

use super::interval::{LEAST_GAIN, MIN_PACKETS};
use super::longer::{Lasting, Longer, Sight};
use crate::lowest::Lowest;
use crate::time::{Duration, Instant};

/// Half of the span over which the base is remembered.
const HALF_WINDOW: Duration = Duration::from_secs(5);
/// Excursions of the delay are looked for in windows of this many slots of at least this long each, and of as many packets as an
/// interval has at least. Slots do not grow with the hopRTT, as intervals do: a change of capacity is no noise.
const SLOTS: usize = 8;
const SLOT: Duration = Duration::from_millis(10);
/// Number of windows whose median counts: a change of capacity shows in one or two.
const WINDOWS: usize = 8;
const FEWEST_WINDOWS: usize = 1;
/// Noise, as a multiple of the median: half of the windows are higher.
const SPREAD: f64 = 1.2;
/// Packets of one burst delay each other: their time on the wire is no noise. It is the least gap between two; what the link carries
/// tells nothing of it where that is far below what it could.
const NOISE_FREE_PACKETS: f64 = 2.0;
/// So much delays vary by the clocks and schedulers of real machines.
const MACHINES: f64 = 0.3e-3;
/// The most that is believed, seconds.
const NOISE_CEILING: f64 = 30.0e-3;
/// The queue that bridges the pauses of a link, as a share of the excursions that they make.
const BRIDGE: f64 = 0.9;
/// Height of delays above their trend, in usual targets, up to which the least delay of an interval shows the queue, and height from
/// which on its mean does. What machines do counts here: where the usual target is no longer, the least lies above that of seconds.
const QUIET: f64 = 0.5;
const NOISY: f64 = 1.0;
/// From this patience on, delays vary by themselves by a large part of the target of the queue.
const VARIES: f64 = 1.1;
/// Noise, in usual targets, in which a Requester is twice as patient.
const PATIENCE_AT: f64 = 8.0;

/// A standing queue hides the length of the path. After this long without an empty queue it is drained, for this
/// many horizons (a tenth of the rate for a millisecond of queue: 0.02 % of the capacity).
const DRAIN_EVERY: Duration = Duration::from_secs(4);
const DRAIN_HORIZONS: f64 = 2.0;
/// From this share of the target down, the queue counts as empty.
const QUEUE_EMPTY: f64 = 0.15;
/// A queue that stays above this many targets for this long is a standing queue, however noisy the delay is.
const STANDS: f64 = 1.2;
const STANDING: Duration = Duration::from_millis(250);
/// Decay of the greatest rate per interval.
const PEAK_DECAY: f64 = 0.999;

/// The least and the mean hopRTT of an interval, seconds, and the gain of the filters on the mean and on the carried rate, which replace
/// the interval's in noise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub(super) least: f64,
    pub(super) mean: f64,
    pub(super) gain: f64,
}

/// Measurements of an interval of arrivals. Delays in seconds, rates in bit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Instant,
    /// Length of the interval.
    pub(super) span: f64,
    /// The rate that the link carried.
    pub(super) carried: f64,
    /// The least and the greatest grant for the arrivals; `None` if they are unknown.
    pub(super) granted: Option<(f64, f64)>,
    /// The least hopRTT of any packet of the last 5 to 10 s, those after pauses included.
    pub(super) floor: f64,
    /// So much longer than that it takes until what is told shows: the time by which Interests are detained.
    pub(super) detained: f64,
    /// The hopRTTs of the interval.
    pub(super) delays: Delays,
    /// The queue to aim at on a link without noise.
    pub(super) usual_target: f64,
    /// A packet, bits.
    pub(super) packet_bits: f64,
}

/// The delay of an interval, seconds, and the share of it that is the filtered mean: none without noise, all in much of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    pub(super) delay: f64,
    by_mean: f64,
}

/// The meaning of the delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    /// The base delay, seconds.
    pub(super) base: f64,
    /// The delay that counts, seconds: see [`Level`].
    pub(super) level: f64,
    /// The queue, seconds.
    pub(super) queue: f64,
    /// The queue to aim at, seconds: as long as the pauses of the link, and the usual one.
    pub(super) target: f64,
    /// The rate that the link carries, bit/s: of the interval, or, in noise, of several.
    pub(super) carried: f64,
    /// Factor by which the queue should be steered more slowly than without noise: 1 to 2.
    pub(super) patience: f64,
    /// The time in which the queue is to reach its target, seconds.
    pub(super) horizon: f64,
    /// The queue has been above its target for longer than noise explains.
    pub(super) is_standing: bool,
    /// The queue has to be drained for a moment, so that the base shows.
    pub(super) is_drain_due: bool,
    /// The rate before, if the path has become longer: then the delay is not a queue.
    pub(super) longer: Option<f64>,
}

impl Verdict {
    /// True if the delay varies by itself by a large part of the target.
    pub(super) fn is_noisy(&self) -> bool {
        self.patience >= VARIES
    }
}

/// Owns the base delay of a hop. See the module.
///
/// - **Noise**: the height of delays above their own trend within 80 ms. It does not follow the queue, which moves
///   slowly. A queue as long as these excursions bridges the pauses of a link that delivers in bursts.
/// - **Queue**: the delay less the least of the last 5 to 10 s. Without noise the least delay of an interval counts,
///   because packets of one burst delay each other. In noise the filtered mean counts, because the least of an
///   interval rises as its packets get fewer. A mean above the least one is no queue where the crests of the delays are not
///   above the least crest: noise that keeps the order of packets has each as late as the latest before it, so their
///   mean rises with the rate, and their height falls by as much.
/// - **Longer path**: every lowered grant is an experiment, see [`Longer`].
#[derive(Debug)]
pub(super) struct Base {
    means: Means,
    /// The least mean and the least crest lately, seconds.
    mean: Lowest,
    crest: Lowest,
    carried: f64,
    excursions: Excursions,
    /// The greatest rate lately, bit/s.
    peak: f64,
    longer: Longer,
    /// Time at which the queue was last empty, and time at which it was last short enough for noise to explain it; at first
    /// the end of the first interval.
    empty_at: Instant,
    short_at: Instant,
}

impl Base {
    pub(super) fn new() -> Self {
        Self {
            means: Means::default(),
            mean: Lowest::new(HALF_WINDOW),
            crest: Lowest::new(HALF_WINDOW),
            carried: 0.0,
            excursions: Excursions::default(),
            peak: 0.0,
            longer: Longer::default(),
            empty_at: Instant::ZERO,
            short_at: Instant::ZERO,
        }
    }

    /// The queue to aim at where the usual one is `usual_target`.
    pub(super) fn target(&self, usual_target: f64) -> f64 {
        usual_target + BRIDGE * self.excursions.noise
    }

    /// Height of the delays above their own trend, seconds.
    pub(super) fn noise(&self) -> f64 {
        self.excursions.noise
    }

    /// The same, in queues aimed at without noise.
    fn noisiness(&self, usual_target: f64) -> f64 {
        self.excursions.noise / usual_target
    }

    /// Whether the noise is known for the first time: earlier conclusions from delays were drawn without it.
    pub(super) fn is_young(&self) -> bool {
        self.excursions.next <= FEWEST_WINDOWS
    }

    /// Another path: nothing that was known of the delay holds.
    pub(super) fn forget(&mut self) {
        (self.mean, self.crest) = (Lowest::new(HALF_WINDOW), Lowest::new(HALF_WINDOW));
        self.means = Means::default();
    }

    /// The delay of now is no queue, or one of `most` seconds less.
    pub(super) fn rebase(&mut self, most: f64) {
        if let Some(slow) = self.means.slow {
            self.reset(slow.min(self.least_mean() + most));
        }
    }

    /// The least mean is this one, seconds.
    fn reset(&mut self, mean: f64) {
        self.mean.reset(mean);
        self.crest.reset(self.crest_of(mean));
    }

    /// The least mean that delays would have without a queue now, seconds.
    fn least_mean(&self) -> f64 {
        self.mean.value().max(self.crest.value() - self.excursions.height)
    }

    /// An interval has ended in which less was offered on purpose than the `carried` bit/s of the link, with delays of `mean` seconds:
    /// it shows no rate, and no queue.
    pub(super) fn skip(&mut self, carried: f64, mean: f64) {
        (self.carried, self.means) = (carried, Means::default());
        self.reset(mean);
    }

    /// The delay that noise rises to where its mean is this, seconds.
    fn crest_of(&self, mean: f64) -> f64 {
        mean + self.excursions.height
    }

    /// A full packet came after `hop_rtt`.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, hop_rtt: Duration) {
        let is_first = self.excursions.on_packet(now, hop_rtt.as_secs_f64());
        if is_first {
            self.crest = Lowest::new(HALF_WINDOW);
        }
    }

    /// An interval has ended.
    pub(super) fn on_interval(&mut self, seen: Seen) -> Verdict {
        let Seen { now, span, carried, granted, delays, packet_bits, .. } = seen;
        if self.peak == 0.0 {
            (self.empty_at, self.short_at) = (now, now);
        }
        self.peak = carried.max(self.peak * PEAK_DECAY);
        let Level { delay: level, by_mean } = self.level(delays, seen.usual_target);
        let mean = self.means.slow.unwrap_or(delays.mean);
        self.mean.on_value(now, mean);
        self.crest.on_value(now, self.crest_of(mean));
        let lowest = (1.0 - by_mean) * seen.floor + by_mean * self.least_mean();
        // The least delay was measured when a packet took as long as it does at the peak rate.
        let slower = packet_bits / carried - packet_bits / self.peak;
        let queue = (level - lowest - slower).max(0.0);
        let target = self.target(seen.usual_target);
        let (delay, noise) = (delays.least, by_mean * self.excursions.noise);
        let (feedback, is_long) = (delay + seen.detained, queue > target);
        let sight = Sight { span, carried, granted, delay, noise, feedback, queue, is_long, packet_bits };
        let lasting = self.longer.on_interval(sight);
        if lasting != Lasting::Paused || self.carried == 0.0 {
            self.carried += (1.0 - by_mean * (1.0 - delays.gain)) * (carried - self.carried);
        }
        let longer = if let Lasting::Longer(before) = lasting { Some(before) } else { None };
        if longer.is_some() {
            self.reset(delays.mean);
            self.means = Means::at(delays.mean);
        }
        let patience = 1.0 + (self.noisiness(seen.usual_target) / PATIENCE_AT).min(1.0);
        let base = if longer.is_some() { delays.least } else { seen.floor };
        let horizon = 2.0 * (base + seen.detained + span) * patience;
        let is_drain_due = self.watch_queue(now, queue, target, horizon);
        let is_standing = now.since(self.short_at) > STANDING;
        Verdict {
            base,
            level,
            queue,
            target,
            carried: self.carried,
            patience,
            horizon,
            is_standing,
            is_drain_due,
            longer,
        }
    }

    /// An interval with these delays has ended: the delay that counts, where the queue aimed at without noise is `usual_target`.
    pub(super) fn level(&mut self, delays: Delays, usual_target: f64) -> Level {
        let height = SPREAD * self.excursions.height;
        let by_mean = ((height / usual_target - QUIET) / (NOISY - QUIET)).clamp(0.0, 1.0);
        let filtered = self.means.on_interval(delays);
        Level { delay: (1.0 - by_mean) * delays.least + by_mean * filtered, by_mean }
    }

    /// Notes whether the queue is empty or short. Whether it has to be drained now.
    fn watch_queue(&mut self, now: Instant, queue: f64, target: f64, horizon: f64) -> bool {
        if queue <= QUEUE_EMPTY * target {
            self.empty_at = now;
        }
        if queue <= STANDS * target {
            self.short_at = now;
        }
        let overdue = now.since(self.empty_at).saturating_sub(DRAIN_EVERY).as_secs_f64();
        if overdue > DRAIN_HORIZONS * horizon {
            self.empty_at = now;
        }
        overdue > 0.0
    }
}

/// The filtered mean delay, seconds; `None` before the first interval.
#[derive(Debug, Default)]
struct Means {
    quick: Option<f64>,
    /// With the least gain, whatever the interval is: its lowest value is the base. That of the quick one is as far below the mean as noise
    /// takes it once in ten seconds, and what is above it would count as a queue.
    slow: Option<f64>,
}

impl Means {
    fn at(mean: f64) -> Self {
        Self { quick: Some(mean), slow: Some(mean) }
    }

    /// Returns the quick one.
    fn on_interval(&mut self, delays: Delays) -> f64 {
        let Delays { mean, gain, .. } = delays;
        let [quick, slow] = [(self.quick, gain), (self.slow, LEAST_GAIN)].map(|(before, gain)| {
            let before = before.unwrap_or(mean);
            before + gain * (mean - before)
        });
        *self = Self { quick: Some(quick), slow: Some(slow) };
        quick
    }
}

/// The height of a window's delays above their trend, seconds: without the time of one burst on the wire, and without what machines do.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    height: f64,
    noise: f64,
}

/// Finds how far delays rise above their own trend.
#[derive(Debug, Default)]
struct Excursions {
    /// Mean and greatest delay of each slot of the window so far.
    slots: [(f64, f64); SLOTS],
    filled: usize,
    slot_began: Instant,
    packets: u32,
    sum: f64,
    most: f64,
    /// The time of the packet before, and the least gap between two of the window, seconds.
    last: Instant,
    gap: f64,
    /// The last windows' results, in a ring.
    windows: [Window; WINDOWS],
    next: usize,
    /// The median height of delays above their own trend, seconds.
    height: f64,
    /// The noise of delays: what is left without what machines do.
    noise: f64,
}

impl Excursions {
    /// A packet came this late, seconds. True if the height is known for the first time.
    #[inline]
    fn on_packet(&mut self, now: Instant, delay: f64) -> bool {
        let gap = now.since(core::mem::replace(&mut self.last, now)).as_secs_f64();
        self.gap = if self.filled == 0 && self.packets == 0 { gap } else { self.gap.min(gap) };
        (self.packets, self.sum, self.most) = (self.packets + 1, self.sum + delay, self.most.max(delay));
        if self.packets < MIN_PACKETS || now.since(self.slot_began) < SLOT {
            return false;
        }
        self.slots[self.filled] = (self.sum / f64::from(self.packets), self.most);
        (self.slot_began, self.packets, self.sum, self.most) = (now, 0, 0.0, 0.0);
        self.filled = (self.filled + 1) % SLOTS;
        if self.filled == 0 {
            let (height, burst) = (self.rise(), NOISE_FREE_PACKETS * self.gap);
            self.learn(Window { height: height - burst, noise: height - burst.max(MACHINES) });
        }
        self.filled == 0 && self.next == 1
    }

    /// A window was so high.
    fn learn(&mut self, window: Window) {
        let within = |height: f64| height.clamp(0.0, NOISE_CEILING);
        self.windows[self.next % WINDOWS] =
            Window { height: within(window.height), noise: within(window.noise) };
        self.next += 1;
        self.height = self.median(|window| window.height);
        self.noise = SPREAD * self.median(|window| window.noise);
    }

    /// Height of the window above the straight line from its first slot to its last: the greatest delay of a slot on that line is half a
    /// step above the mean.
    fn rise(&self) -> f64 {
        let (first, last) = (self.slots[0].0, self.slots[SLOTS - 1].0);
        let slope = (last - first) / (SLOTS - 1) as f64;
        let above = self.slots.iter().enumerate().map(|(at, (_, most))| most - first - slope * at as f64);
        above.fold(0.0, f64::max) - slope.abs() / 2.0
    }

    /// The median of the windows so far, once there are a few.
    fn median(&self, of: impl Fn(&Window) -> f64) -> f64 {
        let mut sorted = self.windows.each_ref().map(of);
        let seen = &mut sorted[..self.next.min(WINDOWS)];
        seen.sort_unstable_by(f64::total_cmp);
        if seen.len() < FEWEST_WINDOWS {
            0.0
        } else {
            (seen[(seen.len() - 1) / 2] + seen[seen.len() / 2]) / 2.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const PROPAGATION: f64 = 0.020;
    const SPAN: f64 = 0.010;
    const PACKET_BITS: f64 = 11_200.0;
    const USUAL: f64 = 0.6e-3;

    /// A link as a fluid: arrivals of one interval after the other, with delays of base, queue and jitter.
    struct Link {
        base: Base,
        now: Instant,
        rng: Rng,
        jitter: f64,
        floor: f64,
    }

    impl Link {
        fn new(jitter: f64) -> Self {
            Self { base: Base::new(), now: Instant::ZERO, rng: Rng::new(3), jitter, floor: f64::MAX }
        }

        /// An interval in which 18 packets see `queue` and carry `bps`.
        fn step(&mut self, queue: f64, bps: f64) -> Verdict {
            self.now += Duration::from_secs_f64(SPAN);
            let delay = |rng: &mut Rng| PROPAGATION + queue + self.jitter * (2.0 * rng.unit() - 1.0);
            let delays: [f64; 18] = core::array::from_fn(|_| delay(&mut self.rng));
            let least = delays.iter().copied().fold(f64::MAX, f64::min);
            self.floor = self.floor.min(least);
            let hop_rtts = delays.map(Duration::from_secs_f64);
            hop_rtts.iter().for_each(|&hop_rtt| self.base.on_packet(self.now, hop_rtt));
            self.base.on_interval(Seen {
                now: self.now,
                span: SPAN,
                carried: bps,
                granted: Some((bps, bps)),
                floor: self.floor,
                detained: 0.0,
                delays: Delays { least, mean: delays.iter().sum::<f64>() / 18.0, gain: LEAST_GAIN },
                usual_target: USUAL,
                packet_bits: PACKET_BITS,
            })
        }

        /// The verdict after `intervals` equal intervals.
        fn after(&mut self, intervals: u32, queue: f64) -> Verdict {
            for _ in 1..intervals {
                self.step(queue, 20e6);
            }
            self.step(queue, 20e6)
        }
    }

    #[test]
    fn without_noise_the_queue_is_the_delay_above_the_least() {
        let mut link = Link::new(0.0);
        link.after(100, 0.0);
        let verdict = link.after(3, 1.5e-3);
        assert!((verdict.queue - 1.5e-3).abs() < 1e-6, "{verdict:?}");
        assert!((verdict.target - USUAL).abs() < 1e-6 && verdict.patience == 1.0, "{verdict:?}");
    }

    /// On a gigabit the usual queue is 0.3 ms, as much as machines make delays vary: that is no reason to aim at more, and one not to go by
    /// the least delay of a few hundred packets.
    #[test]
    fn delays_that_vary_as_those_of_machines_raise_no_target_and_the_mean_counts() {
        let mut excursions = Excursions::default();
        let (mut rng, mut now) = (Rng::new(1), Instant::ZERO);
        for _ in 0..20_000 {
            now += Duration::from_micros(50);
            excursions.on_packet(now, PROPAGATION + 0.28e-3 * (2.0 * rng.unit() - 1.0));
        }
        assert_eq!(excursions.noise, 0.0);
        let mut base = Base { excursions, ..Base::new() };
        let delays = Delays { least: PROPAGATION - 0.28e-3, mean: PROPAGATION, gain: 1.0 };
        assert!(base.level(delays, 0.2e-3).by_mean > 0.2, "{:?}", base.excursions.height);
        assert_eq!(
            base.level(delays, 1.0e-3).by_mean,
            0.0,
            "where the usual queue is longer the least counts"
        );
    }

    #[test]
    fn jitter_raises_the_target_by_no_more_than_itself_and_is_not_taken_for_a_queue() {
        for jitter in [1e-3, 3e-3, 6e-3] {
            let mut link = Link::new(jitter);
            let verdict = link.after(400, 0.0);
            assert!(verdict.queue < verdict.target, "{jitter}: {verdict:?}");
            // Excursions within two packets' time, 1.1 ms, are no noise.
            let least = 0.8 * (jitter - 2.0 * PACKET_BITS / 20e6).max(0.0);
            assert!((least..1.2 * jitter).contains(&(verdict.target - USUAL)), "{jitter}: {verdict:?}");
            assert!(!verdict.is_standing, "{jitter}: {verdict:?}");
        }
    }

    /// An interval of packets one each `gap`, without a queue, that jitter delays by up to 6 ms and in which none overtakes another.
    fn ordered_interval(link: &mut Link, last: &mut Instant, gap: Duration) -> Verdict {
        let (mut least, mut sum, mut count) = (f64::MAX, 0.0, 0.0);
        let ends = link.now + Duration::from_secs_f64(SPAN);
        while link.now < ends {
            link.now += gap;
            let jitter = Duration::from_secs_f64(PROPAGATION + 6e-3 * link.rng.unit());
            *last = (*last).max(link.now + jitter);
            let delay = last.since(link.now);
            link.base.on_packet(*last, delay);
            least = delay.as_secs_f64().min(least);
            (sum, count) = (sum + delay.as_secs_f64(), count + 1.0);
        }
        link.floor = link.floor.min(least);
        link.base.on_interval(Seen {
            now: *last,
            span: SPAN,
            carried: PACKET_BITS / gap.as_secs_f64(),
            granted: None,
            floor: link.floor,
            detained: 0.0,
            delays: Delays { least, mean: sum / count, gain: LEAST_GAIN },
            usual_target: USUAL,
            packet_bits: PACKET_BITS,
        })
    }

    /// Their mean is 3.4 ms above the least possible at 8 Mbit/s, and 5.6 at 220: each is as late as the latest before it.
    #[test]
    fn delays_in_order_that_rise_with_the_rate_are_no_queue() {
        let (mut link, mut last) = (Link::new(0.0), Instant::ZERO);
        let mut run = |gap| (0..300).map(|_| ordered_interval(&mut link, &mut last, gap)).last();
        let slow = run(Duration::from_micros(1_400)).expect("an interval");
        let fast = run(Duration::from_micros(50)).expect("an interval");
        assert!(slow.target > USUAL + 1e-3, "{slow:?}");
        assert!(fast.level > slow.level + 1e-3, "{:?}, {:?}", fast.level, slow.level);
        assert!(fast.queue < fast.target, "{fast:?}");
    }

    #[test]
    fn a_queue_shows_through_jitter_and_does_not_raise_its_own_target() {
        let mut link = Link::new(3e-3);
        let target = link.after(400, 0.0).target;
        let verdict = link.after(60, 20e-3);
        assert!((0.018..0.023).contains(&verdict.queue), "{verdict:?}");
        assert!(verdict.is_standing, "{verdict:?}");
        assert!((verdict.target - target).abs() < 1e-3, "{verdict:?}, before {target}");
    }

    #[test]
    fn a_change_of_capacity_is_no_noise() {
        let mut link = Link::new(0.0);
        // Each second a queue of 10 ms comes and drains within 100 ms.
        for _ in 0..10 {
            link.after(90, 0.0);
            let verdicts = (0..10u32).map(|step| link.step(10e-3 * f64::from(10 - step) / 10.0, 20e6));
            let highest = verdicts.fold(0.0, |highest: f64, verdict| highest.max(verdict.target));
            assert!(highest < 2.0 * USUAL, "{highest}");
        }
    }

    #[test]
    fn a_queue_that_never_empties_is_to_be_drained_after_four_seconds() {
        let mut link = Link::new(0.0);
        link.after(10, 0.0);
        assert!(!link.after(390, 1e-3).is_drain_due);
        assert!(link.after(20, 1e-3).is_drain_due);
        assert!(!link.after(1, 0.0).is_drain_due);
    }

    #[test]
    fn no_queue_stands_before_the_first_packet() {
        let mut link = Link::new(0.0);
        link.now = Instant::ZERO + Duration::from_secs(3600);
        link.floor = PROPAGATION;
        let verdict = link.after(1, 1.5e-3);
        assert!(!verdict.is_drain_due && !verdict.is_standing, "{verdict:?}");
    }

    #[test]
    fn another_path_begins_with_a_base_of_its_own() {
        let mut link = Link::new(0.0);
        link.after(100, 0.0);
        link.base.forget();
        link.floor = f64::MAX;
        let verdict = link.after(1, 30e-3);
        assert!(verdict.queue == 0.0 && verdict.base > 0.049, "{verdict:?}");
    }
}
