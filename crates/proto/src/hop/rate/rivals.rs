//! Others that fill the queue of a shared link, such as TCP: whether they are there, and how to share with them.

use super::cubic::Cubic;
use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::lowest::Lowest;
use crate::time::{Duration, Instant};

/// From this many targets on, a queue stands.
const STANDS: f64 = 1.5;
/// A queue of our own is gone after its feedback and the time in which a grant of 0.6 of the rate drains it (1 / 0.4 of
/// its length): within this many base delays and this many times its length. A sender that was held by its grant all
/// that time cannot have kept it there.
const OWN_BASES: f64 = 4.0;
const OWN_QUEUES: f64 = 5.0;
const OWN_LEAST: f64 = 0.25;
/// … and this many of the targets, which are as long as the pauses of the link: 0.6 s where they are 6 ms. Capacity that
/// comes in bursts differs by a third between windows of 20 ms, by 9 % between windows of 0.5 s.
const OWN_TARGETS: f64 = 100.0;
/// Where delays vary by themselves all that takes up to five times as long: the queue is steered half as fast there, and grows and shrinks
/// by as much as the noise meanwhile.
const OWN_IN_NOISE: f64 = 4.0;
/// Rises of the queue count this many hopRTTs after it began to stand: what was sent before is there by then.
const FEEDBACK: f64 = 2.0;
/// A rise of this many targets, which are larger where delays vary by themselves, and packets is no noise.
const RISE_TARGETS: f64 = 2.0;
const RISE_PACKETS: f64 = 3.0;

/// A link that carries less than this share of what it carried in the interval before has lost capacity, or somebody has come.
const FALLEN: f64 = 0.85;

/// A path that becomes longer twice within this time, and not shorter in between, does not: it is a queue that grows.
const LONGER_AGAIN: Duration = Duration::from_secs(5);
/// … but within this many hopRTTs it is one change: what was late by it comes with the delay of both.
const SAME_CHANGE: f64 = 4.0;
/// The least delay is remembered for this long and up to twice as long, so that a queue of others does not become the base.
const HALF_MEMORY: Duration = Duration::from_secs(30);

/// Time between the beginnings of two experiments: the low queue has to be back within 5 s.
const EXPERIMENT_EVERY: Duration = Duration::from_millis(4_500);
/// Hops of ours that compete with each other would keep the queue for ever, for one that offers less finds the others there. So
/// an experiment begins up to this much early where the queue falls, as it does in somebody else's: then all of them offer less at
/// once. It is half of the time between two: whatever the phases of two hops are, one of them joins.
const JOINS: Duration = Duration::from_millis(2_250);
/// A queue falls if it is shorter than lately by this share and by these targets; what was lately fades in this time, seconds.
const FALLS: f64 = 0.05;
const FALLS_TARGETS: f64 = 2.0;
const LATELY: f64 = 0.3;
/// An experiment waits for the others' for this many hopRTTs after its feedback.
const JOINED: f64 = 1.5;
/// The grant of an experiment, as a share of the carried rate: so that a queue of our own lasts for this many intervals
/// after the feedback, between these bounds.
const LOOKS: f64 = 3.0;
const LEAST_OFFER: f64 = 0.3;
const MOST_OFFER: f64 = 0.9;
/// An experiment lasts for a hopRTT and for this many times the time in which a queue of our own drains; or, if others keep
/// the queue where it is, for this share of it: it has to be this much shorter by then. Ours would have 0.65 of its length.
const DRAINED_BY: f64 = 1.25;
const FIRST_LOOK: f64 = 0.35;
const SHORTER: f64 = 0.85;
/// A queue of this share of the one before has gone, as has one of these targets.
const GONE: f64 = 0.1;
const GONE_TARGETS: f64 = 2.0;
/// A delay that moves by less than the target, or by so many packets, before an experiment and in it, is nobody's queue: others would
/// have filled it and drained it, and so would we.
const STEADY_PACKETS: f64 = 3.0;
/// A loss counts where the queue is this long, as a share of the longest lately: a queue that overflows is full.
/// Losses elsewhere are the link's.
const FULL: f64 = 0.7;
/// A queue of packets detains no Interests, and a path that becomes longer does so both ways. Where the way back has become longer by
/// this share of the delay that came, the way there has, too, and what grew by that was no queue.
const BOTH_WAYS: f64 = 0.5;
/// Decay of the longest queue per interval.
const LONGEST_DECAY: f64 = 0.999;
/// A grant reaches the sender up to this many base delays late.
const FEEDBACK_LATE: f64 = 0.25;
/// While a queue drains, a link of our own carries what it did, and one that is shared less by the share of the offer that
/// is missing and that of the others in it. This much of what is not offered may be missing.
const NOT_CARRIED: f64 = 0.25;

