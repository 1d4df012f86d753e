use super::waits::Waits;
use crate::time::{Duration, Instant};

/// Decay of the longest waiting time, per packet; and the packets that tell enough of the flow's own waits.
const FORGET: (u64, u64) = (15, 16);

/// The time that a flow gives to answers that wait for their turn: from what its own packets told, and others of the hop.
#[derive(Debug)]
pub(super) struct Patience {
    /// Longest recent waiting time of bytes for their turn.
    waited: Duration,
    /// Time of the last packet in order, and how long it waited at the front of the flow's line.
    served_at: Instant,
    turn_took: Option<Duration>,
    /// Packets in order that told how long they had waited.
    told: u64,
    /// The longest recent waiting times of others on the hop.
    others: Waits,
}

impl Patience {
    /// A flow that is asked for from `now` on.
    pub(super) fn new(now: Instant) -> Self {
        let (waited, others) = (Duration::ZERO, Waits::default());
        Self { waited, served_at: now, turn_took: None, told: 0, others }
    }

    /// A packet came in the flow's order, whose bytes waited so long; a mark has no bytes.
    #[inline]
    pub(super) fn on_packet(&mut self, now: Instant, waited: Duration, has_bytes: bool) {
        if has_bytes {
            self.told += 1;
            self.turn_took = Some(waited.min(now.since(self.served_at)));
            self.served_at = now;
        }
        self.waited = waited.max(self.waited.scaled(FORGET.0, FORGET.1));
    }

    /// The time that the bytes of the last packet waited at the front of the flow's line, once.
    pub(super) fn take_turn(&mut self) -> Option<Duration> {
        self.turn_took.take()
    }

    /// Others' bytes on the hop have waited up to `waits` lately.
    pub(super) fn on_others_waited(&mut self, waits: Waits) {
        self.others = waits;
    }

    /// Twice the recent waiting time; that of others until the flow's own packets have told enough.
    pub(super) fn for_turn(&self) -> Duration {
        let others = if self.told < FORGET.1 { self.others.whole } else { Duration::ZERO };
        self.waited.max(others).scaled(2, 1)
    }

    /// The part of [`Patience::for_turn`] that others' waits make.
    pub(super) fn for_others(&self) -> Duration {
        self.for_turn().saturating_sub(self.waited.scaled(2, 1))
    }

    /// So many turns of the hop.
    pub(super) fn turns(&self, count: u64) -> Duration {
        self.others.in_front.scaled(count, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(1_000 + millis)
    }

    #[test]
    fn a_turn_is_the_time_since_the_packet_before_where_the_bytes_waited_for_so_long() {
        let mut patience = Patience::new(at(0));
        let turn = [(400, 300, true), (500, 350, true), (550, 0, false), (900, 20, true)].map(
            |(millis, waited, has_bytes)| {
                patience.on_packet(at(millis), ms(waited), has_bytes);
                patience.take_turn()
            },
        );
        assert_eq!(turn, [Some(ms(300)), Some(ms(100)), None, Some(ms(20))]);
    }

    #[test]
    fn others_waits_count_until_the_flow_has_told_enough() {
        let mut patience = Patience::new(at(0));
        patience.on_others_waited(Waits { whole: ms(1_000), in_front: ms(50) });
        patience.on_packet(at(0), ms(100), true);
        assert_eq!((patience.for_turn(), patience.for_others()), (ms(2_000), ms(1_800)));
        assert_eq!(patience.turns(3), ms(150));
        (1..16).for_each(|packet| patience.on_packet(at(packet), ms(100), true));
        assert_eq!((patience.for_turn(), patience.for_others()), (ms(200), Duration::ZERO));
    }
}
