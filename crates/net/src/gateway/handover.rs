//! A new program for a gateway at work. The process goes on as that program (execve), with the same sockets, devices and
//! connections, and with the sessions as they are: nobody's connection ends. A trial comes first: another process of
//! the new program reads configuration, keys and sessions, and says whether it could go on with them. If it does not,
//! the program in use stays.

use super::connection::Ended;
use super::hold::Hold;
use super::plain::{Half, LeftPlain};
use super::{Gateway, GatewayConfig, GatewayError, Site, Told, Tunnel, rights};
use crate::clock;
use crate::endpoint::Endpoint;
use crate::security::{GatewayBond, HopSuite};
use crate::sys::descriptor::{adopt, keep};
use crate::transparent::watchdog::Former;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};
use starhop_proto::gateway::{Opening, StreamId};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The hidden option of `starhop gateway` by which the new program learns that it goes on: the number of a descriptor,
/// or [`TRY`].
const OPTION: &str = "--take-over";
/// Only look whether the state on standard input could be taken over.
pub const TRY: &str = "try";
/// The line by which a program says that it could go on.
pub const CAN: &str = "can take over";
/// Longest time of a trial.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time until all connections have let go of their sockets: many times their longest pause.
const LET_GO: Duration = Duration::from_secs(1);

/// A connection whose task has ended so that another goes on with it.
pub(super) struct Left {
    pub(super) stream: StreamId,
    pub(super) socket: std::net::TcpStream,
    pub(super) is_read: bool,
    pub(super) is_written: bool,
    pub(super) ended: Ended,
    pub(super) began: Instant,
}

/// The connections of a gateway whose tasks have ended so that others go on with them.
#[derive(Default)]
pub(super) struct AllLeft {
    pub(super) split: Vec<Left>,
    pub(super) plain: Vec<LeftPlain>,
}

impl AllLeft {
    /// Their number.
    pub(super) fn len(&self) -> usize {
        self.split.len() + self.plain.len()
    }

    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let plain = self.plain.iter().flat_map(|left| std::iter::once(&left.user).chain(&left.far));
        self.split.iter().map(|left| &left.socket).chain(plain).map(AsFd::as_fd)
    }
}

/// As [`Left`], between two programs.
#[derive(Serialize, Deserialize, Debug)]
struct Handed {
    peer: u16,
    session: u32,
    ours: bool,
    number: u64,
    socket: RawFd,
    is_read: bool,
    is_written: bool,
    sent: u64,
    received: u64,
    first_byte: Option<Duration>,
    age: Duration,
}

/// As [`LeftPlain`], between two programs.
#[derive(Serialize, Deserialize, Debug)]
struct HandedPlain {
    from: SocketAddr,
    to: SocketAddr,
    dscp: u8,
    age: Duration,
    first_byte: Option<Duration>,
    user: RawFd,
    far: Option<RawFd>,
    halves: [Half; 2],
}

/// Descriptors that the next program finds open, and settings that must not have changed.
#[derive(Serialize, Deserialize, Debug, Default)]
struct Inventory {
    listen: Option<SocketAddr>,
    port: u16,
    carry_mtu: Option<u32>,
    endpoint: RawFd,
    tunnel: Option<[RawFd; 2]>,
    hold: Option<RawFd>,
    listeners: Option<[RawFd; 2]>,
    watchdog: (i32, RawFd, RawFd),
    connections: Vec<Handed>,
    plain: Vec<HandedPlain>,
}

/// The state of a gateway at work, for the program that goes on with it.
#[derive(Debug)]
pub struct TakeOver {
    inventory: Inventory,
    sessions: Vec<u8>,
}

/// The sockets and devices that a program takes over: as descriptors, or in use.
pub(super) struct Legacy<E = OwnedFd, T = [OwnedFd; 2], H = OwnedFd, L = OwnedFd> {
    pub(super) endpoint: E,
    pub(super) tunnel: Option<T>,
    pub(super) hold: Option<H>,
    pub(super) listeners: Option<[L; 2]>,
    /// The watchdog of the program before this one, if there was one.
    pub(super) watchdog: Option<Former>,
}

