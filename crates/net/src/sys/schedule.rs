#![allow(unsafe_code, reason = "nix has neither sched_setscheduler nor setpriority")]

use std::io;

/// The nice value of what goes ahead of ordinary threads: the highest priority that there is.
const AHEAD: libc::c_int = -20;

/// Puts the calling thread, and what it starts, ahead of ordinary ones, where the system permits that. Safe between fork and
/// exec.
pub(crate) fn ahead() {
    // SAFETY: the call takes numbers only; 0 is the calling thread. A refusal changes nothing.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, AHEAD) };
}

/// Puts the calling thread ahead of all ordinary ones, where the system permits it.
pub(crate) fn real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: 0 is the calling thread, and the kernel only reads the parameters.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
