use super::connection::SaidByAll;
use super::handover::AllLeft;
use super::pool::Sockets;
use crate::clock;
use crate::security::{GatewayBond, HopSuite};
use starhop_proto::gateway::{Gateway, GatewayEvent, Reason, StreamId};
use starhop_proto::peer::Face;
use starhop_proto::time::Instant;
use starhop_proto::{Node, Transmit};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::sync::Notify;

/// Bytes taken from a user at once.
const CHUNK: usize = 64 * 1024;

/// The gateway as its driver and its connections share it, on one thread.
pub(super) struct Shared {
    gateway: RefCell<Gateway<GatewayBond, HopSuite>>,
    /// Something was changed: the driver has to look.
    pub(super) changed: Notify,
    /// Sockets for connections to targets.
    pub(super) sockets: Sockets,
    doors: RefCell<BTreeMap<StreamId, Rc<Door>>>,
    /// Bytes on their way from a socket to a stream. Connections use it in turn: none keeps a buffer of its own.
    chunk: RefCell<Box<[u8]>>,
    /// The peer to which users' connections go.
    pub(super) for_users: Cell<Option<u16>>,
    /// Bytes of users whose targets have not accepted.
    pub(super) said: SaidByAll,
    /// Connections are to let go of their sockets.
    is_leaving: Cell<bool>,
    /// Connections that have not let go, and those that are just being accepted.
    working: Rc<Cell<usize>>,
    /// Tells those without a door that they are to let go.
    leaving: Notify,
    pub(super) left: RefCell<AllLeft>,
}

/// Counts as a connection at work as long as it lives.
pub(super) struct Working(Rc<Cell<usize>>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The place where a connection is told of its stream's events.
#[derive(Default)]
pub(super) struct Door {
    /// There is something to read, room to write, or the end.
    pub(super) knock: Notify,
    pub(super) is_connected: Cell<bool>,
    pub(super) reset: Cell<Option<Reason>>,
}

impl Shared {
    pub(super) fn new(gateway: Gateway<GatewayBond, HopSuite>, sockets: Sockets) -> Self {
        Self {
            gateway: RefCell::new(gateway),
            changed: Notify::new(),
            sockets,
            doors: RefCell::new(BTreeMap::new()),
            chunk: RefCell::new(vec![0; CHUNK].into_boxed_slice()),
            for_users: Cell::new(None),
            said: SaidByAll::default(),
            is_leaving: Cell::new(false),
            working: Rc::default(),
            leaving: Notify::new(),
            left: RefCell::default(),
        }
    }

    /// Counts a connection at work.
    pub(super) fn work(&self) -> Working {
        self.working.set(self.working.get() + 1);
        Working(self.working.clone())
    }

    /// Whether connections are to let go of their sockets.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.get()
    }

    /// Returns when connections are to let go of their sockets.
    pub(super) async fn leaving(&self) {
        if !self.is_leaving() {
            self.leaving.notified().await;
        }
    }

    /// Has all connections let go of their sockets, and returns them; as an error if some do not until `limit`.
    pub(super) async fn suspend(&self, limit: std::time::Instant) -> Result<AllLeft, AllLeft> {
        self.is_leaving.set(true);
        self.doors.borrow().values().for_each(|door| door.knock.notify_one());
        self.leaving.notify_waiters();
        while self.working.get() > 0 && std::time::Instant::now() < limit {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        self.is_leaving.set(false);
        let left = self.left.take();
        if self.working.get() > 0 { Err(left) } else { Ok(left) }
    }

    /// Performs an action on the gateway, and wakes the driver to look at the result.
    pub(super) fn change<T>(&self, act: impl FnOnce(Instant, &mut Gateway<GatewayBond, HopSuite>) -> T) -> T {
        let done = act(clock::now(), &mut self.gateway.borrow_mut());
        self.changed.notify_one();
        done
    }

    /// Looks at the gateway.
    pub(super) fn look<T>(&self, look: impl FnOnce(Instant, &mut Gateway<GatewayBond, HopSuite>) -> T) -> T {
        look(clock::now(), &mut self.gateway.borrow_mut())
    }

    /// The buffer for bytes of a user, until they are with the gateway. Not to be held while anything is awaited.
    pub(super) fn chunk(&self) -> RefMut<'_, [u8]> {
        RefMut::map(self.chunk.borrow_mut(), |chunk| &mut chunk[..])
    }

    /// A connection's door for its stream.
    pub(super) fn enter(&self, stream: StreamId) -> Rc<Door> {
        self.doors.borrow_mut().entry(stream).or_default().clone()
    }

    /// The connection is over.
    pub(super) fn leave(&self, stream: StreamId) {
        self.doors.borrow_mut().remove(&stream);
    }

    /// Connections now.
    pub(super) fn connections(&self) -> usize {
        self.doors.borrow().len()
    }

    /// Tells a connection an event of its stream.
    pub(super) fn tell(&self, stream: StreamId, event: GatewayEvent) {
        let Some(door) = self.doors.borrow().get(&stream).cloned() else { return };
        match event {
            GatewayEvent::Reset { reason, .. } => door.reset.set(Some(reason)),
            GatewayEvent::Connected { .. } => door.is_connected.set(true),
            _ => {}
        }
        door.knock.notify_one();
    }
}

/// The gateway as a node for its driver.
pub(super) struct SharedNode(pub(super) Rc<Shared>);

impl Node for SharedNode {
    type Event = GatewayEvent;

    fn handle_datagram(&mut self, now: Instant, face: Face, datagram: &mut [u8]) {
        self.0.gateway.borrow_mut().handle_datagram(now, face, datagram);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.0.gateway.borrow_mut().handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        self.0.gateway.borrow_mut().poll_transmit(now, out)
    }

    fn poll_event(&mut self) -> Option<GatewayEvent> {
        self.0.gateway.borrow_mut().poll_event()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.gateway.borrow().poll_timeout()
    }
}
