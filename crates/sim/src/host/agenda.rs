use starhop_proto::time::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// The connections of a node that have to be looked at: those that something happened to, in the order of their numbers, and those whose
/// time has come. A node with a thousand connections looks at a few of them for each packet.
#[derive(Default, Debug)]
pub(super) struct Agenda {
    touched: BTreeSet<u32>,
    times: BTreeMap<u32, Instant>,
    by_time: BTreeSet<(Instant, u32)>,
}

impl Agenda {
    /// Something happened to a connection: it may have something to send, or another timer.
    pub(super) fn touch(&mut self, connection: u32) {
        self.touched.insert(connection);
    }

    /// The first connection that something happened to.
    pub(super) fn first_touched(&self) -> Option<u32> {
        self.touched.first().copied()
    }

    /// A connection has nothing to send before `next`.
    pub(super) fn rest(&mut self, connection: u32, next: Option<Instant>) {
        self.touched.remove(&connection);
        let before = match next {
            Some(at) => self.times.insert(connection, at),
            None => self.times.remove(&connection),
        };
        if before == next {
            return;
        }
        before.map(|at| self.by_time.remove(&(at, connection)));
        next.map(|at| self.by_time.insert((at, connection)));
    }

    /// Takes a connection whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let (at, connection) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.times.remove(&connection);
        Some(connection)
    }

    /// The time of the first that rests.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn who_was_touched_is_looked_at_and_who_rests_when_its_time_has_come() {
        let mut agenda = Agenda::default();
        [7, 3].iter().for_each(|n| agenda.touch(*n));
        assert_eq!(agenda.first_touched(), Some(3));
        agenda.rest(3, Some(at(5)));
        agenda.rest(3, Some(at(9)));
        agenda.rest(7, Some(at(8)));
        assert_eq!((agenda.first_touched(), agenda.next()), (None, Some(at(8))));
        assert_eq!((agenda.take_due(at(8)), agenda.take_due(at(8))), (Some(7), None));
        agenda.rest(3, None);
        assert_eq!((agenda.next(), agenda.take_due(at(99))), (None, None));
    }
}