/// Measurements of one interval. Delays in seconds, rates in bit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) now: Instant,
    /// The least hopRTT, and the delay that counts: the least, and in noise the filtered mean.
    pub(super) delay: f64,
    pub(super) level: f64,
    /// The time after which what is told shows: the delay, and that by which Interests are detained.
    pub(super) feedback: f64,
    /// The delay that is taken for that of the path.
    pub(super) base: f64,
    /// The queue, and the one aimed at.
    pub(super) queue: f64,
    pub(super) target: f64,
    pub(super) carried: f64,
    /// A packet's time on the link.
    pub(super) packet: f64,
    /// Factor by which the queue is steered more slowly than without noise.
    pub(super) patience: f64,
    /// The grant limited the sender.
    pub(super) is_held: bool,
    /// The delay looks as if the path had become longer.
    pub(super) is_longer: bool,
}

impl Sight {
    /// The time by which Interests are detained, seconds.
    fn detained(&self) -> f64 {
        self.feedback - self.delay
    }
}

/// A queue that does not go.
#[derive(Clone, Copy, Debug)]
struct Standing {
    since: Instant,
    /// The carried rate when it began.
    carried: f64,
    /// The longest since then.
    longest: f64,
    /// Rises of the least delay and of the delay that counts since the feedback.
    rises: [Rise; 2],
    /// The link carries far less than when it began. What grew by that may be ours: it was sent for the link as it was. So it counts from
    /// then on, once.
    has_fallen: bool,
}

/// The least of some delays, and the greatest rise from there, seconds.
#[derive(Clone, Copy, Debug)]
struct Rise {
    least: f64,
    rise: f64,
}

impl Rise {
    const NONE: Self = Self { least: f64::INFINITY, rise: 0.0 };

    fn add(&mut self, delay: f64) {
        self.least = self.least.min(delay);
        self.rise = self.rise.max(delay - self.least);
    }
}

/// Looks for others while the queue is held low: a queue that stays although less is sent, and that grows again, is
/// somebody else's. One that stays and does not grow belongs to a longer path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    standing: Option<Standing>,
    /// The carried rate of the interval before.
    carried: f64,
    /// When the path seemed to become longer, and the delay then.
    longer: Option<(Instant, f64)>,
    /// The least delay of the last minute, and the least time by which Interests were detained.
    delays: Lowest,
    detained: Lowest,
}

impl Default for Watch {
    fn default() -> Self {
        let [delays, detained] = [Lowest::new(HALF_MEMORY); 2];
        Self { standing: None, carried: 0.0, longer: None, delays, detained }
    }
}

impl Watch {
    /// The least delay of the last minute, seconds.
    pub(super) fn least(&self) -> f64 {
        self.delays.value()
    }

    /// The longest delay that shows no queue, seconds.
    pub(super) fn longest_without_queue(&self, sight: Sight) -> f64 {
        self.least() + STANDS * sight.target
    }

    /// The path seems longer than it was in the last minute, and may not be: others may fill the queue.
    pub(super) fn seems_longer(&self, sight: Sight) -> bool {
        let longer = sight.base - self.least();
        longer > STANDS * sight.target && !self.is_longer_back(sight, longer)
    }

