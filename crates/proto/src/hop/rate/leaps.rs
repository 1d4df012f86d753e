//! Leaps of the grant of a long hop that was never full, where noise hides what chirps show.
//!
//! Doubling overshoots for a hopRTT before it shows: by as much as a hopRTT of queue. A moment of a much higher grant makes a short
//! queue, and its packets show a hopRTT later what the link carries: a queue that grows from one part of them to the next is longer than
//! noise, and they come as fast as the link carries them.

use super::Delivery;
use super::starhop::SETTLES;
use crate::time::{Duration, Instant};

/// The grant of a leap, as a multiple of the one before.
const LEAP: f64 = 4.0;
/// A leap lasts for this part of a hopRTT, for this long at least, and for so many times the spread of delays, by which the time of its
/// packets is uncertain. One that would take a larger part than the other makes a queue nearly as long as doubling does.
const LASTS: u64 = 16;
const LEAST: Duration = Duration::from_millis(20);
const SPREADS: f64 = 4.0;
const LONGEST: u64 = 6;
/// From this rise of the delay on, as a share of the spread, it is a queue.
const ROSE: f64 = 0.35;
/// The share of what a full link carried that is granted.
const SAFE: f64 = 0.97;
/// Of a leap this part of the packets each is judged by itself.
const PARTS: usize = 4;
/// A leap of less than this multiple of the grant is one whose sender had no more to send: it shows nothing.
const DRY: f64 = 1.5;
/// The number of hopRTTs for which counts what was shown.
const SHOWN_RTTS: u64 = 3;
/// Packets of a leap that do not come within so many hopRTTs do not come.
const LATE: u64 = 3;

/// The state of the hop when an interval ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) now: Instant,
    pub(super) hop_rtt: Duration,
    /// The spread of delays, seconds.
    pub(super) spread: f64,
    /// The grant, and what the link carries, at least what is granted first, bit/s.
    pub(super) granted: f64,
    pub(super) carried: f64,
    /// The hop was never full, noise hides its room, and the grant holds the sender.
    pub(super) is_wanted: bool,
}

/// The decision about the grant, bit/s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Step {
    /// It follows from other things.
    None,
    /// So much, while a leap goes on or its packets are still to come.
    Hold(f64),
    /// The link carries so much without a queue.
    Carried(f64),
    /// The link is full with so much.
    Full(f64),
}

/// Owns the leaps of a hop. See the module.
#[derive(Debug, Default)]
pub(super) struct Leaps {
    leap: Option<Leap>,
    have_begun: bool,
    /// The rate that the link carried in the last one without a queue, bit/s.
    shown: f64,
    /// A flow may ask until then for all that is granted.
    shown_until: Instant,
    /// The rate of a link that was full, bit/s, and the time until which what comes was sent before it was granted.
    settles: Option<(f64, Instant)>,
}

/// A leap that goes on, or whose packets are still to come.
#[derive(Clone, Copy, Debug)]
struct Leap {
    /// The grant without it, bit/s, which the link is known to carry.
    granted: f64,
    spread: f64,
    began: Instant,
    lasts: Duration,
    parts: [Part; PARTS],
    /// Packets came that left after it.
    is_over: bool,
}

/// Packets that left in the same part of a leap.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    packets: u32,
    bits: f64,
    /// The sum of their delays, seconds.
    delays: f64,
    /// Arrival of the last one.
    last: Instant,
}

impl Part {
    fn delay(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.delays / f64::from(self.packets))
    }
}

impl Leap {
    /// The grant.
    fn rate(&self, now: Instant) -> f64 {
        if now.since(self.began) < self.lasts { LEAP * self.granted } else { self.granted }
    }

    /// A packet arrived that left so long after the leap began.
    fn add(&mut self, since: Duration, delivery: &Delivery) {
        let part = (since.as_secs_f64() / self.lasts.as_secs_f64() * PARTS as f64) as usize;
        let Some(part) = self.parts.get_mut(part) else {
            self.is_over = true;
            return;
        };
        part.packets += 1;
        part.bits += delivery.bytes as f64 * 8.0 * f64::from(delivery.sent);
        part.delays += delivery.hop_rtt.as_secs_f64();
        part.last = delivery.now;
    }

