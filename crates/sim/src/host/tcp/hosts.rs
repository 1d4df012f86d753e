//! Connections as hosts: the source, the sink, and a node that splits the connection between them.

use super::config::TcpConfig;
use super::receiver::Receiver;
use super::sender::Sender;
use crate::engine::{Backlog, Body, Clock, Host, HostReport, TcpSegment, WindowSample};
use crate::host::asker::{Asker, Exchange};
use crate::record::SharedRecorder;
use starhop_proto::name::ByteRange;
use starhop_proto::peer::Face;
use starhop_proto::time::Instant;
use std::net::SocketAddr;

fn put(segment: Option<TcpSegment>, to: Option<SocketAddr>, out: &mut Body) -> Option<Face> {
    let (segment, to) = (segment?, to?);
    *out = Body::Tcp(Box::new(segment));
    Some(to.into())
}

/// The server: it has the content, and sends it to every client that opens the connection.
#[derive(Debug)]
pub struct TcpSource {
    sender: Sender,
    peer: Option<SocketAddr>,
    exchange: Option<Exchange>,
}

impl TcpSource {
    /// A source of `length` bytes, or of a stream without an end, as flow number `flow` of the recorder.
    pub fn new(config: &TcpConfig, flow: u32, length: Option<u64>, seed: u64) -> Self {
        let mut sender = Sender::new(config, flow, seed);
        sender.provide(length.unwrap_or(u64::MAX / 2), length.is_some());
        Self { sender, peer: None, exchange: None }
    }

    /// The server answers the questions of `exchange`, one after the other, instead of sending everything at once.
    #[must_use]
    pub fn answering(mut self, exchange: Option<Exchange>) -> Self {
        self.exchange = exchange;
        if exchange.is_some() {
            self.sender.provide(0, false);
        }
        self
    }

    /// The connection to `peer` is open from the start.
    #[must_use]
    pub fn connected(mut self, peer: SocketAddr) -> Self {
        self.peer = Some(peer);
        self
    }
}

impl Host for TcpSource {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        if let Body::Tcp(segment) = body {
            self.peer = Some(face.remote);
            self.sender.on_segment(now, segment);
            if let Some(exchange) = &self.exchange {
                let (bytes, is_all) = exchange.given(self.sender.asked());
                self.sender.provide(bytes, is_all);
            }
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        put(self.sender.poll_transmit(now), self.peer, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    fn start(&mut self, _now: Instant) {
        self.sender.open();
    }

    fn report(&self) -> HostReport {
        HostReport::Tcp(self.sender.stats())
    }

    fn window(&self) -> Option<WindowSample> {
        Some(self.sender.window())
    }
}

/// The client: it opens the connection and reports arriving bytes to the recorder.
#[derive(Debug)]
pub struct TcpSink {
    receiver: Receiver,
    upstream: Option<SocketAddr>,
    recorder: SharedRecorder,
    record: u32,
    clock: Clock,
    asker: Option<Asker>,
    is_done: bool,
}

impl TcpSink {
    /// A client of flow `record`, on a node whose clock is `clock`. Without an upstream
    /// it learns it from the first segment.
    pub fn new(config: &TcpConfig, record: u32, recorder: SharedRecorder, clock: Clock) -> Self {
        let receiver = Receiver::new(config, record, config.receive_window);
        Self { receiver, upstream: None, recorder, record, clock, asker: None, is_done: false }
    }

    /// The neighbour to open the connection to.
    #[must_use]
    pub fn upstream(mut self, upstream: SocketAddr) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// It asks for one thing after the other.
    #[must_use]
    pub fn asking(mut self, exchange: Option<Exchange>) -> Self {
        self.asker = exchange.map(|e| Asker::new(e, self.recorder.clone(), self.record as usize));
        self
    }