    /// The path has become longer there and back since its least delay, which is no queue.
    fn is_longer_both_ways(&self, sight: Sight) -> bool {
        let longer = sight.delay - self.least();
        longer > STANDS * sight.target && self.is_longer_back(sight, longer)
    }

    /// The way back has become longer since the last minute by so much that the way there, which is `longer`, has, too.
    fn is_longer_back(&self, sight: Sight, longer: f64) -> bool {
        sight.detained() - self.detained.value() > BOTH_WAYS * longer
    }

    /// Tells that the path has seemed to become longer for the second time.
    fn is_longer_again(&mut self, sight: Sight, is_longer: bool) -> bool {
        let Sight { now, delay, feedback, target, .. } = sight;
        let is_recent = |(at, level)| now.since(at) < LONGER_AGAIN && delay > level - target;
        self.longer = self.longer.filter(|&longer| is_recent(longer));
        if !is_longer {
            return false;
        }
        let (at, level) = *self.longer.get_or_insert((now, delay));
        now.since(at).as_secs_f64() > SAME_CHANGE * feedback && delay > level + RISE_TARGETS * target
    }

    /// An interval has ended. Returns the rate before the others came, once they are there.
    pub(super) fn on_interval(&mut self, sight: Sight) -> Option<f64> {
        let Sight { now, delay, level, feedback, target, carried, packet, patience, is_held, .. } = sight;
        let detained = sight.detained();
        self.delays.on_value(now, delay);
        self.detained.on_value(now, detained);
        if self.is_longer_both_ways(sight) {
            self.delays.reset(delay);
            self.detained.reset(detained);
        }
        let falls = carried < FALLEN * core::mem::replace(&mut self.carried, carried);
        // A queue that stands, and a longer path, delay every packet. After an outage, or behind a repair, single ones are
        // late.
        let beyond_least = delay - self.least();
        let queue = sight.queue.min(beyond_least);
        let is_longer = sight.is_longer && beyond_least > STANDS * target;
        if self.is_longer_again(sight, is_longer) {
            (self.standing, self.longer) = (None, None);
            return Some(carried);
        }
        if queue <= STANDS * target || !is_held {
            self.standing = None;
            return None;
        }
        let standing = self.standing.get_or_insert(Standing {
            since: now,
            carried,
            longest: queue,
            rises: [Rise::NONE; 2],
            has_fallen: false,
        });
        if falls && !standing.has_fallen {
            *standing = Standing { since: now, rises: [Rise::NONE; 2], has_fallen: true, ..*standing };
        }
        let stood = now.since(standing.since).as_secs_f64();
        standing.longest = standing.longest.max(queue);
        if stood < FEEDBACK * feedback {
            return None;
        }
        let [least, counted] = &mut standing.rises;
        least.add(delay);
        counted.add(level);
        // In noise the least varies, and after a step the filtered mean follows it: a queue that grows raises both.
        let rise = least.rise.min(counted.rise);
        let base = feedback - queue;
        let drains = OWN_BASES * base + OWN_QUEUES * standing.longest;
        let in_noise = 1.0 + OWN_IN_NOISE * (patience - 1.0);
        let own = in_noise * drains.max(OWN_LEAST + OWN_TARGETS * target);
        let has_risen = rise > (RISE_TARGETS * target).max(RISE_PACKETS * packet);
        if !has_risen || (stood < own && !is_longer) {
            return None;
        }
        let before = standing.carried;
        self.standing = None;
        Some(before)
    }
}

/// An experiment: less is offered, to see whether the queue goes.
#[derive(Clone, Copy, Debug)]
struct Experiment {
    began: Instant,
    /// The time after which it shows, with the queue of then, seconds.
    feedback: f64,
    queue: f64,
    carried: f64,
    /// The share of it that is offered.
    offer: f64,
    /// The least delay so far.
    least: f64,
    /// The link still carries what it carried before, although less is offered: all of the queue is ours.
    is_ours: bool,
}

