//! A gateway at work: users' TCP connections, intercepted here or opened at the other end in their names.
//!
//! One thread does everything: the driver of `starhop_proto::gateway`, and a task for each connection. A firewall rule
//! diverts connections to a transparent listener, which is closed while the peer does not answer: without a listener
//! the rule lets new connections pass, and established ones stay. A watchdog takes the rules away when the gateway hangs. It alone
//! has a capability from then on, and gives the transparent sockets.

mod broker;
mod burst;
mod by_rate;
mod choice;
mod config;
mod connection;
mod handover;
mod hold;
mod outlook;
mod plain;
mod policy;
mod pool;
mod reload;
mod rights;
mod room;
mod shared;
mod shared_link;
mod sockets;
mod status;
mod syn;
mod tunnel;
mod users;

pub use crate::sys::descriptor::all as all_descriptors;
pub use broker::watch;
pub use config::{GatewayConfig, GatewayConfigError, KEYS, Source};
pub use handover::{CAN, TRY, TakeOver, try_take_over};
pub(crate) use pool::Questions;
pub use rights::become_user;
pub use room::shortage;
pub use users::FlowEnd;

use crate::clock;
use crate::daemon::Signals;
use crate::driver::Driver;
use crate::endpoint::{BindError, Endpoint};
use crate::operate::notify::Notifier;
use crate::operate::transfers::Record;
use crate::operate::{Desk, Inquiry, Status};
use crate::security::{HopSuite, ReloadError};
use crate::transparent::firewall::Devices;
use crate::transparent::watchdog::{HEARTBEAT, Watchdog};
use choice::{Candidate, Choice};
use connection::{Connection, Outcome};
use handover::{AllLeft, Legacy, Successor};
use hold::Hold;
use outlook::Outlook;
use plain::Plain;
use reload::Reading;
use room::Room;
use shared::{Shared, SharedNode};
use starhop_proto::gateway::{Gateway, GatewayEvent, GatewayStats, NotTaken, Opening, Reason, StreamId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior};
use tunnel::Tunnel;
use users::flow_end;

/// An event for the program that runs a gateway.
#[derive(Clone, Debug)]
pub enum Told {
    /// It works.
    Ready {
        /// The users' connections with which it goes on from the program before, if there was one.
        taken_over: Option<usize>,
    },
    /// The program was to be replaced by the one that has its name now, and stays.
    NotReplaced {
        /// The reason.
        error: String,
    },
    /// A peer answers, or no longer does.
    Peer {
        /// Its place in the configuration.
        peer: u16,
        /// Whether it answers.
        is_up: bool,
    },
    /// A connection ended.
    Flow(FlowEnd),
    /// The configuration was read anew; with an error, the old one goes on.
    Reloaded {
        /// The fault of the new one.
        error: Option<String>,
    },
}

/// The receiver of the events.
pub type Tell = Rc<dyn Fn(&Told)>;

/// As [`run`], on a runtime of its own.
///
/// # Errors
/// As [`run`].
pub fn run_alone(
    config: GatewayConfig,
    watchdog: (PathBuf, Vec<String>),
    tell: Tell,
    desk: Desk,
    take_over: Option<TakeOver>,
) -> Result<GatewayStats, GatewayError> {
    let local = tokio::task::LocalSet::new();
    local.block_on(&crate::daemon::runtime()?, run(config, watchdog, tell, desk, take_over))
}

