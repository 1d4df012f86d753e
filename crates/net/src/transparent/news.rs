//! Learns from the kernel that another program changed firewall or routing rules.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Changes of nftables (linux/netfilter/nfnetlink.h: NFNLGRP_NFTABLES is 7; groups up to 32 are bits of a mask).
const NFTABLES: u32 = 1 << (7 - 1);
/// Changes of routing rules (linux/rtnetlink.h: RTNLGRP_IPV4_RULE is 8, RTNLGRP_IPV6_RULE 19).
const RULES: u32 = 1 << (8 - 1) | 1 << (19 - 1);

/// Two sockets that become readable when something changed.
#[derive(Debug)]
pub(super) struct News([OwnedFd; 2]);

impl News {
    pub(super) fn new() -> io::Result<Self> {
        let firewall = subscribed(SockProtocol::NetlinkNetFilter, NFTABLES)?;
        Ok(Self([firewall, subscribed(SockProtocol::NetlinkRoute, RULES)?]))
    }

    /// The descriptors to wait for.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.0[0].as_fd(), self.0[1].as_fd()]
    }

    /// Whether there were any since the last call. Never waits.
    pub(super) fn take(&self) -> bool {
        let mut message = [0; 4096];
        let mut has_news = false;
        for socket in &self.0 {
            // An overflow of the socket is news, too.
            while let Ok(1..) | Err(Errno::ENOBUFS) =
                recv(socket.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT)
            {
                has_news = true;
            }
        }
        has_news
    }
}

fn subscribed(protocol: SockProtocol, groups: u32) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(socket)
}
