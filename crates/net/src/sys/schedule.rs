#![allow(unsafe_code, reason = "nix has no sched_setscheduler")]

use std::io;

/// Puts the calling thread ahead of all ordinary ones, where the system permits it.
pub(crate) fn real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 10 };
    // SAFETY: 0 is the calling thread, and the kernel only reads the parameters.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
