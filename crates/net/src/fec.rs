//! One end of an erasure code between two hosts: packets that are routed to a TUN device go to the other end, with
//! parity, in sealed datagrams; what comes from there leaves by the device (SatERN, section II and figure 1b).

use crate::clock;
use crate::daemon::{Signals, runtime};
use crate::device::{Device, MOST_AT_ONCE, route};
use crate::driver::{Driver, DriverStats};
use crate::endpoint::{BindError, Endpoint};
use crate::operate::notify::Notifier;
use crate::operate::transfers::Record;
use crate::operate::{Code, Desk, Status};
use crate::prefix::Prefix;
use crate::security::HopSuite;
use starhop_proto::fec::{FecConfig, FecNode};
use starhop_proto::gateway::FlowKey;
use starhop_proto::peer::Face;
use starhop_proto::wire::Suite;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Frames that wait for the socket at most. More packets wait in the device, whose queue the kernel bounds.
const MOST_WAITING: usize = 256;
/// Time between two looks whether the other end is there.
const LOOK: Duration = Duration::from_millis(100);
/// A frame's own bytes at most: parity has eight, its shard two and one to be even.
const FRAME_OVERHEAD: u32 = 11;
/// The least that IPv6 asks of a link (RFC 8200, section 5).
const LEAST_MTU: u32 = 1280;

/// Options of an end.
#[derive(Clone, Debug)]
pub struct FecOptions {
    /// The address on which it listens.
    pub listen: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Name of the device to make.
    pub device: String,
    /// Bytes of the longest packet that the path to the other end takes, IP header included.
    pub path_mtu: u32,
    /// Prefixes that are routed to the device while the other end answers.
    pub routes: Vec<Prefix>,
    /// The only device by which the other end is reached.
    pub by: Option<String>,
    /// The code.
    pub code: FecConfig,
}

/// Why an end cannot work, or works no longer.
#[derive(Debug, thiserror::Error)]
pub enum FecError {
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// This machine has no TUN device to give.
    #[error(
        "no TUN device `{name}` here: {cause}. It needs /dev/net/tun, CAP_NET_ADMIN, and a name that no device has"
    )]
    Device {
        /// Its name.
        name: String,
        /// The cause.
        cause: io::Error,
    },
    /// The other end's own address is routed to it by the device.
    #[error(
        "the other end, {0}, lies within a --route: its packets would come back to the device. Name the device by which \
         it is reached with --by, or choose narrower routes"
    )]
    Loop(SocketAddr),
    /// The path has no room.
    #[error(
        "a path MTU of {path} leaves {left} bytes for packets; {LEAST_MTU} are needed. Give the path's own with --path-mtu"
    )]
    Narrow {
        /// The path's.
        path: u32,
        /// The rest for packets.
        left: u32,
    },
    /// The socket cannot send to that IP version.
    #[error("{peer} cannot be reached from {listen}: it is of the other IP version")]
    Version {
        /// The other end.
        peer: SocketAddr,
        /// The own address.
        listen: SocketAddr,
    },
    /// A socket or the device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl FecError {
    /// Says that another machine could do it.
    pub fn is_of_this_machine(&self) -> bool {
        matches!(self, Self::Device { .. })
    }
}

/// An end at work.
pub struct FecHost {
    driver: Driver<FecNode<HopSuite>>,
    device: Device,
    name: String,
    routes: Vec<Prefix>,
    /// The other end is reached by one device only, so that its own address may be among the routes.
    has_way: bool,
    /// The routes are set: the other end takes what comes by them.
    is_routed: bool,
    listen: SocketAddr,
    peer: SocketAddr,
    mtu: u32,
    looped: u64,
    refused: u64,
    record: Record,
}

