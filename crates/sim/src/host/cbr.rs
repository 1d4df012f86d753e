//! Traffic at a constant rate without answers: background load, and the probe of the engine's own tests.

use crate::engine::{Body, Clock, Host, Segment};
use crate::record::SharedRecorder;
use starhop_proto::name::ByteRange;
use starhop_proto::peer::Face;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::net::SocketAddr;

/// Sends segments at a rate, from [`Host::start`] on.
#[derive(Debug)]
pub struct CbrSource {
    to: SocketAddr,
    flow: u32,
    payload: u32,
    gap: Duration,
    length: Option<u64>,
    next: Option<Instant>,
    offset: u64,
}

/// UDP's header and nothing else.
const HEADER: u32 = crate::engine::UDP_HEADER;

impl CbrSource {
    /// Sends packets with `payload` bytes each to `to`; their payload adds up to `rate`.
    pub fn new(to: SocketAddr, flow: u32, payload: u32, rate: Rate, length: Option<u64>) -> Self {
        Self { to, flow, payload, gap: rate.time_for(u64::from(payload)), length, next: None, offset: 0 }
    }
}

impl Host for CbrSource {
    fn handle_packet(&mut self, _now: Instant, _face: Face, _body: &mut Body) {}

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        let due = self.next.filter(|due| *due <= now)?;
        let left = self.length.map_or(u64::MAX, |length| length - self.offset);
        let len = u64::from(self.payload).min(left) as u32;
        self.next = (u64::from(len) < left).then(|| due + self.gap);
        *out = Body::Segment(Segment { flow: self.flow, len, offset: self.offset, header: HEADER });
        self.offset += u64::from(len);
        Some(self.to.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }

    fn start(&mut self, now: Instant) {
        self.next = Some(now);
    }
}

/// Receives the packets of a [`CbrSource`].
#[derive(Debug)]
pub struct CbrSink {
    recorder: SharedRecorder,
    clock: Clock,
    length: Option<u64>,
}

impl CbrSink {
    /// A sink on a node whose clock is `clock`.
    pub fn new(recorder: SharedRecorder, clock: Clock, length: Option<u64>) -> Self {
        Self { recorder, clock, length }
    }
}

impl Host for CbrSink {
    fn handle_packet(&mut self, now: Instant, _face: Face, body: &mut Body) {
        let Body::Segment(segment) = body else { return };
        let now = self.clock.world(now);
        let (flow, range) = (segment.flow as usize, ByteRange::at(segment.offset, u64::from(segment.len)));
        let mut recorder = self.recorder.borrow_mut();
        recorder.on_datagram(now, flow, range);
        if self.length == Some(range.end) {
            recorder.on_finished(now, flow);
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Body) -> Option<Face> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
