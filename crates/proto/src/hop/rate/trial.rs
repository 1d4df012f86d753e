//! Whether losses come from the rate.
//!
//! Where several senders overfill a queue that drops what it cannot hold, the delay is that of the full queue all the time. It looks
//! like a longer path, and its losses like those of a lossy link. But who sends less for a moment loses a smaller share; on a lossy
//! link the share stays. Chance makes it smaller, too, in one of twenty trials, so two in a row have to agree.
//!
//! Until trials have found losses to be the link's, a hop does not get used to them. A lossy link is sent what it loses on top; hops that
//! take each other's losses for the link's would send ever more.

use super::Delivery;
use crate::time::{Duration, Instant};

/// The mean share of lost packets from which on it is worth to know, where the path seems longer, and the least of every block: a queue
/// that overflows once loses much in one or two.
pub(super) const LOSS: f64 = 0.05;
const LEAST_LOSS: f64 = 0.025;
/// So many blocks in a row, of 128 packets each.
const BLOCKS: u32 = 8;

/// The share of the rate that is offered in a trial.
const OFFER: f64 = 0.3;
/// A trial lasts until so many losses are to be expected, at least; their number varies by an eighth then, as does the number before.
const EXPECTED: f64 = 60.0;
/// Fewer than this share of the expected losses come if they come from the rate.
const ELASTIC: f64 = 0.7;
/// … but among four senders that lose a share of p together, one that offers less lowers p by a share of 0.21 (1 - p) / p only: by a
/// seventh of 60 %. So that much less than this part of (1 - p) / p will do where it is less than the above, from 25 % on.
const ELASTIC_AMONG_OTHERS: f64 = 0.1;
/// From this share of the expected losses on they are the link's, if two trials in a row agree. Two in a row that have fewer take that back.
const OF_LINK: f64 = 0.93;
/// … and so are those of no more than this multiple of that share, or so much more. The mean of blocks varies by half of that.
const AS_MUCH: f64 = 1.25;
const VARIES: f64 = 0.03;
/// The losses that it takes to see that, as a multiple of p^2 / (1 - p): the square of the share is twice the variance then, of
/// the packets of a trial and of as many before.
const EXPECTED_AMONG_OTHERS: f64 = 800.0;
/// Larger shares are measured as this one is, with 720 losses: more would take too long.
const MOST_LOSS: f64 = 0.6;
/// Packets that were sent before reach the receiver for this many hopRTTs.
const FEEDBACK: f64 = 1.5;
/// A trial that would take longer is not begun: at 5 % of loss a link has to carry 11 Mbit/s. One that takes longer, for the packets
/// did not come, found nothing.
const MOST: Duration = Duration::from_secs(4);
/// Time between two trials at first. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The least time between a trial that found nothing and the next, as a multiple of that one's: a lossy link loses a fifteenth of its time
/// at most, but for trials that repeat one of which chance made something. Where more is sent, or lost, than in the trial before, the next
/// one is short, and comes soon: then losses may well come from the rate.
const PAUSES: u64 = 10;

/// Looks, from time to time, whether losses come from the rate. See the module.
#[derive(Debug)]
pub(super) struct Trial {
    /// The mean share of lost packets of the blocks in a row that had losses, and their number.
    loss: f64,
    blocks: u32,
    next_at: Instant,
    pause: Duration,
    /// End of the last trial that did not find losses to come from the rate.
    in_vain_at: Option<Instant>,
    running: Option<Running>,
    /// The last trial found the losses to come from the rate.
    was_elastic: bool,
    /// The last trial had as many losses as a link of its own has.
    had_all: bool,
    /// The share of losses that two of those in a row found to be the link's, or none.
    of_link: f64,
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
    /// The least delay of its packets, and one that shows no queue, seconds.
    least: f64,
    empty: f64,
}

/// The finding of trials.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Found {
    /// The losses come from the rate. The rate before, bit/s.
    Elastic(f64),
    /// They come from the rate, and the queue went with them: nobody else fills it. The rate of which no more was lost, bit/s, and the
    /// least delay, seconds.
    Own { rate: f64, delay: f64 },
    /// They are the link's, or the trial did not show that they are not. The rate before, bit/s.
    OfTheLink(f64),
}

