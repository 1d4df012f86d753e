use super::chirps::Room;
use super::interval::MIN_PACKETS;
use super::starhop::MIN_RATE;
use crate::time::{Duration, Instant};

/// Growth per hopRTT while the link is not full: doubling until it was full once, afterwards from 4 % doubling
/// up to 25 %, so that a link that regains a fifth of its capacity is full again after three hopRTTs.
const STARTUP: f64 = 2.0;
const FIRST: f64 = 0.04;
const MOST: f64 = 0.25;
/// A link that could be full is not looked into with chirps; one that has taken a step of 4 % and one of 8 % is not full.
const LOOKED_FOR: f64 = 2.0 * FIRST;
/// The growth up to the rate that the link carried lately, once its queue has gone: it may carry as much again. That rate fades in so
/// many seconds.
const RETURN: f64 = 0.75;
const FADES: f64 = 10.0;
/// A grant is at most this multiple of the arriving rate.
const MAX_LEAD: f64 = 2.0;
/// The share of the room that chirps have shown which is granted at once; it is at most this multiple of the arriving rate.
const SAFE: f64 = 0.95;
const LEAP: f64 = 12.0;
/// Growth goes on from this share of the room as after every startup, because what was shown may be too little.
const REACHED: f64 = 0.9;
/// Up to this rate growth doubles it: an interval of four packets takes 3 s at the least rate, and a quarter more after each
/// would keep a link that was gone for a moment at it for 15 s.
const UNKNOWN_RATE: f64 = 8.0 * MIN_RATE;
/// Factor of the grant over the carried rate when the hop is not the bottleneck: repairs, and a bottleneck that
/// opens up, need the room.
pub(super) const HEADROOM: f64 = 1.5;

/// The growth of the grant of a link that is not full: a step each round trip, the larger the longer the link is not full.
#[derive(Debug)]
pub(super) struct Growth {
    /// The next step, as a share of the grant.
    step: f64,
    is_startup: bool,
    /// Start of the round of growth, and the rate then.
    raised_at: Option<Instant>,
    raised_from: f64,
    /// Packets in a row that saw a long queue during startup.
    queued_in_a_row: u32,
    calm_until: Instant,
    /// The most that the link carried lately, bit/s; it fades.
    lately: f64,
}

/// The arrivals of an interval in which the link was not full.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spare {
    /// The rate that the link carried, bit/s.
    pub(super) carried: f64,
    /// The sender was held by the grant.
    pub(super) is_held: bool,
    /// The smoothed hopRTT.
    pub(super) hop_rtt: Duration,
    /// The room that chirps have shown.
    pub(super) room: Option<Room>,
}

impl Growth {
    /// The link was never full.
    pub(super) fn new() -> Self {
        Self {
            step: STARTUP - 1.0,
            is_startup: true,
            raised_at: None,
            raised_from: 0.0,
            queued_in_a_row: 0,
            calm_until: Instant::ZERO,
            lately: 0.0,
        }
    }

    /// Whether the grant doubles, because the link was never full.
    pub(super) fn is_startup(&self) -> bool {
        self.is_startup
    }

    /// True while chirps are to show the room of the link: while the grant doubles, and after it has grown twice in a row.
    pub(super) fn is_looking(&self) -> bool {
        self.is_startup || self.step > LOOKED_FOR
    }

