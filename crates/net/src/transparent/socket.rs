//! Sockets that receive packets for other hosts, and send in the names of other hosts.

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use quinn_udp::{Transmit, UdpSocketState};
use socket2::{Domain, Protocol, Socket, Type};
use starhop_proto::peer::Face;
use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use tokio::io::Interest;

/// Addresses to which intercepted packets are delivered: no packet on a wire can have them.
pub(crate) const INTERCEPTED: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Receives intercepted packets of one IP version.
pub(super) struct Listener {
    socket: tokio::net::UdpSocket,
}

impl Listener {
    /// Listens where the firewall delivers packets of the IP version of `address` for `port`.
    pub(super) fn bind(address: IpAddr, port: u16) -> io::Result<Self> {
        let at = SocketAddr::new(address, port);
        let socket = transparent(at)?;
        match address {
            IpAddr::V4(_) => setsockopt(&socket, sockopt::Ipv4OrigDstAddr, &true)?,
            IpAddr::V6(_) => setsockopt(&socket, sockopt::Ipv6OrigDstAddr, &true)?,
        }
        if setsockopt(&socket, sockopt::RcvBufForce, &crate::endpoint::RECEIVE_BUFFER).is_err() {
            socket.set_recv_buffer_size(crate::endpoint::RECEIVE_BUFFER)?;
        }
        socket.bind(&at.into())?;
        Ok(Self { socket: tokio::net::UdpSocket::from_std(socket.into())? })
    }

    /// Waits until there is something.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// A datagram: its length, where it came from and where it was going.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, SocketAddr)> {
        self.socket.try_io(Interest::READABLE, || {
            let mut space = cmsg_space!(libc::sockaddr_in6);
            let mut slices = [IoSliceMut::new(buffer)];
            let fd = self.socket.as_fd().as_raw_fd();
            let message =
                recvmsg::<SockaddrStorage>(fd, &mut slices, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
            let from = message.address.as_ref().and_then(address_of);
            let to = message.cmsgs()?.find_map(|message| match message {
                ControlMessageOwned::Ipv4OrigDstAddr(to) => Some(SocketAddr::V4(SockaddrIn::from(to).into())),
                ControlMessageOwned::Ipv6OrigDstAddr(to) => {
                    Some(SocketAddr::V6(SockaddrIn6::from(to).into()))
                }
                _ => None,
            });
            let unknown = || io::Error::other("the kernel does not say where a packet was going");
            let (from, to) = from.zip(to).ok_or_else(unknown)?;
            Ok((message.bytes, from, to))
        })
    }
}

fn address_of(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = || address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4().or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// A socket that may have any address.
fn transparent(for_address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(for_address), Type::DGRAM, Some(Protocol::UDP))?;
    match for_address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
        SocketAddr::V6(_) => {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        }
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The most addresses in whose name packets are sent at a time; the next takes the place of the oldest.
const MOST: usize = 4096;

/// Sends in the name of others: one socket for each of them.
#[derive(Default)]
pub(super) struct Senders {
    sockets: BTreeMap<SocketAddr, Sender>,
    uses: u64,
}

struct Sender {
    socket: UdpSocket,
    state: UdpSocketState,
    used: u64,
}

impl Senders {
    /// Number of datagrams of `face` that one call may carry.
    pub(super) fn segments(&mut self, face: Face) -> usize {
        self.sender(face.local).map_or(1, |sender| sender.state.max_gso_segments())
    }

    /// Sends `bytes`, datagrams of `segment` bytes each but the last, from `face.local` to `face.remote`.
    pub(super) fn send(&mut self, face: Face, bytes: &[u8], segment: usize) -> io::Result<()> {
        let sender = self.sender(face.local)?;
        let segment_size = (bytes.len() > segment).then_some(segment);
        let transmit =
            Transmit { destination: face.remote, ecn: None, contents: bytes, segment_size, src_ip: None };
        sender.state.try_send((&sender.socket).into(), &transmit)
    }

    fn sender(&mut self, local: SocketAddr) -> io::Result<&mut Sender> {
        self.uses += 1;
        if !self.sockets.contains_key(&local) {
            self.make_room();
            let socket = transparent(local)?;
            // It only sends: packets that arrive for this address are not for us.
            socket.set_recv_buffer_size(0)?;
            socket.set_send_buffer_size(crate::endpoint::SEND_BUFFER)?;
            socket.bind(&local.into())?;
            let socket = UdpSocket::from(socket);
            let state = UdpSocketState::new((&socket).into())?;
            self.sockets.insert(local, Sender { socket, state, used: 0 });
        }
        let uses = self.uses;
        let sender = self.sockets.get_mut(&local).ok_or(Errno::ENOENT)?;
        sender.used = uses;
        Ok(sender)
    }

    fn make_room(&mut self) {
        if self.sockets.len() < MOST {
            return;
        }
        let oldest = self.sockets.iter().min_by_key(|(_, sender)| sender.used).map(|(local, _)| *local);
        oldest.map(|local| self.sockets.remove(&local));
    }
}
