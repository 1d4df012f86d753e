//! Pulses of a higher grant, which show in noise whether a link is full.
//!
//! In noise the queue is the mean delay above the least mean of the last seconds. That least is itself low by noise: where few packets
//! come, by as much as the target of the queue. Delays that keep the order of packets also grow with the rate without a queue. Such a
//! link looks full at a small part of its rate for as long as nobody offers it more.

use crate::time::{Duration, Instant};

/// A pulse grants so much more, until a full link has a queue of so many times the noise. A queue shows a hopRTT late, and a longer hop
/// would have a longer one: after the first pulse that was in vain the gain is lower there, and where it would be below the least one there
/// is no pulse. On a link that is not full no queue comes of them.
const GAIN: f64 = 0.25;
const QUEUE: f64 = 2.0;
const LEAST_GAIN: f64 = 0.04;
/// From this rise of the delay on, in multiples of the noise, it is a queue.
const ROSE: f64 = 0.7;
/// The share of the gain that has to come, so that the link carries it.
const CAME: f64 = 0.5;
/// The least time of a pulse, seconds. Where capacity comes in bursts, arrivals of half of it differ by a third.
const LEAST: f64 = 0.1;
/// The rate before a pulse is the mean of this time, seconds.
const USUAL: f64 = 0.5;
/// A queue of a pulse has gone after so many hopRTTs, as slowly as noise has a queue steered. One that stands then is not ours.
const DRAINED: u64 = 12;
/// The wait for the first pulse, in hopRTTs. It doubles with each pulse that found a full link, up to the longest: each costs such a
/// link a queue for as long as the pulse, the hopRTT, and draining it take.
const FIRST_WAIT: u64 = 2;
const LONGEST_WAIT: Duration = Duration::from_secs(32);

/// An interval of arrivals in noise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Instant,
    /// Its length, seconds.
    pub(super) span: f64,
    pub(super) hop_rtt: Duration,
    /// The grant, bit/s.
    pub(super) granted: f64,
    /// The rate that the link carries, bit/s.
    pub(super) carried: f64,
    /// The rate of what came, bit/s.
    pub(super) received: f64,
    /// The delay that counts, and the noise of it, seconds.
    pub(super) delay: f64,
    pub(super) noise: f64,
    /// The link seems to be full, and the grant is what holds its sender.
    pub(super) seems_full: bool,
    /// The queue is longer than noise looks.
    pub(super) is_long: bool,
}

/// The decision about the grant.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Step {
    /// It follows from the delay, as without pulses.
    ByDelay,
    /// So much, bit/s. The delay shows a pulse, and not the link.
    Hold(f64),
    /// It follows from the delay. A queue is ours.
    Drain,
    /// The link carries at least so much, bit/s, without a queue.
    Raise(f64),
}

/// Owns the pulses of a hop. See the module.
#[derive(Debug, Default)]
pub(super) struct Pulses {
    /// The rate of what comes without a pulse, bit/s.
    usual: f64,
    next: Option<Next>,
    state: State,
}

/// The pulse to come.
#[derive(Clone, Copy, Debug)]
struct Next {
    at: Instant,
    wait: Duration,
    /// None was in vain before it.
    is_first: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Waiting,
    Offered(Pulse),
    /// A pulse found a full link. Until then at the latest the queue that stands is ours, and the grant follows from it.
    Found {
        until: Instant,
    },
}

/// A pulse that goes on, or whose packets are still to come.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    /// The grant without it, bit/s, and the gain with it.
    granted: f64,
    gain: f64,
    ends: Instant,
    /// Its packets come in this time.
    shows: (Instant, Instant),
    /// The delay before they came, and a delay with a queue, seconds.
    before: f64,
    queued: f64,
    /// Bits that came in the time that it shows, and seconds of it.
    bits: f64,
    seconds: f64,
}

impl Next {
    /// The grant, bit/s, that a pulse of this length adds to, and its gain. `None` if all that it may add is too little.
    fn height(&self, seen: &Seen, lasts: Duration) -> Option<(f64, f64)> {
        let cheap = QUEUE * seen.noise / seen.hop_rtt.min(lasts).as_secs_f64();
        if cheap < LEAST_GAIN {
            return None;
        }
        // A pulse holds a grant that grew above what the link carries for a hopRTT: that queue would be longer than its own.
        let is_bold = self.is_first || cheap >= GAIN;
        Some(if is_bold { (seen.granted, GAIN) } else { (seen.granted.min(seen.carried), cheap) })
    }
}