    /// Whether a round of growth has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.raised_at.is_some()
    }

    /// The link was full.
    pub(super) fn leave_startup(&mut self) {
        (self.is_startup, self.step) = (false, FIRST);
    }

    /// The link that seemed to be full was not: it may carry far more.
    pub(super) fn hurry(&mut self) {
        self.step = MOST;
    }

    /// As [`Growth::hurry`], of a link of which little is known: the grant doubles again.
    pub(super) fn begin_anew(&mut self) {
        (self.is_startup, self.step) = (true, STARTUP - 1.0);
    }

    /// Too much was lost: the grant does not grow until then.
    pub(super) fn calm_down(&mut self, until: Instant) {
        self.calm_until = until;
    }

    /// True once enough time has passed since too much was lost.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        now >= self.calm_until
    }

    /// A packet came during startup, which saw a long queue or none. The doubling overshoots within one hopRTT: it ends with the
    /// first packets that see a queue, not with the interval. Packets of a sender that has no more to send, and is not held by the
    /// grant, are no sign: their queue is not of the doubling. Returns the rate once it ends; `rate` is the grant, and `carried` the
    /// rate of the link, if that is known.
    pub(super) fn watch_startup(
        &mut self,
        (has_queue, is_held): (bool, bool),
        rate: f64,
        carried: Option<f64>,
    ) -> Option<f64> {
        match (has_queue, is_held) {
            (true, true) => self.queued_in_a_row += 1,
            (true, false) => {}
            (false, _) => self.queued_in_a_row = 0,
        }
        if self.queued_in_a_row < MIN_PACKETS {
            return None;
        }
        self.leave_startup();
        Some(carried.unwrap_or(rate / STARTUP).min(rate))
    }

    /// The link carried so much, bit/s, in an interval of this many seconds.
    pub(super) fn learn(&mut self, carried: f64, span: f64) {
        let faded = self.lately - (self.lately - carried) * (span / FADES).min(1.0);
        self.lately = carried.max(faded);
    }

    /// The link is ours alone again. It carried `rate` before others came.
    pub(super) fn be_alone(&mut self, rate: f64) {
        self.lately = rate;
    }

    /// More than `rate` was lost in a full queue, bit/s: what was counted as carried with the losses was not.
    pub(super) fn carries_no_more(&mut self, rate: f64) {
        self.lately = self.lately.min(rate);
    }

    /// The link that carried so much is another one.
    pub(super) fn forget(&mut self) {
        self.lately = 0.0;
    }

    /// The link carried far more than `rate` lately, bit/s.
    pub(super) fn has_carried_more(&self, rate: f64) -> bool {
        self.lately > (1.0 + MOST) * rate
    }

    /// The next step from `rate`, as a share of it.
    fn take_step(&mut self, rate: f64) -> f64 {
        let step = self.step;
        self.step = (2.0 * step).min(MOST);
        if rate <= UNKNOWN_RATE {
            STARTUP - 1.0
        } else if self.has_carried_more(rate) {
            (self.lately / rate - 1.0).min(RETURN)
        } else {
            step
        }
    }

    /// The grant after an interval in which the link was not full, where it was `rate`. A sender that does not use up its grant is
    /// given no more than `ceiling`.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        rate: f64,
        spare: Spare,
        ceiling: impl FnOnce() -> f64,
    ) -> f64 {
        let Spare { carried, is_held, hop_rtt, room } = spare;
        if !self.is_calm(now) {
            return rate;
        }
        let is_due = self.raised_at.is_none_or(|at| now.since(at) >= hop_rtt);
        if is_due {
            (self.raised_at, self.raised_from) = (Some(now), rate.max(carried));
        }
        if let Some(rate) = self.start(rate, spare) {
            return rate;
        }
        let shown = room.filter(|_| is_held && self.is_looking()).map_or(0.0, |room| room.granted(carried));
        if shown > rate {
            return shown;
        }
        if !is_due {
            return rate;
        }
        if is_held {
            let most = room.map_or(f64::INFINITY, |room| room.most).min(MAX_LEAD * carried);
            if most <= rate {
                // A step that is not taken shows nothing: the next one is no larger.
                return rate;
            }
            let step = self.take_step(rate.max(carried));
            return (rate.max(carried) * (1.0 + step)).min(most);
        }
        self.step = if self.is_startup { self.step } else { FIRST };
        rate.max((HEADROOM * carried).min(ceiling()))
    }

    /// The grant during startup, where it was `rate`; `None` afterwards, and while the sender does not use it up.
    fn start(&mut self, rate: f64, spare: Spare) -> Option<f64> {
        let Spare { carried, is_held, room, .. } = spare;
        if !self.is_startup {
            return None;
        }
        let doubled = (STARTUP * self.raised_from).min(MAX_LEAD * carried);
        match room {
            // Where there is no upper bound, the next chirps, which leave at that rate, are to show one.
            Some(room) if carried >= REACHED * room.least && room.most.is_finite() => {
                self.leave_startup();
                Some(rate)
            }
            // It doubled before anything was shown.
            Some(room) if rate > room.most => Some(carried.max(SAFE * room.least)),
            Some(room) if is_held => Some(rate.max(room.granted(carried)).max(doubled.min(room.least))),
            None if is_held => Some(rate.max(doubled)),
            _ => None,
        }
    }
}