/// The outcome of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Open,
    /// The queue has gone, or what is left of the delay is none, for the link carried the same meanwhile. Others may still be there
    /// with less than the link holds.
    Gone,
    /// Others keep the queue.
    Stays,
}

impl Experiment {
    fn new(sight: Sight, span: f64, queue: f64) -> Self {
        let Sight { now, delay, feedback, carried, .. } = sight;
        let lasts = FEEDBACK_LATE * (feedback - queue) + LOOKS * span;
        let offer = (1.0 - queue / lasts).clamp(LEAST_OFFER, MOST_OFFER);
        Self { began: now, feedback, queue, carried, offer, least: delay, is_ours: false }
    }

    fn on_interval(&mut self, sight: Sight, span: f64, queue: f64, gone: f64) -> Outcome {
        let since_feedback = sight.now.since(self.began).as_secs_f64() - self.feedback;
        let was_falling = sight.delay < self.least;
        self.least = self.least.min(sight.delay);
        if queue <= gone || (self.is_ours && !was_falling) {
            return Outcome::Gone;
        }
        let late = FEEDBACK_LATE * (self.feedback - self.queue);
        if since_feedback < late + span {
            return Outcome::Open;
        }
        let missing = 1.0 - self.offer;
        self.is_ours |= sight.carried >= (1.0 - NOT_CARRIED * missing) * self.carried;
        let looks_for = if queue < SHORTER * self.queue { DRAINED_BY } else { FIRST_LOOK };
        let looks = (looks_for * self.queue / missing).max(LOOKS * span).max(JOINED * self.feedback);
        let is_over = since_feedback > late + looks;
        if !self.is_ours && is_over { Outcome::Stays } else { Outcome::Open }
    }
}

/// The lowest and the highest of some delays, seconds.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: f64,
    most: f64,
}

impl Range {
    const NONE: Self = Self { least: f64::INFINITY, most: 0.0 };

    fn add(&mut self, delay: f64) {
        *self = Self { least: self.least.min(delay), most: self.most.max(delay) };
    }
}

/// Nobody else fills the queue of the link (any more). The rate that it carried before, bit/s, and its least delay, seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Alone {
    /// The others have gone, and the queue with them.
    Gone { before: f64, base: f64 },
    /// There was nobody: the path has become longer.
    Longer { before: f64, base: f64 },
}

/// Shares a link with others that fill its queue: a window as one TCP connection with Cubic has it, and from time to
/// time an experiment that shows whether they are still there.
#[derive(Debug)]
pub(super) struct Rivalry {
    cubic: Cubic,
    /// The rate before the others came, bit/s.
    before: f64,
    /// The least delay of all, seconds.
    base: f64,
    /// The least delays of the time before the next experiment, and in it, and those that count.
    ranges: [Range; 2],
    /// The longest queue lately, seconds.
    longest: f64,
    /// The longest queue of the last moments, seconds.
    lately: f64,
    last_at: Instant,
    next_at: Instant,
    experiment: Option<Experiment>,
}

impl Rivalry {
    /// Others are there; `carried` is the rate before they came. The least delay is known to be `base`.
    pub(super) fn new(now: Instant, packet_bytes: u64, hop_rtt: Duration, carried: f64, base: f64) -> Self {
        let window = carried * hop_rtt.as_secs_f64() / (8.0 * packet_bytes as f64);
        Self {
            cubic: Cubic::with_window(packet_bytes, hop_rtt, window),
            before: carried,
            base,
            ranges: [Range::NONE; 2],
            longest: 0.0,
            lately: 0.0,
            last_at: now,
            next_at: now + EXPERIMENT_EVERY,
            experiment: None,
        }
    }