    /// The meaning of the packets; `None` if too few came for one.
    fn judge(&self) -> Option<Step> {
        let [first, .., last] = self.parts;
        let rise = last.delay()? - first.delay()?;
        let [_, before, late @ ..] = self.parts;
        let bits: f64 = late.iter().map(|part| part.bits).sum();
        let sent = bits / (self.lasts.as_secs_f64() * late.len() as f64 / PARTS as f64);
        if rise <= ROSE * self.spread {
            let carried = sent.min(LEAP * self.granted);
            return (carried > DRY * self.granted).then_some(Step::Carried(carried));
        }
        let took = last.last.since(before.last).as_secs_f64();
        Some(Step::Full(SAFE * sent.min(bits / took)))
    }
}

impl Leaps {
    /// The path is another one.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// A full packet arrived. True if it is one of a leap, or left after it.
    #[inline]
    pub(super) fn on_packet(&mut self, delivery: &Delivery) -> bool {
        let Some(leap) = &mut self.leap else { return false };
        let left = delivery.now.before(delivery.hop_rtt);
        let is_of_leap = left >= leap.began;
        if is_of_leap {
            leap.add(left.since(leap.began), delivery);
        }
        is_of_leap
    }

    /// The grant, bit/s, while a leap goes on, or its packets are still to come.
    #[inline]
    pub(super) fn rate(&self, now: Instant) -> Option<f64> {
        self.leap.as_ref().map(|leap| leap.rate(now))
    }

    /// An interval has ended.
    pub(super) fn on_interval(&mut self, seen: Seen) -> Step {
        let Some(leap) = self.leap else {
            self.settles = self.settles.filter(|&(_, until)| seen.now < until);
            return self.settles.map_or_else(|| self.begin(seen), |(rate, _)| Step::Hold(rate));
        };
        let is_late = seen.now.since(leap.began) > leap.lasts + seen.hop_rtt.scaled(LATE, 1);
        if !leap.is_over && !is_late {
            return Step::Hold(leap.rate(seen.now));
        }
        self.leap = None;
        let Some(step) = leap.judge() else { return Step::Hold(leap.granted) };
        self.shown = if let Step::Carried(rate) = step { rate } else { 0.0 };
        if let Step::Full(rate) = step {
            self.settles = Some((rate, seen.now + seen.hop_rtt.scaled(SETTLES.0, SETTLES.1)));
        }
        self.shown_until = seen.now + seen.hop_rtt.scaled(SHOWN_RTTS, 1);
        step
    }

    fn begin(&mut self, seen: Seen) -> Step {
        if !seen.is_wanted {
            return Step::None;
        }
        let by_spread = Duration::from_secs_f64(SPREADS * seen.spread);
        let lasts = seen.hop_rtt.scaled(1, LASTS).max(LEAST).max(by_spread);
        if lasts > seen.hop_rtt.scaled(1, LONGEST) {
            return Step::None;
        }
        let leap = Leap {
            granted: seen.granted.min(seen.carried.max(self.shown)),
            spread: seen.spread,
            began: seen.now,
            lasts,
            parts: Default::default(),
            is_over: false,
        };
        (self.leap, self.have_begun) = (Some(leap), true);
        Step::Hold(LEAP * leap.granted)
    }

    /// True once there was one.
    pub(super) fn have_begun(&self) -> bool {
        self.have_begun
    }

    /// True if leaps have just shown that the link carries what is granted.
    pub(super) fn have_shown(&self, now: Instant) -> bool {
        self.leap.is_some() || now < self.shown_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(600);
    const BITS: f64 = 11_200.0;
    const GRANTED: f64 = 15e6;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(10_000 + millis)
    }

    fn seen(now: Instant) -> Seen {
        Seen { now, hop_rtt: RTT, spread: 6e-3, granted: GRANTED, carried: GRANTED, is_wanted: true }
    }

