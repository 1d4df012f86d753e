use starhop_proto::time::{Duration, Instant};

/// A process that was not scheduled finds what came meanwhile, and takes all of it at once. One that still has not after this time
/// does not keep up; two of these spans are looked back on. The buffer of the socket holds 30 ms at 2 Gbit/s.
const PERIOD: Duration = Duration::from_millis(10);

/// Tells a process that cannot keep up from one that was not scheduled for a while.
///
/// The wait of datagrams in the socket is no queue of the network, and goes by once the process has run. Where it does not go by, this
/// process is the narrowest place of the path: what waits for it is a queue like any other, and who does not see it asks for more than
/// the process can take. A relay of a crowd was 4,000 packets and 1.7 s behind in that way, all its neighbours asked again for what lay
/// in its socket, and it had that to answer, too.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// End of the running span; none while the socket is empty.
    until: Option<Instant>,
    /// The least wait in the running span, and in the one before; none before the first datagram.
    least: Option<Duration>,
    before: Option<Duration>,
}

impl Backlog {
    /// The socket is empty.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A datagram was taken out of the socket at `now`, after it had waited there for `waited`. Returns the part of that wait that stays.
    pub(super) fn take(&mut self, now: Instant, waited: Duration) -> Duration {
        let until = *self.until.get_or_insert(now + PERIOD);
        if now >= until {
            self.until = Some(now + PERIOD);
            self.before = self.least.take();
        }
        let least = self.least.map_or(waited, |least| least.min(waited));
        self.least = Some(least);
        self.before.map_or(Duration::ZERO, |before| before.min(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    #[test]
    fn a_process_that_was_not_scheduled_catches_up_and_none_of_the_wait_stays() {
        let mut backlog = Backlog::default();
        // It was away for half a second, and needs 8 ms for what came.
        for n in 0..8 {
            assert_eq!(backlog.take(at(1_000 + n), ms(500 - 60 * n)), Duration::ZERO);
        }
        backlog.clear();
        assert_eq!(backlog.take(at(1_500), ms(400)), Duration::ZERO, "it was away once more");
    }

    #[test]
    fn of_a_process_that_does_not_keep_up_the_least_wait_stays() {
        let mut backlog = Backlog::default();
        // Each millisecond it falls behind by another half, and now and then a datagram waited for longer.
        let stays: Vec<Duration> = (0..40)
            .map(|n| backlog.take(at(n), Duration::from_micros(500 * n) + ms(if n % 3 == 1 { 5 } else { 0 })))
            .collect();
        assert!(stays[..10].iter().all(|stay| *stay == Duration::ZERO), "it may be catching up");
        assert_eq!((stays[15], stays[39]), (Duration::ZERO, ms(10)));
        backlog.clear();
        assert_eq!(backlog.take(at(40), ms(200)), Duration::ZERO);
    }

    #[test]
    fn a_backlog_that_shrinks_is_seen_to_shrink() {
        let mut backlog = Backlog::default();
        let stays: Vec<Duration> = (0..30).map(|n| backlog.take(at(n), ms(30 - n))).collect();
        assert_eq!((stays[9], stays[25], stays[29]), (Duration::ZERO, ms(5), ms(1)));
    }
}
