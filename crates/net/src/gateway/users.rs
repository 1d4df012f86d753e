//! Users' connections: those that are diverted here, and those that the other gateway opens.

use super::connection::{Connection, Ended, Outcome, Unserved, prepare, reason_of};
use super::hold::Accepted;
use super::plain::Plain;
use super::shared::Shared;
use super::{GatewayConfig, Site, Tell, Told, room, shared, sockets};
use starhop_proto::gateway::{GatewayEvent, Opening, Reason, StreamId};
use std::io;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Longest time that a new connection waits for its client's first bytes, so that they travel with the opening.
const FIRST_BYTES: Duration = Duration::from_millis(2);

/// The end of a user's connection, for the log and for events.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FlowEnd {
    /// The client.
    pub from: std::net::SocketAddr,
    /// The target.
    pub to: std::net::SocketAddr,
    /// Whether it was intercepted here, or opened by the other gateway.
    pub intercepted: bool,
    /// The way in which it was carried: `split`, or `plain` if that was not possible.
    pub carried: &'static str,
    /// Bytes from the client to the target.
    pub up_bytes: u64,
    /// Bytes from the target to the client.
    pub down_bytes: u64,
    /// From the connection's beginning until the first byte to the user at this gateway.
    pub first_byte_ms: Option<f64>,
    /// From its beginning to its end.
    pub seconds: f64,
    /// `done`, or why it ended before its time.
    pub reason: &'static str,
}

impl Site {
    /// A user's connection was diverted here.
    pub(super) fn take(&mut self, socket: TcpStream) {
        // A client that is gone by now has no address any more.
        let Ok(opening) = sockets::opening(&socket) else { return };
        if prepare(&socket).is_err() {
            return;
        }
        // Of a class that the kernel does not grant, the connection goes on without.
        let _ = sockets::mark(&socket2::SockRef::from(&socket), opening);
        match self.hold.as_mut().and_then(|hold| hold.waiting.on_accepted(&opening)) {
            Some(Accepted { began, stream: Ok(stream) }) => self.carry(socket, opening, began, stream),
            Some(Accepted { began, stream: Err(reason) }) => {
                (self.tell)(&Told::Flow(flow_end(opening, began, Ended::before(reason), (true, "split"))));
            }
            None => self.open(socket, opening),
        }
    }

    /// Carries a user's connection whose target has accepted.
    fn carry(&self, socket: TcpStream, opening: Opening, began: Instant, stream: StreamId) {
        let (shared, tell) = (self.shared.clone(), self.tell.clone());
        tokio::task::spawn_local(async move {
            let connection = Connection::new(&shared, stream, socket, began).accepted();
            let Outcome::Ended(ended) = connection.run().await else { return };
            tell(&Told::Flow(flow_end(opening, began, ended, (true, "split"))));
        });
    }

    /// Opens the stream of a user's connection, and carries it.
    fn open(&self, socket: TcpStream, opening: Opening) {
        let (config, shared, tell) = (self.config.clone(), self.shared.clone(), self.tell.clone());
        let accepting = shared.work();
        tokio::task::spawn_local(async move {
            let began = Instant::now();
            let _ = tokio::time::timeout(FIRST_BYTES, socket.readable()).await;
            let unserved = match open_stream(&config, &shared, opening, 0) {
                Some(stream) => {
                    let connection = Connection::new(&shared, stream, socket, began);
                    drop(accepting);
                    match connection.run().await {
                        Outcome::Ended(ended) => {
                            tell(&Told::Flow(flow_end(opening, began, ended, (true, "split"))));
                            return;
                        }
                        Outcome::Left => return,
                        Outcome::Unserved(user) => user,
                    }
                }
                None => {
                    drop(accepting);
                    Unserved { socket, said: Vec::new() }
                }
            };
            carry_past(Plain::new(unserved, opening, began), &config, &shared, &tell).await;
        });
    }

    /// Goes on with a connection of the plain path.
    pub(super) fn pass(&self, plain: Plain) {
        let (config, shared, tell) = (self.config.clone(), self.shared.clone(), self.tell.clone());
        tokio::task::spawn_local(async move { carry_past(plain, &config, &shared, &tell).await });
    }

    /// Looks at SYNs that are held until their targets have accepted.
    pub(super) fn hold(&mut self) -> io::Result<()> {
        let Self { config, shared, hold: Some(hold), tunnel: Some(tunnel), .. } = self else { return Ok(()) };
        hold.take(
            Instant::now(),
            |opening, waiting| open_stream(config, shared, opening, waiting),
            |packet| tunnel.pass(packet),
        )
    }

    /// Ends the streams of clients that left before their connections began.
    pub(super) fn sweep_held(&mut self) {
        let gone = self.hold.as_mut().map(|hold| hold.waiting.sweep(Instant::now())).unwrap_or_default();
        for stream in gone {
            self.shared.change(|_, gateway| gateway.reset(stream, Reason::Reset));
        }
    }

