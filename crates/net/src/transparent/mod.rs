//! A relay of which end points do not know (the papers' deployment).
//!
//! It stands on a router. A firewall rule diverts Starhop's packets to it; it answers the client as the server,
//! asks the server as the client, and keeps both end points' addresses, so that IP routes everything. Packets of
//! other protocols, packets for other nodes, and packets sealed with a key that it does not have pass unchanged. A
//! watchdog makes packets pass when the relay does not work.

pub(crate) mod firewall;
mod news;
mod rules;
pub(crate) mod socket;
pub(crate) mod watchdog;

pub use firewall::{Devices, can_divert};
pub use watchdog::watch;

use crate::clock;
use crate::daemon::Signals;
use crate::driver::{DriverStats, Timer};
use crate::operate::notify::Notifier;
use crate::operate::paths;
use crate::operate::transfers::QUIET;
use crate::operate::{Desk, Peer, Status};
use crate::security::HopSuite;
use firewall::Firewall;
use socket::{INTERCEPTED, Listener, Senders};
use starhop_proto::hop::{FlowView, Transfer};
use starhop_proto::peer::Face;
use starhop_proto::relay::RelayStats;
use starhop_proto::relay::intercept::{Interceptor, Verdict};
use starhop_proto::time::Duration;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use watchdog::{HEARTBEAT, Watchdog};

/// Datagrams received in one go, so that a flood cannot keep the relay from sending.
const RECEIVED_AT_ONCE: usize = 64;
/// Bytes taken from the relay before they are sent.
const SEND_AHEAD: usize = 256 * 1024;
/// Most bytes of one GSO send: the length field of IPv4 counts headers too.
const RUN_BYTES: usize = 65_000;
/// Between two timeouts, at least: see the driver's.
const COALESCE: Duration = Duration::from_micros(100);

/// Options of a transparent relay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The UDP port of servers, whose packets are diverted.
    pub port: u16,
    /// The program that [watches](watch), and its arguments.
    pub watchdog: (PathBuf, Vec<String>),
}

/// Counters of a transparent relay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Counters of the relay.
    pub relay: RelayStats,
    /// Counters of its sockets.
    pub sockets: DriverStats,
    /// Datagrams that went on as they came.
    pub passed_on: u64,
}

/// A relay at work.
pub struct Transparent {
    node: Interceptor<HopSuite>,
    listeners: [Listener; 2],
    senders: Senders,
    watchdog: Watchdog,
    timer: Timer,
    stats: DriverStats,
    passed_on: u64,
    buffer: Vec<u8>,
    out: Vec<u8>,
    runs: Vec<Run>,
    fired_at: starhop_proto::time::Instant,
    orders: Orders,
}

/// The signals that a relay takes. They are handled before the relay reports that it is ready: without a handler
/// each of them would end it.
struct Orders {
    end: Signals,
    aside: Signal,
    back: Signal,
    reload: Signal,
}

impl Orders {
    fn new() -> io::Result<Self> {
        Ok(Self {
            end: Signals::new()?,
            aside: signal(SignalKind::user_defined1())?,
            back: signal(SignalKind::user_defined2())?,
            reload: signal(SignalKind::hangup())?,
        })
    }
}

/// Datagrams of one size, except for the last, between the same two.
struct Run {
    face: Face,
    start: usize,
    end: usize,
    segment: usize,
    count: usize,
}

