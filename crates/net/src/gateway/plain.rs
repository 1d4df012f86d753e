//! Connections past the gateway's peer: for each a connection of our own to the target, in the client's name.

use super::connection::{Ended, Unserved, prepare, reason_of};
use super::{GatewayConfig, Shared, room, sockets};
use serde::{Deserialize, Serialize};
use socket2::SockRef;
use starhop_proto::gateway::Opening;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Bytes that one direction takes at once, and keeps until the other socket takes them.
const CHUNK: usize = 16 * 1024;

/// One direction of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct Half {
    /// Bytes that were read and not written yet.
    pending: Vec<u8>,
    /// No bytes follow.
    is_read: bool,
    /// The far side was told so.
    is_written: bool,
    /// Bytes that were written.
    count: u64,
}

/// The event that a direction waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    Bytes,
    Room,
    Nothing,
}

impl Half {
    /// Carries bytes until a socket has to be waited for, or the direction has ended.
    fn carry(&mut self, from: &TcpStream, to: &TcpStream, chunk: &mut [u8]) -> io::Result<Wait> {
        loop {
            while !self.pending.is_empty() {
                match to.try_write(&self.pending) {
                    Ok(written) => self.on_written(written),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Wait::Room),
                    Err(error) => return Err(error),
                }
            }
            if self.is_read {
                if !std::mem::replace(&mut self.is_written, true) {
                    SockRef::from(to).shutdown(Shutdown::Write)?;
                }
                return Ok(Wait::Nothing);
            }
            match from.try_read(chunk) {
                Ok(0) => self.is_read = true,
                Ok(read) => self.pending.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Wait::Bytes),
                Err(error) => return Err(error),
            }
        }
    }

    fn on_written(&mut self, written: usize) {
        self.count += written as u64;
        self.pending.drain(..written);
        if self.pending.is_empty() {
            // An idle connection keeps no buffer.
            self.pending = Vec::new();
        }
    }
}

/// A connection that takes the plain path.
pub(super) struct Plain {
    opening: Opening,
    began: Instant,
    first_byte: Option<Duration>,
    user: TcpStream,
    /// `None` until the target has accepted.
    far: Option<TcpStream>,
    up: Half,
    down: Half,
}

/// A connection of the plain path whose task has ended so that another goes on with it.
pub(super) struct LeftPlain {
    pub(super) opening: Opening,
    pub(super) began: Instant,
    pub(super) first_byte: Option<Duration>,
    pub(super) user: std::net::TcpStream,
    pub(super) far: Option<std::net::TcpStream>,
    pub(super) halves: [Half; 2],
}

impl Plain {
    pub(super) fn new(user: Unserved, opening: Opening, began: Instant) -> Self {
        let Unserved { socket, said } = user;
        let up = Half { pending: said, ..Half::default() };
        Self { opening, began, first_byte: None, user: socket, far: None, up, down: Half::default() }
    }

    /// Goes on with a connection that was left.
    ///
    /// # Errors
    /// The runtime cannot watch its sockets.
    pub(super) fn of(left: LeftPlain) -> io::Result<Self> {
        let LeftPlain { opening, began, first_byte, user, far, halves: [up, down] } = left;
        let (user, far) = (TcpStream::from_std(user)?, far.map(TcpStream::from_std).transpose()?);
        Ok(Self { opening, began, first_byte, user, far, up, down })
    }

    /// Client and target, and the connection's beginning.
    pub(super) fn identity(&self) -> (Opening, Instant) {
        (self.opening, self.began)
    }

    /// Carries until the end. `None`: it was left, so that another goes on with it.
    pub(super) async fn run(mut self, config: &GatewayConfig, shared: &Shared) -> Option<Ended> {
        let _working = shared.work();
        let reason = match self.carry(config, shared).await {
            Ok(true) => {
                self.leave(shared);
                return None;
            }
            Ok(false) => {
                for socket in std::iter::once(&self.user).chain(&self.far) {
                    // The kernel delivers the bytes that the user has not read yet.
                    let _ = SockRef::from(socket).set_linger(None);
                }
                None
            }
            Err(error) => Some(reason_of(&error)),
        };
        let (sent, received) = (self.up.count, self.down.count);
        Some(Ended { sent, received, first_byte: self.first_byte, reason })
    }

    /// Returns whether the connection is left before its end.
    async fn carry(&mut self, config: &GatewayConfig, shared: &Shared) -> io::Result<bool> {
        if self.far.is_none() {
            let opening = self.opening;
            let connected = tokio::select! {
                far = room::patiently(async || sockets::connect(config, &shared.sockets, opening).await) => far?,
                () = shared.leaving() => return Ok(true),
            };
            prepare(&connected)?;
            self.far = Some(connected);
        }
        let Self { user, far: Some(far), up, down, first_byte, began, .. } = self else { return Ok(false) };
        loop {
            if shared.is_leaving() {
                return Ok(true);
            }
            let (upwards, downwards) = {
                let chunk = &mut shared.chunk()[..CHUNK];
                (up.carry(user, far, chunk)?, down.carry(far, user, chunk)?)
            };
            if down.count > 0 {
                first_byte.get_or_insert_with(|| began.elapsed());
            }
            if (upwards, downwards) == (Wait::Nothing, Wait::Nothing) {
                return Ok(false);
            }
            tokio::select! {
                () = shared.leaving() => {}
                ready = user.readable(), if upwards == Wait::Bytes => ready?,
                ready = far.writable(), if upwards == Wait::Room => ready?,
                ready = far.readable(), if downwards == Wait::Bytes => ready?,
                ready = user.writable(), if downwards == Wait::Room => ready?,
            }
        }
    }

    fn leave(self, shared: &Shared) {
        let Self { opening, began, first_byte, user, far, up, down } = self;
        let (Ok(user), Ok(far)) = (user.into_std(), far.map(TcpStream::into_std).transpose()) else { return };
        let left = LeftPlain { opening, began, first_byte, user, far, halves: [up, down] };
        shared.left.borrow_mut().plain.push(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_direction_keeps_what_the_other_socket_does_not_take_and_ends_after_its_last_byte() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let pair = async || {
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            (near, listener.accept().await.unwrap().0)
        };
        let ((speaker, from), (to, reader)) = (pair().await, pair().await);
        let (mut half, mut chunk) = (Half::default(), vec![0; CHUNK]);
        let mut said = 0;
        // Nobody reads: at some time the direction waits for room, with no more than a chunk.
        while half.carry(&from, &to, &mut chunk).unwrap() != Wait::Room {
            speaker.writable().await.unwrap();
            said += speaker.try_write(&[7; CHUNK]).unwrap_or(0);
            tokio::task::yield_now().await;
        }
        assert!((1..=CHUNK).contains(&half.pending.len()));
        SockRef::from(&speaker).shutdown(Shutdown::Write).unwrap();
        let mut half: Half = serde_json::from_slice(&serde_json::to_vec(&half).unwrap()).unwrap();
        let mut heard = 0;
        loop {
            let wait = half.carry(&from, &to, &mut chunk).unwrap();
            reader.readable().await.unwrap();
            match reader.try_read(&mut chunk) {
                Ok(0) => break assert_eq!(wait, Wait::Nothing),
                Ok(read) => {
                    assert!(chunk[..read].iter().all(|byte| *byte == 7));
                    heard += read;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            tokio::task::yield_now().await;
        }
        assert_eq!((heard, half.count as usize), (said, said));
    }
}
