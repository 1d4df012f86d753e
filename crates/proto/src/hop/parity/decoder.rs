use super::factor;
use super::field::{Planes, add_product, inverse, times};
use super::plan::MOST_REACH;
use crate::wire::{DataHeader, SUM_PREFIX};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// State of one packet of the hop.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kept {
    /// It has not come.
    Missing,
    /// It is no Data: it counts for nothing in a sum.
    Nothing,
    /// Its part of a sum: length, first byte, bytes from the seventh on.
    Part(Vec<u8>),
}

/// A sum from which all known packets have been subtracted: the sum of the `unknown` packets, times their factors.
#[derive(Clone, Debug)]
struct Row {
    /// Numbers and factors. The first factor is one, and no other row knows the first number.
    unknown: Vec<(u64, u8)>,
    bytes: Vec<u8>,
}

impl Row {
    fn factor_of(&self, number: u64) -> Option<u8> {
        self.unknown.iter().find(|(known, _)| *known == number).map(|(_, factor)| *factor)
    }

    /// Adds another row times `factor`.
    fn add(&mut self, other: &Self, factor: u8) {
        let length = self.bytes.len().max(other.bytes.len());
        self.bytes.resize(length, 0);
        add_product(&mut self.bytes, &other.bytes, factor);
        for &(number, of_other) in &other.unknown {
            let added = times(of_other, factor);
            match self.unknown.iter_mut().find(|(known, _)| *known == number) {
                Some((_, sum)) => *sum ^= added,
                None => self.unknown.push((number, added)),
            }
        }
        self.unknown.retain(|(_, factor)| *factor != 0);
    }

    /// Makes the first factor one.
    fn normalise(&mut self) {
        let Some(&(_, first)) = self.unknown.first() else { return };
        let by = inverse(first);
        self.unknown.iter_mut().for_each(|(_, factor)| *factor = times(*factor, by));
        let unscaled = core::mem::replace(&mut self.bytes, alloc::vec![0; 0]);
        self.bytes.resize(unscaled.len(), 0);
        add_product(&mut self.bytes, &unscaled, by);
    }
}

/// A packet that did not arrive and that the code restored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Its number on the hop.
    pub number: u64,
    /// The packet, with a counter and an echo of zero; empty where it was no Data.
    pub packet: Vec<u8>,
}

/// The sum of a Parity packet, by the numbers of the hop.
#[derive(Clone, Copy, Debug)]
pub struct Equation<'a> {
    /// The number of the first packet that it covers.
    pub first: u64,
    /// Packets that it covers.
    pub count: u16,
    /// Chooses the factors.
    pub seed: u8,
    /// The sum.
    pub bytes: &'a [u8],
}

/// The most rows. Each is one waiting loss; more are hopeless.
const MOST_ROWS: usize = 64;
/// Packets that are kept beyond the reach of the plan, for parity of an earlier plan, or late parity.
const SPARE: usize = 64;
/// Packets that it holds at most.
pub(super) const MOST_PACKETS: usize = MOST_KEPT + MOST_ROWS;
/// The most packets that it keeps: a quarter more than a plan's longest reach, because parity uses counters, too.
const MOST_KEPT: usize = MOST_REACH + MOST_REACH / 4 + SPARE;

/// The Requester's half of a hop's code: keeps the latest packets, and solves for those that are missing.
///
/// Inputs: [`Decoder::on_data`], [`Decoder::on_other`], [`Decoder::on_sum`]. Output: [`Decoder::poll`]. It keeps nothing
/// until [`Decoder::keep`] says how much.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The latest packets, one per number from `first` on.
    kept: VecDeque<Kept>,
    first: u64,
    /// The number behind the newest packet that came, while it was off, too.
    next: u64,
    capacity: usize,
    rows: Vec<Row>,
    restored: VecDeque<Restored>,
    /// Buffers to use again.
    spare: Vec<Vec<u8>>,
    planes: Planes,
}