impl Legacy {
    /// Puts them in use.
    pub(super) fn opened(
        self,
        config: &GatewayConfig,
    ) -> io::Result<Legacy<Endpoint, Tunnel, Hold, TcpListener>> {
        let Self { endpoint, tunnel, hold, listeners, watchdog } = self;
        let listener = |fd: OwnedFd| TcpListener::from_std(std::net::TcpListener::from(fd));
        Ok(Legacy {
            endpoint: Endpoint::adopt(endpoint)?,
            tunnel: tunnel.map(|fds| Tunnel::adopt(clock::now(), config, fds)).transpose()?,
            hold: hold.map(Hold::adopt).transpose()?,
            listeners: listeners
                .map(|[a, b]| Ok::<_, io::Error>([listener(a)?, listener(b)?]))
                .transpose()?,
            watchdog,
        })
    }
}

impl Legacy<Endpoint, Tunnel, Hold, TcpListener> {
    /// Nothing is left to a gateway that begins, with sockets of its own.
    pub(super) fn none(endpoint: Endpoint, tunnel: Option<Tunnel>, hold: Option<Hold>) -> Self {
        Self { endpoint, tunnel, hold, listeners: None, watchdog: None }
    }
}

impl TakeOver {
    /// Reads the state from the descriptor of the number that the program before this one gave as `--take-over`.
    ///
    /// # Errors
    /// There is no such descriptor, or it holds the state of another version.
    pub fn from_number(number: &str) -> io::Result<Self> {
        let number = number.parse().map_err(|_| io::Error::other("`--take-over` is for gateways alone"))?;
        Self::read(&mut File::from(adopt(number)?))
    }

    /// Reads the state from a file.
    ///
    /// # Errors
    /// As [`TakeOver::from_number`].
    pub fn read(file: &mut impl Read) -> io::Result<Self> {
        let other = || io::Error::other("the state of the gateway at work has the form of another version");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(other)?;
        let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| other())?;
        let (inventory, sessions) = rest.split_at_checked(length).ok_or_else(other)?;
        let inventory = serde_json::from_slice(inventory).map_err(|_| other())?;
        Ok(Self { inventory, sessions: sessions.to_vec() })
    }

    /// Puts the state into a file without a name.
    fn file(&self) -> io::Result<File> {
        let inventory = serde_json::to_vec(&self.inventory)?;
        let mut file = File::from(memfd_create(c"starhop-gateway", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&(inventory.len() as u64).to_be_bytes())?;
        file.write_all(&inventory)?;
        file.write_all(&self.sessions)?;
        file.rewind()?;
        Ok(file)
    }

    /// Finds what a gateway with this configuration could not go on with. `carries` says whether it could carry packets.
    pub(super) fn check(&self, config: &GatewayConfig) -> Result<(), GatewayError> {
        let Inventory { listen, port, carry_mtu, .. } = &self.inventory;
        let changed = |field| Err(config.wrong(field, "has changed, which takes a restart").into());
        match carry_mtu {
            _ if *listen != Some(config.listen()) => changed("listen"),
            _ if *port != config.port() => changed("port"),
            Some(mtu) if *mtu != config.carry_mtu() => changed("carry_mtu"),
            Some(_) if !config.may_carry() => changed("carry"),
            None if config.must_carry() => changed("carry"),
            _ if config.holds() && self.inventory.hold.is_none() => changed("policy"),
            _ => Ok(()),
        }
    }

    /// Whether the gateway carries packets.
    pub(super) fn carries(&self) -> bool {
        self.inventory.carry_mtu.is_some()
    }

    /// The state of the sessions and streams.
    pub(super) fn sessions(&self) -> &[u8] {
        &self.sessions
    }

    /// Takes sockets and devices over.
    pub(super) fn legacy(&self) -> io::Result<Legacy> {
        let both = |pair: Option<[RawFd; 2]>| -> io::Result<Option<[OwnedFd; 2]>> {
            pair.map(|[a, b]| Ok([adopt(a)?, adopt(b)?])).transpose()
        };
        let (watchdog, heart, channel) = self.inventory.watchdog;
        Ok(Legacy {
            endpoint: adopt(self.inventory.endpoint)?,
            tunnel: both(self.inventory.tunnel)?,
            hold: self.inventory.hold.map(adopt).transpose()?,
            listeners: both(self.inventory.listeners)?,
            watchdog: Some(Former::new(watchdog, adopt(heart)?, adopt(channel)?)),
        })
    }

    /// Takes the users' connections over. Those that cannot be are reset.
    pub(super) fn connections(&self) -> AllLeft {
        let began = |age| Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let left = |handed: &Handed| {
            let Handed { peer, session, ours, number, is_read, is_written, sent, received, .. } = *handed;
            let socket = std::net::TcpStream::from(adopt(handed.socket).ok()?);
            Some(Left {
                stream: StreamId { peer, session, ours, number },
                socket,
                is_read,
                is_written,
                ended: Ended { sent, received, first_byte: handed.first_byte, reason: None },
                began: began(handed.age),
            })
        };
        let plain = |handed: &HandedPlain| {
            let HandedPlain { from, to, dscp, age, first_byte, user, far, .. } = *handed;
            Some(LeftPlain {
                opening: Opening { from, to, dscp },
                began: began(age),
                first_byte,
                user: adopt(user).ok()?.into(),
                far: far.map(adopt).transpose().ok()?.map(Into::into),
                halves: handed.halves.clone(),
            })
        };
        AllLeft {
            split: self.inventory.connections.iter().filter_map(left).collect(),
            plain: self.inventory.plain.iter().filter_map(plain).collect(),
        }
    }
}

