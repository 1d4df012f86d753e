//! The headers of the SYN of an accepted connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

const TCP_SAVE_SYN: libc::c_int = 27;
const TCP_SAVED_SYN: libc::c_int = 28;

/// Has a listening socket keep the headers of SYNs.
#[allow(unsafe_code, reason = "nix and socket2 have no TCP_SAVE_SYN")]
pub(crate) fn keep(listener: &impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel reads `len` bytes of a value of that size.
    let done = unsafe {
        libc::setsockopt(
            listener.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_SAVE_SYN,
            (&raw const on).cast(),
            len,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The differentiated services field of the SYN by which a connection was opened; 0 where it is not known.
#[allow(unsafe_code, reason = "nix and socket2 have no TCP_SAVED_SYN")]
pub(crate) fn dscp(accepted: &impl AsFd) -> u8 {
    let mut header = [0u8; 128];
    let mut len = header.len() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes to an array of that size.
    let done = unsafe {
        libc::getsockopt(
            accepted.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            TCP_SAVED_SYN,
            header.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done != 0 || len < 20 {
        return 0;
    }
    match header[0] >> 4 {
        4 => header[1] >> 2,
        6 => (header[0] << 4 | header[1] >> 4) >> 2,
        _ => 0,
    }
}
