//! The lowest of the values of some time.

use crate::time::{Duration, Instant};

/// The lowest value of the last half and of the one before: it is forgotten after one to two halves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lowest {
    half: Duration,
    now: f64,
    before: f64,
    half_began: Instant,
}

impl Lowest {
    pub(crate) const fn new(half: Duration) -> Self {
        Self { half, now: f64::INFINITY, before: f64::INFINITY, half_began: Instant::ZERO }
    }

    pub(crate) fn on_value(&mut self, now: Instant, value: f64) {
        if now.since(self.half_began) > self.half {
            self.half_began = now;
            self.before = core::mem::replace(&mut self.now, f64::INFINITY);
        }
        self.now = self.now.min(value);
    }

    /// Infinite before the first value.
    pub(crate) fn value(&self) -> f64 {
        self.now.min(self.before)
    }

    /// Nothing is known but `value`.
    pub(crate) fn reset(&mut self, value: f64) {
        (self.now, self.before) = (value, f64::INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_forgotten_after_one_to_two_halves() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut lowest = Lowest::new(Duration::from_secs(5));
        let values = [(6, 2.0), (7, 1.0), (12, 3.0), (17, 4.0), (18, 5.0)].map(|(secs, value)| {
            lowest.on_value(at(secs), value);
            lowest.value()
        });
        assert_eq!(values, [2.0, 1.0, 1.0, 1.0, 3.0]);
    }
}
