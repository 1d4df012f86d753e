use super::by_rate::{size_buffers, user_rtt};
use super::handover::Left;
use super::shared::{Door, Shared};
use crate::sys::window;
use socket2::SockRef;
use starhop_proto::gateway::{Reason, StreamId};
use std::cell::Cell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The outcome of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ended {
    /// Bytes from the user to the far end.
    pub(super) sent: u64,
    /// Bytes from the far end to the user.
    pub(super) received: u64,
    /// Until the far end's first byte.
    pub(super) first_byte: Option<Duration>,
    /// `None`: both directions ended in order.
    pub(super) reason: Option<Reason>,
}

impl Ended {
    /// The end of a connection that never had a byte.
    pub(super) fn before(reason: Reason) -> Self {
        Self { sent: 0, received: 0, first_byte: None, reason: Some(reason) }
    }
}

/// A user's connection for which the other gateway has no room, and which nobody has answered: another way is still open to it.
pub(super) struct Unserved {
    pub(super) socket: TcpStream,
    /// The bytes that the user has sent.
    pub(super) said: Vec<u8>,
}

/// The way in which a connection's task is over.
pub(super) enum Outcome {
    /// The connection has ended.
    Ended(Ended),
    /// It was left, so that another goes on with it.
    Left,
    /// The other gateway has no room for it.
    Unserved(Unserved),
}

/// Carries bytes between a user's connection and its stream until both directions have ended, or one of them breaks.
pub(super) struct Connection<'a> {
    shared: &'a Shared,
    stream: StreamId,
    socket: TcpStream,
    began: Instant,
    /// The bytes that the user has sent, until the target has accepted: as long as they are here, the target can be asked
    /// in another way.
    said: Option<Said<'a>>,
    /// The user has no more to say.
    is_read: bool,
    /// The far end has ended its direction, and the user was told so.
    is_written: bool,
    ended: Ended,
}

/// Makes the kernel send a reset when the process ends, or a stream breaks, before the stream has ended in order.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    SockRef::from(socket).set_linger(Some(Duration::ZERO))?;
    SockRef::from(socket).set_keepalive(true)?;
    socket.set_nodelay(true)
}

impl<'a> Connection<'a> {
    pub(super) fn new(shared: &'a Shared, stream: StreamId, socket: TcpStream, began: Instant) -> Self {
        let ended = Ended { sent: 0, received: 0, first_byte: None, reason: None };
        let said = stream.ours.then(|| Said { bytes: Vec::new(), of_all: &shared.said });
        Self { shared, stream, socket, began, said, is_read: false, is_written: false, ended }
    }

    /// The target has accepted before the user's connection began: there is no other way to ask it.
    pub(super) fn accepted(self) -> Self {
        Self { said: None, ..self }
    }

    /// Goes on with a connection that was left.
    ///
    /// # Errors
    /// The runtime cannot watch its socket.
    pub(super) fn of(shared: &'a Shared, left: Left) -> io::Result<Self> {
        let Left { stream, socket, is_read, is_written, ended, began } = left;
        let socket = TcpStream::from_std(socket)?;
        // The bytes that the user sent are with the other process.
        Ok(Self { shared, stream, socket, began, said: None, is_read, is_written, ended })
    }

    /// Carries until the end.
    pub(super) async fn run(mut self) -> Outcome {
        let shared = self.shared;
        let _working = shared.work();
        let door = shared.enter(self.stream);
        size_buffers(shared, self.stream, &self.socket);
        let done = self.carry(&door).await;
        shared.leave(self.stream);
        if let Ok(true) = done {
            let Self { stream, socket, is_read, is_written, ended, began, .. } = self;
            if let Ok(socket) = socket.into_std() {
                shared.left.borrow_mut().split.push(Left {
                    stream,
                    socket,
                    is_read,
                    is_written,
                    ended,
                    began,
                });
            }
            return Outcome::Left;
        }
        match (door.reset.get(), done) {
            (Some(Reason::NoRoom), Ok(_)) if !door.is_connected.get() && self.said.is_some() => {
                let said = self.said.take().map(Said::into_bytes).unwrap_or_default();
                return Outcome::Unserved(Unserved { socket: self.socket, said });
            }
            (Some(reason), _) => self.ended.reason = Some(reason),
            (None, Ok(_)) => {
                // The kernel delivers the bytes that the user has not read yet.
                let _ = SockRef::from(&self.socket).set_linger(None);
            }
            (None, Err(error)) => {
                let reason = reason_of(&error);
                self.shared.change(|_, gateway| gateway.reset(self.stream, reason));
                self.ended.reason = Some(reason);
            }
        }
        Outcome::Ended(self.ended)
    }

