use super::Job;
use std::time::{Duration, Instant};

/// Watches the rate of arrivals: a source that sends a byte now and then would hold a download for ever.
pub(super) struct Pace {
    timeout: Duration,
    /// Bytes that must come within the timeout.
    least: u64,
    received: u64,
    since: Instant,
}

impl Pace {
    pub(super) fn new(job: &Job) -> Self {
        let least = job.least_rate.as_bps() as f64 / 8.0 * job.timeout.as_secs_f64();
        Self { timeout: job.timeout, least: (least as u64).max(1), received: 0, since: Instant::now() }
    }

    /// The bytes that came within the timeout, if they are too few.
    pub(super) fn too_little(&mut self, received: u64) -> Option<u64> {
        let lately = received - self.received;
        if lately >= self.least {
            (self.received, self.since) = (received, Instant::now());
        }
        (self.since.elapsed() > self.timeout).then_some(lately)
    }
}
