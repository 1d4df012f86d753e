//! The part of a link that a flow can have beside those that wait for it, too.

use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::collections::VecDeque;

/// A flow takes no more than it has if that is below this part of what it could have: numerator and denominator. The flows of a crowd
/// that fills the link have their equal parts, one a little more than the other, and leave nothing.
const HELD: (u64, u64) = (9, 10);
/// Packets over which the rate that a flow has is counted, and the least time.
const PACKETS: u32 = 4;
const LEAST_SPAN: Duration = Duration::from_millis(100);
/// Of what others leave a flow is promised so many times of what it has, at most, while the link has nothing to send: all of a crowd that
/// begins, or goes on after a pause, find the same room. While the link is full it is promised what it has.
const GROWTH: u64 = 2;

/// A flow that goes on counts for so long after a packet that left its queue empty, and up to twice as long. Flows whose queues run empty together are told of it together: each of ten
/// that was told of the whole link brought ten times as much as it carries, and all stopped.
const LATELY: Duration = Duration::from_millis(200);

/// The count of a queue among those that share the link.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Counted {
    /// Nothing of it waits, or did lately.
    #[default]
    Out,
    /// It takes what the others leave.
    Free,
    /// It takes so many bits per second and no more, because its way leads through a narrower link.
    Held(u64),
}

/// The rate of one queue, as far as it is known.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Part {
    /// The rate that it was sent last, bits per second; 0: not known yet.
    has: u64,
    counted: Counted,
    /// The count of what it is sent: from the packet at that time on.
    since: Instant,
    packets: u32,
    bytes: u32,
    /// Time at which the queue ran empty.
    emptied: Instant,
    /// It is among those that ran empty lately.
    is_listed: bool,
}

impl Part {
    /// True if the flow counts.
    pub(super) fn is_counted(&self) -> bool {
        self.counted != Counted::Out
    }

    /// `bytes` of the queue leave.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) {
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.packets += 1;
        let span = now.since(self.since);
        if self.since == Instant::ZERO {
            (self.since, self.packets, self.bytes) = (now, 0, 0);
        } else if self.packets >= PACKETS && span >= LEAST_SPAN {
            self.has = Rate::of(u64::from(self.bytes), span).as_bps();
            (self.since, self.packets, self.bytes) = (now, 0, 0);
        }
    }
}

/// The max-min fair parts of a link (Bertsekas and Gallager, Data Networks, section 6.5.2): a flow that takes less than it could has
/// that, and the others share what is left equally. A flow is judged when it is told a rate or begins to wait, by the share as it is
/// then: the bound of the others comes closer with each.
#[derive(Default, Debug)]
pub(super) struct Shares {
    /// The link's rate, as last told, bits per second.
    link: u64,
    /// Flows that count.
    active: u64,
    held: u64,
    /// The sum of what those have that are held.
    held_bps: u64,
    /// Queues that ran empty lately, each with a time after which it may have done so again.
    emptied: VecDeque<(Instant, Slot)>,
}

impl Shares {
    /// The rate that the flow of a queue can have on a link of that rate, which is full or not: its equal part, or what others leave of theirs.
    pub(super) fn of(&self, part: &Part, link: Rate, is_full: bool) -> Rate {
        let (equal, left) = self.parts(part, link.as_bps());
        let growth = if is_full { 1 } else { GROWTH };
        Rate::from_bps(equal.max(left.min(growth * part.has)))
    }

    /// The equal part of `link` bits per second, and the part that the others leave.
    fn parts(&self, part: &Part, link: u64) -> (u64, u64) {
        let (others, held, held_bps) = match part.counted {
            Counted::Out => (self.active, self.held, self.held_bps),
            Counted::Free => (self.active - 1, self.held, self.held_bps),
            Counted::Held(bps) => (self.active - 1, self.held - 1, self.held_bps - bps),
        };
        (link / (others + 1), link.saturating_sub(held_bps) / (others - held + 1))
    }

    /// Something of a queue waits from now on, of which nothing did lately.
    pub(super) fn enter(&mut self, part: &mut Part) {
        debug_assert!(!part.is_counted());
        let (equal, left) = self.parts(part, self.link);
        let is_held = part.has > 0 && part.has / HELD.0 < equal.max(left) / HELD.1;
        part.counted = if is_held { Counted::Held(part.has) } else { Counted::Free };
        self.active += 1;
        if is_held {
            self.held += 1;
            self.held_bps += part.has;
        }
    }

    /// Nothing of a queue has waited lately, or ever will.
    pub(super) fn leave(&mut self, part: &mut Part) {
        let counted = core::mem::take(&mut part.counted);
        self.active -= u64::from(counted != Counted::Out);
        if let Counted::Held(bps) = counted {
            self.held -= 1;
            self.held_bps -= bps;
        }
    }