impl Decoder {
    /// Keeps as many packets as a plan with this `reach` needs; none if it is zero.
    pub fn keep(&mut self, reach: usize) {
        if reach == 0 {
            *self = Self { next: self.next, ..Self::default() };
            return;
        }
        // The capacity never shrinks: parity of an earlier plan is still on its way.
        self.capacity = self.capacity.max((reach + reach / 4 + SPARE).min(MOST_KEPT));
        self.trim();
    }

    /// Whether anything is kept.
    pub fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// Forgets everything: the neighbour counts from elsewhere.
    pub fn clear(&mut self) {
        *self = Self { capacity: self.capacity, ..Self::default() };
    }

    /// Data arrived as packet `number` of the hop.
    #[inline]
    pub fn on_data(&mut self, number: u64, header: &DataHeader, payload: &[u8]) {
        if !self.expects(number) {
            return;
        }
        let mut part = self.spare.pop().unwrap_or_default();
        part.clear();
        part.extend_from_slice(&[0; SUM_PREFIX - 1]);
        header.emit(&mut part);
        // Counter and time are not covered.
        part.drain(SUM_PREFIX..SUM_PREFIX + 5);
        part.extend_from_slice(payload);
        let length = (part.len() - SUM_PREFIX) as u16;
        part[..2].copy_from_slice(&length.to_be_bytes());
        self.learn(number, Kept::Part(part));
    }

    /// A packet that is no Data arrived, or is known to be no Data.
    pub fn on_other(&mut self, number: u64) {
        if self.expects(number) {
            self.learn(number, Kept::Nothing);
        }
    }

    /// The sum of a Parity packet arrived.
    pub fn on_sum(&mut self, equation: Equation<'_>) {
        let Equation { first, count, seed, bytes } = equation;
        let numbers = first..first + u64::from(count);
        // Parity follows the packets that it covers: a sum that reaches beyond the newest is invalid.
        if self.kept.is_empty() || first < self.first || numbers.end > self.end() {
            return;
        }
        if !numbers.clone().any(|number| self.is_missing(number)) {
            return;
        }
        let mut row = Row { unknown: Vec::new(), bytes: bytes.to_vec() };
        let mut known = core::mem::take(&mut self.planes);
        known.begin(bytes.len());
        for number in numbers {
            let factor = factor(seed, number as u16);
            match self.at(number) {
                Some(Kept::Part(part)) if part.len() <= bytes.len() => {
                    known.add(part, factor);
                }
                // A packet longer than the sum was not in it: the sum is invalid.
                Some(Kept::Part(_)) => return,
                Some(Kept::Nothing) => {}
                Some(Kept::Missing) | None => row.unknown.push((number, factor)),
            }
        }
        known.add_to(&mut row.bytes);
        self.planes = known;
        self.insert(row);
        self.solve();
    }

    /// A packet that was restored.
    pub fn poll(&mut self) -> Option<Restored> {
        self.restored.pop_front()
    }

    fn at(&self, number: u64) -> Option<&Kept> {
        let place = number.checked_sub(self.first)?;
        self.kept.get(usize::try_from(place).ok()?)
    }

    /// The number behind the last one that it keeps.
    fn end(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// Whether a packet may still be restored.
    fn is_missing(&self, number: u64) -> bool {
        self.at(number) == Some(&Kept::Missing)
    }

    /// Packet `number` came: whether it is to be kept.
    ///
    /// Of what came while it was off it knows nothing, so it begins with a packet that is newer than all of those: if it
    /// began with a late one, it would restore packets that came.
    #[inline]
    fn expects(&mut self, number: u64) -> bool {
        let is_newest = number >= self.next;
        self.next = self.next.max(number + 1);
        self.capacity > 0 && (is_newest || self.is_missing(number))
    }

    /// Records the contents of a missing packet.
    fn learn(&mut self, number: u64, what: Kept) {
        let behind = self.end();
        if self.kept.is_empty() || number >= behind + self.capacity as u64 {
            self.reset_to(number);
        } else {
            (behind..=number).for_each(|_| self.kept.push_back(Kept::Missing));
        }
        let rows = !self.rows.is_empty();
        let place = (number - self.first) as usize;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = what;
        }
        if rows {
            self.substitute(number);
            self.solve();
        }
        self.trim();
    }

