use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use starhop_proto::time::Instant;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel's full resolution: tokio's own has 1 ms, in which 2 Gbit/s send 250 kB.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: AsyncFd<Descriptor>,
    armed: Option<Instant>,
}

/// `TimerFd` has no raw descriptor, which tokio asks for.
#[derive(Debug)]
struct Descriptor(TimerFd);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Timer {
    #[allow(
        unsafe_code,
        reason = "tokio cannot see that the descriptor stays the same while it is registered"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        // SAFETY: the descriptor owns its TimerFd, which stays open, and the same, until the AsyncFd is dropped.
        let fd = unsafe { AsyncFd::register_with_interest(Descriptor(timer), Interest::READABLE)? };
        Ok(Self { fd, armed: None })
    }

    /// Sets the moment of expiry; the kernel is called only if it changed.
    pub(crate) fn arm(&mut self, deadline: Option<Instant>) -> io::Result<()> {
        if deadline == self.armed {
            return Ok(());
        }
        self.armed = deadline;
        let timer = &self.fd.get_ref().0;
        match deadline {
            Some(at) => {
                // Zero would disarm it.
                let nanos = at.as_nanos().clamp(1, i64::MAX as u64);
                let spec = TimeSpec::new((nanos / 1_000_000_000) as i64, (nanos % 1_000_000_000) as i64);
                timer.set(Expiration::OneShot(spec), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => timer.unset()?,
        }
        Ok(())
    }

    /// Waits for the expiry.
    pub(crate) async fn expired(&mut self) -> io::Result<()> {
        let mut guard = self.fd.readable().await?;
        // Setting the timer again also clears its count, so the count need not be read.
        guard.clear_ready();
        drop(guard);
        self.armed = None;
        Ok(())
    }
}
