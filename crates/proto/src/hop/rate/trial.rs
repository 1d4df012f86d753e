//! Whether losses come from the rate.
//!
//! Where several senders overfill a queue that drops what it cannot hold, the delay is that of the full queue all the time. It looks
//! like a longer path, and its losses like those of a lossy link. But who sends less for a moment loses a smaller share; on a lossy
//! link the share stays.

use crate::time::{Duration, Instant};

/// The mean share of lost packets from which on it is worth to know, and the least of every block: a queue that overflows once
/// loses much in one or two.
const LOSS: f64 = 0.05;
const LEAST_LOSS: f64 = 0.025;
/// So many blocks in a row, of 128 packets each.
const BLOCKS: u32 = 8;

/// The share of the rate that is offered in a trial.
const OFFER: f64 = 0.3;
/// A trial lasts until so many losses are to be expected; their number varies by an eighth then.
const EXPECTED: f64 = 60.0;
/// At most this share of the expected losses comes if they come from the rate.
const ELASTIC: f64 = 0.7;
/// Packets that were sent before reach the receiver for this many hopRTTs.
const FEEDBACK: f64 = 1.5;
/// Time between two trials at first. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Looks, from time to time, whether losses come from the rate. See the module.
#[derive(Debug)]
pub(super) struct Trial {
    /// The mean share of lost packets of the blocks in a row that had losses, and their number.
    loss: f64,
    blocks: u32,
    next_at: Instant,
    pause: Duration,
    running: Option<Running>,
}

/// Less is offered.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Time from which on packets come that were sent at the lower rate.
    from: Instant,
    /// The rate before, bit/s.
    rate: f64,
    sent: f64,
    lost: f64,
}

/// The finding of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Found {
    /// The losses come from the rate. The rate before, bit/s.
    Elastic(f64),
    /// They are the link's. The rate before, bit/s.
    OfTheLink(f64),
}

impl Default for Trial {
    fn default() -> Self {
        Self { loss: 0.0, blocks: 0, next_at: Instant::ZERO, pause: FIRST_PAUSE, running: None }
    }
}

impl Trial {
    /// The grant during a trial, bit/s.
    pub(super) fn offer(&self) -> Option<f64> {
        self.running.map(|running| OFFER * running.rate)
    }

    /// Begins a trial if packets are lost and it is time. The rate is `rate`, bit/s, the hopRTT `delay`, seconds.
    pub(super) fn begin(&mut self, now: Instant, rate: f64, delay: f64) {
        let is_worth_it = self.blocks >= BLOCKS && self.loss >= LOSS;
        if self.running.is_some() || !is_worth_it || now < self.next_at {
            return;
        }
        let from = now + Duration::from_secs_f64(FEEDBACK * delay);
        self.running = Some(Running { from, rate, sent: 0.0, lost: 0.0 });
    }

    /// A packet arrived; `sent` left the sender since the one before, of which `lost` are lost. Returns what a trial has found out.
    pub(super) fn on_delivery(&mut self, now: Instant, sent: u32, lost: u32) -> Option<Found> {
        let running = self.running.as_mut().filter(|running| now >= running.from)?;
        running.sent += f64::from(sent);
        running.lost += f64::from(lost);
        let expected = self.loss * running.sent;
        if expected < EXPECTED {
            return None;
        }
        let Running { rate, lost, .. } = *running;
        self.running = None;
        self.next_at = now + self.pause;
        self.pause = self.pause.scaled(2, 1);
        Some(if lost < ELASTIC * expected { Found::Elastic(rate) } else { Found::OfTheLink(rate) })
    }

    /// A block of packets has ended; this share of it was lost.
    pub(super) fn on_block(&mut self, loss: f64) {
        if self.running.is_some() {
            return;
        }
        if loss < LEAST_LOSS {
            (self.loss, self.blocks) = (0.0, 0);
            return;
        }
        self.blocks = (self.blocks + 1).min(BLOCKS);
        self.loss += (loss - self.loss) / f64::from(self.blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const RATE: f64 = 40e6;
    const DELAY: f64 = 0.060;

    /// A link that drops what is above `capacity` where others send `others`, and `random` of what is sent.
    struct Link {
        capacity: f64,
        others: f64,
        random: f64,
    }

    impl Link {
        fn loss(&self, rate: f64) -> f64 {
            let above = 1.0 - self.capacity / (rate + self.others);
            above.max(0.0).max(self.random)
        }
    }

    /// Trials on `link` for ten seconds of packets, one each millisecond.
    fn found(link: &Link, seed: u64) -> Option<Found> {
        let (mut trial, mut rng) = (Trial::default(), Rng::new(seed));
        let mut lost_of_block = 0;
        for millis in 0..10_000u64 {
            let now = Instant::ZERO + Duration::from_millis(millis);
            let lost = u32::from(rng.unit() < link.loss(trial.offer().unwrap_or(RATE)));
            lost_of_block += lost;
            if millis % 128 == 127 {
                trial.on_block(f64::from(core::mem::take(&mut lost_of_block)) / 128.0);
            }
            if let Some(found) = trial.on_delivery(now, 1, lost) {
                return Some(found);
            }
            trial.begin(now, RATE, DELAY);
        }
        None
    }

    #[test]
    fn losses_of_a_queue_that_several_overfill_come_from_the_rate() {
        for (others, capacity) in [(38e6, 48e6), (120e6, 140e6), (0.0, 36e6)] {
            for seed in 1..20 {
                let link = Link { capacity, others, random: 0.0 };
                assert_eq!(
                    found(&link, seed),
                    Some(Found::Elastic(RATE)),
                    "{others}, {capacity}, seed {seed}"
                );
            }
        }
    }

    #[test]
    fn losses_of_a_lossy_link_do_not() {
        // Of 60 losses to be expected, 41 or fewer are two standard deviations away, as the mean is known: in a few of a hundred trials.
        for random in [0.1, 0.2, 0.4] {
            let are_elastic = (1..100).filter(|&seed| {
                let link = Link { capacity: 2.0 * RATE, others: 0.0, random };
                matches!(found(&link, seed), Some(Found::Elastic(_)))
            });
            let count = are_elastic.count();
            assert!(count <= 10, "{random}: {count} of 99");
        }
    }

    #[test]
    fn a_queue_that_overflowed_once_is_not_worth_a_trial() {
        let mut trial = Trial::default();
        for loss in [0.0, 0.4, 0.3, 0.1, 0.0, 0.4, 0.4, 0.0] {
            trial.on_block(loss);
            trial.begin(Instant::ZERO + Duration::from_secs(1), RATE, DELAY);
            assert_eq!(trial.offer(), None);
        }
    }

    #[test]
    fn few_losses_are_not_worth_a_trial() {
        assert_eq!(found(&Link { capacity: 2.0 * RATE, others: 0.0, random: 0.02 }, 1), None);
    }

    #[test]
    fn the_pause_between_trials_doubles() {
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(0.2));
        let mut began = alloc::vec::Vec::new();
        for millis in 0..20_000u64 {
            let now = Instant::ZERO + Duration::from_millis(millis);
            let was_running = trial.offer().is_some();
            trial.begin(now, RATE, DELAY);
            if trial.offer().is_some() && !was_running {
                began.push(now);
            }
            trial.on_delivery(now, 1, u32::from(millis % 5 == 0));
        }
        let pauses = began.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64());
        let pauses: alloc::vec::Vec<_> = pauses.collect();
        assert!(pauses.len() >= 3 && pauses.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "{pauses:?}");
    }
}