    /// Returns whether the connection is left before its end.
    async fn carry(&mut self, door: &Door) -> io::Result<bool> {
        loop {
            if door.reset.get().is_some() {
                return Ok(false);
            }
            if self.shared.is_leaving() {
                return Ok(true);
            }
            if door.is_connected.get() {
                self.said = None;
            }
            let is_blocked = self.deliver()?;
            let has_room = self.collect()?;
            if self.is_read && self.is_written {
                return Ok(false);
            }
            tokio::select! {
                () = door.knock.notified() => {}
                ready = self.socket.writable(), if is_blocked => ready?,
                ready = self.socket.readable(), if has_room => ready?,
                // A reset by a user whose bytes are not read shows as an error of the socket.
                failed = self.socket.ready(tokio::io::Interest::ERROR), if !has_room => {
                    failed?;
                    if let Some(error) = self.socket.take_error()? {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Writes to the user the bytes that came for it. Returns whether more bytes wait than the socket takes.
    fn deliver(&mut self) -> io::Result<bool> {
        let Self { shared, stream, socket, began, ended, is_written, .. } = self;
        if *is_written {
            return Ok(false);
        }
        loop {
            let written = shared.look(|_, gateway| {
                let (front, back) = gateway.readable(*stream);
                if front.is_empty() {
                    return Ok((0, true));
                }
                let written = socket.try_write_vectored(&[IoSlice::new(front), IoSlice::new(back)])?;
                Ok((written, written == front.len() + back.len()))
            });
            let (written, is_all) = match written {
                Ok(written) => written,
                Err(error) if io::Error::kind(&error) == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            };
            if written > 0 {
                ended.first_byte.get_or_insert_with(|| began.elapsed());
            }
            ended.received += written as u64;
            if shared.change(|now, gateway| gateway.consume(now, *stream, written)) {
                *is_written = true;
                match SockRef::from(&*socket).shutdown(Shutdown::Write) {
                    Err(error) if error.kind() != ErrorKind::NotConnected => return Err(error),
                    _ => return Ok(false),
                }
            }
            if is_all {
                return Ok(false);
            }
        }
    }

    /// Takes from the user the bytes for which the far end has room. Returns whether it would take more.
    fn collect(&mut self) -> io::Result<bool> {
        let mut chunk = self.shared.chunk();
        while !self.is_read {
            let room = self.shared.look(|_, gateway| gateway.room(self.stream)).min(chunk.len());
            if room == 0 {
                return Ok(false);
            }
            match self.socket.try_read(&mut chunk[..room]) {
                Ok(0) => {
                    self.is_read = true;
                    self.shared.change(|_, gateway| gateway.finish(self.stream));
                }
                Ok(count) => {
                    self.ended.sent += count as u64;
                    let bytes = &chunk[..count];
                    if !self.said.as_mut().is_none_or(|said| said.keep(bytes)) {
                        self.said = None;
                    }
                    let bound = self.shared.change(|_, gateway| {
                        gateway.write(self.stream, bytes);
                        gateway.bound_of_socket(self.stream, || user_rtt(&self.socket))
                    });
                    if let Some(bound) = bound {
                        // A refusal leaves the kernel's own bound, which is larger.
                        let _ = window::clamp(&self.socket, bound.try_into().unwrap_or(u32::MAX));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// The bytes of users whose targets have not accepted, of all connections: their number, and the most that are kept.
#[derive(Default)]
pub(super) struct SaidByAll {
    bytes: Cell<u64>,
    pub(super) most: Cell<u64>,
}

/// The bytes of one user whose target has not accepted.
struct Said<'a> {
    bytes: Vec<u8>,
    of_all: &'a SaidByAll,
}

impl Said<'_> {
    /// Keeps more bytes. False where all connections keep too many.
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let all = self.of_all.bytes.get() + bytes.len() as u64;
        let has_room = all <= self.of_all.most.get();
        if has_room {
            self.of_all.bytes.set(all);
            self.bytes.extend_from_slice(bytes);
        }
        has_room
    }

    fn into_bytes(mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.of_all.bytes.set(self.of_all.bytes.get() - bytes.len() as u64);
        bytes
    }
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        self.of_all.bytes.set(self.of_all.bytes.get() - self.bytes.len() as u64);
    }
}

/// The reason that the far end is told for an error here.
pub(super) fn reason_of(error: &io::Error) -> Reason {
    let is_shortage = |code: i32| [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM].contains(&code);
    if error.raw_os_error().is_some_and(is_shortage) {
        return Reason::NoRoom;
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => Reason::Refused,
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable => {
            Reason::Unreachable
        }
        ErrorKind::TimedOut => Reason::TimedOut,
        _ => Reason::Reset,
    }
}
