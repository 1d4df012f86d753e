//! Links that lose and delay, between network namespaces of this machine.
//!
//! A [`Namespace`] is a host of its own: addresses, routes, sockets, processes. An [`Emulator`] joins namespaces by
//! point-to-point links: TUN devices between which one thread carries packets according to a [`Link`]. [`chain()`]
//! makes the usual row of hosts. Nothing has a name in the file system, so nothing remains when the process ends,
//! however it ends.

mod accuracy;
mod capture;
mod chain;
mod departures;
mod forward;
mod link;
mod links;
mod namespace;
mod netlink;
mod privilege;
mod window;

pub use accuracy::Accuracy;
pub use chain::{Chain, Hop, chain};
pub use departures::{Departures, TcpSegment};
pub use forward::{Emulator, LinkReport, Report, Running};
pub use link::{Arrival, Link, PlainLink, Verdict};
pub use links::{Counters, Links};
pub use namespace::{Namespace, Process};
pub use netlink::Route;
pub use privilege::{Privilege, enter, release, scratch};
pub use window::ReceiveWindow;

use std::io;

/// Why there is no emulated network.
#[derive(Debug, thiserror::Error)]
pub enum EmuError {
    /// The system forbids namespaces.
    #[error(
        "network namespaces are not permitted here ({0}). Run as root, or allow unprivileged user namespaces: \
         sysctl -w user.max_user_namespaces=10000; on Debian also kernel.unprivileged_userns_clone=1; on Ubuntu \
         also kernel.apparmor_restrict_unprivileged_userns=0; in a container: --cap-add SYS_ADMIN --cap-add \
         NET_ADMIN, or --privileged"
    )]
    Forbidden(io::Error),
    /// There are no TUN devices.
    #[error(
        "cannot make the TUN device {device}: {cause}. /dev/net/tun must be there and open to this user: modprobe \
         tun; chmod 0666 /dev/net/tun; in a container: --device /dev/net/tun"
    )]
    Tun {
        /// The device.
        device: String,
        /// The system's error.
        cause: io::Error,
    },
    /// A device, an address or a route was refused.
    #[error("cannot {action} in the namespace {namespace}: {problem}")]
    Configure {
        /// The action that failed.
        action: String,
        /// The namespace.
        namespace: String,
        /// The kernel's message.
        problem: String,
    },
    /// Anything else of the system.
    #[error("{action}: {cause}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

impl EmuError {
    fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { action, cause }
    }
}
