//! Ctrl-C and SIGTERM, which end a run in good order.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io;

/// Signals that ask this process to end, held back until they are polled.
#[derive(Debug)]
pub struct Interrupts {
    descriptor: SignalFd,
}

impl Interrupts {
    /// Holds back both signals, in this thread and in the threads that it starts from now on.
    ///
    /// # Errors
    /// The kernel has no descriptor to give.
    pub fn hold_back() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self { descriptor: SignalFd::with_flags(&signals, flags)? })
    }

    /// Whether one came since the last look.
    pub fn came(&mut self) -> bool {
        matches!(self.descriptor.read_signal(), Ok(Some(_)))
    }
}
