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

impl Beginning {
    /// For one of `flows` flows of a hop, which does not know its share before its first answer. A lone flow begins with
    /// `first`, and one of many with its part of that, but at least a packet: so n flows that begin together ask for no more
    /// than 1 + ln n times as much as one, and a packet each. A hop that was measured has room for as much as it `carries` until
    /// an answer comes: who arrives among sixty on a gigabit is not to ask in ten steps, and who arrives among thousands that
    /// stay has little to come.
    pub(super) fn new(flows: u32, first: u64, carries: Option<(Rate, Duration)>) -> Self {
        let room = carries.map_or(0, |(rate, hop_rtt)| rate.bytes_in(FILLED.max(hop_rtt))).max(first);
        Self { bytes: (room / u64::from(flows.max(1))).min(first), alone: first }
    }

    /// For a live flow, which always asks for as much as its application says.
    pub(super) fn live() -> Self {
        Self { bytes: 0, alone: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Option<(Rate, Duration)> = Some((Rate::from_mbps(1000), Duration::from_millis(20)));

    fn begin(flows: u32, first: u64, carries: Option<(Rate, Duration)>) -> u64 {
        Beginning::new(flows, first, carries).bytes
    }

    #[test]
    fn a_thousand_flows_at_once_ask_for_eight_times_as_much_as_one() {
        let asked: u64 = (1..=1_000).map(|flows| begin(flows, FIRST, None)).sum();
        assert!(asked < 8 * FIRST, "{asked}");
    }

    #[test]
    fn one_of_sixty_on_a_gigabit_asks_for_a_small_file_at_once_and_one_of_thousands_for_its_share() {
        assert!(begin(60, FIRST, GIGABIT) >= 200_000);
        assert_eq!(begin(1, FIRST, GIGABIT), FIRST);
        assert_eq!(begin(3_000, FIRST, GIGABIT), 12_500_000 / 3_000);
        assert_eq!(begin(1, FIRST, Some((Rate::from_mbps(1), Duration::from_millis(20)))), FIRST);
    }

    #[test]
    fn one_of_ten_on_a_long_hop_asks_for_its_share_of_a_round_trip() {
        let hop = Some((Rate::from_mbps(20), Duration::from_millis(600)));
        assert_eq!(begin(10, FIRST, hop), 150_000);
    }

    #[test]
    fn a_lone_flow_begins_with_what_those_before_it_came_to_for_ten_minutes() {
        let (mut habit, at) = (Habit::default(), |seconds| Instant::ZERO + Duration::from_secs(seconds));
        assert_eq!(habit.first(at(0), 1), FIRST);
        habit.note(at(100), FIRST, 5);
        let (soon, late) = (habit.first(at(699), 1), habit.first(at(700), 1));
        assert_eq!((soon, late), (5 * FIRST, FIRST));
        assert_eq!([2, 1000].map(|flows| habit.first(at(699), flows)), [5 * FIRST / 2, FIRST]);
        assert_eq!([1, 2].map(|flows| begin(flows, soon, None)), [5 * FIRST, 5 * FIRST / 2]);
        habit.note(at(800), 1, 1);
        assert_eq!(habit.first(at(800), 1), FIRST);
    }
}
