use super::rtt::HeldStamp;
use crate::time::{Instant, WireTime};
use crate::wire::Echo;

/// The counter and the echo in each packet to a neighbour. No number of the counter is left out: the neighbour would take it for a
/// loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    counter: u16,
    newest: HeldStamp,
}

impl Stamps {
    /// The first packet has the number after `counter`.
    pub(super) fn new(now: Instant, counter: u16) -> Self {
        Self { counter, newest: HeldStamp::new(now, WireTime::default()) }
    }

    /// An Interest with this stamp arrived.
    pub(super) fn on_interest(&mut self, now: Instant, stamp: WireTime) {
        self.newest = HeldStamp::new(now, stamp);
    }

    /// The counter and echo for a packet that leaves now.
    #[inline]
    pub(super) fn next(&mut self, now: Instant) -> (u16, Echo) {
        self.counter = self.counter.wrapping_add(1);
        self.last(now)
    }

    /// The counter of the last packet, and the echo of one that leaves now.
    pub(super) fn last(&self, now: Instant) -> (u16, Echo) {
        (self.counter, self.newest.echo(now))
    }

    /// The packet for which [`Stamps::next`] was called last does not leave.
    pub(super) fn take_back(&mut self) {
        self.counter = self.counter.wrapping_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_packet_that_does_not_leave_gives_its_number_to_the_next() {
        let mut stamps = Stamps::new(at(0), u16::MAX);
        assert_eq!(stamps.next(at(1)).0, 0);
        stamps.next(at(2));
        stamps.take_back();
        assert_eq!((stamps.last(at(3)).0, stamps.next(at(3)).0), (0, 1));
    }

    #[test]
    fn the_echo_continues_the_clock_of_the_last_interest() {
        let mut stamps = Stamps::new(at(0), 0);
        stamps.on_interest(at(100), WireTime::at(at(7000)));
        assert_eq!(stamps.next(at(125)).1.time, WireTime::at(at(7025)));
        assert_eq!(stamps.last(at(100)).1.time.plus(Duration::from_millis(1)), WireTime::at(at(7001)));
    }
}