    /// The queue at `slot` ran empty, for good or not. A flow that has had packets for some time counts for a while. True if the queue is
    /// in the list of those from now on.
    pub(super) fn on_empty(&mut self, now: Instant, slot: Slot, part: &mut Part, is_over: bool) -> bool {
        part.emptied = now;
        if is_over || part.has == 0 {
            self.leave(part);
            return false;
        }
        let is_new = !core::mem::replace(&mut part.is_listed, true);
        if is_new {
            self.emptied.push_back((now, slot));
        }
        is_new
    }

    /// The next queue of the list that may have been empty for long. It is off the list, unless [`look`](Self::look) puts it back.
    pub(super) fn next_quiet(&mut self, now: Instant) -> Option<Slot> {
        let (at, slot) = *self.emptied.front()?;
        if now.since(at) < LATELY {
            return None;
        }
        self.emptied.pop_front();
        Some(slot)
    }

    /// Looks at such a queue: it is back in the list if it ran empty since, and counts no longer if it stayed so. True if it is off the
    /// list.
    pub(super) fn look(&mut self, now: Instant, slot: Slot, part: &mut Part, is_empty: bool) -> bool {
        if is_empty && now.since(part.emptied) < LATELY {
            self.emptied.push_back((now, slot));
            return false;
        }
        part.is_listed = false;
        if is_empty {
            self.leave(part);
        }
        true
    }

    /// The neighbour asked for more of a queue's flow, on a link of rate `link`.
    pub(super) fn review(&mut self, part: &mut Part, link: Rate) {
        self.link = link.as_bps();
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
    const PACKET: u64 = 1_250;

    /// Flows that wait and were sent so many kbit/s each, and are looked at again and again.
    fn sent(rates_kbps: &[u64]) -> (Shares, Vec<Part>) {
        let (mut shares, mut parts) = (Shares::default(), alloc::vec![Part::default(); rates_kbps.len()]);
        parts.iter_mut().for_each(|part| shares.enter(part));
        for (part, kbps) in parts.iter_mut().zip(rates_kbps) {
            let gap = Rate::from_bps(1_000 * kbps).time_for(PACKET);
            (0..=1_000).for_each(|n| part.on_sent(Instant::ZERO + LEAST_SPAN + gap.scaled(n, 1), PACKET));
        }
        for _ in 0..20 {
            parts.iter_mut().for_each(|part| shares.review(part, LINK));
        }
        (shares, parts)
    }

    /// The share of a flow then, Mbit/s, while it has what it can have.
    fn share(rates_kbps: &[u64], of: usize) -> f64 {
        let (shares, parts) = sent(rates_kbps);
        shares.of(&Part { has: LINK.as_bps(), ..parts[of] }, LINK, true).as_mbps()
    }

    #[test]
    fn flows_that_fill_a_link_have_equal_parts() {
        assert!((share(&[2_500; 4], 0) - 2.5).abs() < 1e-6);
        assert!((share(&[10_000], 0) - 10.0).abs() < 1e-6);
        assert!((share(&[2_400, 2_600, 2_450, 2_550], 0) - 2.5).abs() < 1e-6);
        let newcomer = sent(&[2_500; 4]).0.of(&Part::default(), LINK, false);
        assert_eq!(newcomer, Rate::from_mbps(2), "a fifth");
    }

    /// Twenty flows share 5 Mbit/s further on. One that does not go there has the other half.
    #[test]
    fn what_others_cannot_take_is_left() {
        let mut rates = alloc::vec![250; 20];
        rates.push(5_000);
        assert!((share(&rates, 20) - 5.0).abs() < 0.1, "{}", share(&rates, 20));
        // Of three levels each has its own.
        let rates = [1_000, 3_000, 3_000, 3_000];
        assert!((share(&rates, 3) - 3.0).abs() < 0.05, "{}", share(&rates, 3));
    }

    #[test]
    fn a_flow_is_promised_twice_what_it_has_until_it_has_its_part() {
        let mut rates = alloc::vec![250; 20];
        rates.push(600);
        let (shares, parts) = sent(&rates);
        let promised = |is_full| shares.of(&parts[20], LINK, is_full).as_mbps();
        assert!((promised(false) - 1.2).abs() < 0.02 && (promised(true) - 0.6).abs() < 0.01);
        // A crowd that goes on after a pause overshoots by twice, and not by as much as there are flows.
        let (shares, parts) = sent(&[50; 100]);
        assert!(shares.of(&parts[0], LINK, false).as_mbps() <= 0.1 + 1e-6);
    }

    #[test]
    fn a_queue_that_was_empty_for_long_or_is_closed_counts_no_more() {
        let (mut shares, mut parts) = sent(&[1_000, 9_000]);
        assert!((shares.of(&parts[1], LINK, true).as_mbps() - 9.0).abs() < 0.1);
        shares.leave(&mut parts[0]);
        shares.leave(&mut parts[0]);
        assert_eq!(shares.of(&parts[1], LINK, true), LINK);
        shares.leave(&mut parts[1]);
        assert_eq!((shares.active, shares.held, shares.held_bps), (0, 0, 0));
    }
}
