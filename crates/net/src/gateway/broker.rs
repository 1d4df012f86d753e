//! The watchdog's part for a gateway without capabilities: it gives bare transparent sockets, and tells of the firewall.
//!
//! It never binds or connects for the gateway, and takes no rules from it: it reads these in the configuration.

use super::{GatewayConfig, Source, rights};
use crate::sys::passing::{self, Message, borrowed};
use crate::transparent::firewall::{self, Devices, Firewall};
use crate::transparent::watchdog;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Questions that wait while another is answered. A gateway asks one at a time of each kind.
const MOST_QUESTIONS: usize = 8;
/// Bytes of answers that the gateway has not taken: some dozens of messages. It could have this process fill the kernel's memory.
const ANSWERS: usize = 16 << 10;

/// The IP version of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    /// Both, by their place in tables.
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A question to the watchdog, which takes longer than a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// Whether the configuration's rules and control are the ones of this hash, and the kernel takes them.
    Check([u8; 32]),
    /// The packets that policies left alone.
    Passed,
}

/// A request of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// So many sockets. Those of another generation than the last one are not wanted any more.
    Sockets { version: Version, generation: u8, count: u8 },
    /// Have the sockets that come with this use the congestion control of the configuration.
    Control,
    /// A question, by its number.
    Ask(u32, Question),
}

impl Request {
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Sockets { version, generation, count } => vec![b's', version as u8, generation, count],
            Self::Control => vec![b'c'],
            Self::Ask(number, Question::Passed) => [&b"p"[..], &number.to_be_bytes()].concat(),
            Self::Ask(number, Question::Check(hash)) => [&b"k"[..], &number.to_be_bytes(), &hash].concat(),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let numbered = |rest: &[u8]| rest.first_chunk().map(|number| u32::from_be_bytes(*number));
        match bytes {
            [b's', version, generation, count] if (1..=passing::MOST).contains(&usize::from(*count)) => {
                let version = Version::of_byte(*version)?;
                Some(Self::Sockets { version, generation: *generation, count: *count })
            }
            [b'c'] => Some(Self::Control),
            [b'p', rest @ ..] if rest.len() == 4 => Some(Self::Ask(numbered(rest)?, Question::Passed)),
            [b'k', rest @ ..] => {
                let hash = rest.get(4..)?.try_into().ok()?;
                Some(Self::Ask(numbered(rest)?, Question::Check(hash)))
            }
            _ => None,
        }
    }
}

/// An answer of the watchdog. The descriptors that it is about come with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    /// Sockets, or the system's error in their place.
    Sockets { version: Version, generation: u8, asked: u8, error: i32 },
    /// The error of the first socket that could not change its congestion control, or 0.
    Control { error: i32 },
    /// A file with the answer to the question of this number.
    Told(u32),
}

impl Answer {
    pub(super) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Sockets { version, generation, asked, error } => {
                [&[b's', version as u8, generation, asked][..], &error.to_be_bytes()].concat()
            }
            Self::Control { error } => [&b"c"[..], &error.to_be_bytes()].concat(),
            Self::Told(number) => [&b"t"[..], &number.to_be_bytes()].concat(),
        }
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match kind {
            b's' => {
                let ([version, generation, asked], error) = rest.split_first_chunk()?;
                let (version, error) =
                    (Version::of_byte(*version)?, i32::from_be_bytes(error.try_into().ok()?));
                Some(Self::Sockets { version, generation: *generation, asked: *asked, error })
            }
            b'c' => Some(Self::Control { error: i32::from_be_bytes(rest.try_into().ok()?) }),
            b't' => Some(Self::Told(u32::from_be_bytes(rest.try_into().ok()?))),
            _ => None,
        }
    }
}

/// The answer to [`Question::Check`], and to [`Question::Passed`].
pub(super) type Told<T> = Result<T, String>;

/// Rules and congestion control of a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Charge {
    pub(super) port: u16,
    pub(super) rules: String,
    pub(super) congestion: Option<String>,
}

