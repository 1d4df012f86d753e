//! The terminal: it ends the satellite's connection and begins one of TCP to a client that knows nothing of it.

use crate::engine::{Backlog, Body, Host, HostReport};
use crate::host::tcp::{Sender, TcpConfig};
use starhop_proto::peer::Face;
use starhop_proto::split::{ConnectionId, Receiver, Segment, SplitConfig};
use starhop_proto::time::Instant;
use std::net::SocketAddr;

/// The other half of a gateway's pair, of one flow.
#[derive(Debug)]
pub struct TerminalHost {
    receiver: Receiver,
    sender: Sender,
    flow: u32,
    gateway: SocketAddr,
    client: Option<SocketAddr>,
    is_asking: bool,
}

impl TerminalHost {
    /// A terminal of flow `flow` behind `gateway`.
    pub fn new(
        satellite: &SplitConfig,
        terrestrial: &TcpConfig,
        flow: u32,
        gateway: SocketAddr,
        seed: u64,
    ) -> Self {
        let (receiver, sender) = (Receiver::new(satellite), Sender::new(terrestrial, flow, seed));
        Self { receiver, sender, flow, gateway, client: None, is_asking: false }
    }

    /// Hands the bytes that have arrived to the client's connection, and reduces the satellite's window by the
    /// bytes that the client's connection buffers.
    fn pass_on(&mut self) {
        self.sender.provide(self.receiver.next(), self.receiver.is_complete());
        self.receiver.keep(self.held());
    }

    fn held(&self) -> u64 {
        self.receiver.next() - self.sender.acknowledged()
    }

    fn ask(&mut self, now: Instant) {
        let more = self.sender.asked().saturating_sub(self.receiver.asked());
        if more > 0 {
            self.receiver.request(now, more as u32);
        }
        if self.sender.is_open() && !self.is_asking {
            self.is_asking = true;
            self.receiver.open(now);
        }
    }
}

impl Host for TerminalHost {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        match body {
            Body::Split(segment) => self.receiver.on_message(now, &segment.message, |_| ()),
            Body::Tcp(segment) => {
                self.client = Some(face.remote);
                self.sender.on_segment(now, segment);
                self.ask(now);
            }
            Body::Datagram(_) | Body::Segment(_) | Body::Opaque(_) => {}
        }
        self.pass_on();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        if let Some(message) = self.receiver.poll(now) {
            *out = Body::Split(Box::new(Segment { connection: ConnectionId(self.flow.into()), message }));
            return Some(self.gateway.into());
        }
        let (segment, client) = (self.sender.poll_transmit(now)?, self.client?);
        *out = Body::Tcp(Box::new(segment));
        Some(client.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout().into_iter().chain(self.sender.poll_timeout()).min()
    }

    fn report(&self) -> HostReport {
        HostReport::Tcp(self.sender.stats())
    }

    fn backlog(&self, _flow: u32) -> Option<Backlog> {
        Some(Backlog { unsent: self.sender.unsent(), held: self.held() })
    }
}
