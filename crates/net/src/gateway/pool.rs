//! Transparent sockets of the watchdog's, some of them ahead: a new connection waits for no other process.

use super::GatewayConfig;
use super::broker::{Answer, Question, Request, Told, Version};
use crate::sys::passing::{self, Message, borrowed};
use crate::transparent::firewall::{Devices, Firewall};
use crate::transparent::watchdog::{Former, INSTALL, Watchdog};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use socket2::Socket;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;

/// Sockets of each IP version that lie ready: those of 3 ms at 5,000 new connections a second, after which connections wait for the
/// watchdog's next message.
const AHEAD: usize = 16;
/// Longest time that a connection waits for a socket, as for a descriptor.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time until a question is answered: the rules of 10,000 policies take `nft` a few seconds.
const THOUGHT: Duration = Duration::from_secs(20);

/// Starts the watchdog of a gateway with these devices, or goes on with a `former` one. Then it is the source of sockets.
///
/// # Errors
/// The watchdog cannot change the firewall, or may not make the sockets.
pub(super) fn watched(
    config: &GatewayConfig,
    (program, arguments): &(PathBuf, Vec<String>),
    former: Option<Former>,
    devices: Devices,
) -> io::Result<(Watchdog, Sockets)> {
    let firewall = Firewall::gateway(config.port(), config.rules(), devices);
    let arguments: Vec<String> =
        arguments.iter().cloned().chain(devices.options().map(str::to_owned)).collect();
    let (watchdog, channel) = match former {
        Some(former) => Watchdog::go_on(former, firewall)?,
        None => Watchdog::start(program, &arguments, firewall)?,
    };
    Ok((watchdog, Sockets::start(channel)?))
}

/// Sockets of one IP version.
#[derive(Default)]
struct Pool {
    ready: Vec<Socket>,
    /// For a listener, which is opened between two events.
    spare: Option<Socket>,
    /// Asked for, and not come.
    asked: usize,
    /// Connections that wait.
    waiting: VecDeque<oneshot::Sender<io::Result<Socket>>>,
}

impl Pool {
    /// So many are to be asked for now.
    fn wanted(&mut self) -> usize {
        self.waiting.retain(|waiting| !waiting.is_closed());
        let places = AHEAD.saturating_sub(self.ready.len()) + usize::from(self.spare.is_none());
        let wanted = (self.waiting.len() + places).saturating_sub(self.asked);
        // One by one, each would cost a message.
        let is_due = wanted >= AHEAD / 2 || self.waiting.len() > self.asked || self.spare.is_none();
        if is_due { wanted } else { 0 }
    }

    /// Gives a socket to who waits longest, or keeps it.
    fn give(&mut self, mut socket: Socket) {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(Ok(socket)) {
                Ok(()) => return,
                // Its connection is over.
                Err(refused) => match refused {
                    Ok(back) => socket = back,
                    Err(_) => return,
                },
            }
        }
        if self.spare.is_none() {
            self.spare = Some(socket);
        } else if self.ready.len() < AHEAD {
            self.ready.push(socket);
        }
    }
}

/// The gateway's end of the channel to its watchdog.
pub(super) struct Sockets {
    channel: UnixDatagram,
    pools: RefCell<[Pool; 2]>,
    generation: Cell<u8>,
    has_failed: Cell<bool>,
    questions: Arc<Questions>,
}