impl Charge {
    /// Their hash.
    pub(super) fn hash(&self) -> [u8; 32] {
        let Self { port, rules, congestion } = self;
        *blake3::hash(format!("{port}\n{congestion:?}\n{rules}").as_bytes()).as_bytes()
    }
}

/// The charge in force, and one that was checked and may take its place.
#[derive(Debug)]
struct Charges {
    now: Charge,
    next: Option<Charge>,
}

impl Charges {
    /// Sockets have the control that was checked last from now on.
    fn follow_control(&mut self) {
        if let Some(next) = &self.next {
            self.now.congestion.clone_from(&next.congestion);
        }
    }

    /// Puts the charge in force that was checked last. Returns its rules.
    fn follow(&mut self) -> Option<String> {
        self.now = self.next.take()?;
        Some(self.now.rules.clone())
    }
}

type Shared = Arc<Mutex<Charges>>;

fn lock(charges: &Shared) -> MutexGuard<'_, Charges> {
    charges.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a gateway with these devices by the configuration from `source`, and gives it sockets by way of standard
/// output. If rules are `in_force` already, these take their place in one transaction.
///
/// # Errors
/// The configuration cannot be read, or the firewall cannot be changed.
pub fn watch(source: Source, devices: Devices, in_force: bool) -> io::Result<()> {
    // At the first start the file may be open to root's capabilities alone, as it was to the gateway.
    let now = GatewayConfig::charge(&source).map_err(io::Error::other)?;
    rights::keep_the_watchdogs()?;
    let firewall = Firewall::gateway(now.port, &now.rules, devices);
    let charges = Arc::new(Mutex::new(Charges { now, next: None }));
    let channel = io::stdout().as_fd().try_clone_to_owned()?;
    setsockopt(&channel, sockopt::SndBuf, &ANSWERS)?;
    let (questions, asked) = sync_channel(MOST_QUESTIONS);
    let (theirs, clerks) = (channel.try_clone()?, charges.clone());
    std::thread::Builder::new()
        .name("starhop-clerk".to_owned())
        .spawn(move || clerk(&theirs, &clerks, &asked, &source, devices))?;
    let theirs = charges.clone();
    std::thread::Builder::new()
        .name("starhop-broker".to_owned())
        .spawn(move || broker(&channel, &theirs, &questions))?;
    watchdog::hold_open(&firewall, in_force, &mut || lock(&charges).follow())
}

