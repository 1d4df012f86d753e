use crate::clock;
use crate::security::{GatewayBond, HopSuite};
use starhop_proto::gateway::{Gateway, GatewayEvent, Reason, StreamId};
use starhop_proto::peer::Face;
use starhop_proto::time::Instant;
use starhop_proto::{Node, Transmit};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::sync::Notify;

/// The gateway as its driver and its connections share it, on one thread.
pub(super) struct Shared {
    gateway: RefCell<Gateway<GatewayBond, HopSuite>>,
    /// Something was changed: the driver has to look.
    pub(super) changed: Notify,
    doors: RefCell<BTreeMap<StreamId, Rc<Door>>>,
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
    pub(super) fn new(gateway: Gateway<GatewayBond, HopSuite>) -> Self {
        Self { gateway: RefCell::new(gateway), changed: Notify::new(), doors: RefCell::new(BTreeMap::new()) }
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
