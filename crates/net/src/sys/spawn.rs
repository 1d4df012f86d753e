#![allow(unsafe_code, reason = "what runs between fork and exec is unsafe by nature")]

use nix::sys::prctl;
use nix::sys::signal::Signal;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts a process that the kernel kills when the calling *thread* ends, however it ends.
pub(crate) fn tied_to_this_thread(mut command: Command) -> io::Result<Child> {
    // SAFETY: prctl is async-signal-safe, and the closure touches no memory of the parent.
    unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)) };
    command.spawn()
}