/// Gives sockets until the gateway is gone. Changes of the firewall, which take long, do not delay it.
fn broker(channel: &OwnedFd, charges: &Shared, questions: &SyncSender<(u32, Question)>) {
    while let Ok(Message { bytes, descriptors, .. }) = passing::receive(channel.as_fd(), true) {
        if bytes.is_empty() {
            return;
        }
        let congestion = || lock(charges).now.congestion.clone();
        let (answer, given) = match Request::parse(&bytes) {
            Some(Request::Sockets { version, generation, count }) => {
                let congestion = congestion();
                let made = (0..count).map(|_| bare(version, congestion.as_deref())).collect();
                let made: io::Result<Vec<Socket>> = made;
                let error = made.as_ref().err().map_or(0, code);
                let answer = Answer::Sockets { version, generation, asked: count, error };
                (answer, made.unwrap_or_default())
            }
            Some(Request::Control) => {
                // The word that puts the rules in force comes another way, and may come later.
                lock(charges).follow_control();
                let done = descriptors.iter().try_for_each(|socket| control(socket, congestion().as_deref()));
                (Answer::Control { error: done.as_ref().err().map_or(0, code) }, Vec::new())
            }
            Some(Request::Ask(number, question)) => {
                // A gateway that asks more than that gets no answer.
                let _ = questions.try_send((number, question));
                continue;
            }
            None => continue,
        };
        if passing::send(channel.as_fd(), &answer.bytes(), &borrowed(&given), true).is_err() {
            // The gateway is gone, or so much is on its way to it that it need not get this.
            let _ = passing::send(channel.as_fd(), &without_sockets(answer).bytes(), &[], true);
        }
    }
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// The answer where sockets could not be sent.
fn without_sockets(answer: Answer) -> Answer {
    match answer {
        Answer::Sockets { version, generation, asked, error: 0 } => {
            Answer::Sockets { version, generation, asked, error: libc::ENOBUFS }
        }
        other => other,
    }
}

/// A socket that may have any address, and has none.
fn bare(version: Version, congestion: Option<&str>) -> io::Result<Socket> {
    let domain = match version {
        Version::V4 => Domain::IPV4,
        Version::V6 => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    match version {
        Version::V4 => socket.set_ip_transparent_v4(true)?,
        Version::V6 => {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
        }
    }
    if let Some(congestion) = congestion {
        socket.set_tcp_congestion(congestion.as_bytes())?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Has a socket use a congestion control, or the system's.
fn control(socket: &OwnedFd, congestion: Option<&str>) -> io::Result<()> {
    let of_system = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let control = congestion.map_or_else(of_system, |name| Ok(name.to_owned()))?;
    SockRef::from(socket).set_tcp_congestion(control.trim().as_bytes())
}

/// Answers questions one after the other.
fn clerk(
    channel: &OwnedFd,
    charges: &Shared,
    asked: &Receiver<(u32, Question)>,
    source: &Source,
    devices: Devices,
) {
    for (number, question) in asked {
        let text = match question {
            Question::Check(hash) => serde_json::to_vec(&check(charges, hash, source, devices)),
            Question::Passed => {
                let port = lock(charges).now.port;
                let passed = firewall::passed(&firewall::gateway_table(port));
                serde_json::to_vec::<Told<_>>(&passed.map_err(|error| error.to_string()))
            }
        };
        let sent = text.map_err(io::Error::from).and_then(|text| {
            let file = unnamed(&text)?;
            passing::send(channel.as_fd(), &Answer::Told(number).bytes(), &[file.as_fd()], true)
        });
        if let Err(error) = sent {
            eprintln!("starhop: the watchdog cannot answer its gateway: {error}");
        }
    }
}

/// A file without a name that holds `text`.
fn unnamed(text: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"starhop-answer", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}

/// Reads the configuration anew and has the kernel check its rules and its control. What is right may be put in force.
fn check(charges: &Shared, hash: [u8; 32], source: &Source, devices: Devices) -> Told<()> {
    lock(charges).next = None;
    let charge = GatewayConfig::charge(source).map_err(|error| error.to_string())?;
    let wrong =
        |field: &str, problem: String| GatewayConfig::fault(&source.path, field, &problem).to_string();
    if charge.hash() != hash || charge.port != lock(charges).now.port {
        return Err(format!("`{}` changed while it was read", source.path.display()));
    }
    bare(Version::V4, charge.congestion.as_deref()).map_err(|error| {
        wrong("congestion", format!("names a control that is not to be had here: {error}"))
    })?;
    let firewall = Firewall::gateway(charge.port, &charge.rules, devices);
    firewall.check().map_err(|error| wrong("policy", format!("makes rules that are refused: {error}")))?;
    lock(charges).next = Some(charge);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_understood_as_they_were_meant() {
        for request in [
            Request::Sockets { version: Version::V6, generation: 255, count: 64 },
            Request::Control,
            Request::Ask(7, Question::Passed),
            Request::Ask(u32::MAX, Question::Check([9; 32])),
        ] {
            assert_eq!(Request::parse(&request.bytes()), Some(request));
        }
        for answer in [
            Answer::Sockets { version: Version::V4, generation: 3, asked: 8, error: libc::EMFILE },
            Answer::Control { error: libc::EPERM },
            Answer::Told(70_000),
        ] {
            assert_eq!(Answer::parse(&answer.bytes()), Some(answer));
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let more = [b's', 0, 0, passing::MOST as u8 + 1];
        for bytes in
            [&b""[..], b"x", b"s", &[b's', 2, 0, 1], &[b's', 0, 0, 0], &more, b"p123", b"k1234567", b"cc"]
        {
            assert_eq!(Request::parse(bytes), None, "{bytes:?}");
        }
    }
}
