use crate::time::{Duration, Instant};

/// The most unknown names that may be asked for before the first is answered: no node on the way knows yet whether
/// they exist.
const FIRST_WINDOW: u32 = 256;
/// The largest window that is useful: at a hundred bytes per request, it is 1.6 MB.
const MOST: u32 = 16_384;
/// A request without an answer counts no longer after this time: it may never get one.
const PERIOD: Duration = Duration::from_secs(1);
/// A second's worth of misses may come at once.
const BURST: Duration = Duration::from_secs(1);
/// The most that a flood of misses keeps its neighbour waiting.
const LONGEST: Duration = Duration::from_secs(5);
/// Time after which there may be room again, while answers come: a few round trips of most paths.
const SOON: Duration = Duration::from_millis(50);

/// The number of unknown flows that one neighbour may ask for.
///
/// A name that exists costs its bytes, and these are bounded elsewhere. A name that does not exist costs every node
/// up to the Producer a packet each way, and nothing else limits such requests. So each name that was found lets
/// one more be asked for at once, as a congestion window grows; and the rate of names that were not found is
/// bounded.
#[derive(Debug)]
pub(super) struct Openings {
    window: u32,
    /// Names without an answer, of those asked for since the period began.
    unanswered: u32,
    period_began: Instant,
}

/// The names that were not found lately, of all neighbours that share a bound: of a [`Holder`](crate::peer::Holder),
/// or of all strangers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Misses {
    /// Time at which all misses so far would have been used up at the allowed rate.
    until: Option<Instant>,
}

impl Misses {
    /// One more, where one may come in each `interval`.
    fn add(&mut self, now: Instant, interval: Duration) {
        let floor = now.before(BURST);
        let until = self.until.map_or(floor, |until| until.max(floor)) + interval;
        self.until = Some(until.min(now + LONGEST));
    }

    /// The time until a further name may be asked for, if there have been too many.
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.until.filter(|until| *until > now).map(|until| until.since(now))
    }
}

impl Openings {
    /// Nothing was asked for yet.
    pub(super) fn new(now: Instant) -> Self {
        Self { window: FIRST_WINDOW, unanswered: 0, period_began: now }
    }

    /// Whether one more may be asked for at `now`; if so, it is.
    ///
    /// # Errors
    /// The time after which to come back.
    pub(super) fn take(&mut self, now: Instant, misses: &Misses) -> Result<(), Duration> {
        if now.since(self.period_began) >= PERIOD {
            self.period_began = now;
            self.unanswered = 0;
        }
        if let Some(wait) = misses.wait(now) {
            return Err(wait.max(SOON));
        }
        if self.unanswered >= self.window {
            return Err(SOON);
        }
        self.unanswered += 1;
        Ok(())
    }

    /// The name exists.
    pub(super) fn on_found(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.window = (self.window + 1).min(MOST);
    }

    /// The name does not exist; one in each `interval` may not.
    pub(super) fn on_missed(&mut self, now: Instant, misses: &mut Misses, interval: Duration) {
        self.unanswered = self.unanswered.saturating_sub(1);
        self.window = (self.window / 2).max(FIRST_WINDOW);
        misses.add(now, interval);
    }

    /// A node further up has no room to find out.
    pub(super) fn on_put_off(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 names a second.
    const EVERY: Duration = Duration::from_millis(5);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(10) + Duration::from_millis(millis)
    }

    #[test]
    fn ten_thousand_names_that_exist_are_asked_for_within_six_round_trips() {
        let (mut openings, misses) = (Openings::new(at(0)), Misses::default());
        let mut left = 10_000;
        let mut rounds = 0;
        while left > 0 {
            rounds += 1;
            let taken = (0..left).take_while(|_| openings.take(at(60 * rounds), &misses).is_ok()).count();
            (0..taken).for_each(|_| openings.on_found());
            left -= taken;
        }
        assert!(rounds <= 6, "{rounds} round trips");
    }

    #[test]
    fn names_that_nobody_has_are_bounded_in_rate() {
        let (mut openings, mut misses) = (Openings::new(at(0)), Misses::default());
        let mut asked = 0;
        for millis in 0..10_000 {
            for _ in 0..20 {
                if openings.take(at(millis), &misses).is_ok() {
                    asked += 1;
                    openings.on_missed(at(millis), &mut misses, EVERY);
                }
            }
        }
        assert!((2_000..=2_201 + u64::from(FIRST_WINDOW)).contains(&asked), "{asked}");
    }

    #[test]
    fn who_is_put_off_is_told_when_to_come_back() {
        let (mut openings, mut misses) = (Openings::new(at(0)), Misses::default());
        for _ in 0..FIRST_WINDOW {
            assert_eq!(openings.take(at(0), &misses), Ok(()));
        }
        assert_eq!(openings.take(at(0), &misses), Err(SOON));
        (0..FIRST_WINDOW).for_each(|_| openings.on_missed(at(100), &mut misses, EVERY));
        let Err(after) = openings.take(at(101), &misses) else { panic!("there were too many") };
        assert!(after > SOON, "{after:?}");
        assert_eq!(openings.take(at(101) + after, &misses), Ok(()), "who comes back then is welcome");
    }

    #[test]
    fn what_gets_no_answer_is_no_burden_for_ever() {
        let (mut openings, misses) = (Openings::new(at(0)), Misses::default());
        while openings.take(at(0), &misses).is_ok() {}
        assert_eq!(openings.take(at(1_000), &misses), Ok(()));
    }
}