impl Sockets {
    /// Asks for the first sockets, and waits for them.
    ///
    /// # Errors
    /// The watchdog may not make them, or does not answer.
    pub(super) fn start(channel: OwnedFd) -> io::Result<Self> {
        let questions = Arc::new(Questions::new(channel.try_clone()?));
        let channel = std::os::unix::net::UnixDatagram::from(channel);
        channel.set_nonblocking(true)?;
        let channel = UnixDatagram::from_std(channel)?;
        let (pools, generation, has_failed) = Default::default();
        let sockets = Self { channel, pools, generation, has_failed, questions };
        sockets.refill();
        let limit = Instant::now() + INSTALL;
        while !sockets.is_full() {
            let left = limit.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(sockets.channel.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX))? == 0 {
                return Err(io::Error::other("the watchdog gives no sockets"));
            }
            let message = passing::receive(sockets.channel.as_fd(), false)?;
            if message.bytes.is_empty() {
                return Err(io::Error::other("the watchdog ended at once"));
            }
            sockets.take_in(message).map_err(permitted)?;
        }
        Ok(sockets)
    }

    /// The channel.
    pub(super) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    /// Questions of other threads.
    pub(super) fn questions(&self) -> Arc<Questions> {
        self.questions.clone()
    }

    fn is_full(&self) -> bool {
        self.pools.borrow().iter().all(|pool| pool.spare.is_some() && !pool.ready.is_empty())
    }

    /// Takes in what the watchdog sends, as long as it lives.
    pub(super) async fn serve(&self) {
        loop {
            let received =
                self.channel.async_io(Interest::READABLE, || passing::receive(self.channel.as_fd(), false));
            match received.await {
                Ok(message) if message.bytes.is_empty() => return,
                Ok(message) => {
                    if let Err(error) = self.take_in(message)
                        && !self.has_failed.replace(true)
                    {
                        tracing::warn!("the watchdog gives no sockets now: {error}");
                    }
                    self.refill();
                }
                Err(_) => return,
            }
        }
    }

    /// Takes in a message. An error is the watchdog's, and goes to those who wait, too.
    fn take_in(&self, message: Message) -> io::Result<()> {
        let Message { bytes, descriptors, is_cut } = message;
        match Answer::parse(&bytes) {
            Some(Answer::Sockets { version, generation, asked, error }) => {
                let mut pools = self.pools.borrow_mut();
                let pool = &mut pools[version as usize];
                pool.asked = pool.asked.saturating_sub(usize::from(asked));
                if generation == self.generation.get() {
                    descriptors.into_iter().for_each(|socket| pool.give(socket.into()));
                }
                // Connections try again while descriptors are short here.
                let error = if is_cut { libc::EMFILE } else { error };
                if error == 0 {
                    self.has_failed.set(false);
                    return Ok(());
                }
                let count = pool.waiting.len().min(usize::from(asked));
                for waiting in pool.waiting.drain(..count) {
                    let _ = waiting.send(Err(io::Error::from_raw_os_error(error)));
                }
                Err(io::Error::from_raw_os_error(error))
            }
            Some(Answer::Control { error: 0 }) | None => Ok(()),
            Some(Answer::Control { error }) => {
                let error = io::Error::from_raw_os_error(error);
                tracing::warn!("new connections keep the congestion control that they had: {error}");
                Ok(())
            }
            Some(Answer::Told(number)) => {
                self.questions.take_in(number, descriptors);
                Ok(())
            }
        }
    }

    /// Asks for as many sockets as are missing. After a failure those who wait ask again, and the next heartbeat.
    pub(super) fn refill(&self) {
        for version in Version::ALL {
            loop {
                let wanted = self.pools.borrow_mut()[version as usize].wanted().min(passing::MOST);
                let count = u8::try_from(wanted).unwrap_or(0);
                let generation = self.generation.get();
                let request = Request::Sockets { version, generation, count };
                // A full channel will be empty soon, and the next caller asks again.
                if count == 0 || passing::send(self.channel.as_fd(), &request.bytes(), &[], false).is_err() {
                    break;
                }
                self.pools.borrow_mut()[version as usize].asked += wanted;
            }
        }
    }

    /// A socket for a connection; one that lies ready, if any does.
    ///
    /// # Errors
    /// `EMFILE` while there is no descriptor for one; no room if the watchdog gives none for long.
    pub(super) async fn take(&self, version: Version) -> io::Result<Socket> {
        let ready = self.pools.borrow_mut()[version as usize].ready.pop();
        if let Some(socket) = ready {
            self.refill();
            return Ok(socket);
        }
        let (give, given) = oneshot::channel();
        self.pools.borrow_mut()[version as usize].waiting.push_back(give);
        self.refill();
        match tokio::time::timeout(PATIENCE, given).await {
            Ok(Ok(socket)) => socket,
            _ => {
                // Requests that were lost are not waited for.
                self.pools.borrow_mut()[version as usize].asked = 0;
                tracing::warn!(
                    "the watchdog has given no socket for {PATIENCE:?}: a connection finds no room"
                );
                Err(io::Error::from_raw_os_error(libc::ENOBUFS))
            }
        }
    }

    /// A socket of each IP version for listeners; `None` until the watchdog has given more.
    pub(super) fn take_pair(&self) -> Option<[Socket; 2]> {
        let mut pools = self.pools.borrow_mut();
        for pool in pools.iter_mut().filter(|pool| pool.spare.is_none()) {
            pool.spare = pool.ready.pop();
        }
        let pair = match &mut *pools {
            [Pool { spare: Some(_), .. }, Pool { spare: Some(_), .. }] => {
                let [v4, v6] = &mut *pools;
                v4.spare.take().zip(v6.spare.take())
            }
            _ => None,
        };
        drop(pools);
        self.refill();
        pair.map(|(v4, v6)| [v4, v6])
    }

    /// Has sockets that are given from now on, and these listeners, follow another congestion control.
    pub(super) fn change_control(&self, listeners: Option<&[impl AsFd; 2]>) {
        self.generation.set(self.generation.get().wrapping_add(1));
        for pool in self.pools.borrow_mut().iter_mut() {
            pool.ready.clear();
            pool.spare = None;
        }
        let descriptors = listeners.map_or_else(Vec::new, |listeners| borrowed(listeners));
        let sent = passing::send(self.channel.as_fd(), &Request::Control.bytes(), &descriptors, false);
        if let Err(error) = sent {
            tracing::warn!("new connections keep the congestion control that they had: {error}");
        }
        self.refill();
    }
}