/// Looks whether a gateway with this configuration could go on with the state.
///
/// # Errors
/// The reason why it cannot.
pub fn try_take_over(config: &GatewayConfig, state: &TakeOver) -> Result<(), GatewayError> {
    state.check(config)?;
    rights::check_user(config)?;
    let suite = HopSuite::new(&config.sources())?;
    let mut gateway = Gateway::<GatewayBond, _>::new(
        clock::now(),
        config.protocol()?,
        config.carrying_settings(state.carries()),
        config.peers()?,
        suite,
        clock::seed(),
    );
    Ok(gateway.take_over(clock::now(), state.sessions())?)
}

/// The program that is to go on, while it is tried.
pub(super) struct Successor {
    program: PathBuf,
    trial: Option<JoinHandle<Result<(), String>>>,
}

impl Successor {
    pub(super) fn new(program: &Path) -> Self {
        Self { program: program.to_owned(), trial: None }
    }

    /// Returns the outcome of the trial; never if there is none.
    pub(super) async fn tried(&mut self) -> Result<(), String> {
        let Some(trial) = &mut self.trial else { return std::future::pending().await };
        let outcome = trial.await.unwrap_or_else(|error| Err(error.to_string()));
        self.trial = None;
        outcome
    }
}

/// This program's arguments, for the next one.
fn arguments(take_over: &str) -> Vec<OsString> {
    let is_kept = |argument: &OsString| !argument.as_bytes().starts_with(OPTION.as_bytes());
    let mut arguments: Vec<_> = std::env::args_os().skip(1).filter(is_kept).collect();
    arguments.push(format!("{OPTION}={take_over}").into());
    arguments
}