/// A hop that may be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub(super) now: Instant,
    /// Its rate, bit/s, in packets of so many bytes.
    pub(super) rate: f64,
    pub(super) packet: u64,
    /// The hopRTT, and one that shows no queue, seconds.
    pub(super) delay: f64,
    pub(super) empty: f64,
}

/// The losses to expect in a trial where a share of `loss` is lost, and the part of them from which on they are the link's.
fn measure(loss: f64) -> (f64, f64) {
    let loss = loss.min(MOST_LOSS);
    let expected = EXPECTED_AMONG_OTHERS * loss * loss / (1.0 - loss);
    let elastic = 1.0 - ELASTIC_AMONG_OTHERS * (1.0 - loss) / loss;
    (expected.max(EXPECTED), elastic.max(ELASTIC))
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            loss: 0.0,
            blocks: 0,
            next_at: Instant::ZERO,
            pause: FIRST_PAUSE,
            in_vain_at: None,
            running: None,
            was_elastic: false,
            had_all: false,
            of_link: 0.0,
        }
    }
}

impl Trial {
    /// The grant during a trial, bit/s.
    pub(super) fn offer(&self) -> Option<f64> {
        self.running.map(|running| OFFER * running.rate)
    }

    /// True if the losses, a share of `least` or more, may come from the rate, for all that trials have found.
    pub(super) fn doubts(&self, least: f64) -> bool {
        let of_link = (AS_MUCH * self.of_link).max(self.of_link + VARIES);
        self.are_worth_it(least) && (self.of_link == 0.0 || self.loss > of_link)
    }

    /// True if a share of `least` or more is lost.
    fn are_worth_it(&self, least: f64) -> bool {
        self.blocks >= BLOCKS && self.loss >= least
    }

    /// Seconds until the packets of a trial come, and seconds until enough of them are lost. `None` if that takes too long.
    fn lasts(&self, rate: f64, packet: u64, delay: f64) -> Option<(f64, f64)> {
        let losses_a_second = self.loss * OFFER * rate / (8.0 * packet as f64);
        let (feedback, shows) = (FEEDBACK * delay, measure(self.loss).0 / losses_a_second);
        (shows <= MOST.as_secs_f64()).then_some((feedback, shows))
    }

    /// The path seems to have become longer just now: how much it carries has to show first.
    pub(super) fn wait(&mut self, now: Instant) {
        (self.loss, self.blocks) = (0.0, 0);
        self.next_at = self.next_at.max(now + FIRST_PAUSE);
    }

    /// Begins a trial if a share of `least` or more is lost and it is time.
    pub(super) fn begin(&mut self, tried: Tried, least: f64) {
        let Tried { now, rate, packet, delay, empty } = tried;
        if self.running.is_some() || !self.are_worth_it(least) || now < self.next_at {
            return;
        }
        let Some((feedback, shows)) = self.lasts(rate, packet, delay) else { return };
        let rest = Duration::from_secs_f64(feedback + shows).scaled(PAUSES, 1);
        if self.in_vain_at.is_some_and(|at| now.since(at) < rest) {
            return;
        }
        let from = now + Duration::from_secs_f64(feedback);
        self.running = Some(Running { from, rate, sent: 0.0, lost: 0.0, least: f64::INFINITY, empty });
    }

