//! A UDP socket with large buffers, segmentation offload and both IP versions.

use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Receive buffer asked for: 8 MiB hold 30 ms of a 2 Gbit/s burst while the process is not scheduled.
pub const RECEIVE_BUFFER: usize = 8 << 20;
/// Send buffer asked for. It is smaller, because packets in it wait behind the pacer, where no controller sees
/// them.
pub const SEND_BUFFER: usize = 2 << 20;

/// A bound UDP socket, registered with the tokio runtime it was made in.
#[derive(Debug)]
pub struct Endpoint {
    pub(crate) io: tokio::net::UdpSocket,
    pub(crate) state: UdpSocketState,
    local: SocketAddr,
    buffers: Buffers,
}

/// Sizes of the buffers that the kernel granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// Bytes of the receive buffer.
    pub receive: usize,
    /// Bytes of the send buffer.
    pub send: usize,
}

impl Buffers {
    /// Advice to the operator if the kernel granted less than [`RECEIVE_BUFFER`].
    pub fn advice(self) -> Option<String> {
        (self.receive < RECEIVE_BUFFER).then(|| {
            format!(
                "the kernel gave {} KiB of receive buffer where {} KiB are wanted; fast flows may lose packets \
                 here. To allow it: sysctl -w net.core.rmem_max={RECEIVE_BUFFER}",
                self.receive >> 10,
                RECEIVE_BUFFER >> 10
            )
        })
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

impl Endpoint {
    /// Binds to `address`; `[::]` accepts both IP versions.
    ///
    /// # Errors
    /// [`BindError`] says which address and why.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        open(address).map_err(|cause| BindError { address, cause })
    }

    /// The socket that the program before this one had.
    ///
    /// # Errors
    /// The descriptor is no UDP socket.
    pub(crate) fn adopt(fd: OwnedFd) -> io::Result<Self> {
        ready(Socket::from(fd))
    }

    /// A socket on a free port from which `peer` can be reached. It receives ICMP errors about datagrams that did
    /// not arrive. Only the socket of a single peer may do so: on a shared socket such an error would cost
    /// datagrams of other peers.
    ///
    /// # Errors
    /// As [`Endpoint::bind`].
    pub fn towards(peer: SocketAddr) -> Result<Self, BindError> {
        let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let endpoint = Self::bind(any.parse().unwrap_or(peer))?;
        // Without this option a timeout has less to report; nothing else is lost.
        let _ = match endpoint.local {
            SocketAddr::V4(_) => setsockopt(&endpoint.io, sockopt::Ipv4RecvErr, &true),
            SocketAddr::V6(_) => setsockopt(&endpoint.io, sockopt::Ipv6RecvErr, &true),
        };
        Ok(endpoint)
    }

    /// Sends and receives by one device only, whatever the routes say.
    ///
    /// # Errors
    /// There is no such device, or the process lacks CAP_NET_RAW.
    pub fn only_by(&self, device: &str) -> io::Result<()> {
        let problem = |error| io::Error::other(format!("cannot use the device `{device}` alone: {error}"));
        socket2::SockRef::from(&self.io).bind_device(Some(device.as_bytes())).map_err(problem)
    }

    /// Empties the queue of such messages, which takes room from datagrams.
    pub(crate) fn drop_messages(&self) {
        let mut start = [0; 64];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        while recv(self.io.as_raw_fd(), &mut start, flags).is_ok() {}
    }

    /// The bound address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Sizes of the buffers that the kernel granted.
    pub fn buffers(&self) -> Buffers {
        self.buffers
    }

    /// `peer` in the form in which this socket reports it as a sender: an IPv6 socket speaks to IPv4 hosts
    /// under mapped addresses. `None` when the socket cannot reach that IP version.
    pub fn address_of(&self, peer: SocketAddr) -> Option<SocketAddr> {
        address_from(self.local, peer)
    }
}

/// As [`Endpoint::address_of`], for a socket that is bound to `local`.
pub(crate) fn address_from(local: SocketAddr, peer: SocketAddr) -> Option<SocketAddr> {
    match (local, peer) {
        (SocketAddr::V6(local), SocketAddr::V4(v4)) => (*local.ip() == Ipv6Addr::UNSPECIFIED)
            .then(|| SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into()),
        (SocketAddr::V4(_), SocketAddr::V6(_)) => None,
        _ => Some(peer),
    }
}

fn open(address: SocketAddr) -> io::Result<Endpoint> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if let SocketAddr::V6(v6) = address {
        socket.set_only_v6(!v6.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    ready(socket)
}

/// Has the runtime watch a bound socket.
fn ready(socket: Socket) -> io::Result<Endpoint> {
    socket.set_nonblocking(true)?;
    let buffers = size_buffers(&socket)?;
    let io = tokio::net::UdpSocket::from_std(socket.into())?;
    let state = UdpSocketState::new((&io).into())?;
    Ok(Endpoint { local: io.local_addr()?, io, state, buffers })
}

/// Asks with the privileged option first: it may exceed `net.core.rmem_max`.
fn size_buffers(socket: &Socket) -> io::Result<Buffers> {
    if setsockopt(socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    if setsockopt(socket, sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        socket.set_send_buffer_size(SEND_BUFFER)?;
    }
    // Linux doubles the requested size, to account for its own bookkeeping, and reports the double.
    Ok(Buffers { receive: socket.recv_buffer_size()? / 2, send: socket.send_buffer_size()? / 2 })
}

/// An address that could not be bound.
#[derive(Debug)]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub cause: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.cause.kind() {
            io::ErrorKind::AddrInUse => "; another process listens there: end it or choose another port",
            io::ErrorKind::AddrNotAvailable => "; this host has no such address: see `ip address`",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
            _ => "",
        };
        write!(f, "cannot listen on {} (UDP): {}{hint}", self.address, self.cause)
    }
}

impl std::error::Error for BindError {}