    /// A peer does not answer: SYNs that wait for it take the plain path.
    pub(super) fn release_held(&mut self, peer: u16) {
        let asked = self.hold.as_ref().map(|hold| hold.waiting.asked_of(peer)).unwrap_or_default();
        for stream in asked {
            self.shared.change(|_, gateway| gateway.reset(stream, Reason::PeerLost));
            self.on_reset(stream, Reason::PeerLost);
        }
    }

    /// The target of a stream has accepted.
    pub(super) fn on_connected(&mut self, stream: StreamId) {
        let is_held = self.hold.as_mut().is_some_and(|hold| hold.on_connected(Instant::now(), stream));
        if !is_held {
            self.shared.tell(stream, GatewayEvent::Connected { stream });
        }
    }

    /// A stream is void.
    pub(super) fn on_reset(&mut self, stream: StreamId, reason: Reason) {
        let Self { hold, tunnel, .. } = self;
        let pass = |packet: &[u8]| tunnel.iter_mut().for_each(|tunnel| tunnel.pass(packet));
        match hold.as_mut().and_then(|hold| hold.on_reset(Instant::now(), stream, reason, pass)) {
            None => self.shared.tell(stream, GatewayEvent::Reset { stream, reason }),
            Some(None) => {}
            Some(Some((opening, began))) => {
                (self.tell)(&Told::Flow(flow_end(opening, began, Ended::before(reason), (true, "split"))));
            }
        }
    }

    /// The other gateway opened a stream: its target is asked.
    pub(super) fn connect(&self, stream: StreamId, opening: Opening) {
        let (config, shared, tell) = (self.config.clone(), self.shared.clone(), self.tell.clone());
        let door = shared.enter(stream);
        shared.look(|_, gateway| gateway.set_weight(stream, config.split.weight(&opening)));
        tokio::task::spawn_local(async move {
            let began = Instant::now();
            let connected = tokio::select! {
                connected = room::patiently(async || sockets::connect(&config, &shared.sockets, opening).await) => connected,
                () = gone(&door) => Err(io::ErrorKind::ConnectionReset.into()),
            };
            let prepared = connected.and_then(|socket| prepare(&socket).map(|()| socket));
            let ended = match prepared {
                Ok(socket) => {
                    shared.change(|_, gateway| gateway.connected(stream));
                    // Events before this point had no listener: the door is looked at once.
                    door.knock.notify_one();
                    match Connection::new(&shared, stream, socket, began).run().await {
                        Outcome::Ended(ended) => ended,
                        Outcome::Left | Outcome::Unserved(_) => return,
                    }
                }
                Err(error) => {
                    let reason = reason_of(&error);
                    shared.change(|_, gateway| gateway.reset(stream, reason));
                    shared.leave(stream);
                    Ended::before(reason)
                }
            };
            tell(&Told::Flow(flow_end(opening, began, ended, (false, "split"))));
        });
    }
}

/// Opens a stream to the target of `opening` with the first peer that takes it; `None` if none does. `more` connections count
/// beside those that are carried.
fn open_stream(config: &GatewayConfig, shared: &Shared, opening: Opening, more: usize) -> Option<StreamId> {
    if shared.connections() + more >= config.max_connections() {
        return None;
    }
    let weight = config.split.weight(&opening);
    shared.change(|now, gateway| {
        let named = config.split.peer(&opening).into_iter();
        let mut peers = named.chain(shared.for_users.get()).chain(config.for_users());
        let opened = peers.find_map(|peer| gateway.open(now, peer, opening).ok());
        opened.inspect(|stream| gateway.set_weight(*stream, weight))
    })
}

/// Carries a connection past the peer until its end, and tells of that.
async fn carry_past(plain: Plain, config: &GatewayConfig, shared: &Shared, tell: &Tell) {
    let (opening, began) = plain.identity();
    if let Some(ended) = plain.run(config, shared).await {
        tell(&Told::Flow(flow_end(opening, began, ended, (true, "plain"))));
    }
}

/// Returns when the stream of `door` was reset.
async fn gone(door: &shared::Door) {
    while door.reset.get().is_none() {
        door.knock.notified().await;
    }
}

pub(super) fn flow_end(
    opening: Opening,
    began: Instant,
    ended: Ended,
    (intercepted, carried): (bool, &'static str),
) -> FlowEnd {
    // At the far end, the user is the target.
    let (up_bytes, down_bytes) =
        if intercepted { (ended.sent, ended.received) } else { (ended.received, ended.sent) };
    FlowEnd {
        from: opening.from,
        to: opening.to,
        intercepted,
        carried,
        up_bytes,
        down_bytes,
        first_byte_ms: ended.first_byte.map(|span| span.as_secs_f64() * 1e3),
        seconds: began.elapsed().as_secs_f64(),
        reason: ended.reason.map_or("done", |reason| reason.word()),
    }
}