    /// A packet arrived. Returns what a trial has found out.
    pub(super) fn on_delivery(&mut self, delivery: &Delivery) -> Option<Found> {
        let now = delivery.now;
        let running = self.running.as_mut().filter(|running| now >= running.from)?;
        running.sent += f64::from(delivery.passed);
        running.lost += f64::from(delivery.lost);
        running.least = running.least.min(delivery.hop_rtt.as_secs_f64());
        let Running { from, rate, sent, lost, least, empty } = *running;
        let (expected, elastic) = measure(self.loss);
        let is_late = now.since(from) > MOST;
        let is_inelastic = lost >= elastic * expected || is_late;
        if !is_inelastic && self.loss * sent < expected {
            return None;
        }
        self.running = None;
        let is_second = core::mem::replace(&mut self.was_elastic, !is_inelastic);
        if is_inelastic {
            let has_all = !is_late && lost >= OF_LINK * self.loss * sent;
            self.of_link = match (has_all, core::mem::replace(&mut self.had_all, has_all)) {
                (true, true) => self.loss,
                (false, false) => 0.0,
                _ => self.of_link,
            };
            // Nothing is known of the next one where packets did not come.
            let pause = if is_late { self.pause.max(MOST.scaled(PAUSES, 1)) } else { self.pause };
            (self.in_vain_at, self.next_at) = (Some(now), now + pause);
            self.pause = self.pause.scaled(2, 1);
            return Some(Found::OfTheLink(rate));
        }
        (self.had_all, self.of_link) = (false, 0.0);
        // The next trial compares with other losses.
        let before = core::mem::take(&mut self.loss);
        self.blocks = 0;
        Some(match (is_second, least <= empty) {
            (false, _) => Found::OfTheLink(rate),
            (true, false) => Found::Elastic(rate),
            (true, true) => Found::Own { rate: rate * (1.0 - before) / (1.0 - lost / sent), delay: least },
        })
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
    const PACKET: u64 = 1400;

    /// A hop of this rate that may be tried. A delay of less than 30 ms shows that its queue is empty.
    fn tried(now: Instant, rate: f64, delay: f64) -> Tried {
        Tried { now, rate, packet: PACKET, delay, empty: 0.030 }
    }

    /// A packet that arrived with these before it, through a queue that stands.
    fn packets(now: Instant, passed: u32, lost: u32) -> Delivery {
        let hop_rtt = Duration::from_secs_f64(DELAY);
        Delivery { now, bytes: PACKET, passed, lost, runs: lost, sent: passed, hop_rtt, backlog: true }
    }

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

    /// A hop over a link whose losses are tried.
    struct Hop<'a> {
        link: &'a Link,
        trial: Trial,
        rng: Rng,
        sent: u32,
        lost_of_block: u32,
    }

    impl<'a> Hop<'a> {
        fn over(link: &'a Link, seed: u64) -> Self {
            Self { link, trial: Trial::default(), rng: Rng::new(seed), sent: 0, lost_of_block: 0 }
        }

        /// A packet arrives or is lost. The next trial begins when it is time.
        fn packet(&mut self, now: Instant, hop_rtt: Duration) -> Option<Found> {
            let rate = self.trial.offer().unwrap_or(RATE);
            let lost = u32::from(self.rng.unit() < self.link.loss(rate));
            self.sent += 1;
            self.lost_of_block += lost;
            if self.sent.is_multiple_of(128) {
                self.trial.on_block(f64::from(core::mem::take(&mut self.lost_of_block)) / 128.0);
            }
            let found = self.trial.on_delivery(&Delivery { hop_rtt, ..packets(now, 1, lost) });
            self.trial.begin(tried(now, RATE, DELAY), LOSS);
            found
        }
    }

    /// Runs trials on `link` for ten seconds of packets, one each millisecond, or until they find its losses to come
    /// from the rate. Returns that, and the time in which less was offered, ms.
    fn trials(link: &Link, seed: u64) -> (bool, u32) {
        let (mut hop, mut offers_less) = (Hop::over(link, seed), 0);
        for millis in 0..10_000 {
            offers_less += u32::from(hop.trial.offer().is_some());
            let now = Instant::ZERO + Duration::from_millis(millis);
            if let Some(Found::Elastic(before)) = hop.packet(now, Duration::from_secs_f64(DELAY)) {
                assert_eq!(before, RATE);
                return (true, offers_less);
            }
        }
        (false, offers_less)
    }

    #[test]
    fn losses_of_a_queue_that_several_overfill_come_from_the_rate() {
        // A trial that chance spoils among three others is repeated after ten times its 1.2 s.
        for (others, capacity, least) in
            [(38e6, 48e6, 19), (120e6, 140e6, 19), (0.0, 36e6, 19), (120e6, 80e6, 16), (120e6, 64e6, 16)]
        {
            let link = Link { capacity, others, random: 0.0 };
            let found = (1..20).filter(|&seed| trials(&link, seed).0).count();
            assert!(found >= least, "{others}, {capacity}: {found} of 19");
        }
    }