impl Pulse {
    /// The grant with it, bit/s.
    fn raised(&self) -> f64 {
        (1.0 + self.gain) * self.granted
    }
}

impl Pulses {
    /// The path is another one.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// The rate is decided otherwise for now. What was found out about the link stays.
    pub(super) fn stop(&mut self) {
        self.state = State::Waiting;
    }

    /// An interval has ended.
    pub(super) fn on_interval(&mut self, seen: Seen) -> Step {
        match self.state {
            State::Waiting => self.wait(seen),
            State::Offered(pulse) => self.watch(pulse, seen),
            State::Found { until } if seen.now < until && seen.is_long => Step::Drain,
            State::Found { .. } => self.wait(seen),
        }
    }

    /// No pulse goes on.
    fn wait(&mut self, seen: Seen) -> Step {
        self.state = State::Waiting;
        self.learn(&seen);
        if !seen.seems_full {
            return Step::ByDelay;
        }
        let first = seen.hop_rtt.scaled(FIRST_WAIT, 1);
        let next = self.next.get_or_insert(Next { at: seen.now + first, wait: first, is_first: true });
        if seen.now < next.at {
            return Step::ByDelay;
        }
        let lasts = Duration::from_secs_f64((QUEUE / GAIN * seen.noise).max(LEAST));
        let Some((granted, gain)) = next.height(&seen, lasts) else { return Step::ByDelay };
        let from = seen.now + seen.hop_rtt;
        let pulse = Pulse {
            granted,
            gain,
            ends: seen.now + lasts,
            shows: (from, from + lasts),
            before: seen.delay,
            queued: seen.delay + ROSE * seen.noise,
            bits: 0.0,
            seconds: 0.0,
        };
        self.state = State::Offered(pulse);
        Step::Hold(pulse.raised())
    }

    /// A pulse shows, or will within a hopRTT.
    fn watch(&mut self, mut pulse: Pulse, seen: Seen) -> Step {
        let (from, until) = pulse.shows;
        if seen.now <= from {
            self.learn(&seen);
            pulse.queued += seen.delay - pulse.before;
            pulse.before = seen.delay;
        } else if seen.delay > pulse.queued {
            self.put_off(seen.now);
            self.state = State::Found { until: seen.now + seen.hop_rtt.scaled(DRAINED, 1) };
            return Step::Drain;
        } else if seen.now > until {
            return self.count(pulse, seen.now);
        } else {
            pulse.bits += seen.received * seen.span;
            pulse.seconds += seen.span;
        }
        self.state = State::Offered(pulse);
        Step::Hold(if seen.now < pulse.ends { pulse.raised() } else { pulse.granted })
    }

    /// All of a pulse has shown, without a queue. Where no more came either, something else held the sender, and nothing is known.
    fn count(&mut self, pulse: Pulse, now: Instant) -> Step {
        self.state = State::Waiting;
        let least = (1.0 + CAME * pulse.gain) * self.usual;
        if pulse.seconds == 0.0 || pulse.bits < least * pulse.seconds {
            self.put_off(now);
            return Step::ByDelay;
        }
        self.next = None;
        Step::Raise(pulse.raised())
    }

    fn put_off(&mut self, now: Instant) {
        if let Some(next) = &mut self.next {
            next.wait = next.wait.scaled(2, 1).min(LONGEST_WAIT);
            next.at = now + next.wait;
            next.is_first = false;
        }
    }

