use crate::name::ByteRange;
use crate::time::Instant;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Two packets of the hop, by their numbers, both excluded from what lies between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    /// The earlier one.
    pub after: u64,
    /// The later one.
    pub before: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Perhaps only late: `later` packets have passed it. Before `until` parity may repair it. If it was lost, it was lost
    /// `between` two packets, as far as is known.
    Suspected { later: u32, until: Instant, between: Option<Between> },
    /// Asked for again, `tries` times. Until `in_line` repairs came that were asked for before.
    Asked { later: u32, tries: u32, in_line: Instant },
    /// Not lost on this hop: it is on its way from further upstream, which was asked about it `asks` times.
    Upstream { asks: u32 },
}

impl State {
    pub(super) fn tries(self) -> u32 {
        match self {
            Self::Suspected { .. } => 0,
            Self::Asked { tries, .. } => tries,
            Self::Upstream { asks } => asks,
        }
    }
}

/// A missing range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) range: ByteRange,
    pub(super) state: State,
    /// Time at which the state was entered.
    pub(super) since: Instant,
}

impl Hole {
    /// A hole that is asked for at `now`, for the `tries`th time.
    pub(super) fn asked(range: ByteRange, now: Instant, tries: u32) -> Self {
        Self { range, state: State::Asked { later: 0, tries, in_line: now }, since: now }
    }

    /// Its place among those of its kind.
    pub(super) fn place(&self) -> Place {
        (self.since, self.range.start)
    }

    fn kind(&self) -> Kind {
        match self.state {
            State::Suspected { .. } => Kind::Suspected,
            State::Asked { .. } => Kind::Asked,
            State::Upstream { asks } => Kind::Upstream { doublings: asks.min(UPSTREAM_DOUBLINGS) },
        }
    }

    /// The rest of the hole behind bytes that came at `now`. A repair keeps its place in line.
    fn rest(self, range: ByteRange, now: Instant) -> Self {
        let since = if self.kind() == Kind::Asked { self.since } else { self.since.max(now) };
        Self { range, since, ..self }
    }
}

/// The order of holes of a kind: when the state began, and the first byte. For repairs it is their order at the Responder.
pub(super) type Place = (Instant, u64);

/// The state of a hole, as far as it decides when it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Perhaps only late.
    Suspected,
    /// Asked for again.
    Asked,
    /// Repaired upstream, which is asked about it after a time that has doubled so often.
    Upstream {
        /// At most [`UPSTREAM_DOUBLINGS`].
        doublings: u32,
    },
}

impl Kind {
    /// Its place among the kinds.
    fn index(self) -> u32 {
        match self {
            Self::Suspected => 0,
            Self::Asked => 1,
            Self::Upstream { doublings } => 2 + doublings,
        }
    }

    /// The kinds of holes that are repaired upstream.
    pub(super) fn upstream() -> impl Iterator<Item = Self> {
        (0..=UPSTREAM_DOUBLINGS).map(|doublings| Self::Upstream { doublings })
    }

    /// The kinds whose holes are due in the order of their places: all but those that are only suspected.
    pub(super) fn due_in_order() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Asked).chain(Self::upstream())
    }
}

/// The time after which upstream is asked about a hole doubles so often.
pub(super) const UPSTREAM_DOUBLINGS: u32 = 4;

/// The most holes of a flow; those beyond it are left to the Consumer's timeout. A hop of 10 Gbit/s and 100 ms that loses a tenth has
/// 9,000.
pub(super) const MAX_HOLES: usize = 16_384;

/// The missing ranges of a flow, disjoint: by their bytes, and each kind by its places.
///
/// A hop that loses a tenth of a gigabit has hundreds, so nothing that comes with every packet looks at all of them. Most flows have
/// none, and all kinds share one tree, so that a packet of one among thousands finds that in one line of the processor's cache.
#[derive(Debug, Default)]
pub(super) struct Holes {
    by_start: BTreeMap<u64, Hole>,
    by_place: BTreeSet<(u32, Place)>,
}

/// Before all places.
pub(super) const FIRST: Place = (Instant::ZERO, 0);
/// Behind all places.
pub(super) const LAST: Place = (Instant::NEVER, u64::MAX);

impl Holes {
    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Adds a hole that overlaps no other, while there is room.
    pub(super) fn insert(&mut self, hole: Hole) {
        if self.by_start.len() < MAX_HOLES {
            self.by_place.insert((hole.kind().index(), hole.place()));
            self.by_start.insert(hole.range.start, hole);
        }
    }

    /// Takes out the hole that begins at `start`.
    pub(super) fn take(&mut self, start: u64) -> Option<Hole> {
        let hole = self.by_start.remove(&start)?;
        self.by_place.remove(&(hole.kind().index(), hole.place()));
        Some(hole)
    }

    /// Takes out the last hole that has bytes of `range`.
    fn take_in(&mut self, range: ByteRange) -> Option<Hole> {
        let start = self.overlapping(range).next()?.range.start;
        self.take(start)
    }

