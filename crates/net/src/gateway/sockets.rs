use super::config::GatewayConfig;
use crate::sys::syn;
use crate::transparent::socket::INTERCEPTED;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use starhop_proto::gateway::Opening;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that wait to be accepted: a burst of a second at 2000 a second, and the kernel's own limit.
const BACKLOG: i32 = 4096;
/// Longest time until a target answers.
const CONNECT: Duration = Duration::from_secs(10);

/// Takes the connections that the firewall diverts, of both IP versions.
///
/// # Errors
/// Transparent sockets are not permitted, or the port is taken.
pub(super) fn listeners(config: &GatewayConfig) -> io::Result<[TcpListener; 2]> {
    let [v4, v6] = INTERCEPTED.map(|address| listener(config, SocketAddr::new(address, config.port())));
    Ok([v4?, v6?])
}

fn listener(config: &GatewayConfig, at: SocketAddr) -> io::Result<TcpListener> {
    let socket = transparent(config, at)?;
    syn::keep(&socket)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// Has listeners hear of no new connection: only of those on the loopback interface, which the firewall does not divert.
/// Connections that have begun are still accepted.
///
/// # Errors
/// The kernel is older than 5.7, and this process may not use raw sockets.
pub(super) fn deafen(listeners: &[TcpListener; 2]) -> io::Result<()> {
    listeners.iter().try_for_each(|listener| SockRef::from(listener).bind_device(Some(b"lo")))
}

/// Whether no connection waits to be accepted.
pub(super) fn are_idle(listeners: &[TcpListener; 2]) -> bool {
    let mut waiting = listeners.each_ref().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN));
    poll(&mut waiting, PollTimeout::ZERO) == Ok(0)
}

/// A TCP socket that may have any address.
fn transparent(config: &GatewayConfig, for_address: SocketAddr) -> io::Result<Socket> {
    let socket = plain(config, for_address)?;
    let allowed = match for_address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => socket.set_ip_transparent_v6(true),
    };
    allowed.map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            io::Error::other("transparent sockets are not permitted here: run as root or with CAP_NET_ADMIN")
        }
        _ => error,
    })?;
    Ok(socket)
}

/// Whether this kernel has the congestion control of the configuration.
///
/// # Errors
/// It does not, or does not permit it.
pub(super) fn check_congestion(config: &GatewayConfig) -> io::Result<()> {
    plain(config, SocketAddr::new(INTERCEPTED[0], 0)).map(drop)
}

/// Has connections that are accepted from now on use the congestion control of the configuration.
///
/// # Errors
/// This kernel does not have it.
pub(super) fn set_congestion(listeners: &[TcpListener; 2], config: &GatewayConfig) -> io::Result<()> {
    let of_system = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let control = config.congestion().map_or_else(of_system, |name| Ok(name.to_owned()))?;
    listeners
        .iter()
        .try_for_each(|listener| SockRef::from(listener).set_tcp_congestion(control.trim().as_bytes()))
}

fn plain(config: &GatewayConfig, for_address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(for_address), Type::STREAM, Some(Protocol::TCP))?;
    if for_address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Some(control) = config.congestion() {
        socket.set_tcp_congestion(control.as_bytes())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Connects to the target of a stream: in the client's name, unless that is switched off.
///
/// # Errors
/// The target refuses, cannot be reached, or does not answer in time.
pub(super) async fn connect(config: &GatewayConfig, opening: Opening) -> io::Result<TcpStream> {
    let is_same_version = opening.from.is_ipv4() == opening.to.is_ipv4();
    let socket = if config.nat() || !is_same_version {
        plain(config, opening.to)?
    } else {
        let socket = transparent(config, opening.to)?;
        socket.bind(&opening.from.into())?;
        socket
    };
    mark(&socket, opening)?;
    let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
    let connecting = tokio::time::timeout(CONNECT, socket.connect(opening.to));
    connecting.await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Gives a socket's packets the class of the client's.
pub(super) fn mark(socket: &Socket, opening: Opening) -> io::Result<()> {
    let class = u32::from(opening.dscp) << 2;
    match opening.to.ip() {
        _ if class == 0 => Ok(()),
        IpAddr::V4(_) => socket.set_tos_v4(class),
        IpAddr::V6(_) => socket.set_tclass_v6(class),
    }
}

/// The opening of an accepted connection: the firewall left its target as the socket's own address.
pub(super) fn opening(socket: &TcpStream) -> io::Result<Opening> {
    let (from, to) = (socket.peer_addr()?, socket.local_addr()?);
    Ok(Opening { from, to, dscp: syn::dscp(socket) })
}
