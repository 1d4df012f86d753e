use crate::time::Duration;
use crate::units::Rate;

/// The bytes that a lone flow asks for before its first answer: with them, 20 Mbit/s fill 100 ms …
const FIRST: u64 = 256 * 1024;
/// … and so do all such flows together, where a hop is known to carry more.
const FILLED: Duration = Duration::from_millis(100);

/// The first requests of flows that have received nothing yet and so do not know their share. A lone flow begins
/// with the bytes that fill a usual path, and the n-th concurrent flow with an n-th of that, but at least a packet.
/// So n flows at once ask for no more than 1 + ln n times as much as one, and a packet each. A hop that was measured has
/// room for as much as it carries in that time: who arrives while others do is not to ask in ten steps.
#[derive(Debug, Default)]
pub(super) struct Opening {
    flows: u64,
}

impl Opening {
    /// One more flow begins, on a hop that was measured to carry `carries`. Returns the bytes that it may ask for; less
    /// than a packet means one packet.
    pub(super) fn begin(&mut self, carries: Option<Rate>) -> u64 {
        self.flows += 1;
        let room = carries.map_or(0, |rate| rate.bytes_in(FILLED)).max(FIRST);
        (room / self.flows).min(FIRST)
    }

    /// A flow got its first answer, or ends without one.
    pub(super) fn end(&mut self) {
        self.flows = self.flows.saturating_sub(1);
    }

    /// The first request of a lone flow.
    pub(super) fn first() -> u64 {
        FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_flows_at_once_ask_for_eight_times_as_much_as_one() {
        let mut opening = Opening::default();
        let asked: u64 = (0..1_000).map(|_| opening.begin(None)).sum();
        assert!(asked < 8 * FIRST, "{asked}");
    }

    #[test]
    fn sixty_arrivals_on_a_gigabit_ask_for_a_small_file_at_once() {
        let mut opening = Opening::default();
        let asked = (0..60).map(|_| opening.begin(Some(Rate::from_mbps(1000)))).min();
        assert!(asked >= Some(200_000), "{asked:?}");
        assert_eq!(Opening::default().begin(Some(Rate::from_mbps(1000))), Opening::first());
        assert_eq!(Opening::default().begin(Some(Rate::from_mbps(1))), Opening::first());
    }

    #[test]
    fn who_comes_after_the_others_were_answered_begins_as_one_that_is_alone() {
        let mut opening = Opening::default();
        (0..10).for_each(|_| _ = opening.begin(None));
        (0..10).for_each(|_| opening.end());
        assert_eq!(opening.begin(None), Opening::first());
    }
}