/// Runs a gateway until SIGINT or SIGTERM; SIGHUP reads configuration and keys anew; at SIGUSR2 the process goes on as the program
/// that has this one's name by then. `watchdog` is the program, and its arguments, that
/// watches the firewall. Questions about the gateway are answered at the `desk`, whose doors open when the process has given up its
/// capabilities. With `take_over`, the gateway goes on with the state of
/// the program before this one.
/// Call within a tokio `LocalSet`.
///
/// # Errors
/// The process lacks a permission, a key or an address is missing, or a socket fails.
pub async fn run(
    config: GatewayConfig,
    watchdog: (PathBuf, Vec<String>),
    tell: Tell,
    mut desk: Desk,
    take_over: Option<TakeOver>,
) -> Result<GatewayStats, GatewayError> {
    let mut site = Site::start(config, &watchdog, tell, take_over.as_ref())?;
    rights::give_up(&site.config)?;
    desk.open_doors()?;
    site.go_on(take_over)?;
    site.run(&mut desk).await?;
    Ok(site.shared.look(|_, gateway| gateway.stats()))
}

/// Why a gateway cannot work, or works no longer.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] GatewayConfigError),
    /// A setting of the protocol.
    #[error(transparent)]
    Setting(#[from] starhop_proto::config::ConfigError),
    /// The sessions of the program before this one.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// No keys.
    #[error(transparent)]
    Security(#[from] ReloadError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A socket failed, or the firewall cannot be changed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

struct Site {
    config: Rc<GatewayConfig>,
    shared: Rc<Shared>,
    driver: Driver<SharedNode>,
    signals: Signals,
    watchdog: Watchdog,
    /// Open while the peer answers; on the loopback interface alone while descriptors are short.
    listeners: Option<[TcpListener; 2]>,
    room: Room,
    /// Where packets are carried.
    tunnel: Option<Tunnel>,
    /// Where SYNs wait for the answers of their targets.
    hold: Option<Hold>,
    /// A new configuration, while it is read and checked.
    reading: Reading,
    successor: Successor,
    outlook: Outlook,
    choice: Choice,
    tell: Tell,
    record: Rc<RefCell<Record>>,
}

/// The sources of events outside the gateway itself.
struct Outside<'a> {
    hangup: Signal,
    upgrade: Signal,
    notifier: Notifier,
    beats: Interval,
    desk: &'a mut Desk,
}

/// An event in a gateway's life.
enum Happened {
    /// Packets came, can be sent, or are due.
    Packets,
    /// Time for a sign of life.
    Beat,
    /// A user's connection was diverted here, or failed before it was.
    Accepted(io::Result<TcpStream>),
    /// SIGHUP.
    HungUp,
    /// A new configuration was read.
    Read(Box<reload::Outcome>),
    /// SIGUSR2.
    Upgrade,
    /// The next program was tried.
    Tried(Result<(), String>),
    /// The operator asks.
    Asked(Inquiry),
    /// SIGINT or SIGTERM.
    End,
}

impl Site {
    fn start(
        config: GatewayConfig,
        watchdog: &(PathBuf, Vec<String>),
        tell: Tell,
        take_over: Option<&TakeOver>,
    ) -> Result<Self, GatewayError> {
        take_over.map_or(Ok(()), |state| state.check(&config))?;
        rights::check_port(&config)?;
        shortage(&config, all_descriptors()).iter().for_each(|shortage| tracing::warn!("{shortage}"));
        let suite = HopSuite::new(&config.sources())?;
        let legacy = take_over.map(TakeOver::legacy).transpose()?;
        let Legacy { endpoint, tunnel, hold, listeners, watchdog: former } = match legacy {
            Some(legacy) => legacy.opened(&config)?,
            None => {
                let tunnel = tunnel(&config)?;
                let hold = config.holds().then(|| hold(&config, tunnel.is_some())).transpose()?;
                Legacy::none(Endpoint::bind(config.listen())?, tunnel, hold)
            }
        };
        let mut peers = config.peers()?;
        for peer in &mut peers {
            peer.address = peer.address.map(|address| endpoint.address_of(address).unwrap_or(address));
        }
        let (settings, protocol) = (config.carrying_settings(tunnel.is_some()), config.protocol()?);
        let outlook = Outlook::new(protocol.payload);
        let mut gateway = Gateway::new(clock::now(), protocol, settings, peers, suite, clock::seed());
        let (rates, shares) = config.shared_links();
        gateway.set_shared_links(clock::now(), rates, shares);
        take_over.map_or(Ok(()), |state| gateway.take_over(clock::now(), state.sessions()))?;
        let successor = Successor::new(&watchdog.0);
        let devices = Devices { carry: tunnel.is_some(), hold: hold.is_some() };
        let (watchdog, sockets) = pool::watched(&config, watchdog, former, devices)?;
        let shared = Rc::new(Shared::new(gateway, sockets));
        shared.said.most.set(settings.max_waiting);
        let driver = Driver::new(SharedNode(shared.clone()), endpoint)?;
        let signals = Signals::new()?;
        let record = Rc::new(RefCell::new(Record::default()));
        let (config, tell) = (Rc::new(config), counted(tell, &record));
        let reading = Reading::default();
        Ok(Self {
            config,
            shared,
            driver,
            signals,
            watchdog,
            listeners,
            room: Room::default(),
            tunnel,
            hold,
            reading,
            successor,
            outlook,
            choice: Choice::default(),
            tell,
            record,
        })
    }

    /// The devices that this gateway has.
    fn devices(&self) -> Devices {
        Devices { carry: self.tunnel.is_some(), hold: self.hold.is_some() }
    }

    /// Goes on with the users' connections of the program before this one.
    fn go_on(&mut self, take_over: Option<TakeOver>) -> io::Result<()> {
        let left = take_over.map(|state| state.connections());
        let taken_over = left.as_ref().map(AllLeft::len);
        if let Some(left) = left {
            self.resume(left, true);
            self.listen()?;
        }
        (self.tell)(&Told::Ready { taken_over });
        Ok(())
    }

    /// Goes on with connections that were left. Those without a stream are reset. In a new program nobody has the other streams:
    /// their targets are asked anew.
    fn resume(&self, left: AllLeft, is_new: bool) {
        // One that the runtime cannot watch is reset.
        left.plain.into_iter().filter_map(|left| Plain::of(left).ok()).for_each(|plain| self.pass(plain));
        let mut openings: BTreeMap<StreamId, Opening> = self
            .shared
            .look(|_, gateway| gateway.stream_views().map(|view| (view.id, view.opening)).collect());
        for left in left.split {
            let Some(opening) = openings.remove(&left.stream) else { continue };
            let weight = self.config.split.weight(&opening);
            self.shared.look(|_, gateway| gateway.set_weight(left.stream, weight));
            let (shared, tell) = (self.shared.clone(), self.tell.clone());
            tokio::task::spawn_local(async move {
                let (began, ours, stream) = (left.began, left.stream.ours, left.stream);
                match Connection::of(&shared, left) {
                    Ok(connection) => {
                        let Outcome::Ended(ended) = connection.run().await else { return };
                        tell(&Told::Flow(flow_end(opening, began, ended, (ours, "split"))));
                    }
                    Err(_) => shared.change(|_, gateway| gateway.reset(stream, Reason::Reset)),
                }
            });
        }
        for (stream, opening) in openings.into_iter().filter(|_| is_new) {
            match stream.ours {
                true => self.shared.change(|_, gateway| gateway.reset(stream, Reason::Reset)),
                false => self.connect(stream, opening),
            }
        }
    }

    async fn run(&mut self, desk: &mut Desk) -> io::Result<()> {
        let mut outside = Outside {
            hangup: signal(SignalKind::hangup())?,
            upgrade: signal(SignalKind::user_defined2())?,
            notifier: Notifier::ready(),
            beats: tokio::time::interval(HEARTBEAT),
            desk,
        };
        outside.beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        handover::hear_signals()?;
        let shared = self.shared.clone();
        tokio::task::spawn_local(async move { shared.sockets.serve().await });
        loop {
            let happened = self.wait(&mut outside).await?;
            if matches!(happened, Happened::End) {
                return Ok(());
            }
            self.on(happened).await?;
            while let Some(event) = self.driver.poll_event() {
                self.on_event(event)?;
            }
            if let Some(tunnel) = &mut self.tunnel {
                self.shared.look(|now, gateway| {
                    tunnel.give(now, gateway);
                    tunnel.take(now, gateway)
                })?;
            }
            self.hold()?;
        }
    }

    /// Returns the next event that is not the driver's own.
    async fn wait(&mut self, outside: &mut Outside<'_>) -> io::Result<Happened> {
        let Self { driver, listeners, shared, signals, tunnel, hold, reading, successor, .. } = self;
        Ok(tokio::select! {
            biased;
            () = signals.recv() => Happened::End,
            _ = outside.beats.tick() => Happened::Beat,
            done = driver.turn() => { done?; Happened::Packets }
            accepted = accept(listeners.as_ref()) => Happened::Accepted(accepted.map(|(socket, _)| socket)),
            () = shared.changed.notified() => Happened::Packets,
            done = packets(tunnel.as_ref()) => { done?; Happened::Packets }
            done = syns(hold.as_ref()) => { done?; Happened::Packets }
            () = outside.notifier.beat() => Happened::Packets,
            _ = outside.hangup.recv() => Happened::HungUp,
            new = reading.done() => Happened::Read(Box::new(new)),
            _ = outside.upgrade.recv() => Happened::Upgrade,
            outcome = successor.tried() => Happened::Tried(outcome),
            inquiry = outside.desk.next() => Happened::Asked(inquiry),
        })
    }

    async fn on(&mut self, happened: Happened) -> io::Result<()> {
        match happened {
            Happened::Packets | Happened::End => {}
            Happened::Beat => self.on_beat()?,
            Happened::Accepted(Ok(socket)) => {
                if let Some(listeners) = &self.listeners {
                    self.room.on_accepted(socket.as_raw_fd(), listeners);
                }
                self.take(socket);
            }
            // The client is gone already, or there is no descriptor: the others go on.
            Happened::Accepted(Err(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
            Happened::HungUp => {
                self.reading.begin(&self.config, self.shared.sockets.questions(), self.devices());
            }
            Happened::Read(new) => self.on_read(*new),
            Happened::Upgrade => self.on_upgrade(),
            Happened::Tried(outcome) => self.on_tried(outcome).await,
            Happened::Asked(inquiry) => inquiry.answer(self.status()),
        }
        Ok(())
    }

    fn on_beat(&mut self) -> io::Result<()> {
        let Self { shared, watchdog, tunnel, outlook, .. } = self;
        watchdog.beat(true)?;
        if let Some(longest) = shared.look(|now, gateway| outlook.look(now, gateway))
            && tunnel.as_mut().is_some_and(|tunnel| tunnel.has_changed(longest))
        {
            watchdog.set_whole(longest)?;
        }
        self.choose();
        self.look_for_room()?;
        self.sweep_held();
        Ok(())
    }

    fn status(&self) -> Status {
        let (tunnel, hold) = (self.tunnel.as_ref(), self.hold.as_ref().map(Hold::counts).unwrap_or_default());
        let mut status =
            status::status(&self.config, &self.shared, self.driver.stats(), &self.record.borrow());
        status.refuse("packets_by_kernel", tunnel.map_or(0, Tunnel::refused) + hold.refused);
        status.refuse("syns_not_asked", hold.passed);
        status
    }

    fn on_event(&mut self, event: GatewayEvent) -> io::Result<()> {
        match event {
            GatewayEvent::Opened { stream, opening } => self.connect(stream, opening),
            GatewayEvent::Readable { stream } | GatewayEvent::Writable { stream } => {
                self.shared.tell(stream, event);
            }
            GatewayEvent::Connected { stream } => self.on_connected(stream),
            GatewayEvent::Reset { stream, reason } => self.on_reset(stream, reason),
            GatewayEvent::Peer { peer, is_up } => {
                (self.tell)(&Told::Peer { peer, is_up });
                if !is_up {
                    self.release_held(peer);
                }
                self.choose();
                self.listen()?;
            }
            GatewayEvent::NotByRate { peer } => {
                let name = self.config.peer_names().nth(usize::from(peer)).unwrap_or_default();
                tracing::warn!(
                    "`{name}` answers, but takes no segments of `rate-split`: it needs the same `protocol` for this gateway, \
                     and no relay may lie in between. Its users' connections take the plain path"
                );
            }
        }
        Ok(())
    }

    /// Chooses the peer that has the users from now on.
    fn choose(&mut self) {
        let candidates: Vec<Candidate> = self.shared.look(|now, gateway| {
            let of = |peer| Candidate { peer, rtt: gateway.rtt(peer).filter(|_| gateway.is_up(now, peer)) };
            self.config.for_users().map(of).collect()
        });
        let chosen = self.choice.look(self.config.prefer(), &candidates);
        if self.shared.for_users.replace(chosen) != chosen
            && let Some(name) = chosen.and_then(|peer| self.config.peer_names().nth(usize::from(peer)))
        {
            tracing::info!("users' connections and packets go to `{name}`");
        }
        self.tunnel.iter_mut().for_each(|tunnel| tunnel.set_peer(chosen));
    }
}

/// Tells, and counts the reasons for which connections ended.
fn counted(tell: Tell, record: &Rc<RefCell<Record>>) -> Tell {
    let record = record.clone();
    Rc::new(move |told| {
        if let Told::Flow(flow) = told {
            record.borrow_mut().count(flow.reason);
        }
        tell(told);
    })
}

/// The next connection, of either IP version; none while there is no listener.
async fn accept(listeners: Option<&[TcpListener; 2]>) -> io::Result<(TcpStream, std::net::SocketAddr)> {
    match listeners {
        Some([v4, v6]) => tokio::select! {
            accepted = v4.accept() => accepted,
            accepted = v6.accept() => accepted,
        },
        None => std::future::pending().await,
    }
}

/// The devices of carried packets, if they are to be carried and this host can.
fn tunnel(config: &GatewayConfig) -> io::Result<Option<Tunnel>> {
    if !config.may_carry() {
        return Ok(None);
    }
    match rights::for_opening(|| Tunnel::open(clock::now(), config)) {
        Ok(tunnel) => Ok(Some(tunnel)),
        Err(error) if config.must_carry() => Err(io::Error::new(
            error.kind(),
            format!("packets cannot be carried: no TUN device here ({error}); `carry = false` does without"),
        )),
        Err(error) => {
            tracing::warn!("packets are not carried, but pass: no TUN device here ({error})");
            Ok(None)
        }
    }
}

/// The device of SYNs that wait, where packets can be carried: SYNs that cannot wait pass by the devices of those.
fn hold(config: &GatewayConfig, carries: bool) -> io::Result<Hold> {
    let missing = |error: io::Error| {
        let problem = format!("SYNs cannot be held (`open = \"confirmed\"`): no TUN device here ({error})");
        io::Error::new(error.kind(), problem)
    };
    match carries {
        true => rights::for_opening(|| Hold::open(config)).map_err(missing),
        false => Err(missing(io::ErrorKind::Unsupported.into())),
    }
}

/// Returns when there are SYNs to be looked at.
async fn syns(hold: Option<&Hold>) -> io::Result<()> {
    match hold {
        Some(hold) => hold.readable().await,
        None => std::future::pending().await,
    }
}

/// Returns when there are packets to be carried.
async fn packets(tunnel: Option<&Tunnel>) -> io::Result<()> {
    match tunnel {
        Some(tunnel) => tunnel.readable().await,
        None => std::future::pending().await,
    }
}
