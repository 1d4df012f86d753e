//! Descriptors: their number, and those that outlive a change of the program in a process.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Says whether a descriptor stays open when the process goes on as another program.
///
/// # Errors
/// The system's error.
pub(crate) fn keep(fd: BorrowedFd<'_>, is_kept: bool) -> io::Result<()> {
    let flags = if is_kept { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

/// Takes the descriptor `number` over, which the program before this one kept open.
///
/// # Errors
/// There is none of that number.
#[allow(unsafe_code, reason = "only a number comes from the program before this one")]
pub(crate) fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 || !std::path::Path::new(&format!("/proc/self/fd/{number}")).exists() {
        return Err(io::Error::other(format!("there is no descriptor {number} to take over")));
    }
    // SAFETY: it is open, and nothing in this program owns it: the program before this one left it open by its number.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    keep(fd.as_fd(), false)?;
    Ok(fd)
}

/// Has this process open as many descriptors as it may without privileges: the soft limit is often 1024, for programs
/// that use `select`. Returns their number.
pub fn all() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}