    fn reset_to(&mut self, number: u64) {
        self.kept.clear();
        self.rows.clear();
        self.first = number;
        self.kept.push_back(Kept::Missing);
    }

    fn trim(&mut self) {
        while self.kept.len() > self.capacity {
            if let Some(Kept::Part(part)) = self.kept.pop_front() {
                self.spare.push(part);
            }
            self.first += 1;
        }
        self.spare.truncate(2);
        let first = self.first;
        self.rows.retain(|row| row.unknown.iter().all(|(number, _)| *number >= first));
    }

    /// Subtracts the now known packet `number` from the rows.
    fn substitute(&mut self, number: u64) {
        let Some(place) = number.checked_sub(self.first) else { return };
        let mut again = Vec::new();
        let mut at = 0;
        while at < self.rows.len() {
            let row = &mut self.rows[at];
            let Some(factor) = row.factor_of(number) else {
                at += 1;
                continue;
            };
            if let Some(Kept::Part(part)) = self.kept.get(place as usize) {
                let length = row.bytes.len().max(part.len());
                row.bytes.resize(length, 0);
                add_product(&mut row.bytes, part, factor);
            }
            let was_first = row.unknown.first().is_some_and(|(first, _)| *first == number);
            row.unknown.retain(|(known, _)| *known != number);
            if was_first {
                again.push(self.rows.swap_remove(at));
            } else {
                at += 1;
            }
        }
        again.into_iter().for_each(|row| self.insert(row));
    }

    /// Adds a row, so that every row's first number is in no other.
    fn insert(&mut self, mut row: Row) {
        for other in &self.rows {
            if let Some(factor) = other.unknown.first().and_then(|(first, _)| row.factor_of(*first)) {
                row.add(other, factor);
            }
        }
        row.normalise();
        let Some(&(first, _)) = row.unknown.first() else { return };
        for other in &mut self.rows {
            if let Some(factor) = other.factor_of(first) {
                other.add(&row, factor);
            }
        }
        if self.rows.len() == MOST_ROWS {
            self.rows.remove(0);
        }
        self.rows.push(row);
    }

    /// Takes out the rows with a single unknown: they tell it.
    fn solve(&mut self) {
        while let Some(place) = self.rows.iter().position(|row| row.unknown.len() <= 1) {
            let Row { unknown, bytes } = self.rows.swap_remove(place);
            let Some(&(number, _)) = unknown.first() else { continue };
            if let Some(part) = part_of(bytes) {
                self.take_restored(number, part);
            }
        }
    }

    fn take_restored(&mut self, number: u64, part: Vec<u8>) {
        let mut packet = Vec::new();
        let kept = if part.is_empty() {
            Kept::Nothing
        } else {
            packet.push(part[SUM_PREFIX - 1]);
            packet.extend_from_slice(&[0; 5]);
            packet.extend_from_slice(&part[SUM_PREFIX..]);
            Kept::Part(part)
        };
        let place = number.checked_sub(self.first).and_then(|place| self.kept.get_mut(place as usize));
        if let Some(place) = place {
            *place = kept;
        }
        self.restored.push_back(Restored { number, packet });
    }
}