    #[test]
    fn losses_of_a_lossy_link_do_not() {
        // The losses of a trial and those before vary by an eighth each: 0.7 is 1.7 standard deviations away. Two trials in a row are
        // below it in one of five hundred cases, and there are up to ten in ten seconds.
        for random in [0.06, 0.1, 0.2, 0.4] {
            let link = Link { capacity: 2.0 * RATE, others: 0.0, random };
            let are_elastic = (1..200).filter(|&seed| trials(&link, seed).0);
            let count = are_elastic.count();
            assert!(count <= 4, "{random}: {count} of 199");
        }
    }

    #[test]
    fn losses_that_come_from_the_rate_and_go_with_the_queue_are_our_own() {
        let link = Link { capacity: 36e6, others: 0.0, random: 0.03 };
        let mut hop = Hop::over(&link, 1);
        let found = (0..10_000).find_map(|millis| {
            let hop_rtt = Duration::from_millis(if hop.trial.offer().is_some() { 30 } else { 60 });
            let found = hop.packet(Instant::ZERO + Duration::from_millis(millis), hop_rtt);
            found.filter(|found| !matches!(found, Found::OfTheLink(_)))
        });
        let Some(Found::Own { rate, delay }) = found else { panic!("{found:?}") };
        assert!((36e6..40e6).contains(&rate) && delay == 0.030, "{rate} {delay}");
    }

    /// True if trials of a minute leave the losses of `link` in doubt.
    fn are_doubted(link: &Link, seed: u64) -> bool {
        let mut hop = Hop::over(link, seed);
        let is_elastic = (0..600_000).any(|tenths| {
            let now = Instant::ZERO + Duration::from_micros(100 * tenths);
            matches!(hop.packet(now, Duration::from_secs_f64(DELAY)), Some(Found::Elastic(_)))
        });
        is_elastic || hop.trial.doubts(LOSS)
    }

    #[test]
    fn a_hop_gets_used_to_the_losses_of_a_link_and_not_to_its_own() {
        let doubted = |capacity, others, random| {
            let link = Link { capacity, others, random };
            (1..=9).filter(|&seed| are_doubted(&link, seed)).count()
        };
        for random in [0.1, 0.2, 0.3] {
            let count = doubted(2.0 * RATE, 0.0, random);
            assert!(count <= 3, "{random} of a link: {count} of 9");
        }
        for (capacity, others) in [(36e6, 0.0), (140e6, 120e6), (64e6, 120e6)] {
            let count = doubted(capacity, others, 0.0);
            assert!(count >= 8, "{capacity} beside {others}: {count} of 9");
        }
    }

    #[test]
    fn losses_that_grow_are_in_doubt_again() {
        let mut trial = Trial { of_link: 0.2, ..Trial::default() };
        (0..20).for_each(|_| trial.on_block(0.23));
        assert!(!trial.doubts(LOSS));
        (0..40).for_each(|_| trial.on_block(0.3));
        assert!(trial.doubts(LOSS) && !trial.doubts(0.35));
    }

