#![allow(unsafe_code, reason = "TUN devices are configured by ioctl")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

nix::ioctl_write_int!(tun_set_iff, b'T', 202);

/// Makes a TUN device in the calling thread's network namespace; it goes when the file closes.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: `ifreq` is plain data, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device name has at most 15 bytes"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // Bare IP packets, without a header that says so.
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    // SAFETY: the pointer is to a live `ifreq`, which TUNSETIFF reads and writes.
    unsafe { tun_set_iff(file.as_raw_fd(), (&raw mut request) as u64) }?;
    Ok(file)
}
