//! The client behind a satellite.

use crate::engine::{Body, Clock, Host};
use crate::host::asker::{Asker, Exchange};
use crate::record::SharedRecorder;
use starhop_proto::name::ByteRange;
use starhop_proto::peer::Face;
use starhop_proto::split::{ConnectionId, Receiver, Segment, SplitConfig};
use starhop_proto::time::Instant;
use std::net::SocketAddr;

/// The client: it opens the connection over the satellite and reports arriving bytes to the recorder.
#[derive(Debug)]
pub struct SplitSink {
    receiver: Receiver,
    gateway: SocketAddr,
    recorder: SharedRecorder,
    record: u32,
    clock: Clock,
    asker: Option<Asker>,
    is_done: bool,
}

impl SplitSink {
    /// A client of flow `record` behind `gateway`, on a node whose clock is `clock`.
    pub fn new(
        config: &SplitConfig,
        record: u32,
        gateway: SocketAddr,
        recorder: SharedRecorder,
        clock: Clock,
    ) -> Self {
        let receiver = Receiver::new(config);
        Self { receiver, gateway, recorder, record, clock, asker: None, is_done: false }
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

impl Host for SplitSink {
    fn handle_packet(&mut self, now: Instant, _face: Face, body: &mut Body) {
        let Body::Split(segment) = body else { return };
        let at = self.clock.world(now);
        let (recorder, record) = (&self.recorder, self.record as usize);
        let new = |range: ByteRange| recorder.borrow_mut().on_received(at, record, range);
        self.receiver.on_message(now, &segment.message, new);
        if let Some(asker) = &mut self.asker {
            asker.on_progress(now, self.receiver.next());
        }
        if self.receiver.is_complete() && !self.is_done {
            self.is_done = true;
            self.recorder.borrow_mut().on_finished(at, record);
        }
        self.ask(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.ask(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        let message = self.receiver.poll(now)?;
        *out = Body::Split(Box::new(Segment { connection: ConnectionId(self.record.into()), message }));
        Some(self.gateway.into())
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
