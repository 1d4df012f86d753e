use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::Waited;

/// Rounds over which the highest rate counts.
const ROUNDS: usize = 8;
const SHORTEST: Duration = Duration::from_millis(10);

/// The rates at which a flow gets its bytes, in rounds that take as long as its path.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rates: [Rate; ROUNDS],
    ended: usize,
    started: Option<Instant>,
    bytes: u64,
    current: Round,
}

/// The bytes of one round, as they came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// The shortest time that any of them waited for its turn.
    pub(super) least_waited: Duration,
    /// The requests ran out.
    pub(super) is_dry: bool,
}

impl Default for Round {
    fn default() -> Self {
        Self { least_waited: Duration::MAX, is_dry: false }
    }
}

impl Rounds {
    /// Bytes arrived that had waited so long.
    pub(super) fn on_waited(&mut self, waited: Waited) {
        self.current.least_waited = self.current.least_waited.min(waited.time);
    }

    /// The requests ran out.
    pub(super) fn on_dry(&mut self) {
        self.current.is_dry = true;
    }

    /// Bytes arrived on a path that takes `path_time`: the round that ends with them.
    pub(super) fn on_bytes(&mut self, now: Instant, bytes: u64, path_time: Duration) -> Option<Round> {
        let Some(started) = self.started else {
            // Nobody knows in what time the first bytes came.
            self.started = Some(now);
            return None;
        };
        self.bytes += bytes;
        let elapsed = now.since(started);
        if elapsed < path_time.max(SHORTEST) {
            return None;
        }
        self.rates[self.ended % ROUNDS] = Rate::of(self.bytes, elapsed);
        self.ended += 1;
        self.started = Some(now);
        self.bytes = 0;
        Some(core::mem::take(&mut self.current))
    }

    /// Rounds that have ended.
    pub(super) fn ended(&self) -> usize {
        self.ended
    }

    /// Enough rounds have ended to know the rate.
    pub(super) fn are_complete(&self) -> bool {
        self.ended >= ROUNDS
    }

    /// The highest rate of the last eight rounds.
    pub(super) fn rate(&self) -> Rate {
        self.rates.iter().copied().max().unwrap_or(Rate::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_round_takes_as_long_as_the_path_and_tells_its_least_wait_and_whether_requests_ran_out() {
        let mut rounds = Rounds::default();
        let wait = |millis| Waited { time: Duration::from_millis(millis), is_dry: false };
        assert!(rounds.on_bytes(at(50), 1_000, PATH).is_none());
        rounds.on_waited(wait(30));
        rounds.on_waited(wait(20));
        rounds.on_dry();
        assert!(rounds.on_bytes(at(140), 1_000, PATH).is_none());
        let round = rounds.on_bytes(at(150), 4_000, PATH).expect("100 ms have passed");
        assert_eq!((round.least_waited, round.is_dry), (Duration::from_millis(20), true));
        assert_eq!(rounds.rate(), Rate::of(5_000, PATH), "the first bytes do not count");
        let round = rounds.on_bytes(at(250), 1_000, PATH).expect("the next");
        assert_eq!((round.least_waited, round.is_dry), (Duration::MAX, false));
    }

    #[test]
    fn the_highest_rate_of_eight_rounds_counts() {
        let mut rounds = Rounds::default();
        rounds.on_bytes(at(0), 0, PATH);
        rounds.on_bytes(at(100), 9_000, PATH);
        assert!((2..=8).all(|round| rounds.on_bytes(at(100 * round), 1_000, PATH).is_some()));
        assert_eq!((rounds.rate(), rounds.are_complete()), (Rate::of(9_000, PATH), true));
        rounds.on_bytes(at(900), 1_000, PATH);
        assert_eq!(rounds.rate(), Rate::of(1_000, PATH));
    }
}