/// The refusal for people.
fn permitted(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other("transparent sockets are not permitted here: run as root or with CAP_NET_ADMIN")
        }
        _ => error,
    }
}

/// Questions to the watchdog, by any thread but the gateway's own, which takes in the answers.
#[derive(Debug)]
pub(crate) struct Questions {
    channel: OwnedFd,
    open: Mutex<(u32, BTreeMap<u32, Sender<File>>)>,
}

/// Each is about a gateway of its own.
impl PartialEq for Questions {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Questions {
    fn new(channel: OwnedFd) -> Self {
        Self { channel, open: Mutex::default() }
    }

    fn ask<T: DeserializeOwned>(&self, question: Question) -> io::Result<Told<T>> {
        let (tell, told) = channel();
        let number = {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.0 = open.0.wrapping_add(1);
            let number = open.0;
            open.1.insert(number, tell);
            number
        };
        let sent = passing::send(self.channel.as_fd(), &Request::Ask(number, question).bytes(), &[], false);
        let answer = sent.and_then(|()| {
            told.recv_timeout(THOUGHT).map_err(|_| io::Error::other("the watchdog does not answer"))
        });
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
        let mut text = Vec::new();
        answer?.read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn take_in(&self, number: u32, mut descriptors: Vec<OwnedFd>) {
        let asker = self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
        if let Some((asker, file)) = asker.zip(descriptors.pop()) {
            let _ = asker.send(file.into());
        }
    }

    /// Whether the watchdog finds rules and control of this hash in the configuration, and the kernel takes them.
    pub(super) fn check(&self, hash: [u8; 32]) -> Told<()> {
        self.ask(Question::Check(hash)).unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Packets and bytes that passed by the rules of each policy since these were set.
    pub(crate) fn passed(&self) -> Told<BTreeMap<usize, [u64; 2]>> {
        self.ask(Question::Passed).unwrap_or_else(|error| Err(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::rc::Rc;

    /// A watchdog that answers each request for sockets as `answer` says: with an error, or 0. Returns the gateway's end.
    fn watchdog(mut answer: impl FnMut() -> i32 + Send + 'static) -> OwnedFd {
        let (ours, theirs) = passing::pair().unwrap();
        std::thread::spawn(move || {
            while let Ok(Message { bytes, .. }) = passing::receive(theirs.as_fd(), true) {
                let Some(Request::Sockets { version, generation, count: asked }) = Request::parse(&bytes)
                else {
                    if bytes.is_empty() { return } else { continue }
                };
                let error = answer();
                let make = |_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                let sockets: Vec<Socket> = (0..if error == 0 { asked } else { 0 }).map(make).collect();
                let told = Answer::Sockets { version, generation, asked, error };
                passing::send(theirs.as_fd(), &told.bytes(), &borrowed(&sockets), true).unwrap();
            }
        });
        ours
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        tokio::task::LocalSet::new().block_on(&crate::daemon::runtime().unwrap(), work)
    }

    fn served(channel: OwnedFd) -> Rc<Sockets> {
        let sockets = Rc::new(Sockets::start(channel).unwrap());
        let serving = sockets.clone();
        tokio::task::spawn_local(async move { serving.serve().await });
        sockets
    }

    #[test]
    fn a_crowd_waits_for_its_sockets_and_gets_them_all() {
        run(async {
            let sockets = served(watchdog(|| 0));
            let takers = (0..300).map(|n| {
                let sockets = sockets.clone();
                tokio::task::spawn_local(async move { sockets.take(Version::ALL[n % 2]).await })
            });
            let takers: Vec<_> = takers.collect();
            let mut taken = Vec::new();
            for taker in takers {
                taken.push(taker.await.unwrap().unwrap());
            }
            assert_eq!(taken.len(), 300);
            drop(taken);
            // Until the last message is here.
            tokio::time::sleep(Duration::from_millis(200)).await;
            for pool in sockets.pools.borrow().iter() {
                assert_eq!((pool.asked, pool.waiting.len(), pool.spare.is_some()), (0, 0, true));
                assert!((AHEAD / 2..=AHEAD).contains(&pool.ready.len()), "{}", pool.ready.len());
            }
        });
    }

    #[test]
    fn those_who_wait_hear_of_an_error_and_may_try_again() {
        run(async {
            let mut requests = 0;
            let sockets = served(watchdog(move || {
                requests += 1;
                if (3..6).contains(&requests) { libc::EMFILE } else { 0 }
            }));
            let (mut taken, mut errors) = (Vec::new(), 0);
            while taken.len() < 4 * AHEAD {
                match sockets.take(Version::V4).await {
                    Ok(socket) => taken.push(socket),
                    Err(error) => {
                        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
                        errors += 1;
                    }
                }
            }
            assert!((1..=3).contains(&errors), "{errors}");
        });
    }

    #[test]
    fn listeners_have_a_pair_when_connections_have_taken_the_rest() {
        run(async {
            let sockets = served(watchdog(|| 0));
            let ready = sockets.pools.borrow()[0].ready.len();
            let taken: Vec<_> = (0..ready).map(|_| sockets.pools.borrow_mut()[0].ready.pop()).collect();
            assert!(sockets.take_pair().is_some() && sockets.take_pair().is_none());
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(sockets.take_pair().is_some(), "more have come");
            drop(taken);
        });
    }

    #[test]
    fn a_watchdog_that_may_not_make_sockets_is_told_of() {
        run(async {
            let error = Sockets::start(watchdog(|| libc::EPERM)).err().unwrap();
            assert!(error.to_string().contains("run as root or with CAP_NET_ADMIN"), "{error}");
        });
    }
}