impl Room {
    /// The rate that is granted at once where so much arrives, bit/s.
    fn granted(self, carried: f64) -> f64 {
        (SAFE * self.least).min(LEAP * carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(1000 + millis)
    }

    fn spare(carried: f64, is_held: bool) -> Spare {
        Spare { carried, is_held, hop_rtt: RTT, room: None }
    }

    #[test]
    fn a_link_that_was_never_full_is_granted_twice_what_it_carries_once_a_round_trip() {
        let mut growth = Growth::new();
        assert!(!growth.has_begun());
        let rate = growth.grow(at(0), 1e6, spare(1e6, true), || 0.0);
        assert!(growth.has_begun());
        assert_eq!(rate, 2e6);
        assert_eq!(growth.grow(at(20), rate, spare(1.5e6, true), || 0.0), 2e6, "twice the rate of the round");
        assert_eq!(growth.grow(at(40), rate, spare(1.5e6, true), || 0.0), 3e6, "twice what came");
    }

    #[test]
    fn startup_ends_with_four_packets_in_a_row_that_saw_a_queue() {
        let mut growth = Growth::new();
        for has_queue in [true, true, true, false, true, true, true] {
            assert_eq!(growth.watch_startup((has_queue, true), 4e6, Some(3e6)), None);
        }
        assert_eq!(growth.watch_startup((true, true), 4e6, Some(3e6)), Some(3e6));
        assert!(!growth.is_startup());
        growth.begin_anew();
        assert_eq!(growth.watch_startup((true, true), 4e6, None), Some(2e6), "the grant before the doubling");
        growth = Growth::new();
        assert!(
            (0..99).all(|_| growth.watch_startup((true, false), 4e6, Some(2e4)).is_none()),
            "not its queue"
        );
        assert!(growth.is_startup());
    }

    #[test]
    fn after_startup_the_steps_double_up_to_a_quarter_and_begin_small_when_the_grant_is_not_used_up() {
        let mut growth = Growth::new();
        growth.leave_startup();
        let mut now = at(0);
        let mut step = |growth: &mut Growth, is_held| {
            now += RTT;
            growth.grow(now, 1e6, spare(1e6, is_held), || 1.2e6) / 1e6
        };
        let steps = [true; 5].map(|is_held| step(&mut growth, is_held));
        assert_eq!(steps, [1.04, 1.08, 1.16, 1.25, 1.25]);
        assert_eq!(step(&mut growth, false), 1.2, "half as much again, but no more than the ceiling");
        assert_eq!(step(&mut growth, true), 1.04);
        growth.hurry();
        assert_eq!(step(&mut growth, true), 1.25);
    }

    #[test]
    fn nothing_grows_while_the_link_calms_down_and_less_than_a_round_trip_after_a_step() {
        let mut growth = Growth::new();
        growth.leave_startup();
        growth.calm_down(at(100));
        assert_eq!(growth.grow(at(99), 1e6, spare(1e6, true), || 0.0), 1e6);
        assert!(growth.grow(at(100), 1e6, spare(1e6, true), || 0.0) > 1e6);
        assert_eq!(growth.grow(at(139), 1e6, spare(1e6, true), || 0.0), 1e6);
    }

    #[test]
    fn a_step_that_is_not_taken_is_not_doubled() {
        let mut growth = Growth::new();
        growth.leave_startup();
        // The first of what was granted comes.
        assert_eq!(growth.grow(at(0), 1e6, spare(1e3, true), || 0.0), 1e6);
        assert_eq!(growth.grow(at(40), 1e6, spare(1e6, true), || 0.0), 1.04e6);
    }

    #[test]
    fn a_grant_of_hardly_anything_doubles() {
        let mut growth = Growth::new();
        growth.leave_startup();
        assert_eq!(growth.grow(at(0), MIN_RATE, spare(MIN_RATE, true), || 0.0), 2.0 * MIN_RATE);
    }

    fn shown(carried: f64, least: f64, most: f64) -> Spare {
        Spare { room: Some(Room { least, most }), ..spare(carried, true) }
    }

    #[test]
    fn a_link_that_shows_its_room_is_given_most_of_it_at_once_and_no_more_than_it_carries() {
        let mut growth = Growth::new();
        let leap = growth.grow(at(0), 14.0, shown(14.0, 100.0, 104.0), || 0.0);
        assert_eq!(leap, SAFE * 100.0);
        // The rate that was measured may be far below what the link showed.
        assert_eq!(Growth::new().grow(at(0), 1.0, shown(1.0, 100.0, 104.0), || 0.0), LEAP);
        let twice = growth.grow(at(50), leap, shown(60.0, 100.0, 104.0), || 0.0);
        assert_eq!(twice, 100.0);
        assert!(growth.is_startup());
    }

    #[test]
    fn what_was_granted_before_a_link_showed_its_room_is_taken_back() {
        let mut growth = Growth::new();
        let doubled = growth.grow(at(0), 14.0, spare(14.0, true), || 0.0);
        assert_eq!(doubled, 28.0);
        let told = growth.grow(at(10), doubled, Spare { is_held: false, ..shown(14.0, 20.0, 21.0) }, || 0.0);
        assert_eq!(told, SAFE * 20.0);
    }

    #[test]
    fn a_link_that_carries_what_it_showed_grows_on_up_to_its_upper_bound() {
        let mut growth = Growth::new();
        assert_eq!(growth.grow(at(0), 95.0, shown(95.0, 100.0, 102.0), || 0.0), 95.0);
        assert!(!growth.is_startup());
        let mut rate = 95.0;
        for round in 1..6 {
            rate = growth.grow(at(50 * round), rate, shown(rate, 100.0, 102.0), || 0.0);
        }
        assert_eq!(rate, 102.0);
        assert!(growth.grow(at(400), rate, spare(rate, true), || 0.0) > 102.0);
    }

    #[test]
    fn a_link_without_an_upper_bound_is_looked_into_again_at_the_rate_that_it_showed() {
        let mut growth = Growth::new();
        growth.grow(at(0), 95.0, shown(95.0, 100.0, f64::INFINITY), || 0.0);
        assert!(growth.is_startup());
    }

    #[test]
    fn a_link_that_was_full_is_looked_into_after_two_steps_and_given_what_it_shows() {
        let mut growth = Growth::new();
        growth.leave_startup();
        let mut rate = 1e6;
        for round in 0..2 {
            assert!(!growth.is_looking());
            let now = at(50 * round);
            rate = growth.grow(now, rate, Spare { carried: rate, ..shown(rate, 10e6, 11e6) }, || 0.0);
        }
        assert!(rate < 1.2e6, "{rate}: not yet");
        assert!(growth.is_looking());
        assert_eq!(growth.grow(at(101), rate, shown(rate, 10e6, 11e6), || 0.0), SAFE * 10e6);
        growth.leave_startup();
        assert!(!growth.is_looking(), "it is full once more");
    }
}
