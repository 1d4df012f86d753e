use super::broker::Version;
use super::config::GatewayConfig;
use super::pool::Sockets;
use crate::sys::syn;
use crate::transparent::socket::INTERCEPTED;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{SockRef, Socket};
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

/// Takes the connections that the firewall diverts, by transparent sockets of both IP versions.
///
/// # Errors
/// The port is taken.
pub(super) fn listeners(config: &GatewayConfig, [v4, v6]: [Socket; 2]) -> io::Result<[TcpListener; 2]> {
    let [v4_at, v6_at] = INTERCEPTED.map(|address| SocketAddr::new(address, config.port()));
    Ok([listener(v4, v4_at)?, listener(v6, v6_at)?])
}

fn listener(socket: Socket, at: SocketAddr) -> io::Result<TcpListener> {
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

/// Connects to the target of a stream: in the client's name, unless that is switched off.
///
/// # Errors
/// The target refuses, cannot be reached, or does not answer in time.
pub(super) async fn connect(
    config: &GatewayConfig,
    sockets: &Sockets,
    opening: Opening,
) -> io::Result<TcpStream> {
    let is_same_version = opening.from.is_ipv4() == opening.to.is_ipv4();
    let version = if opening.to.is_ipv4() { Version::V4 } else { Version::V6 };
    let socket = sockets.take(version).await?;
    if is_same_version && !config.nat() {
        bind(&socket, opening.from)?;
    } else {
        // Answers come to this host's own address.
        match version {
            Version::V4 => socket.set_ip_transparent_v4(false)?,
            Version::V6 => socket.set_ip_transparent_v6(false)?,
        }
    }
    mark(&socket, opening)?;
    let socket = tokio::net::TcpSocket::from_std_stream(socket.into());
    let connecting = tokio::time::timeout(CONNECT, socket.connect(opening.to));
    connecting.await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Gives a transparent socket a client's address. The kernel may keep ports below 1024 from processes without rights: then the
/// socket has another port.
fn bind(socket: &Socket, from: SocketAddr) -> io::Result<()> {
    match socket.bind(&from.into()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            socket.bind(&SocketAddr::new(from.ip(), 0).into())
        }
        done => done,
    }
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
