#![allow(unsafe_code, reason = "what runs between fork and exec is unsafe by nature")]

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts a process that the kernel kills when the calling *thread* ends, however it ends.
pub(crate) fn tied_to_this_thread(mut command: Command) -> io::Result<Child> {
    let begin = || {
        // What this process has blocked to wait for it, its children must hear.
        SigSet::empty().thread_set_mask()?;
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
    };
    // SAFETY: both calls are async-signal-safe, and the closure touches no memory of the parent.
    unsafe { command.pre_exec(begin) };
    command.spawn()
}