/// The part of a packet in a sum that contains nothing else; empty if the packet was no Data, `None` if the sum is
/// invalid.
fn part_of(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?]));
    let end = if length == 0 { 0 } else { SUM_PREFIX + length };
    if bytes.get(end..)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    bytes.truncate(end);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Encoder;
    use super::*;
    use crate::name::FlowId;
    use crate::rng::Rng;
    use crate::time::{Instant, WireTime};
    use crate::wire::{CodePlan, DataFlags, Echo, Waited, Way};
    use alloc::collections::BTreeMap;
    use alloc::collections::BTreeSet;

    const NOW: Instant = Instant::from_nanos(1_000_000_000);

    fn data(counter: u16, rng: &mut Rng) -> (DataHeader, Vec<u8>) {
        let length = 1 + rng.next_u64() % 60;
        let payload = (0..length).map(|_| rng.next_u64() as u8).collect();
        let header = DataHeader {
            counter,
            flow: FlowId([counter as u8 % 3; 16]),
            offset: rng.next_u64() % 100_000,
            echo: Echo {
                time: WireTime::from_micros(rng.next_u64() as u32 & 0xff_ffff),
                way: Way::default(),
            },
            flags: DataFlags { backlog: rng.chance(0.5), ..DataFlags::default() },
            waited: Waited::from_byte(rng.next_u64() as u8),
        };
        (header, payload)
    }

    /// A hop under test: every packet is encoded, some arrive.
    struct Rig {
        encoder: Encoder,
        decoder: Decoder,
        rng: Rng,
        number: u64,
        sent: BTreeMap<u64, Vec<u8>>,
        lost: BTreeSet<u64>,
    }

    impl Rig {
        fn new(every: u8, overlap: u8) -> Self {
            let plan = CodePlan { every, overlap, within: 40 };
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            encoder.set_plan(Some(plan));
            decoder.keep(plan.reach());
            let (sent, lost) = (BTreeMap::new(), BTreeSet::new());
            Self { encoder, decoder, rng: Rng::new(9), number: 65_400, sent, lost }
        }

        fn send(&mut self, arrives: bool) {
            let number = self.number;
            self.number += 1;
            let (header, payload) = data(number as u16, &mut self.rng);
            let mut packet = Vec::new();
            header.emit(&mut packet);
            packet.extend_from_slice(&payload);
            self.encoder.on_packet(NOW, number as u16, &packet);
            packet[1..6].fill(0);
            self.sent.insert(number, packet);
            if arrives {
                self.decoder.on_data(number, &header, &payload);
            } else {
                self.lost.insert(number);
            }
        }

        /// The Parity packet that is due, if any; returns the repaired packets.
        fn parity(&mut self, arrives: bool) -> usize {
            if self.encoder.due(false).is_none() {
                return 0;
            }
            let number = self.number;
            self.number += 1;
            let sum = self.encoder.take(number as u16).unwrap();
            if !arrives {
                return 0;
            }
            if let Some(previous) = sum.previous {
                let back = (number as u16).wrapping_sub(previous);
                self.decoder.on_other(number - u64::from(back));
            }
            self.decoder.on_other(number);
            let first = number - u64::from((number as u16).wrapping_sub(sum.first));
            let (count, seed, bytes) = (sum.count, sum.seed, &sum.bytes[..]);
            self.decoder.on_sum(Equation { first, count, seed, bytes });
            self.check()
        }

        fn check(&mut self) -> usize {
            let mut restored = 0;
            while let Some(Restored { number, packet }) = self.decoder.poll() {
                match self.sent.get(&number) {
                    Some(sent) => assert_eq!(&packet, sent, "packet {number}"),
                    None => assert!(packet.is_empty(), "{number} was parity"),
                }
                restored += usize::from(self.lost.remove(&number));
            }
            restored
        }
    }

    #[test]
    fn a_lost_packet_is_made_good_by_the_next_parity() {
        let mut rig = Rig::new(10, 4);
        for n in 0..200 {
            rig.send(n % 40 != 17);
            let restored = rig.parity(true);
            assert_eq!(restored, usize::from(n % 40 == 19), "packet {n}");
        }
    }

    #[test]
    fn as_many_losses_as_parity_in_a_row_are_made_good_at_once() {
        let mut rig = Rig::new(5, 6);
        let mut restored = Vec::new();
        for n in 0..60 {
            rig.send(!(20..24).contains(&n));
            restored.push(rig.parity(true));
        }
        let at: Vec<(usize, usize)> =
            restored.into_iter().enumerate().filter(|(_, count)| *count > 0).collect();
        assert_eq!(at, [(39, 4)]);
    }

    #[test]
    fn lost_parity_is_missed_only_as_parity() {
        let mut rig = Rig::new(10, 4);
        for n in 0..100 {
            rig.send(n != 35);
            // The Parity packet right behind the loss is lost as well.
            let restored = rig.parity(n != 39);
            assert_eq!(restored, usize::from(n == 49), "packet {n}");
        }
    }

    #[test]
    fn a_hop_that_loses_at_random_delivers_nearly_everything() {
        let mut rig = Rig::new(12, 6);
        let mut rng = Rng::new(4);
        let mut lost = 0;
        for _ in 0..20_000 {
            let arrives = !rng.chance(0.02);
            lost += usize::from(!arrives);
            rig.send(arrives);
            rig.parity(!rng.chance(0.02));
        }
        assert!(lost > 300 && rig.lost.len() <= lost / 50, "{} of {lost} stayed lost", rig.lost.len());
    }

    #[test]
    fn a_late_packet_helps_as_one_in_time() {
        let mut rig = Rig::new(10, 2);
        let mut late = None;
        for n in 0..10 {
            if n == 3 {
                let (header, payload) = data(rig.number as u16, &mut rig.rng);
                let mut packet = Vec::new();
                header.emit(&mut packet);
                packet.extend_from_slice(&payload);
                rig.encoder.on_packet(NOW, rig.number as u16, &packet);
                late = Some((rig.number, header, payload));
                rig.number += 1;
            } else {
                rig.send(n != 5);
            }
            assert_eq!(rig.parity(true), 0);
        }
        let (number, header, payload) = late.unwrap();
        rig.decoder.on_data(number, &header, &payload);
        assert_eq!(rig.check(), 1);
        assert!(rig.lost.is_empty());
    }

    #[test]
    fn what_it_keeps_is_bounded_and_nothing_while_it_is_off() {
        let mut rig = Rig::new(20, 5);
        for n in 0..5_000 {
            rig.send(n % 7 != 0);
            rig.parity(n % 3 != 0);
        }
        assert!(rig.decoder.kept.len() <= 100 + 25 + SPARE && rig.decoder.rows.len() <= MOST_ROWS);
        rig.decoder.keep(0);
        rig.send(true);
        assert!(rig.decoder.kept.is_empty() && rig.decoder.spare.is_empty());
    }

    #[test]
    fn what_came_while_it_was_off_is_not_restored() {
        let mut rig = Rig::new(10, 4);
        rig.decoder.keep(0);
        let mut late = None;
        for n in 0..20 {
            let (header, payload) = data(rig.number as u16, &mut rig.rng);
            if n == 2 {
                late = Some((rig.number, header, payload));
                rig.number += 1;
            } else {
                rig.send(true);
            }
        }
        rig.decoder.keep(40);
        // It is switched on, and a late packet is the first to come.
        let (number, header, payload) = late.unwrap();
        rig.decoder.on_data(number, &header, &payload);
        let bytes = [0; 90];
        rig.decoder.on_sum(Equation { first: number + 1, count: 1, seed: 3, bytes: &bytes });
        assert_eq!(rig.decoder.poll(), None);
    }

    #[test]
    fn a_sum_of_packets_that_are_still_to_come_gives_nothing() {
        let mut rig = Rig::new(10, 4);
        rig.send(true);
        let bytes = [0; 90];
        rig.decoder.on_sum(Equation { first: rig.number + 30_000, count: 1, seed: 3, bytes: &bytes });
        assert_eq!((rig.decoder.poll(), rig.decoder.kept.len()), (None, 1));
    }

    #[test]
    fn bytes_that_are_no_sum_of_what_was_sent_give_nothing() {
        let mut rig = Rig::new(10, 4);
        for n in 0..10 {
            rig.send(n != 5);
        }
        let first = rig.number - 10;
        let bytes = [0x5a; 90];
        rig.decoder.on_sum(Equation { first, count: 10, seed: 3, bytes: &bytes });
        assert_eq!(rig.decoder.poll(), None);
    }
}
