use super::Delivery;
use super::rivals::{Alone, Rivalry, Sight, Watch};
use super::trial::{Found, LOSS, Trial, Tried};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};

/// Others that are back this soon had not gone: we go on with the rate that we had beside them.
const BACK: Duration = Duration::from_secs(10);

/// A hop that never had a queue of its own may have begun in front of one of others, which it takes for the path. It doubts losses from this
/// share on: those of links are lower.
const MUCH: f64 = 0.31;
/// A queue of this many targets is one of our own.
const OWN_TARGETS: f64 = 4.0;

/// The finding, once it was tried where losses come from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Tells {
    /// The rate from now on, bit/s.
    Rate(f64),
    /// Nobody else is there, and the losses were our own.
    Alone(Alone),
}

/// The link with others or without: watches for them while the queue is held low, and competes with them while they fill it. What was
/// learnt before the others came, or of their queue, counts no more once they have gone.
#[derive(Debug, Default)]
pub(super) struct Contest {
    watch: Watch,
    /// Finds out, where the path seems longer, whether losses come from the rate.
    trial: Trial,
    /// Set while others fill the queue of the link.
    rivalry: Option<Rivalry>,
    /// Time at which the others seemed to have gone, and our rate beside them, bit/s.
    left: Option<(Instant, f64)>,
    /// There was a queue of our own.
    has_queued: bool,
    /// Losses may come from the rate.
    doubts_losses: bool,
}

impl Contest {
    /// The contest with the others, if they are there.
    #[inline]
    pub(super) fn rivalry(&mut self) -> Option<&mut Rivalry> {
        self.rivalry.as_mut()
    }

    /// An interval has ended without others. Returns the rate from now on once they are there. Packets have `packet` bytes.
    pub(super) fn watch(&mut self, sight: Sight, packet: u64, rtt: &HopRtt) -> Option<f64> {
        if sight.is_longer {
            self.trial.wait(sight.now);
        }
        self.has_queued |= sight.queue > OWN_TARGETS * sight.target;
        let doubted_from = self.doubted_from(sight);
        self.doubts_losses = doubted_from.is_some_and(|share| self.trial.doubts(share));
        if let Some(share) = doubted_from.filter(|_| sight.is_held) {
            let Sight { now, carried: rate, feedback: delay, .. } = sight;
            let empty = self.watch.longest_without_queue(sight);
            self.trial.begin(Tried { now, rate, packet, delay, empty }, share);
        }
        let before = self.watch.on_interval(sight)?;
        Some(self.compete(sight.now, before, packet, rtt))
    }

