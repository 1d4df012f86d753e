use super::factor;
use super::field::Powers;
use crate::time::{Duration, Instant};
use crate::wire::{CodePlan, MAX_COVERED, SUM_PREFIX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The sum that a Parity packet carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    /// The first counter that it covers.
    pub first: u16,
    /// Counters that it covers.
    pub count: u16,
    /// Chooses the factors.
    pub seed: u8,
    /// The counter of the Parity packet before.
    pub previous: Option<u16>,
    /// Length, first byte, and bytes from the seventh on of each packet, times its factor.
    pub bytes: Vec<u8>,
}

/// The Responder's half of a hop's code: makes the sums.
///
/// Inputs: [`Encoder::set_plan`] and [`Encoder::on_packet`], in the order of counters. Output: [`Encoder::take`] when
/// [`Encoder::due`] says so. It keeps no packets: as many sums grow with each packet as are to cover it, and the oldest
/// one leaves. So its memory is at most [`crate::wire::MAX_OVERLAP`] packets.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    plan: Option<CodePlan>,
    /// The sums under way, the oldest first; one without bytes begins with the next packet.
    sums: VecDeque<Sum>,
    next_seed: u8,
    previous: Option<u16>,
    /// Packets since the last sum left.
    uncovered: u8,
    /// Send time of the first of these.
    uncovered_since: Instant,
    /// The powers for the packet that leaves; kept so that their memory is used again.
    powers: Powers,
}

/// The part of a packet that only its sender's counter and clock change: it is not covered.
const STAMP: core::ops::Range<usize> = 1..6;

impl Encoder {
    /// The Requester wants another plan, or none.
    pub fn set_plan(&mut self, plan: Option<CodePlan>) {
        if plan == self.plan {
            return;
        }
        self.plan = plan;
        let overlap = plan.map_or(0, |plan| usize::from(plan.overlap));
        while self.sums.len() > overlap {
            self.sums.pop_front();
        }
        while self.sums.len() < overlap {
            self.begin_sum(Vec::new());
        }
        if plan.is_none() {
            *self = Self { next_seed: self.next_seed, ..Self::default() };
        }
    }

    /// Whether there is a plan.
    pub fn is_on(&self) -> bool {
        self.plan.is_some()
    }

    /// The packet with `counter` leaves.
    #[inline]
    pub fn on_packet(&mut self, now: Instant, counter: u16, packet: &[u8]) {
        if self.plan.is_none() || packet.len() < STAMP.end {
            return;
        }
        let body = &packet[STAMP.end..];
        let prefix = (body.len() as u16).to_be_bytes();
        self.powers.set([&[prefix[0], prefix[1], packet[0]], body]);
        for sum in &mut self.sums {
            if sum.bytes.is_empty() {
                sum.first = counter;
            }
            sum.count = counter.wrapping_sub(sum.first).saturating_add(1);
            let length = sum.bytes.len().max(SUM_PREFIX + body.len());
            sum.bytes.resize(length, 0);
            self.powers.add_to(&mut sum.bytes, factor(sum.seed, counter));
        }
        if self.uncovered == 0 {
            self.uncovered_since = now;
        }
        self.uncovered = self.uncovered.saturating_add(1);
    }

    /// Time at which a sum is due, while nothing else waits (`is_idle`) or while packets follow one another.
    pub fn due(&self, is_idle: bool) -> Option<Instant> {
        let plan = self.plan.filter(|_| self.uncovered > 0)?;
        if self.uncovered >= plan.every {
            return Some(Instant::ZERO);
        }
        is_idle.then(|| self.uncovered_since + Duration::from_millis(u64::from(plan.within)))
    }

    /// Bytes of the next sum.
    pub fn next_len(&self) -> usize {
        self.sums.front().map_or(0, |sum| sum.bytes.len())
    }

    /// The next sum, which leaves with `counter`.
    pub fn take(&mut self, counter: u16) -> Option<Sum> {
        self.uncovered = 0;
        let sum = self.sums.pop_front()?;
        self.begin_sum(Vec::with_capacity(sum.bytes.len()));
        // A sum that packets other than Data have stretched beyond the limit is dropped.
        if !(1..=MAX_COVERED).contains(&sum.count) {
            return None;
        }
        let previous = self.previous.replace(counter);
        Some(Sum { previous, ..sum })
    }

    fn begin_sum(&mut self, bytes: Vec<u8>) {
        let seed = self.next_seed;
        self.next_seed = seed.wrapping_add(1);
        self.sums.push_back(Sum { first: 0, count: 0, seed, previous: None, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn plan(every: u8, overlap: u8) -> Option<CodePlan> {
        Some(CodePlan { every, overlap, within: 40 })
    }

    fn encoder(every: u8, overlap: u8) -> Encoder {
        let mut encoder = Encoder::default();
        encoder.set_plan(plan(every, overlap));
        encoder
    }

    fn packet(n: u16) -> [u8; 40] {
        core::array::from_fn(|at| (at as u16 * 31 + n * 7) as u8)
    }

    #[test]
    fn every_sum_covers_the_packets_of_as_many_sums_as_overlap() {
        let mut encoder = encoder(10, 3);
        let mut covered = Vec::new();
        let mut counter = 65_500_u16;
        for n in 0..60 {
            encoder.on_packet(NOW, counter, &packet(n));
            counter = counter.wrapping_add(1);
            if encoder.due(false).is_some() {
                let sum = encoder.take(counter).unwrap();
                covered.push((sum.count, sum.previous.map(|previous| counter.wrapping_sub(previous))));
                counter = counter.wrapping_add(1);
            }
        }
        // Each counter of a Parity packet in between is covered as nothing.
        assert_eq!(covered[..3], [(10, None), (21, Some(11)), (32, Some(11))]);
        assert!(covered[3..].iter().all(|sum| *sum == (32, Some(11))), "{covered:?}");
    }

    #[test]
    fn a_pause_is_covered_after_its_time_and_only_once() {
        let mut encoder = encoder(10, 3);
        assert_eq!(encoder.due(true), None);
        encoder.on_packet(NOW, 7, &packet(1));
        assert_eq!((encoder.due(false), encoder.due(true)), (None, Some(NOW + Duration::from_millis(40))));
        assert_eq!(encoder.take(8).map(|sum| (sum.first, sum.count)), Some((7, 1)));
        assert_eq!(encoder.due(true), None);
    }

    #[test]
    fn without_a_plan_it_holds_nothing() {
        let mut encoder = encoder(1, 16);
        encoder.on_packet(NOW, 7, &packet(1));
        encoder.set_plan(None);
        encoder.on_packet(NOW, 8, &packet(2));
        assert!(encoder.sums.is_empty() && encoder.due(true).is_none() && encoder.take(9).is_none());
    }

    #[test]
    fn a_longer_plan_begins_more_sums_and_a_shorter_one_drops_the_oldest() {
        let mut encoder = encoder(10, 2);
        encoder.on_packet(NOW, 7, &packet(1));
        encoder.set_plan(plan(10, 4));
        encoder.on_packet(NOW, 8, &packet(2));
        assert_eq!(encoder.sums.iter().map(|sum| sum.count).collect::<Vec<_>>(), [2, 2, 1, 1]);
        encoder.set_plan(plan(10, 1));
        assert_eq!(encoder.sums.iter().map(|sum| sum.count).collect::<Vec<_>>(), [1]);
    }
}