    fn ask(&mut self, now: Instant) {
        if let Some(len) = self.asker.as_mut().and_then(|asker| asker.poll(now)) {
            self.receiver.request(now, len);
        }
    }
}

impl Host for TcpSink {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        let Body::Tcp(segment) = body else { return };
        self.upstream = Some(face.remote);
        let at = self.clock.world(now);
        let (recorder, record) = (&self.recorder, self.record as usize);
        let new = |range: ByteRange| recorder.borrow_mut().on_received(at, record, range);
        self.receiver.on_segment(now, segment, new);
        if self.receiver.is_complete() && !self.is_done {
            self.is_done = true;
            self.recorder.borrow_mut().on_finished(at, record);
        }
        if let Some(asker) = &mut self.asker {
            asker.on_progress(now, self.receiver.next());
        }
        self.ask(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        put(self.receiver.poll_transmit(now), self.upstream, out)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let question = self.asker.as_ref().and_then(Asker::poll_timeout);
        self.receiver.poll_timeout().into_iter().chain(question).min()
    }

    fn start(&mut self, now: Instant) {
        self.receiver.open(now);
        if let Some(asker) = &mut self.asker {
            asker.start(now);
        }
        self.ask(now);
    }
}

/// A node that ends one connection and begins the next: a performance-enhancing proxy (RFC 3135).
#[derive(Debug)]
pub struct TcpSplice {
    receiver: Receiver,
    sender: Sender,
    upstream: SocketAddr,
    downstream: Option<SocketAddr>,
    /// The most bytes that the splice holds.
    buffer: Option<u64>,
    window: u64,
    is_asking: bool,
}

impl TcpSplice {
    /// A splice of flow `flow` that fetches from `upstream`.
    pub fn new(config: &TcpConfig, flow: u32, upstream: SocketAddr, seed: u64) -> Self {
        let buffer = config.split_buffer;
        let window = buffer.map_or(config.receive_window, |buffer| buffer.min(config.receive_window));
        Self {
            receiver: Receiver::new(config, flow, window),
            sender: Sender::new(config, flow, seed),
            upstream,
            downstream: None,
            buffer,
            window,
            is_asking: false,
        }
    }

    /// The connection to the next node is open from the start.
    #[must_use]
    pub fn connected(mut self, downstream: SocketAddr) -> Self {
        self.downstream = Some(downstream);
        self
    }

    /// Hands the bytes that have arrived to the next connection, and tells the previous connection the room that is
    /// left.
    fn pass_on(&mut self) {
        let arrived = self.receiver.next();
        self.sender.provide(arrived, self.receiver.is_complete());
        let held = arrived - self.sender.acknowledged();
        let room = self.buffer.map_or(self.window, |buffer| buffer.saturating_sub(held).min(self.window));
        self.receiver.set_room(room);
    }
}

impl Host for TcpSplice {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        let Body::Tcp(segment) = body else { return };
        if face.remote == self.upstream {
            self.receiver.on_segment(now, segment, |_| ());
        } else {
            self.downstream = Some(face.remote);
            self.sender.on_segment(now, segment);
            // A request of the next node is passed on to the previous one.
            if self.sender.is_open() && !self.is_asking {
                self.is_asking = true;
                self.receiver.open(now);
            }
            // The client's requests go on to the server.
            let more = self.sender.asked().saturating_sub(self.receiver.asked());
            if more > 0 {
                self.receiver.request(now, more as u32);
            }
        }
        self.pass_on();
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        let acknowledgement = put(self.receiver.poll_transmit(now), Some(self.upstream), out);
        acknowledgement.or_else(|| put(self.sender.poll_transmit(now), self.downstream, out))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.receiver.poll_timeout().into_iter().chain(self.sender.poll_timeout()).min()
    }

    fn start(&mut self, now: Instant) {
        self.is_asking = true;
        self.sender.open();
        self.receiver.open(now);
    }

    fn report(&self) -> HostReport {
        HostReport::Tcp(self.sender.stats())
    }

    fn window(&self) -> Option<WindowSample> {
        Some(self.sender.window())
    }

    fn backlog(&self, _flow: u32) -> Option<Backlog> {
        let held = self.receiver.next() - self.sender.acknowledged();
        Some(Backlog { unsent: self.sender.unsent(), held })
    }
}
