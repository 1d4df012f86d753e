//! The clock: CLOCK_MONOTONIC in nanoseconds, the same for every process of a machine until it reboots.

use nix::time::{ClockId, clock_gettime};
use starhop_proto::time::Instant;

/// Now. Timer file descriptors and trace files count from the same epoch.
pub fn now() -> Instant {
    // CLOCK_MONOTONIC exists on every Linux; the call cannot fail with a valid pointer.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    Instant::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The time of day: nanoseconds since 1970, UTC; 0 before.
pub fn unix_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0))
}

/// A seed that differs from run to run, for what need not replay.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// User and system time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(f64::NAN, |usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}
