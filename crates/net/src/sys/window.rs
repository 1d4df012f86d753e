//! The receive window of a TCP connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Bounds the window that a connected socket advertises. The kernel sets the bound itself when the first segments
/// come, so it holds when set after them.
#[allow(unsafe_code, reason = "nix and socket2 have no TCP_WINDOW_CLAMP")]
pub(crate) fn clamp(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = bytes.min(i32::MAX as u32) as libc::c_int;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `len` bytes of a value of that size.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw const bytes).cast(),
            len,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
