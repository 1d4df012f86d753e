//! The turns of connections on the satellite link, and their times.

use super::segment::ConnectionId;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::collections::VecDeque;

/// Serves connections round robin at the satellite's rate: the whole of the congestion control (paper, section III.A).
/// One segment a turn; a connection without segments is skipped.
#[derive(Debug)]
pub struct Scheduler {
    rate: Rate,
    /// Time at which the link is free.
    free_at: Instant,
    turns: VecDeque<ConnectionId>,
    /// Bytes that are no segments and left since the last segment, while one waited.
    others: u32,
    /// No segment leaves before this time, unless other bytes have.
    not_before: Instant,
    /// Segments have waited since the link became free.
    is_waited_for: bool,
}

/// Bytes that are no segments and hold the next segment up, at most, while both wait: a packet.
const OTHERS_TURN: u32 = 1_500;
/// A real clock wakes its owner late. Segments that waited meanwhile make up for at most this time: 9 packets at 20 Mbit/s.
const CATCH_UP: Duration = Duration::from_millis(5);
/// Packets' time on the link for which a segment waits for other bytes to take their turn.
const PATIENCE: u32 = 4;

impl Scheduler {
    /// A scheduler of a link of `rate`.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            free_at: Instant::ZERO,
            turns: VecDeque::new(),
            others: 0,
            not_before: Instant::ZERO,
            is_waited_for: false,
        }
    }

    /// A connection, which has no turn, has a segment from now on.
    pub fn add(&mut self, connection: ConnectionId) {
        self.is_waited_for &= !self.turns.is_empty();
        self.turns.push_back(connection);
    }

    /// A connection takes part no more.
    pub fn remove(&mut self, connection: ConnectionId) {
        self.turns.retain(|other| *other != connection);
    }

    /// Whether any connection has a turn.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Time at which the link is free for the next segment.
    pub fn free_at(&self) -> Instant {
        self.free_at.max(self.not_before)
    }

    /// Other bytes wait: they leave before the next segment.
    pub fn give_way(&mut self, now: Instant) {
        self.not_before = now + self.rate.time_for(u64::from(PATIENCE * OTHERS_TURN));
    }

    /// Takes a segment of the first connection in turn that has one, if the link is free at `now`. `take` says also
    /// whether the connection has another one; if not, it has no turn any more.
    pub fn pick<T>(
        &mut self,
        now: Instant,
        mut take: impl FnMut(ConnectionId) -> Option<(Option<T>, bool)>,
    ) -> Option<T> {
        while self.free_at() <= now {
            let connection = self.turns.pop_front()?;
            let Some((taken, has_more)) = take(connection) else { continue };
            if has_more {
                self.turns.push_back(connection);
            }
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// `bytes` that are no segment left at `now`. While segments wait, both take turns, packet by packet: more than a
    /// packet between two segments does not hold the next segment up.
    pub fn on_other_sent(&mut self, now: Instant, bytes: u32) {
        let held_up =
            if self.turns.is_empty() { bytes } else { bytes.min(OTHERS_TURN.saturating_sub(self.others)) };
        self.others = self.others.saturating_add(held_up);
        self.not_before = Instant::ZERO;
        self.occupy(now, held_up);
    }

    /// A segment of `bytes` on the wire left at `now`.
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.others = 0;
        self.occupy(now, bytes);
    }

    fn occupy(&mut self, now: Instant, bytes: u32) {
        let from = if self.is_waited_for { now.before(CATCH_UP) } else { now };
        self.free_at = self.free_at.max(from) + self.rate.time_for(u64::from(bytes));
        self.is_waited_for = !self.turns.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use alloc::vec::Vec;

    fn scheduler(connections: u64) -> Scheduler {
        let mut scheduler = Scheduler::new(Rate::from_mbps(1));
        (0..connections).for_each(|id| scheduler.add(ConnectionId(id)));
        scheduler
    }

    /// Serves for as long as any connection has segments. Returns the served ones, in order.
    fn serve(scheduler: &mut Scheduler, queues: &mut [u32], most: usize) -> Vec<u64> {
        let (mut now, mut served) = (Instant::ZERO, Vec::new());
        while served.len() < most {
            now = now.max(scheduler.free_at());
            let take = |id: ConnectionId| {
                let queue = &mut queues[id.0 as usize];
                let taken = (*queue > 0).then_some(id.0);
                *queue = queue.saturating_sub(1);
                Some((taken, *queue > 0))
            };
            let Some(id) = scheduler.pick(now, take) else { break };
            served.push(id);
            scheduler.on_sent(now, 1000);
        }
        served
    }

    #[test]
    fn connections_with_work_share_evenly_and_empty_ones_are_passed_over() {
        let mut scheduler = scheduler(5);
        let served = serve(&mut scheduler, &mut [1000, 0, 1000, 1000, 0], 300);
        let share = |id| served.iter().filter(|served| **served == id).count();
        assert_eq!([0, 1, 2, 3, 4].map(share), [100, 0, 100, 100, 0]);
    }

    #[test]
    fn a_newcomer_waits_for_one_round_at_most() {
        let mut scheduler = scheduler(3);
        serve(&mut scheduler, &mut [50, 50, 0], 99);
        scheduler.add(ConnectionId(2));
        let served = serve(&mut scheduler, &mut [50, 50, 50], 3);
        assert!(served.contains(&2), "{served:?}");
    }

    #[test]
    fn the_link_is_never_asked_for_more_than_its_rate_and_never_idle_with_work_waiting() {
        let mut scheduler = scheduler(2);
        serve(&mut scheduler, &mut [60, 40], 100);
        // 100 segments of 1000 bytes at 1 Mbit/s.
        assert_eq!(scheduler.free_at(), Instant::ZERO + Duration::from_millis(800));
    }

    /// Serves at intervals of `late`. Returns the number of segments of 1 ms that left in 100 ms.
    fn served_late(late: Duration) -> u32 {
        let mut scheduler = Scheduler::new(Rate::from_mbps(8));
        scheduler.add(ConnectionId(0));
        let (mut now, mut count) = (Instant::ZERO, 0);
        while now < Instant::ZERO + Duration::from_millis(100) {
            while scheduler.pick(now, |id| Some((Some(id), true))).is_some() {
                scheduler.on_sent(now, 1_000);
                count += 1;
            }
            now += late;
        }
        count
    }

    #[test]
    fn an_owner_that_wakes_late_loses_nothing_within_bounds() {
        let served = [500, 1_700, 4_300].map(|micros| served_late(Duration::from_micros(micros)));
        assert!(served.iter().all(|count| (97..=101).contains(count)), "{served:?}");
        assert!((55..65).contains(&served_late(Duration::from_millis(10))), "5 or 6 of each 10 ms");
    }

    #[test]
    fn an_idle_time_is_not_made_up_for() {
        let mut scheduler = scheduler(1);
        let now = Instant::ZERO + Duration::from_secs(5);
        scheduler.on_sent(now, 1000);
        assert_eq!(scheduler.pick(now, |id| Some((Some(id), true))), None);
        assert_eq!(scheduler.free_at(), now + Duration::from_millis(8));
    }
}