/// Has another process of `program` say whether it could go on with `state`.
fn try_out(program: &Path, state: &TakeOver) -> Result<(), String> {
    let named = |error: io::Error| format!("cannot start `{}`: {error}", program.display());
    let mut command = Command::new(program);
    command.args(arguments(TRY)).stdin(state.file().map_err(named)?);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(named)?;
    let start = Instant::now();
    // It says a few lines, which a pipe holds.
    while child.try_wait().map_err(named)?.is_none() {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{}` says nothing within {PATIENCE:?}", program.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = child.wait_with_output().map_err(named)?;
    let can = String::from_utf8_lossy(&said.stdout).lines().any(|line| line == CAN);
    if said.status.success() && can {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&said.stderr);
    Err(format!("`{}` cannot go on ({}): {}", program.display(), said.status, why.trim()))
}

/// Signals that are handled by the next program if they come while this one ends.
fn signals() -> SigSet {
    [Signal::SIGHUP, Signal::SIGUSR2, Signal::SIGTERM, Signal::SIGINT].into_iter().collect()
}

/// Takes the signals that the program before this one left to come.
pub(super) fn hear_signals() -> io::Result<()> {
    Ok(signals().thread_unblock()?)
}

impl Site {
    /// SIGUSR2: the program is to be replaced by that which has its name now.
    pub(super) fn on_upgrade(&mut self) {
        if self.successor.trial.is_none() {
            let (program, state) = (self.successor.program.clone(), self.state(&AllLeft::default(), &[]));
            self.successor.trial = Some(tokio::task::spawn_blocking(move || try_out(&program, &state)));
        }
    }

    fn state(&self, left: &AllLeft, kept: &[RawFd]) -> TakeOver {
        let mut kept = kept.iter().copied();
        let mut pair =
            |is_there: bool| is_there.then(|| [kept.next(), kept.next()].map(Option::unwrap_or_default));
        let (tunnel, listeners) = (pair(self.tunnel.is_some()), pair(self.listeners.is_some()));
        let (watchdog, heart) = self.watchdog.handle();
        let inventory = Inventory {
            listen: Some(self.config.listen()),
            port: self.config.port(),
            carry_mtu: self.tunnel.as_ref().map(|_| self.config.carry_mtu()),
            endpoint: self.driver.endpoint().as_fd().as_raw_fd(),
            tunnel,
            hold: self.hold.as_ref().map(|hold| hold.descriptor().as_raw_fd()),
            listeners,
            watchdog: (watchdog, heart, self.shared.sockets.channel().as_raw_fd()),
            connections: left.split.iter().map(Handed::from).collect(),
            plain: left.plain.iter().map(HandedPlain::from).collect(),
        };
        TakeOver { inventory, sessions: self.shared.look(|_, gateway| gateway.hand_over()) }
    }

    /// The trial of the next program is over: this one goes on as that, or stays. Returns only if it stays.
    pub(super) async fn on_tried(&mut self, outcome: Result<(), String>) {
        let error = match outcome {
            Ok(()) => self.become_next().await.to_string(),
            Err(error) => error,
        };
        tracing::error!("the program in use stays: {error}");
        (self.tell)(&Told::NotReplaced { error });
    }

    /// Goes on as the next program. Returns the error if that is impossible, with everything as it was.
    async fn become_next(&mut self) -> io::Error {
        let limit = Instant::now() + LET_GO;
        let left = self.shared.suspend(limit).await;
        let error = match left {
            Ok(left) => {
                let error = self.exec(&left).err().unwrap_or_else(|| io::Error::other("no program"));
                self.resume(left, false);
                error
            }
            Err(left) => {
                self.resume(left, false);
                io::Error::other("connections do not let go of their sockets")
            }
        };
        let _ = self.listen();
        error
    }

    fn exec(&mut self, left: &AllLeft) -> io::Result<()> {
        if self.room.is_shut() {
            // The next program would not know that they hear of nothing: it has its own once there is room.
            self.listeners = None;
        }
        let mut pairs: Vec<_> = self.tunnel.iter().flat_map(Tunnel::descriptors).collect();
        pairs.extend(self.listeners.iter().flatten().map(AsFd::as_fd));
        let numbers: Vec<RawFd> = pairs.iter().map(AsRawFd::as_raw_fd).collect();
        let state = self.state(left, &numbers);
        let file = state.file()?;
        let number = file.as_raw_fd().to_string();
        let name = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
        let program = name(self.successor.program.clone().into())?;
        let first = std::env::args_os().next().unwrap_or_default();
        let arguments: Vec<_> =
            std::iter::once(first).chain(arguments(&number)).map(name).collect::<io::Result<_>>()?;
        let mut kept = pairs;
        kept.extend(self.hold.iter().map(Hold::descriptor));
        kept.extend([file.as_fd(), self.driver.endpoint().as_fd()]);
        kept.extend([self.watchdog.heart()?, self.shared.sockets.channel()]);
        kept.extend(left.descriptors());
        let done = kept.iter().try_for_each(|fd| keep(*fd, true)).and_then(|()| {
            signals().thread_block()?;
            let failed = nix::unistd::execv(&program, &arguments).map(|_| ());
            signals().thread_unblock()?;
            Ok(failed?)
        });
        kept.iter().for_each(|fd| _ = keep(*fd, false));
        done
    }
}

impl From<&LeftPlain> for HandedPlain {
    fn from(left: &LeftPlain) -> Self {
        let Opening { from, to, dscp } = left.opening;
        let (age, first_byte, halves) = (left.began.elapsed(), left.first_byte, left.halves.clone());
        let (user, far) = (left.user.as_raw_fd(), left.far.as_ref().map(AsRawFd::as_raw_fd));
        Self { from, to, dscp, age, first_byte, user, far, halves }
    }
}

impl From<&Left> for Handed {
    fn from(left: &Left) -> Self {
        let StreamId { peer, session, ours, number } = left.stream;
        let Ended { sent, received, first_byte, .. } = left.ended;
        let (is_read, is_written, age) = (left.is_read, left.is_written, left.began.elapsed());
        let socket = left.socket.as_raw_fd();
        Self { peer, session, ours, number, socket, is_read, is_written, sent, received, first_byte, age }
    }
}