    /// A packet of `packet` bytes arrived, and nothing is known of others. Tells once it is found out where the losses come from.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery, packet: u64, rtt: &HopRtt) -> Option<Tells> {
        Some(match self.trial.on_delivery(delivery)? {
            Found::Elastic(before) => Tells::Rate(self.compete(delivery.now, before, packet, rtt)),
            Found::OfTheLink(before) => Tells::Rate(before),
            Found::Own { rate, delay } => Tells::Alone(Alone::Gone { before: rate, base: delay }),
        })
    }

    /// The share from which on losses may come from the rate.
    fn doubted_from(&self, sight: Sight) -> Option<f64> {
        match (self.watch.seems_longer(sight), self.has_queued) {
            (true, _) => Some(LOSS),
            (false, true) => None,
            (false, false) => Some(MUCH),
        }
    }

    /// True if losses may come from the rate, for all that is known.
    #[inline]
    pub(super) fn doubts_losses(&self) -> bool {
        self.doubts_losses
    }

    /// The least delay of the last minute, seconds.
    pub(super) fn least(&self) -> f64 {
        self.watch.least()
    }

    /// A block of packets has ended; this share of it was lost.
    pub(super) fn on_block(&mut self, loss: f64) {
        self.trial.on_block(loss);
    }

    /// The grant while it is found out where losses come from.
    pub(super) fn offer(&self) -> Option<f64> {
        self.trial.offer()
    }

    fn compete(&mut self, now: Instant, before: f64, packet: u64, rtt: &HopRtt) -> f64 {
        let beside = self.left.filter(|&(at, _)| now.since(at) < BACK).map_or(0.0, |(_, rate)| rate);
        let before = before.max(beside);
        let base = self.watch.least().min(rtt.floor().as_secs_f64());
        let rivalry = Rivalry::new(now, packet, rtt.smoothed(), before, base);
        let rate = rivalry.rate();
        self.rivalry = Some(rivalry);
        rate
    }

    /// Nobody else is there.
    pub(super) fn end(&mut self, now: Instant, alone: Alone) {
        match alone {
            Alone::Gone { before, .. } => *self = Self { left: Some((now, before)), ..Self::default() },
            // The path and its losses are as they were known before.
            Alone::Longer { .. } => self.rivalry = None,
        }
    }

    /// Packets take another path from now on.
    pub(super) fn on_new_path(&mut self) {
        (self.watch, self.trial, self.left) = (Watch::default(), Trial::default(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: f64 = 1e-3;

    /// An interval of a link of 10 Mbit/s whose path takes `base` seconds, with this delay.
    fn sight(millis: u64, base: f64, delay: f64) -> Sight {
        Sight {
            now: Instant::ZERO + Duration::from_millis(millis),
            delay,
            level: delay,
            feedback: delay,
            base,
            queue: delay - base,
            target: MS,
            carried: 10e6,
            packet: MS,
            patience: 1.0,
            is_held: true,
            is_longer: false,
        }
    }

    /// A link of 10 Mbit/s whose delay seems to become longer each 500 ms, by 20 ms from 20 ms on: others queue more and more. They
    /// have begun to after `seconds`.
    fn watch(contest: &mut Contest, seconds: u64, number: u64) -> Option<f64> {
        let delay = 20.0 * MS * (number + 1) as f64;
        let sight = Sight { is_longer: number > 0, ..sight(1000 * seconds + 500 * number, 20.0 * MS, delay) };
        contest.watch(sight, 1400, &HopRtt::new(Duration::from_millis(20)))
    }

    #[test]
    fn a_path_that_becomes_longer_again_and_again_is_somebody_elses_queue() {
        let mut contest = Contest::default();
        assert_eq!(
            (watch(&mut contest, 1, 0), watch(&mut contest, 1, 1)),
            (None, None),
            "it may be a longer path"
        );
        assert!(contest.rivalry().is_none());
        let rate = watch(&mut contest, 1, 2).expect("they are there");
        assert!((5e6..15e6).contains(&rate), "{rate}");
        assert_eq!(contest.rivalry().map(|rivalry| rivalry.rate()), Some(rate));
    }

    /// True if losses of this share are doubted on a path whose base delay has been 40 ms and is `base` now, where the longest queue was
    /// `queue`, both in ms.
    fn are_doubted(loss: f64, base: f64, queue: f64) -> bool {
        let mut contest = Contest::default();
        (0..8).for_each(|_| contest.on_block(loss));
        for (millis, base, queue) in [(0, 40.0, queue), (500, base, 0.0)] {
            let sight = sight(1000 + millis, base * MS, (base + queue) * MS);
            contest.watch(sight, 1400, &HopRtt::new(Duration::from_millis(40)));
        }
        contest.doubts_losses()
    }

    #[test]
    fn losses_on_a_path_that_seems_longer_are_doubted_and_on_an_unknown_one_from_a_third_on() {
        assert!(are_doubted(0.06, 59.0, 0.0) && !are_doubted(0.04, 59.0, 0.0));
        assert!(!are_doubted(0.25, 40.0, 0.0) && are_doubted(0.35, 40.0, 0.0));
        assert!(!are_doubted(0.35, 40.0, 10.0), "its own queue has shown how long the path is");
    }

    #[test]
    fn nothing_that_was_learnt_counts_once_the_others_have_gone() {
        let mut contest = Contest::default();
        (0..3).for_each(|number| _ = watch(&mut contest, 1, number));
        contest.end(Instant::ZERO + Duration::from_secs(2), Alone::Gone { before: 5e6, base: 20.0 * MS });
        assert!(contest.rivalry().is_none());
        assert_eq!((watch(&mut contest, 1, 3), watch(&mut contest, 1, 4)), (None, None));
        contest.on_new_path();
        assert_eq!(watch(&mut contest, 1, 5), None, "the delay before was another path's");
    }

    #[test]
    fn others_that_are_back_soon_had_not_gone() {
        for (seconds, least, most) in [(3, 29e6, 31e6), (20, 5e6, 15e6)] {
            let mut contest = Contest::default();
            contest.end(Instant::ZERO, Alone::Gone { before: 30e6, base: 20.0 * MS });
            let rates = (0..3).filter_map(|number| watch(&mut contest, seconds, number));
            let rate = rates.last().expect("they are there");
            assert!((least..most).contains(&rate), "after {seconds} s: {rate}");
        }
    }
}