    #[test]
    fn a_trial_comes_sooner_where_it_is_shorter() {
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(0.1));
        let ended = Instant::ZERO + Duration::from_secs(1);
        trial.in_vain_at = Some(ended);
        // 60 losses take 0.56 s at 40 Mbit/s, and the first of them comes after 90 ms: 6.5 s in all with the rest.
        trial.begin(tried(ended + Duration::from_secs(3), RATE, DELAY), LOSS);
        assert_eq!(trial.offer(), None);
        trial.begin(tried(ended + Duration::from_secs(3), 4.0 * RATE, DELAY), LOSS);
        assert!(trial.offer().is_some());
    }

    #[test]
    fn a_slow_link_is_not_tried() {
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(0.06));
        let now = Instant::ZERO + Duration::from_secs(1);
        trial.begin(tried(now, RATE / 10.0, DELAY), LOSS);
        assert_eq!(trial.offer(), None, "60 losses would take 9 s");
        trial.begin(tried(now, RATE, DELAY), LOSS);
        assert_eq!(trial.offer(), Some(OFFER * RATE));
    }

    #[test]
    fn a_trial_whose_packets_do_not_come_ends() {
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(0.1));
        let began = Instant::ZERO + Duration::from_secs(1);
        trial.begin(tried(began, RATE, DELAY), LOSS);
        let found = (0..100u64).find_map(|tenths| {
            let now = began + Duration::from_millis(100 * tenths);
            trial.on_delivery(&packets(now, 1, 0)).map(|found| (found, now.since(began)))
        });
        let (found, after) = found.expect("it ends");
        assert_eq!((found, trial.offer()), (Found::OfTheLink(RATE), None));
        assert!(after <= MOST + Duration::from_millis(200), "{after:?}");
        // The next one waits for ten times as long.
        trial.begin(tried(began + MOST.scaled(9, 1), RATE, DELAY), LOSS);
        assert_eq!(trial.offer(), None);
        trial.begin(tried(began + MOST.scaled(12, 1), RATE, DELAY), LOSS);
        assert!(trial.offer().is_some());
    }

    #[test]
    fn trials_take_less_than_a_fifth_of_the_first_ten_seconds_of_a_lossy_link() {
        let link = Link { capacity: 2.0 * RATE, others: 0.0, random: 0.06 };
        let taken: u32 = (1..20).map(|seed| trials(&link, seed).1).sum();
        assert!(taken / 19 < 2_000, "{} of 10,000 ms", taken / 19);
    }

    #[test]
    fn a_queue_that_overflowed_once_is_not_worth_a_trial() {
        let mut trial = Trial::default();
        for loss in [0.0, 0.4, 0.3, 0.1, 0.0, 0.4, 0.4, 0.0] {
            trial.on_block(loss);
            trial.begin(tried(Instant::ZERO + Duration::from_secs(1), RATE, DELAY), LOSS);
            assert_eq!(trial.offer(), None);
        }
    }

    #[test]
    fn few_losses_are_not_worth_a_trial() {
        let link = Link { capacity: 2.0 * RATE, others: 0.0, random: 0.02 };
        assert_eq!(trials(&link, 1), (false, 0));
    }

    #[test]
    fn nothing_is_tried_while_a_longer_path_has_to_show_what_it_carries() {
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(0.2));
        let now = Instant::ZERO + Duration::from_secs(1);
        trial.wait(now);
        trial.begin(tried(now + FIRST_PAUSE, RATE, DELAY), LOSS);
        assert_eq!(trial.offer(), None, "its losses are not known");
        (0..20).for_each(|_| trial.on_block(0.2));
        trial.begin(tried(now + FIRST_PAUSE.scaled(9, 10), RATE, DELAY), LOSS);
        assert_eq!(trial.offer(), None, "it is too early");
        trial.begin(tried(now + FIRST_PAUSE, RATE, DELAY), LOSS);
        assert!(trial.offer().is_some());
    }

    #[test]
    fn the_pause_between_trials_doubles() {
        // A hop so short and so fast, and a loss so high, that ten times a trial are less than the first pause.
        let (delay, loss) = (DELAY / 6.0, 0.9);
        let mut trial = Trial::default();
        (0..20).for_each(|_| trial.on_block(loss));
        let mut began = alloc::vec::Vec::new();
        for millis in 0..20_000u64 {
            let now = Instant::ZERO + Duration::from_millis(millis);
            let was_running = trial.offer().is_some();
            trial.begin(tried(now, 10.0 * RATE, delay), LOSS);
            if trial.offer().is_some() && !was_running {
                began.push(now);
            }
            trial.on_delivery(&packets(now, 10, 9));
        }
        let pauses = began.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64());
        let pauses: alloc::vec::Vec<_> = pauses.collect();
        assert!(pauses.len() >= 3 && pauses.windows(2).all(|pair| pair[1] > 1.5 * pair[0]), "{pauses:?}");
    }
}