    /// Packets of a sender that follows the leap of a grant of 15 Mbit/s, over a link of `capacity`, bit/s. `noise` is added to the delay of
    /// each, seconds; where `is_dry` the sender has no more than the grant without a leap to send.
    fn leap(capacity: f64, is_dry: bool, noise: impl Fn(usize) -> f64) -> Step {
        let mut leaps = Leaps::default();
        assert_eq!(leaps.on_interval(seen(at(0))), Step::Hold(LEAP * GRANTED));
        assert_eq!(leaps.on_interval(seen(at(50))), Step::Hold(GRANTED), "its packets are still to come");
        let (mut left, mut free, mut number) = (at(0), at(0), 0);
        while left < at(60) {
            let rate = if is_dry { GRANTED } else { leaps.rate(left).expect("it goes on") };
            left += Duration::from_secs_f64(BITS / rate);
            free = free.max(left) + Duration::from_secs_f64(BITS / capacity);
            let now = free + RTT + Duration::from_secs_f64(noise(number));
            let delivery = Delivery {
                now,
                bytes: 1_400,
                lost: 0,
                runs: 0,
                passed: 1,
                sent: 1,
                hop_rtt: now.since(left),
                backlog: true,
            };
            assert!(leaps.on_packet(&delivery));
            number += 1;
        }
        leaps.on_interval(seen(at(700)))
    }

    /// Delays of up to 6 ms, in a saw of seven packets.
    fn saw(number: usize) -> f64 {
        6e-3 * (number % 7) as f64 / 6.0
    }

    #[test]
    fn a_link_that_carries_a_leap_is_granted_as_much() {
        for noise in [|_| 0.0, saw] {
            let Step::Carried(rate) = leap(200e6, false, noise) else { panic!("it is not full") };
            assert!((0.9..1.01).contains(&(rate / (LEAP * GRANTED))), "{rate}");
        }
    }

    #[test]
    fn a_link_that_is_full_in_a_leap_shows_what_it_carries() {
        for capacity in [18e6, 30e6, 48e6] {
            for noise in [|_| 0.0, saw] {
                let Step::Full(rate) = leap(capacity, false, noise) else { panic!("{capacity}: it is full") };
                assert!((0.85..1.0).contains(&(rate / capacity)), "{capacity}: {rate}");
            }
        }
    }

    #[test]
    fn a_sender_with_no_more_to_send_shows_nothing() {
        assert_eq!(leap(200e6, true, |_| 0.0), Step::Hold(GRANTED));
    }

    #[test]
    fn the_next_leap_begins_from_what_the_link_carried_and_none_after_a_full_link_until_that_shows() {
        let mut leaps = Leaps { shown: 60e6, ..Leaps::default() };
        let granted = Seen { granted: 90e6, ..seen(at(0)) };
        assert_eq!(
            leaps.on_interval(granted),
            Step::Hold(LEAP * 60e6),
            "the rest of the grant was not shown"
        );
        let mut leaps = Leaps { settles: Some((48e6, at(750))), ..Leaps::default() };
        assert_eq!(leaps.on_interval(seen(at(749))), Step::Hold(48e6));
        assert_eq!(leaps.on_interval(Seen { is_wanted: false, ..seen(at(750)) }), Step::None);
    }

    #[test]
    fn no_leap_begins_where_it_would_last_for_a_sixth_of_a_round_trip() {
        let mut leaps = Leaps::default();
        assert_eq!(leaps.on_interval(Seen { spread: 26e-3, ..seen(at(0)) }), Step::None);
        assert!(!leaps.have_begun() && !leaps.have_shown(at(0)));
    }

    #[test]
    fn a_leap_whose_packets_do_not_come_ends() {
        let mut leaps = Leaps::default();
        leaps.on_interval(seen(at(0)));
        assert_eq!(leaps.on_interval(seen(at(1_800))), Step::Hold(GRANTED));
        assert!(leaps.rate(at(1_800)).is_some());
        leaps.on_interval(seen(at(1_900)));
        assert_eq!(leaps.rate(at(1_900)), None);
    }
}