impl FecHost {
    /// Makes socket, device and routes. Call within a runtime.
    ///
    /// # Errors
    /// As [`FecError`] says.
    fn open(options: &FecOptions, suite: HopSuite) -> Result<Self, FecError> {
        let FecOptions { listen, peer, .. } = *options;
        let endpoint = Endpoint::bind(listen)?;
        if let Some(device) = &options.by {
            endpoint.only_by(device)?;
        } else if options.routes.iter().any(|route| route.contains(peer.ip())) {
            return Err(FecError::Loop(peer));
        }
        let other = endpoint.address_of(peer).ok_or(FecError::Version { peer, listen })?;
        let mtu = room(options.path_mtu, peer.ip(), suite.overhead() as u32)?;
        let device = Device::open(&options.device, mtu)
            .map_err(|cause| FecError::Device { name: options.device.clone(), cause })?;
        // A route that cannot be set is told now, and not when the other end answers.
        route(options.device.clone(), options.routes.clone(), true)?;
        route(options.device.clone(), options.routes.clone(), false)?;
        let node = FecNode::new(options.code, Face::towards(other), suite);
        Ok(Self {
            driver: Driver::new(node, endpoint)?,
            device,
            name: options.device.clone(),
            routes: options.routes.clone(),
            has_way: options.by.is_some(),
            is_routed: false,
            listen,
            peer,
            mtu,
            looped: 0,
            refused: 0,
            record: Record::default(),
        })
    }

    /// Puts other routes in the place of those in use.
    ///
    /// # Errors
    /// The other end's address is among them, or the kernel refuses one; then the routes stay as they were.
    pub fn set_routes(&mut self, routes: &[Prefix]) -> Result<(), FecError> {
        if !self.has_way && routes.iter().any(|route| route.contains(self.peer.ip())) {
            return Err(FecError::Loop(self.peer));
        }
        let not_among = |all: &[Prefix], others: &[Prefix]| -> Vec<Prefix> {
            all.iter().filter(|one| !others.contains(one)).copied().collect()
        };
        let (new, old) = (not_among(routes, &self.routes), not_among(&self.routes, routes));
        // A route that cannot be set is told now, and not when the other end answers.
        for one in &new {
            if let Err(error) = route(self.name.clone(), vec![*one], true) {
                let set: Vec<Prefix> = new.iter().take_while(|other| *other != one).copied().collect();
                route(self.name.clone(), set, false)?;
                return Err(error.into());
            }
        }
        match self.is_routed {
            true => route(self.name.clone(), old, false)?,
            false => route(self.name.clone(), new, false)?,
        }
        self.routes = routes.to_vec();
        Ok(())
    }

    /// Reads the keys anew.
    pub fn reload_keys(&mut self) {
        self.driver.node_mut().suite_mut().reload_and_log();
    }

    /// Bytes of the longest packet that the device takes.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Its state.
    pub fn status(&self) -> Status {
        let node = self.driver.node();
        let (end, stats) = (node.end(), node.stats());
        let (sent, got) = (end.sent(), end.stats());
        let sockets: DriverStats = self.driver.stats();
        let mut status = Status::new("fec", self.listen, node.suite(), sockets, &self.record);
        let block = end.plan().block();
        status.code = Some(Code {
            is_up: self.is_routed,
            packets_to: sent.packets,
            parity_to: sent.parity,
            packets_from: got.packets,
            restored_from: got.repaired,
            given_up_from: got.given_up,
            loss_to: end.loss(),
            block: (block, end.plan().parity(block)),
            starts: stats.starts,
            looped: self.looped,
            refused_by_kernel: self.refused,
        });
        status.refuse("bad_datagrams", stats.bad_datagrams);
        status.refuse("bad_frames", stats.bad_frames);
        status.refuse("untimely_frames", stats.untimely_frames);
        status.refuse("unsealable", stats.unsealable);
        status
    }

    async fn run(
        &mut self,
        every: Option<Duration>,
        tell: &dyn Fn(&Self),
        reload: &mut dyn FnMut(&mut Self),
        desk: &mut Desk,
    ) -> io::Result<()> {
        let mut signals = Signals::new()?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut notifier = Notifier::ready();
        let mut looks = tokio::time::interval(LOOK);
        let mut ticks = tokio::time::interval(every.unwrap_or(Duration::from_secs(3600)));
        ticks.tick().await;
        loop {
            let has_room = self.driver.node().end().waiting() < MOST_WAITING;
            tokio::select! {
                biased;
                () = signals.recv() => return Ok(()),
                () = notifier.beat() => {}
                _ = hangup.recv() => reload(self),
                _ = looks.tick() => self.driver.node_mut().suite_mut().tell_news(clock::now()),
                _ = ticks.tick() => tell(self),
                inquiry = desk.next() => inquiry.answer(self.status()),
                done = self.driver.turn() => done?,
                ready = self.device.readable(), if has_room => ready?,
            }
            self.follow()?;
            self.take()?;
            self.give();
        }
    }

