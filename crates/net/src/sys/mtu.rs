//! The MTU of the path of a connected socket.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The largest packet that the kernel would send from the connected `socket` to its peer, IP header included: from
/// the route, and from ICMP. `None` if the kernel does not know.
#[allow(unsafe_code, reason = "nix has no IPV6_MTU")]
pub(crate) fn path_mtu(socket: &UdpSocket) -> Option<u32> {
    let is_ipv4 = socket.local_addr().ok()?.is_ipv4();
    let (level, option) =
        if is_ipv4 { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes to a value of that size.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut mtu).cast(), &raw mut len) };
    (done == 0).then(|| u32::try_from(mtu).ok()).flatten()
}
