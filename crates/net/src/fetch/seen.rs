//! The reason why nothing came, as far as this host can see it.

use crate::driver::DriverStats;
use crate::security::HopSuite;
use std::io;
use std::net::SocketAddr;

/// Observations of a waiting download about its source, as the end of a sentence, with advice if there is any.
pub(super) fn seen(from: SocketAddr, socket: DriverStats, suite: &HopSuite) -> String {
    if let Some(complaint) = suite.complaint() {
        return format!("Something came from there that is of no use. {complaint}");
    }
    if socket.rx_datagrams > 0 {
        return format!(
            "{} datagrams came from there, and not these bytes: is its own source reached, is the file still being \
             hashed there?",
            socket.rx_datagrams
        );
    }
    match socket.last_errno.filter(|_| socket.tx_refused > 0 || socket.rx_errors > 0) {
        Some(errno) => told(from, errno),
        None => "Not one datagram came back: the host is down, a firewall drops UDP on the way, or nodes there have \
                 another key, for they do not answer what they cannot open"
            .to_owned(),
    }
}

/// The error that the network reported.
fn told(from: SocketAddr, errno: i32) -> String {
    match errno {
        libc::ENETUNREACH => format!("This host has no route to {}", from.ip()),
        libc::EHOSTUNREACH => format!("The network says that {} cannot be reached", from.ip()),
        libc::ECONNREFUSED => {
            format!("{} says that nothing listens on UDP port {}", from.ip(), from.port())
        }
        libc::EPERM | libc::EACCES => {
            format!("This host does not let UDP to {} out: look at its firewall", from.ip())
        }
        libc::EMSGSIZE => {
            "Datagrams are longer than a link on the way takes: try --options 'payload = 1100'".to_owned()
        }
        errno => format!("The network says: {}", io::Error::from_raw_os_error(errno)),
    }
}
