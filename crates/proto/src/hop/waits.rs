use crate::time::{Duration, Instant};

/// Half of the span over which a wait counts.
const HALF_SPAN: Duration = Duration::from_millis(500);

/// The longest time that answers of a hop have waited for their turn in the last half to whole second, whatever their
/// flow.
///
/// A flow learns from its own packets how long it waits. One that has received little cannot know: in a crowd its first
/// packet comes at once and its second after all others'. Their packets tell it meanwhile.
#[derive(Debug, Default)]
pub(super) struct Waits {
    now: Duration,
    before: Duration,
    half_began: Instant,
}

impl Waits {
    /// A packet arrived whose bytes had waited so long.
    pub(super) fn on_packet(&mut self, now: Instant, waited: Duration) {
        let age = now.since(self.half_began);
        if age > HALF_SPAN {
            let last = core::mem::take(&mut self.now);
            self.before = if age > HALF_SPAN.scaled(2, 1) { Duration::ZERO } else { last };
            self.half_began = now;
        }
        self.now = self.now.max(waited);
    }

    /// The longest wait; none where nothing has arrived for a while.
    pub(super) fn longest(&self, now: Instant) -> Duration {
        if now.since(self.half_began) > HALF_SPAN.scaled(3, 1) {
            Duration::ZERO
        } else {
            self.now.max(self.before)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_for_half_a_second_to_a_second() {
        let mut waits = Waits::default();
        let ms = Duration::from_millis;
        let longest =
            [(0, 10), (100, 80), (400, 5), (700, 5), (990, 5), (1_300, 5), (3_000, 1)].map(|(at, waited)| {
                waits.on_packet(Instant::ZERO + ms(10_000 + at), ms(waited));
                waits.longest(Instant::ZERO + ms(10_000 + at))
            });
        assert_eq!(longest, [10, 80, 80, 80, 80, 5, 1].map(ms));
        let silent = [1_400, 1_600].map(|after| waits.longest(Instant::ZERO + ms(13_000 + after)));
        assert_eq!(silent, [1, 0].map(ms));
    }
}
