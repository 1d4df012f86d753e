use crate::time::{Duration, Instant};
use crate::units::Rate;

/// The bytes that a lone flow asks for before its first answer: with them, 20 Mbit/s fill 100 ms …
const FIRST: u64 = 256 * 1024;
/// … and so do all such flows together, where a hop is known to carry more.
const FILLED: Duration = Duration::from_millis(100);
/// A path is taken for the one that it was for this long.
const REMEMBERED: Duration = Duration::from_secs(600);

/// The first requests of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    /// The bytes that it asks for before its first answer.
    pub(super) bytes: u64,
    /// The bytes that it would ask for if it were alone.
    pub(super) alone: u64,
}

/// The bytes that flows of one neighbour last asked for ahead, all together: what its path took, whatever hop of it is
/// the narrow one. Requests beyond a path's capacity wait upstream and cost memory only, because the hops' rates govern
/// what is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habit {
    bytes: u64,
    noted_at: Instant,
}

impl Habit {
    /// One of `flows` concurrent flows ended, and had `bytes` asked for.
    pub(super) fn note(&mut self, now: Instant, bytes: u64, flows: u32) {
        *self = Self { bytes: bytes.saturating_mul(u64::from(flows)), noted_at: now };
    }

    /// The part of one of `flows` concurrent flows, that of a lone flow on an unknown path at least.
    pub(super) fn first(&self, now: Instant, flows: u32) -> u64 {
        let is_known = now.since(self.noted_at) < REMEMBERED;
        if is_known { (self.bytes / u64::from(flows.max(1))).max(FIRST) } else { FIRST }
    }
}

/// The first requests of flows that have received nothing yet and so do not know their share. A lone flow begins
/// with the bytes that fill a usual path, and the n-th concurrent flow with an n-th of that, but at least a packet.
/// So n flows at once ask for no more than 1 + ln n times as much as one, and a packet each. A hop that was measured has
/// room for as much as it carries in that time: who arrives while others do is not to ask in ten steps.
#[derive(Debug, Default)]
pub(super) struct Opening {
    flows: u64,
}

impl Opening {
    /// One more flow begins, on a hop that was measured to carry `carries`; alone it would ask for `first`. Returns the
    /// bytes that it may ask for; less than a packet means one packet.
    pub(super) fn begin(&mut self, carries: Option<Rate>, first: u64) -> u64 {
        self.flows += 1;
        let room = carries.map_or(0, |rate| rate.bytes_in(FILLED)).max(first);
        (room / self.flows).min(first)
    }

    /// A flow got its first answer, or ends without one.
    pub(super) fn end(&mut self) {
        self.flows = self.flows.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_flows_at_once_ask_for_eight_times_as_much_as_one() {
        let mut opening = Opening::default();
        let asked: u64 = (0..1_000).map(|_| opening.begin(None, FIRST)).sum();
        assert!(asked < 8 * FIRST, "{asked}");
    }

    #[test]
    fn sixty_arrivals_on_a_gigabit_ask_for_a_small_file_at_once() {
        let mut opening = Opening::default();
        let asked = (0..60).map(|_| opening.begin(Some(Rate::from_mbps(1000)), FIRST)).min();
        assert!(asked >= Some(200_000), "{asked:?}");
        assert_eq!(Opening::default().begin(Some(Rate::from_mbps(1000)), FIRST), FIRST);
        assert_eq!(Opening::default().begin(Some(Rate::from_mbps(1)), FIRST), FIRST);
    }

    #[test]
    fn who_comes_after_the_others_were_answered_begins_as_one_that_is_alone() {
        let mut opening = Opening::default();
        (0..10).for_each(|_| _ = opening.begin(None, FIRST));
        (0..10).for_each(|_| opening.end());
        assert_eq!(opening.begin(None, FIRST), FIRST);
    }

    #[test]
    fn a_lone_flow_begins_with_what_those_before_it_came_to_for_ten_minutes() {
        let (mut habit, at) = (Habit::default(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
        assert_eq!(habit.first(at(0), 1), FIRST);
        habit.note(at(100), FIRST, 5);
        let (soon, late) = (habit.first(at(699), 1), habit.first(at(700), 1));
        assert_eq!((soon, late), (5 * FIRST, FIRST));
        assert_eq!([2, 1000].map(|flows| habit.first(at(699), flows)), [5 * FIRST / 2, FIRST]);
        let mut opening = Opening::default();
        let both = [opening.begin(None, soon), opening.begin(None, soon)];
        assert_eq!(both, [5 * FIRST, 5 * FIRST / 2]);
        habit.note(at(800), 1, 1);
        assert_eq!(habit.first(at(800), 1), FIRST);
    }
}
