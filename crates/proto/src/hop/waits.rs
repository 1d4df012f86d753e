use crate::time::{Duration, Instant};

/// Half of the span over which a wait counts.
const HALF_SPAN: Duration = Duration::from_millis(500);

/// The longest time that answers of a hop have waited for their turn lately, whatever their flow.
///
/// A flow learns from its own packets how long it waits. One that has received little cannot know: in a crowd its first
/// packet comes at once and its second after all others'. Their packets tell it meanwhile.
///
/// A flow that has asked for ten seconds of its share waits ten seconds, and one beside it that has nothing in line for a turn: what a
/// packet waits at the *front* of its flow's line, behind no other of the flow.
#[derive(Debug, Default)]
pub(super) struct HopWaits {
    whole: Longest,
    in_front: Longest,
}

/// Times for which bytes waited for their turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Since they were asked for.
    pub whole: Duration,
    /// The part of it at the front of their flow's line.
    pub in_front: Duration,
}

impl HopWaits {
    /// A packet arrived whose bytes had waited so long since they were asked for.
    pub(super) fn on_packet(&mut self, now: Instant, waited: Duration) {
        self.whole.add(now, waited);
    }

    /// … and so long of it at the front.
    pub(super) fn on_turn(&mut self, now: Instant, waited: Duration) {
        self.in_front.add(now, waited);
    }

    /// The longest waits; none where nothing has arrived for a while.
    pub(super) fn longest(&self, now: Instant) -> Waits {
        Waits { whole: self.whole.until(now), in_front: self.in_front.until(now) }
    }
}

/// The longest of the times of the last half to whole second.
#[derive(Debug, Default)]
struct Longest {
    now: Duration,
    before: Duration,
    half_began: Instant,
}

impl Longest {
    fn add(&mut self, now: Instant, waited: Duration) {
        let age = now.since(self.half_began);
        if age > HALF_SPAN {
            let last = core::mem::take(&mut self.now);
            self.before = if age > HALF_SPAN.scaled(2, 1) { Duration::ZERO } else { last };
            self.half_began = now;
        }
        self.now = self.now.max(waited);
    }

    fn until(&self, now: Instant) -> Duration {
        let is_old = now.since(self.half_began) > HALF_SPAN.scaled(3, 1);
        if is_old { Duration::ZERO } else { self.now.max(self.before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_for_half_a_second_to_a_second() {
        let mut waits = HopWaits::default();
        let ms = Duration::from_millis;
        let at = |millis: u64| Instant::ZERO + ms(10_000 + millis);
        let longest = [(0, 10), (100, 80), (400, 5), (700, 5), (990, 5), (1_300, 5), (3_000, 1)].map(
            |(millis, waited)| {
                waits.on_packet(at(millis), ms(waited));
                waits.on_turn(at(millis), ms(waited / 5));
                let Waits { whole, in_front } = waits.longest(at(millis));
                assert_eq!(in_front, Duration::from_nanos(whole.as_nanos() / 5_000_000 * 1_000_000));
                whole
            },
        );
        assert_eq!(longest, [10, 80, 80, 80, 80, 5, 1].map(ms));
        let silent = [4_400, 4_600].map(|millis| waits.longest(at(millis)).whole);
        assert_eq!(silent, [1, 0].map(ms));
    }
}
