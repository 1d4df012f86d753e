//! A policer in front of a link: a token bucket that drops what is above its rate, and queues nothing.

use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// The properties of a policer (a single-rate token bucket, RFC 2697 with one bucket).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoliceOptions {
    /// The rate at which tokens come.
    pub rate: Rate,
    /// Bytes of tokens at most.
    pub burst: u64,
}

/// A policer at work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policer {
    options: PoliceOptions,
    /// Bytes that may pass at once.
    tokens: f64,
    filled_at: Instant,
}

impl Policer {
    /// A policer with a full bucket.
    pub(super) fn new(options: PoliceOptions) -> Self {
        Self { options, tokens: options.burst as f64, filled_at: Instant::ZERO }
    }

    /// Bits that pass in `span`.
    pub(super) fn bits_in(&self, span: Duration) -> f64 {
        self.options.rate.as_bps() as f64 * span.as_secs_f64()
    }

    /// Whether a packet of `bytes` passes.
    pub(super) fn passes(&mut self, now: Instant, bytes: u32) -> bool {
        let came = self.options.rate.as_bps() as f64 / 8.0 * now.since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + came).min(self.options.burst as f64);
        self.filled_at = now;
        let passes = self.tokens >= f64::from(bytes);
        self.tokens -= if passes { f64::from(bytes) } else { 0.0 };
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of packets of 1000 bytes at twice the rate half pass, after a burst that passes as a whole.
    #[test]
    fn what_is_above_the_rate_is_dropped_after_a_burst() {
        let options = PoliceOptions { rate: Rate::from_mbps(8), burst: 10_000 };
        let mut policer = Policer::new(options);
        let mut passed = |n: u64| policer.passes(Instant::ZERO + Duration::from_micros(500 * n), 1_000);
        assert!((0..18).all(&mut passed));
        let of_later = (18..2_018).filter(|n| passed(*n)).count();
        assert!((995..=1_005).contains(&of_later), "{of_later}");
    }
}
