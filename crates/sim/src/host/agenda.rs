use starhop_proto::deadlines::Deadlines;
use starhop_proto::table::Slot;
use starhop_proto::time::Instant;
use std::collections::BTreeSet;

/// The connections of a node that have to be looked at: those that something happened to, in the order of their numbers, and those whose
/// time has come. A node with a thousand connections looks at a few of them for each packet.
#[derive(Default, Debug)]
pub(super) struct Agenda {
    touched: BTreeSet<u32>,
    times: Deadlines,
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
        self.times.set(Slot(connection), next);
    }

    /// Takes a connection whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let (_, connection) = self.times.first().filter(|(at, _)| *at <= now)?;
        self.times.set(connection, None);
        Some(connection.0)
    }

    /// The time of the first that rests.
    pub(super) fn next(&self) -> Option<Instant> {
        self.times.next().if_ever()
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
