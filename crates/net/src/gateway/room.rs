//! Descriptors: each connection takes one, and two on the plain path.

use super::{GatewayConfig, sockets};
use nix::sys::resource::{Resource, getrlimit};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Descriptors of a gateway without connections: its own sockets, devices, pipes and questions about it, and the sockets that lie
/// ready for connections, of which 61 were counted in all; and those that it keeps free.
const OTHERS: u64 = 64 + KEPT;
/// Descriptors that no new connection is diverted for: connections that wait to be accepted when the room ends take
/// them, and questions about the gateway.
const KEPT: u64 = 64;
/// Handshakes that had begun are over: a SYN is repeated after a second (RFC 6298).
const HANDSHAKE: Duration = Duration::from_millis(1_200);
/// Between two looks for room by a connection to a target.
const AGAIN: Duration = Duration::from_millis(20);
/// Looks for room until such a connection fails: 5 s.
const LOOKS: u32 = 250;

/// Whether new connections are diverted here, as far as descriptors go.
#[derive(Default)]
pub(super) struct Room {
    /// Since then they pass by.
    shut: Option<Instant>,
}

impl Room {
    /// A connection was accepted as `descriptor`. If that is one of the last ones, later connections pass: the listeners
    /// hear of none any more, and keep what waits in their queues. A listener that was closed would reset those.
    pub(super) fn on_accepted(&mut self, descriptor: RawFd, listeners: &[TcpListener; 2]) {
        if self.shut.is_some() || has_room(descriptor) {
            return;
        }
        match sockets::deafen(listeners) {
            Ok(()) => tracing::warn!("descriptors are scarce: new connections pass by (see LimitNOFILE)"),
            Err(error) => tracing::warn!("descriptors are scarce, and connections do not pass by: {error}"),
        }
        self.shut = Some(Instant::now());
    }

    /// Whether new connections pass by.
    pub(super) fn is_shut(&self) -> bool {
        self.shut.is_some()
    }

    /// Looks whether there is room for new connections now.
    pub(super) fn look(&mut self) -> bool {
        // The kernel gives the least number that is free: all below it are in use.
        let has_room = File::open("/dev/null").is_ok_and(|file| has_room(file.as_raw_fd()));
        self.shut = (!has_room).then(|| self.shut.unwrap_or_else(Instant::now));
        has_room
    }

    /// Whether listeners that hear of nothing may give way to new ones: there is room, and nobody waits in their queues
    /// or is about to.
    pub(super) fn may_open(&mut self, listeners: Option<&[TcpListener; 2]>) -> bool {
        let is_old = self.shut.is_some_and(|since| since.elapsed() >= HANDSHAKE);
        is_old && listeners.is_none_or(sockets::are_idle) && self.look()
    }
}

/// Whether more than those that are kept are free, when all below `descriptor` are in use.
fn has_room(descriptor: RawFd) -> bool {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    u64::try_from(descriptor).is_ok_and(|used| used + KEPT.min(limit / 4) < limit)
}

/// Connects by `connect`, again while there is no descriptor: a user waits rather than is reset.
pub(super) async fn patiently<T>(mut connect: impl AsyncFnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..LOOKS {
        match connect().await {
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::EMFILE as i32) => {}
            done => return done,
        }
        tokio::time::sleep(AGAIN).await;
    }
    connect().await
}

/// The shortage for people, if a process that may open `descriptors` cannot have all connections of `config`.
pub fn shortage(config: &GatewayConfig, descriptors: u64) -> Option<String> {
    let most = config.max_connections() as u64;
    let needed = most.saturating_add(OTHERS);
    (descriptors < needed).then(|| {
        format!(
            "`max_connections = {most}` needs {needed} descriptors, and this process may open {descriptors}: \
             clients beyond {} connections take the plain path. Give it more (`ulimit -Hn {needed}`, or \
             LimitNOFILE={needed} in the unit; twice as many if the plain path is to have room), or lower `max_connections`",
            descriptors.saturating_sub(OTHERS)
        )
    })
}