    /// Replaces all holes of `kind`.
    pub(super) fn replace(&mut self, kind: Kind, mut change: impl FnMut(Hole) -> Hole) {
        let starts: Vec<u64> = self.of(kind).map(|hole| hole.range.start).collect();
        for start in starts {
            if let Some(hole) = self.take(start) {
                self.insert(change(hole));
            }
        }
    }

    /// The holes that have bytes of `range`, from the last one on.
    pub(super) fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = &Hole> {
        self.by_start
            .range(..range.end)
            .rev()
            .map(|(_, hole)| hole)
            .take_while(move |hole| hole.range.end > range.start)
    }

    /// The first piece of `range` that is in no hole.
    pub(super) fn first_gap(&self, range: ByteRange) -> Option<ByteRange> {
        let mut start = range.start;
        while let Some(hole) = self.overlapping(ByteRange::at(start, 1)).next() {
            start = hole.range.end;
        }
        let behind = self.by_start.range(start..).next().map_or(range.end, |(at, _)| range.end.min(*at));
        let piece = ByteRange::new(start, behind);
        (!piece.is_empty()).then_some(piece)
    }

    /// Bytes arrived. The bytes behind them in the same hole are next: their time starts anew. Returns the last place of the
    /// repairs that they are.
    pub(super) fn fill(&mut self, now: Instant, range: ByteRange) -> Option<Place> {
        let mut repaired = None;
        while let Some(hole) = self.take_in(range) {
            if hole.kind() == Kind::Asked {
                repaired = repaired.max(Some((hole.since, range.start.max(hole.range.start))));
            }
            let before = ByteRange::new(hole.range.start, range.start);
            let after = ByteRange::new(range.end.min(hole.range.end), hole.range.end);
            if !after.is_empty() {
                self.insert(hole.rest(after, now));
            }
            if !before.is_empty() {
                self.insert(Hole { range: before, ..hole });
            }
        }
        repaired
    }

    /// The holes of `kind`, in the order of their places.
    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = &Hole> {
        let places = (kind.index(), FIRST)..=(kind.index(), LAST);
        self.by_place.range(places).filter_map(|(_, (_, start))| self.by_start.get(start))
    }

    /// Shows `change` the holes of `kind` whose places are in `places`, in their order. It changes neither kind nor place.
    pub(super) fn change(
        &mut self,
        kind: Kind,
        places: core::ops::Range<Place>,
        mut change: impl FnMut(&mut Hole),
    ) {
        if places.is_empty() {
            return;
        }
        let places = (kind.index(), places.start)..(kind.index(), places.end);
        for (_, (_, start)) in self.by_place.range(places) {
            if let Some(hole) = self.by_start.get_mut(start) {
                change(hole);
            }
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.by_start.clear();
        self.by_place.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn range(rng: &mut Rng) -> ByteRange {
        ByteRange::at(rng.below(1_000), 1 + rng.below(60))
    }

    fn hole(rng: &mut Rng, range: ByteRange, now: Instant) -> Hole {
        let state = match rng.below(3) {
            0 => State::Suspected { later: 0, until: now, between: None },
            1 => return Hole::asked(range, now, 1),
            _ => State::Upstream { asks: rng.below(9) as u32 },
        };
        Hole { range, state, since: now }
    }

    /// Beside a plain list: the same bytes are missing, and every hole is in its order.
    #[test]
    fn holes_are_those_of_a_list_and_in_order() {
        let (mut rng, mut holes) = (Rng::new(7), Holes::default());
        let mut missing = [false; 1_100];
        for step in 0..3_000 {
            let (now, touched) = (at(step), range(&mut rng));
            if rng.chance(0.5) {
                holes.fill(now, touched);
                missing[touched.start as usize..touched.end as usize].fill(false);
            } else if let Some(piece) = holes.first_gap(touched) {
                assert!(!missing[piece.start as usize..piece.end as usize].contains(&true));
                assert!(missing[touched.start as usize..piece.start as usize].iter().all(|is| *is));
                let hole = hole(&mut rng, piece, now);
                holes.insert(hole);
                missing[piece.start as usize..piece.end as usize].fill(true);
            }
            let bytes: u64 = holes.by_start.values().map(|hole| hole.range.len()).sum();
            assert_eq!(bytes as usize, missing.iter().filter(|is| **is).count());
            assert_eq!(holes.overlapping(touched).next().is_some(), {
                missing[touched.start as usize..touched.end as usize].contains(&true)
            });
            let kinds = core::iter::once(Kind::Suspected).chain(Kind::due_in_order());
            let in_order: Vec<&Hole> = kinds.flat_map(|kind| holes.of(kind)).collect();
            assert_eq!(in_order.len(), holes.len());
            assert!(in_order.is_sorted_by_key(|hole| (hole.kind().index(), hole.place())));
        }
    }

    #[test]
    fn their_number_is_bounded() {
        let mut holes = Holes::default();
        for n in 0..20_000 {
            holes.insert(Hole::asked(ByteRange::at(n * 2, 1), at(1), 1));
        }
        assert_eq!((holes.len(), holes.by_place.len()), (MAX_HOLES, MAX_HOLES));
        assert!(holes.overlapping(ByteRange::at(0, 1)).next().is_some(), "the first ones are kept");
    }
}