    /// A packet arrived.
    pub(super) fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) {
        if self.experiment.is_some() {
            return;
        }
        let queue = delivery.hop_rtt.as_secs_f64() - self.base;
        let lost = if queue >= FULL * self.longest { delivery.lost } else { 0 };
        self.cubic.on_delivery(Delivery { lost, ..delivery }, rtt);
    }

    /// An interval has ended. Tells once nobody else is there.
    pub(super) fn on_interval(&mut self, sight: Sight) -> Option<Alone> {
        let Sight { now, delay, target, packet, .. } = sight;
        let span = now.since(core::mem::replace(&mut self.last_at, now)).as_secs_f64();
        self.base = self.base.min(delay);
        let queue = delay - self.base;
        self.longest = queue.max(LONGEST_DECAY * self.longest);
        self.lately = queue.max(self.lately + (queue - self.lately) * (span / LATELY).min(1.0));
        let falls = self.lately - queue > (FALLS * self.lately).max(FALLS_TARGETS * target);
        let gone = (GONE * self.longest).max(GONE_TARGETS * target);
        let is_soon = now + JOINS >= self.next_at;
        if self.experiment.is_some() || is_soon {
            let [least, counted] = &mut self.ranges;
            least.add(delay);
            counted.add(sight.level);
        }
        let Some(experiment) = &mut self.experiment else {
            if now >= self.next_at || (falls && is_soon) {
                (self.next_at, self.lately) = (now + EXPERIMENT_EVERY, 0.0);
                self.experiment = Some(Experiment::new(sight, span, queue));
            }
            return None;
        };
        let outcome = experiment.on_interval(sight, span, queue, gone);
        if outcome == Outcome::Open {
            return None;
        }
        let Experiment { carried, least: lowest, is_ours, .. } = *experiment;
        self.experiment = None;
        let ranges = core::mem::replace(&mut self.ranges, [Range::NONE; 2]);
        let is_steady =
            ranges.iter().any(|range| range.most - range.least < target.max(STEADY_PACKETS * packet));
        if queue > gone && is_steady {
            return Some(Alone::Longer { before: self.before.max(carried), base: ranges[0].least });
        }
        let base = if is_ours { lowest } else { self.base };
        (outcome == Outcome::Gone).then_some(Alone::Gone { before: carried, base })
    }

    /// The rate before the others came, bit/s: the link carries as much.
    pub(super) fn before(&self) -> f64 {
        self.before
    }

    /// The grant, bit/s.
    pub(super) fn rate(&self) -> f64 {
        match self.experiment {
            Some(experiment) => experiment.offer * experiment.carried,
            None => self.cubic.rate().as_bps() as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::ways::Detained;
    use alloc::collections::VecDeque;

    const BASE: f64 = 0.040;
    const SPAN: f64 = 0.020;
    const LINK: f64 = 50e6;
    const PACKET_BITS: f64 = 11_200.0;
    const TARGET: f64 = 0.4e-3;

    /// A link as a fluid that carries us and a rival with a constant window.
    struct Link {
        now: Instant,
        capacity: f64,
        /// Bits that the rival has under way.
        window: f64,
        queue: f64,
        longer: f64,
    }

    impl Link {
        fn new(window: f64) -> Self {
            Self { now: Instant::ZERO, capacity: LINK, window, queue: 0.0, longer: 0.0 }
        }

        /// An interval in which we send `rate`.
        fn step(&mut self, rate: f64) -> Sight {
            self.now += Duration::from_secs_f64(SPAN);
            let base = BASE + self.longer;
            let theirs = self.window / (base + self.queue);
            self.queue = (self.queue + SPAN * ((rate + theirs) / self.capacity - 1.0)).max(0.0);
            let carried = if self.queue > 0.0 { rate / (rate + theirs) * self.capacity } else { rate };
            Sight {
                now: self.now,
                delay: base + self.queue,
                level: base + self.queue,
                feedback: base + self.queue,
                base: BASE,
                queue: self.queue + self.longer,
                target: TARGET,
                carried,
                packet: PACKET_BITS / LINK,
                patience: 1.0,
                is_held: true,
                is_longer: false,
            }
        }
    }

    fn rivalry() -> Rivalry {
        let base = Duration::from_secs_f64(BASE);
        Rivalry::new(Instant::ZERO, 1400, base, LINK / 2.0, BASE)
    }

    /// Seconds until the rivalry ends on `link`, at most 20, while we send `rate` beside experiments. What is granted
    /// arrives a hopRTT later.
    fn ends_after(rivalry: &mut Rivalry, link: &mut Link, rate: f64) -> Option<f64> {
        ends(rivalry, link, rate).map(|(after, _)| after)
    }

    /// The same, and what was found.
    fn ends(rivalry: &mut Rivalry, link: &mut Link, rate: f64) -> Option<(f64, Alone)> {
        let mut granted = VecDeque::new();
        let mut sent = rate;
        (1..1000u32).find_map(|step| {
            // Our own window limits the queue that we make.
            let usual = if link.queue > 0.05 { rate.min(0.95 * LINK) } else { rate };
            granted.push_back(rivalry.experiment.map_or(usual, |it| it.offer * it.carried));
            while granted.len() as f64 * SPAN > BASE + link.longer + link.queue {
                sent = granted.pop_front().unwrap_or(sent);
            }
            rivalry.on_interval(link.step(sent)).map(|alone| (f64::from(step) * SPAN, alone))
        })
    }

    #[test]
    fn a_queue_of_our_own_is_gone_before_it_counts_as_anybody_elses() {
        for left in [0.3, 0.5, 0.8, 0.95] {
            let (mut link, mut watch) = (Link::new(0.0), Watch::default());
            link.capacity = left * LINK;
            let mut sent = [LINK; 3];
            for step in 0..500 {
                let sight = link.step(sent[2]);
                assert_eq!(watch.on_interval(sight), None, "{left} of the link left, step {step}");
                // The control of Starhop: a hopRTT late.
                let steer = ((TARGET - sight.queue) / (2.0 * (BASE + SPAN))).clamp(-0.4, 0.05);
                sent.rotate_right(1);
                sent[0] = sight.carried * (1.0 + steer);
            }
        }
    }

    #[test]
    fn a_longer_path_is_not_somebody_elses_queue() {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        link.longer = 0.030;
        for _ in 0..500 {
            assert_eq!(watch.on_interval(link.step(0.9 * LINK)), None);
        }
        let longer = Sight { is_longer: true, ..link.step(0.9 * LINK) };
        assert_eq!(watch.on_interval(longer), None);
    }

    /// A queue stands when the path becomes 30 ms longer there, and by `back` seconds on the way of Interests. Half a second later the
    /// delay looks like that of a longer path.
    fn longer_behind_a_queue(back: f64) -> Option<f64> {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        watch.on_interval(link.step(LINK / 10.0));
        (1..50).find_map(|step| {
            let (longer, detained) = if step < 15 { (0.0, 0.0) } else { (0.030, back) };
            let at = link.step(LINK / 10.0);
            let delay = BASE + 0.010 + longer;
            let queue = delay - BASE;
            watch.on_interval(Sight {
                delay,
                level: delay,
                queue,
                feedback: delay + detained,
                is_longer: step == 40,
                ..at
            })
        })
    }

    #[test]
    fn a_path_that_becomes_longer_both_ways_while_a_queue_stands_is_no_growth_of_it() {
        assert_eq!(longer_behind_a_queue(0.030), None);
        assert!(longer_behind_a_queue(0.0).is_some(), "it grew by 30 ms");
    }

    /// A minute long the least delay before the change made each longer delay of noise one of the path.
    #[test]
    fn a_path_that_is_longer_both_ways_has_another_least_delay() {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        let seen = |link: &mut Link, longer: f64, detained: f64| {
            let delay = BASE + longer;
            Sight { delay, level: delay, feedback: delay + detained, ..link.step(LINK / 10.0) }
        };
        watch.on_interval(seen(&mut link, 0.0, 0.0));
        watch.on_interval(seen(&mut link, 0.030, 0.0));
        assert_eq!(watch.least(), BASE, "this may be a queue");
        watch.on_interval(seen(&mut link, 0.030, 0.030));
        assert_eq!(watch.least(), BASE + 0.030);
        // Once more a second later, by more than two targets: it is no queue that grows.
        let again = (0..60).filter_map(|step| {
            let longer = if step < 50 { 0.030 } else { 0.080 };
            let sight = Sight { is_longer: step % 50 == 0, ..seen(&mut link, longer, longer) };
            watch.on_interval(sight)
        });
        assert_eq!(again.count(), 0);
    }

    #[test]
    fn a_path_that_is_longer_both_ways_does_not_seem_to_hide_others() {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        watch.on_interval(link.step(LINK / 10.0));
        let longer =
            |back| Sight { base: BASE + 0.030, feedback: BASE + back, delay: BASE, ..link.step(LINK / 10.0) };
        let [one_way, both_ways] = [0.0, 0.030].map(longer);
        assert!(watch.seems_longer(one_way) && !watch.seems_longer(both_ways));
    }

    #[test]
    fn a_queue_that_stays_and_grows_while_we_send_less_is_somebody_elses() {
        let (mut link, mut watch) = (Link::new(2.0 * BASE * LINK), Watch::default());
        let found = (0..100).find(|_| {
            link.window *= 1.01;
            watch.on_interval(link.step(0.1 * LINK)).is_some()
        });
        assert!(found.is_some(), "2 s, a queue of {} s", link.queue);
    }

    #[test]
    fn a_path_that_becomes_longer_again_and_again_is_a_queue_that_grows() {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        assert_eq!(watch.on_interval(link.step(LINK / 10.0)), None);
        link.longer = 0.010;
        let first = Sight { is_longer: true, ..link.step(LINK / 10.0) };
        assert_eq!(watch.on_interval(first), None);
        link.longer = 0.020;
        let at_once = Sight { is_longer: true, ..link.step(LINK / 10.0) };
        assert_eq!(watch.on_interval(at_once), None, "it is the same change");
        link.now += Duration::from_secs(1);
        link.longer = 0.030;
        let later = Sight { is_longer: true, ..link.step(LINK / 10.0) };
        assert!(watch.on_interval(later).is_some());
    }

    #[test]
    fn while_the_least_delay_is_that_of_the_path_nobody_else_is_there() {
        let (mut link, mut watch) = (Link::new(0.0), Watch::default());
        for n in 0..500 {
            // The packets after an outage, and those behind repairs, are late.
            let late = 0.030 + 0.001 * f64::from(n % 10);
            let sight = Sight { queue: late, is_longer: n % 50 == 0, ..link.step(0.3 * LINK) };
            assert_eq!(watch.on_interval(sight), None, "interval {n}");
        }
    }

    #[test]
    fn beside_a_window_as_large_as_the_link_the_rivalry_goes_on() {
        for products in [1.5, 3.0, 8.0] {
            let (mut link, mut rivalry) = (Link::new(products * BASE * LINK), rivalry());
            assert_eq!(ends_after(&mut rivalry, &mut link, 0.3 * LINK), None, "{products} products");
        }
    }

    #[test]
    fn once_the_others_have_gone_the_rivalry_ends_within_five_seconds() {
        let (mut link, mut rivalry) = (Link::new(0.0), rivalry());
        link.queue = 0.05;
        let after = ends_after(&mut rivalry, &mut link, 1.2 * LINK);
        assert!(after.is_some_and(|after| after < 5.0), "{after:?}");
    }

    #[test]
    fn on_a_path_that_became_longer_meanwhile_it_ends_as_well() {
        let (mut link, mut rivalry) = (Link::new(0.0), rivalry());
        (link.queue, link.longer) = (0.05, 0.030);
        let after = ends_after(&mut rivalry, &mut link, 1.2 * LINK);
        assert!(after.is_some_and(|after| after < 5.0), "{after:?}");
    }

    #[test]
    fn a_delay_that_nobody_moves_is_that_of_a_longer_path() {
        // A link that loses packets leaves Cubic this much.
        let (mut link, mut rivalry) = (Link::new(0.0), rivalry());
        link.longer = 0.030;
        let (after, alone) = ends(&mut rivalry, &mut link, 0.1 * LINK).expect("it ends");
        assert!(after < 5.0, "{after}");
        let Alone::Longer { before, base } = alone else { panic!("{alone:?}") };
        assert!((before / (LINK / 2.0) - 1.0).abs() < 1e-6, "{before}");
        assert!((base - BASE - 0.030).abs() < 1e-6, "{base}");
    }

    #[test]
    fn a_queue_that_stays_while_less_is_offered_is_no_longer_path_if_it_moved_before() {
        // Others with a sawtooth, who fill a queue of 60 ms again at once where we offer less.
        let mut rivalry = rivalry();
        for step in 0..1000u32 {
            let (now, is_offered_less) =
                (Instant::ZERO + Duration::from_millis(20 * u64::from(step)), rivalry.experiment.is_some());
            let queue = if is_offered_less { 0.060 } else { 0.042 + 0.001 * f64::from(step % 19) };
            let (delay, carried) = (BASE + queue, if is_offered_less { 0.1 * LINK } else { 0.3 * LINK });
            let sight = Sight {
                now,
                delay,
                level: delay,
                feedback: delay,
                carried,
                ..Link::new(0.0).step(0.3 * LINK)
            };
            assert_eq!(rivalry.on_interval(sight), None, "step {step}");
        }
    }

    #[test]
    fn rivals_of_our_kind_alone_find_it_out_by_joining_each_others_experiments() {
        for late in [0, 25, 50, 90, 130, 170, 200] {
            let (mut link, mut rivals) = (Link::new(0.0), [rivalry(), rivalry()]);
            link.queue = 0.06;
            rivals[1].next_at += Duration::from_secs_f64(f64::from(late) * SPAN);
            let mut granted = VecDeque::from([[LINK / 2.0; 2]; 3]);
            let gone = (0..750).find(|_| {
                let sent = granted.pop_front().expect("grants on their way");
                let total: f64 = sent.iter().sum();
                let sight = link.step(total);
                // Both have as much under way as keeps the queue, and one alone would keep a fifth of it.
                let window = LINK / 2.0 * (BASE + 0.06) / (BASE + link.queue);
                let mut has_gone = false;
                granted.push_back(core::array::from_fn(|at| {
                    let carried = sight.carried * sent[at] / total;
                    has_gone |= rivals[at].on_interval(Sight { carried, ..sight }).is_some();
                    rivals[at].experiment.map_or(window, |it| it.offer * it.carried)
                }));
                has_gone
            });
            assert!(gone.is_some(), "{late} intervals apart: they compete for 15 s");
        }
    }

    #[test]
    fn losses_of_a_queue_that_is_not_full_do_not_count() {
        let (mut rtt, mut rivalry) = (HopRtt::new(Duration::from_millis(40)), rivalry());
        rivalry.longest = 0.040;
        let before = rivalry.rate();
        let mut lose = |millis: u64| {
            let now = Instant::ZERO + Duration::from_secs(1);
            let hop_rtt = Duration::from_millis(millis);
            rtt.on_echo(now, now.before(Duration::from_millis(40)), Detained::default());
            let delivery =
                Delivery { now, bytes: 1400, passed: 2, lost: 1, runs: 1, sent: 2, hop_rtt, backlog: false };
            rivalry.on_delivery(delivery, &rtt);
            rivalry.rate()
        };
        assert!(lose(50) >= before);
        assert!(lose(80) < 0.8 * before);
    }
}