impl Transparent {
    /// Listens, and then has packets diverted. Call within a tokio runtime.
    ///
    /// # Errors
    /// Listening is not permitted here, or the kernel or `nft` lacks a feature.
    pub fn start(node: Interceptor<HopSuite>, options: &Options) -> io::Result<Self> {
        let allowed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => io::Error::other(
                "transparent sockets are not permitted here: run as root or with CAP_NET_ADMIN",
            ),
            _ => error,
        };
        let [v4, v6] = INTERCEPTED.map(|address| Listener::bind(address, options.port).map_err(allowed));
        let listeners = [v4?, v6?];
        let orders = Orders::new()?;
        let (program, arguments) = &options.watchdog;
        let (watchdog, _) = Watchdog::start(program, arguments, Firewall::relay(options.port))?;
        Ok(Self {
            node,
            listeners,
            senders: Senders::default(),
            watchdog,
            timer: Timer::new()?,
            stats: DriverStats::default(),
            passed_on: 0,
            buffer: vec![0; 65_536],
            out: Vec::new(),
            runs: Vec::new(),
            fired_at: clock::now(),
            orders,
        })
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        Counters { relay: self.node.stats(), sockets: self.stats, passed_on: self.passed_on }
    }

    /// The suite that seals its packets.
    pub fn suite(&self) -> &HopSuite {
        self.node.relay().suite()
    }

    /// The suite that seals its packets, to change it.
    pub fn suite_mut(&mut self) -> &mut HopSuite {
        self.node.relay_mut().suite_mut()
    }

    /// Its hops, under the end points' addresses.
    pub fn peers(&self) -> Vec<Peer> {
        let (now, relay) = (clock::now(), self.node.relay());
        let suite = relay.suite();
        let up = relay.upstreams().map(|hop| Peer::upstream(now, &hop, suite));
        up.chain(relay.downstreams().map(|hop| Peer::downstream(now, &hop, suite))).collect()
    }

    /// The payloads that paths from servers carry, bytes.
    pub fn path_lengths(&self) -> impl Iterator<Item = (SocketAddr, u64)> + '_ {
        paths::of(self.node.relay().upstreams())
    }

    /// The flows that it knows.
    pub fn flow_views(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.node.relay().flow_views()
    }

    /// Transfers to clients that ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Transfer> {
        self.node.relay_mut().end_complete(clock::now(), QUIET);
        std::iter::from_fn(|| self.node.poll_event()).collect()
    }

    /// Relays until SIGINT or SIGTERM; SIGUSR1 lets packets pass until SIGUSR2. Calls `tick` every so often and `reload`
    /// on SIGHUP, and answers at the desk with `status`.
    ///
    /// # Errors
    /// When a socket fails, or the watchdog is gone.
    pub async fn run(
        &mut self,
        every: Option<std::time::Duration>,
        mut tick: impl FnMut(&mut Self),
        mut reload: impl FnMut(&mut HopSuite),
        (desk, mut status): (&mut Desk, impl FnMut(&Self) -> Status),
    ) -> io::Result<()> {
        let mut divert = true;
        let mut beats = tokio::time::interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ticks = tokio::time::interval(every.unwrap_or(std::time::Duration::from_secs(3600)));
        ticks.tick().await;
        let mut notifier = Notifier::ready();
        loop {
            let deadline = self.node.poll_timeout().map(|at| at.max(self.fired_at + COALESCE));
            self.timer.arm(deadline)?;
            tokio::select! {
                biased;
                () = self.orders.end.recv() => return Ok(()),
                () = notifier.beat() => {}
                _ = beats.tick() => self.watchdog.beat(divert)?,
                _ = self.orders.aside.recv() => { divert = false; self.watchdog.beat(divert)?; }
                _ = self.orders.back.recv() => { divert = true; self.watchdog.beat(divert)?; }
                _ = ticks.tick(), if every.is_some() => tick(self),
                _ = self.orders.reload.recv() => reload(self.node.relay_mut().suite_mut()),
                inquiry = desk.next() => inquiry.answer(status(self)),
                ready = self.listeners[0].readable() => { ready?; self.receive(0)?; }
                ready = self.listeners[1].readable() => { ready?; self.receive(1)?; }
                fired = self.timer.expired(), if deadline.is_some() => {
                    fired?;
                    self.fired_at = clock::now();
                    self.node.handle_timeout(self.fired_at);
                }
            }
            self.transmit();
        }
    }

    fn receive(&mut self, listener: usize) -> io::Result<()> {
        for _ in 0..RECEIVED_AT_ONCE {
            let (len, from, to) = match self.listeners[listener].receive(&mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.stats.rx_calls += 1;
            self.stats.rx_datagrams += 1;
            self.stats.rx_bytes += len as u64;
            let now = clock::now();
            if self.node.handle_datagram(now, Face { remote: from, local: to }, &self.buffer[..len])
                == Verdict::PassedOn
            {
                self.passed_on += 1;
                self.pass_on(from, to, len);
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, from: SocketAddr, to: SocketAddr, len: usize) {
        let sent = self.senders.send(Face { remote: to, local: from }, &self.buffer[..len], len.max(1));
        self.note(sent, 1, len);
    }

    fn note(&mut self, sent: io::Result<()>, datagrams: u64, bytes: usize) {
        match sent {
            Ok(()) => {
                self.stats.tx_calls += 1;
                self.stats.tx_datagrams += datagrams;
                self.stats.tx_bytes += bytes as u64;
            }
            // The path's fault, or a full socket's: to the protocol it is a lost packet.
            Err(error) => {
                self.stats.tx_refused += datagrams;
                self.stats.last_errno = error.raw_os_error();
            }
        }
    }

    fn transmit(&mut self) {
        loop {
            let now = clock::now();
            while self.out.len() < SEND_AHEAD {
                let start = self.out.len();
                let Some(transmit) = self.node.poll_transmit(now, &mut self.out) else { break };
                self.append(transmit.to, start, transmit.len);
            }
            if self.runs.is_empty() {
                return;
            }
            for run in std::mem::take(&mut self.runs) {
                let sent = self.senders.send(run.face, &self.out[run.start..run.end], run.segment);
                self.note(sent, run.count as u64, run.end - run.start);
            }
            self.out.clear();
        }
    }

    fn append(&mut self, face: Face, start: usize, len: usize) {
        if let Some(run) = self.runs.last_mut() {
            let is_even = run.end - run.start == run.segment * run.count;
            let fits = run.end - run.start + len <= RUN_BYTES && run.count < self.senders.segments(face);
            if run.face == face && is_even && len <= run.segment && fits {
                run.end = start + len;
                run.count += 1;
                return;
            }
        }
        self.runs.push(Run { face, start, end: start + len, segment: len, count: 1 });
    }
}