    fn learn(&mut self, seen: &Seen) {
        let gain = if self.usual == 0.0 { 1.0 } else { seen.span / (seen.span + USUAL) };
        self.usual += gain * (seen.received - self.usual);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;
    use alloc::vec::Vec;

    use super::*;

    const SPAN: Duration = Duration::from_millis(10);
    const SHORT: usize = 2;
    const LONG: usize = 50;
    const NOISE: f64 = 5.0e-3;

    /// A link that looks full at 10 Mbit/s: its Requester, its rate, bit/s, and the delay of the queue in front of it, seconds.
    struct Link {
        pulses: Pulses,
        now: Instant,
        rate: f64,
        queue: f64,
        /// The grants of the last hopRTT, the oldest first.
        grants: VecDeque<f64>,
    }

    impl Link {
        /// Of a hopRTT of so many intervals.
        fn of(rate: f64, hop_rtt: usize) -> Self {
            let now = Instant::ZERO + Duration::from_secs(1);
            let grants = core::iter::repeat_n(10.0e6, hop_rtt).collect();
            Self { pulses: Pulses::default(), now, rate, queue: 0.0, grants }
        }

        /// An interval later.
        fn step(&mut self, seems_full: bool) -> Step {
            let offered = self.grants.pop_front().expect("a hopRTT");
            let granted = self.grants.back().copied().unwrap_or(offered);
            self.now += SPAN;
            self.queue = (self.queue + SPAN.as_secs_f64() * (offered / self.rate - 1.0)).max(0.0);
            let step = self.pulses.on_interval(Seen {
                now: self.now,
                span: SPAN.as_secs_f64(),
                hop_rtt: SPAN.scaled(self.grants.len() as u64 + 1, 1),
                granted,
                carried: offered.min(self.rate),
                received: offered.min(self.rate),
                delay: 0.03 + self.queue,
                noise: NOISE,
                seems_full,
                is_long: false,
            });
            let next = match step {
                // Steering drains a queue.
                Step::ByDelay | Step::Drain if self.queue > 0.0 => 9.0e6,
                Step::ByDelay | Step::Drain => 10.0e6,
                Step::Hold(rate) | Step::Raise(rate) => rate,
            };
            self.grants.push_back(next);
            step
        }
    }

    #[test]
    fn a_link_that_only_seems_to_be_full_is_raised_after_each_pulse() {
        let mut link = Link::of(100.0e6, SHORT);
        let raised = (0..100).filter(|_| matches!(link.step(true), Step::Raise(_))).count();
        // 40 ms of waiting, 100 ms of pulse, 20 ms until it shows, and the intervals that begin and end each, in 1 s.
        assert_eq!(raised, 5);
    }

    #[test]
    fn a_full_link_is_found_by_its_queue_and_waits_twice_as_long_each_time() {
        let mut link = Link::of(10.0e6, SHORT);
        let mut last = Step::ByDelay;
        let (mut begun, mut ended) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let step = link.step(true);
            assert!(!matches!(step, Step::Raise(_)));
            match (last == Step::ByDelay, step == Step::ByDelay) {
                (true, false) => begun.push(link.now),
                (false, true) => {
                    ended.push(link.now);
                    // Steering drains it.
                    link.queue = 0.0;
                }
                _ => {}
            }
            assert!(link.queue <= 2.5 * NOISE, "{} s", link.queue);
            last = step;
        }
        let waits: Vec<_> = begun.iter().skip(1).zip(&ended).map(|(next, end)| next.since(*end)).collect();
        assert!(waits.len() >= 4 && waits.windows(2).all(|pair| pair[1] >= pair[0]), "{waits:?}");
        assert!(*waits.last().expect("some") >= SPAN.scaled(50, 1), "{waits:?}");
    }

    #[test]
    fn a_long_hop_is_raised_too_and_a_full_one_has_a_long_queue_once_at_most() {
        let mut link = Link::of(100.0e6, LONG);
        let raised = (0..1_000).filter(|_| matches!(link.step(true), Step::Raise(_))).count();
        // 1 s of waiting, 0.1 s of pulse, 0.5 s until it shows, in 10 s.
        assert_eq!(raised, 6);
        let mut link = Link::of(10.0e6, LONG);
        let (mut longest, mut last) = (Vec::new(), Step::ByDelay);
        for _ in 0..10_000 {
            let step = link.step(true);
            assert!(!matches!(step, Step::Raise(_)));
            if last == Step::ByDelay && step != Step::ByDelay {
                longest.push(0.0);
            }
            if let Some(longest) = longest.last_mut() {
                *longest = link.queue.max(*longest);
            }
            last = step;
        }
        // A quarter of 0.1 s, and then twice the noise.
        let (first, others) = longest.split_first().expect("pulses");
        assert!(*first <= 26.0e-3 && others.len() >= 4, "{longest:?}");
        assert!(others.iter().all(|queue| *queue <= 2.2 * NOISE), "{longest:?}");
    }

    #[test]
    fn a_sender_without_more_to_send_is_no_proof() {
        let mut link = Link::of(10.0e6, SHORT);
        for _ in 0..200 {
            link.queue = 0.0;
            assert!(!matches!(link.step(true), Step::Raise(_)));
        }
    }

    #[test]
    fn a_link_that_does_not_seem_to_be_full_sees_no_pulse() {
        let mut link = Link::of(100.0e6, SHORT);
        assert!((0..200).all(|_| link.step(false) == Step::ByDelay));
    }
}