    /// Sets the routes when the other end takes packets, and withdraws them when it is gone: then packets take the plain
    /// path.
    fn follow(&mut self) -> io::Result<()> {
        let is_heard = self.driver.node().is_heard(clock::now());
        if is_heard != self.is_routed {
            route(self.name.clone(), self.routes.clone(), is_heard)?;
            self.is_routed = is_heard;
            let meaning = if is_heard { "answers" } else { "is silent: packets take the plain path" };
            tracing::info!("the other end, {}, {meaning}", self.peer);
        }
        Ok(())
    }

    /// Hands packets of the kernel to the code.
    fn take(&mut self) -> io::Result<()> {
        for _ in 0..MOST_AT_ONCE {
            if self.driver.node().end().waiting() >= MOST_WAITING {
                return Ok(());
            }
            let Some(packet) = self.device.read()? else { return Ok(()) };
            // The kernel itself speaks on the device, of neighbours and of groups.
            let Some(key) = FlowKey::of(packet).filter(FlowKey::is_routed) else { continue };
            if (key.to, key.protocol) == (self.peer.ip(), UDP)
                && key.ports.is_none_or(|(_, to)| to == self.peer.port())
            {
                self.looped += 1;
                continue;
            }
            self.driver.node_mut().send(clock::now(), packet.to_vec());
        }
        Ok(())
    }

    /// Hands packets of the other end to the kernel.
    fn give(&mut self) {
        while let Some(packet) = self.driver.node_mut().poll_packet() {
            self.refused += u64::from(!self.device.give(&packet));
        }
    }
}

/// UDP's number in IP.
const UDP: u8 = 17;

/// Bytes of the longest packet that fits into a datagram to `peer`.
fn room(path_mtu: u32, peer: IpAddr, seal: u32) -> Result<u32, FecError> {
    let headers = if peer.is_ipv4() { 20 } else { 40 } + 8;
    let left = path_mtu.saturating_sub(headers + seal + FRAME_OVERHEAD);
    if left < LEAST_MTU { Err(FecError::Narrow { path: path_mtu, left }) } else { Ok(left) }
}

/// A listener to an end that works, and the time between two calls.
#[derive(Clone, Copy)]
pub struct Ticks<'a> {
    /// Time between two calls; `None` is once, at the end.
    pub every: Option<Duration>,
    /// The listener.
    pub tell: &'a dyn Fn(&FecHost),
}

/// Runs an end until SIGINT or SIGTERM. `ready` is called once, `ticks` as they say and at the end, `reload` at SIGHUP. Questions
/// are answered at the `desk`.
///
/// # Errors
/// As [`FecError`] says.
pub fn run_alone(
    options: &FecOptions,
    suite: HopSuite,
    ready: impl FnOnce(&FecHost),
    ticks: Ticks<'_>,
    mut reload: impl FnMut(&mut FecHost),
    mut desk: Desk,
) -> Result<(), FecError> {
    let Ticks { every, tell } = ticks;
    runtime()?.block_on(async {
        let mut host = FecHost::open(options, suite)?;
        ready(&host);
        host.run(every, tell, &mut reload, &mut desk).await?;
        tell(&host);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_room_for_what_its_headers_leave() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(room(1500, v4, 32).unwrap(), 1500 - 20 - 8 - 32 - 11);
        assert_eq!(room(1500, IpAddr::from([0; 16]), 32).unwrap(), 1500 - 40 - 8 - 32 - 11);
        let error = room(1350, v4, 32).unwrap_err().to_string();
        assert!(error.contains("1350") && error.contains("1279"), "{error}");
    }
}
