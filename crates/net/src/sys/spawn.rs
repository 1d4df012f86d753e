#![allow(unsafe_code, reason = "what runs between fork and exec is unsafe by nature")]

use super::schedule;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Starts a process that the kernel kills when the calling *thread* ends, however it ends. With `is_ahead` it goes ahead of
/// ordinary processes, where the system permits that.
pub(crate) fn tied_to_this_thread(mut command: Command, is_ahead: bool) -> io::Result<Child> {
    let begin = move || {
        if is_ahead {
            schedule::ahead();
        }
        // This process has blocked signals to wait for them; its children must receive them.
        SigSet::empty().thread_set_mask()?;
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)
    };
    // SAFETY: all calls are async-signal-safe, and the closure touches no memory of the parent.
    unsafe { command.pre_exec(begin) };
    command.spawn()
}
