//! The kernel's round trip of a TCP connection.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The smoothed round trip of the connection of `socket` (Linux, `TCP_INFO`); `None` if the kernel does not say.
#[allow(unsafe_code, reason = "nix and socket2 have no TCP_INFO")]
pub(crate) fn tcp_rtt(socket: BorrowedFd<'_>) -> Option<Duration> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes to a value of that size. Zeros are a
    // value of it, so that fields that an older kernel does not write are valid, too.
    let (done, info) = unsafe {
        let done = libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        );
        (done, info.assume_init())
    };
    (done == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_connection_over_loopback_has_a_short_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        for socket in [&near, &far] {
            let rtt = tcp_rtt(socket.as_fd()).unwrap();
            assert!(rtt < Duration::from_millis(100), "{rtt:?}");
        }
        assert_eq!(tcp_rtt(listener.as_fd()), None);
    }
}
