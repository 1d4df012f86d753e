//! The part of a link that a flow can have beside those that wait for it, too.

use crate::units::Rate;

/// A flow's own rate holds it if it is usually below this part of its share: numerator and denominator. Where all flows have their
/// equal part, the rates that they are told lie around it, and none of them leaves anything to the others.
const HELD: (u64, u64) = (3, 4);
/// The usual rate is a mean over so many, roughly.
const MEAN_OVER: u64 = 4;
/// No rate counts as more than so many shares: a flow that was not bounded for long, and is now, is soon known to be.
const MOST_SHARES: u64 = 2;

/// How a queue counts among those that wait.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Counted {
    /// Nothing of it waits.
    #[default]
    Out,
    /// It takes what the others leave.
    Free,
    /// It takes so many bits per second and no more, because its way leads through a narrower link.
    Held(u64),
}

/// What is known of the rate of one queue.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Part {
    /// Its own rate usually, bits per second; 0: it was never bounded.
    usual: u64,
    counted: Counted,
}

/// The max-min fair parts of a link (Bertsekas and Gallager, Data Networks, section 6.5.2): a flow that its own rate holds has that
/// rate, and the others share what is left equally. A flow is judged when it is told a rate or begins to wait, by the share as it
/// is then: the bound of the others comes closer with each.
#[derive(Default, Debug)]
pub(super) struct Shares {
    /// The link's rate, as last told.
    link: u64,
    waiting: u64,
    held: u64,
    /// The sum of the rates of those that are held.
    held_bps: u64,
}

impl Shares {
    /// Queues that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting as usize
    }

    /// What the flow of a queue can have on a link of that rate.
    pub(super) fn of(&self, part: &Part, link: Rate) -> Rate {
        let (waiting, held, held_bps) = match part.counted {
            Counted::Out => (self.waiting, self.held, self.held_bps),
            Counted::Free => (self.waiting - 1, self.held, self.held_bps),
            Counted::Held(bps) => (self.waiting - 1, self.held - 1, self.held_bps - bps),
        };
        let equal = link.as_bps() / (waiting + 1);
        let left = link.as_bps().saturating_sub(held_bps) / (waiting - held + 1);
        Rate::from_bps(equal.max(left))
    }

    /// Something of a queue waits from now on.
    pub(super) fn enter(&mut self, part: &mut Part) {
        let share = self.of(part, Rate::from_bps(self.link)).as_bps();
        let is_held = part.usual > 0 && part.usual / HELD.0 < share / HELD.1;
        part.counted = if is_held { Counted::Held(part.usual) } else { Counted::Free };
        self.waiting += 1;
        if is_held {
            self.held += 1;
            self.held_bps += part.usual;
        }
    }

    /// Nothing of a queue waits any longer.
    pub(super) fn leave(&mut self, part: &mut Part) {
        let counted = core::mem::take(&mut part.counted);
        self.waiting -= u64::from(counted != Counted::Out);
        if let Counted::Held(bps) = counted {
            self.held -= 1;
            self.held_bps -= bps;
        }
    }

    /// A queue was told its own rate, on a link of rate `link`.
    pub(super) fn on_rate(&mut self, part: &mut Part, rate: Rate, link: Rate) {
        self.link = link.as_bps();
        let share = self.of(part, link).as_bps();
        let rate = rate.as_bps().min(share.saturating_mul(MOST_SHARES)).max(1);
        part.usual = match part.usual {
            0 => rate,
            usual => usual - usual / MEAN_OVER + rate / MEAN_OVER,
        };
        if part.counted != Counted::Out {
            self.leave(part);
            self.enter(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LINK: Rate = Rate::from_mbps(10);

    /// Queues that wait, and are told these rates again and again.
    fn told(rates: &[Rate]) -> (Shares, Vec<Part>) {
        let (mut shares, mut parts) = (Shares::default(), alloc::vec![Part::default(); rates.len()]);
        parts.iter_mut().for_each(|part| shares.enter(part));
        for _ in 0..20 {
            for (part, rate) in parts.iter_mut().zip(rates) {
                shares.on_rate(part, *rate, LINK);
            }
        }
        (shares, parts)
    }

    fn share(rates: &[Rate], of: usize) -> f64 {
        let (shares, parts) = told(rates);
        shares.of(&parts[of], LINK).as_mbps()
    }

    #[test]
    fn flows_without_a_bound_have_equal_parts() {
        assert!((share(&[Rate::UNLIMITED; 4], 0) - 2.5).abs() < 1e-6);
        assert!((share(&[Rate::UNLIMITED], 0) - 10.0).abs() < 1e-6);
        let newcomer = told(&[Rate::UNLIMITED; 4]).0.of(&Part::default(), LINK);
        assert_eq!(newcomer, Rate::from_mbps(2), "a fifth");
    }

    /// Twenty flows share 5 Mbit/s further on. One that does not go there has the other half.
    #[test]
    fn what_others_cannot_take_is_left() {
        let mut rates = alloc::vec![Rate::from_bps(250_000); 20];
        rates.push(Rate::UNLIMITED);
        assert!((share(&rates, 20) - 5.0).abs() < 0.1, "{}", share(&rates, 20));
        // Of three levels each has its own.
        let rates = [Rate::from_mbps(1), Rate::from_mbps(3), Rate::UNLIMITED, Rate::UNLIMITED];
        assert!((share(&rates, 3) - 3.0).abs() < 0.05, "{}", share(&rates, 3));
    }

    #[test]
    fn rates_around_the_equal_part_leave_nothing() {
        let rates: Vec<Rate> = (0..10).map(|n| Rate::from_bps(800_000 + 50_000 * n)).collect();
        assert!((share(&rates, 0) - 1.0).abs() < 1e-6, "{}", share(&rates, 0));
    }

    #[test]
    fn a_queue_that_is_empty_or_closed_counts_no_more() {
        let (mut shares, mut parts) = told(&[Rate::from_mbps(1), Rate::UNLIMITED]);
        assert!((shares.of(&parts[1], LINK).as_mbps() - 9.0).abs() < 0.1);
        shares.leave(&mut parts[0]);
        shares.leave(&mut parts[0]);
        assert_eq!(shares.of(&parts[1], LINK), LINK);
        shares.leave(&mut parts[1]);
        assert_eq!((shares.waiting(), shares.held, shares.held_bps), (0, 0, 0));
    }
}
