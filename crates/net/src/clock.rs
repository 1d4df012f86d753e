//! The clock: CLOCK_MONOTONIC in nanoseconds, the same for every process of a machine until it reboots.

use nix::time::{ClockId, clock_gettime};
use starhop_proto::time::Instant;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The variable that makes the time of day of this process jump, for tests of clock jumps: nanoseconds, one number
/// for each SIGURG that the process gets. CLOCK_MONOTONIC never jumps. Only in builds with the feature
/// `clock-steps`.
pub const STEPS: Option<&str> =
    if cfg!(feature = "clock-steps") { Some("STARHOP_CLOCK_STEPS") } else { None };

/// Sum of the jumps of [`STEPS`] so far, nanoseconds.
static STEPPED: AtomicI64 = AtomicI64::new(0);

/// Now. Timer file descriptors and trace files count from the same epoch.
pub fn now() -> Instant {
    // CLOCK_MONOTONIC exists on every Linux; the call cannot fail with a valid pointer.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    Instant::from_nanos(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The time of day: nanoseconds since 1970, UTC; 0 before.
pub fn unix_nanos() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(0));
    nanos.saturating_add_signed(STEPPED.load(Ordering::Relaxed))
}

/// Now and the time of day of the kernel's last tick, at most 10 ms ago: in a tenth of the time that the exact ones take. A
/// clock that is set shows the new time at once.
pub(crate) fn coarse() -> (Instant, u64) {
    let nanos = |clock| {
        let time = clock_gettime(clock).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    };
    let unix = nanos(ClockId::CLOCK_REALTIME_COARSE);
    let now = Instant::from_nanos(nanos(ClockId::CLOCK_MONOTONIC_COARSE));
    (now, unix.saturating_add_signed(STEPPED.load(Ordering::Relaxed)))
}

/// Follows [`STEPS`]; ends at once if there are no steps.
pub(crate) async fn follow_steps() -> io::Result<()> {
    let Some(steps) = STEPS.and_then(|name| std::env::var(name).ok()) else { return Ok(()) };
    let mut told = signal(SignalKind::from_raw(libc::SIGURG))?;
    for step in steps.split(',').filter_map(|step| step.parse::<i64>().ok()) {
        told.recv().await;
        STEPPED.fetch_add(step, Ordering::Relaxed);
    }
    Ok(())
}

/// A seed that differs from run to run, for uses that need no replay.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Bytes of memory that this host, or the control group of this process, has.
pub fn memory() -> u64 {
    let host = nix::sys::sysinfo::sysinfo().map_or(u64::MAX, |info| info.ram_total());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    // Of version 2 there is one group, on a line of its own; `max` is no number.
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let limit = group.map(|group| std::fs::read_to_string(format!("/sys/fs/cgroup{group}/memory.max")));
    host.min(limit.and_then(|limit| limit.ok()?.trim().parse().ok()).unwrap_or(u64::MAX))
}

/// User and system time of this process, in seconds.
pub fn cpu_seconds() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(f64::NAN, |usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6)
}
