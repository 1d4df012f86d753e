//! Ideal retransmission: every packet is acknowledged, and sent again exactly when its acknowledgement is overdue.
//!
//! The closed forms of LEOTP (equations 2 and 3) describe exactly this: a lost packet costs one round trip of the
//! part of the path that repairs it, and nothing else. There is no window and no congestion control; the rate is
//! given.

use crate::engine::{Body, Clock, Host, Segment, UDP_HEADER};
use crate::record::SharedRecorder;
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::peer::Face;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// Settings that all nodes of such a flow share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArqSpec {
    /// The flow, as the recorder numbers it.
    pub flow: u32,
    /// Rate of new payload at the source.
    pub rate: Rate,
    /// Bytes of payload per packet.
    pub payload: u32,
    /// An acknowledgement is overdue after this: the round trip of the part of the path that repairs.
    pub timeout: Duration,
}

/// The sending end of one part of the path, with the packets that are not acknowledged yet.
#[derive(Debug)]
struct Sender {
    spec: ArqSpec,
    to: SocketAddr,
    ready: VecDeque<ByteRange>,
    /// Unacknowledged ranges by their first offset: the end, and when they are sent again.
    waiting: BTreeMap<u64, (u64, Instant)>,
    /// All timeouts in the order in which they come; those of acknowledged ranges are skipped.
    due: VecDeque<(Instant, u64)>,
}

impl Sender {
    fn new(spec: ArqSpec, to: SocketAddr) -> Self {
        Self { spec, to, ready: VecDeque::new(), waiting: BTreeMap::new(), due: VecDeque::new() }
    }

    fn on_ack(&mut self, offset: u64) {
        self.waiting.remove(&offset);
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Some(&(at, offset)) = self.due.front()
            && at <= now
        {
            self.due.pop_front();
            if let Some(&(end, deadline)) = self.waiting.get(&offset)
                && deadline == at
            {
                self.ready.push_back(ByteRange::new(offset, end));
            }
        }
    }

    fn poll(&mut self, now: Instant, out: &mut Body) -> Option<SocketAddr> {
        let range = self.ready.pop_front()?;
        let deadline = now + self.spec.timeout;
        self.waiting.insert(range.start, (range.end, deadline));
        self.due.push_back((deadline, range.start));
        *out = segment(self.spec.flow, range);
        Some(self.to)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }
}

fn segment(flow: u32, range: ByteRange) -> Body {
    Body::Segment(Segment { flow, len: range.len() as u32, offset: range.start, header: UDP_HEADER })
}

/// A segment without payload acknowledges the one that starts at its offset.
fn acknowledgement(flow: u32, offset: u64) -> Body {
    segment(flow, ByteRange::at(offset, 0))
}

/// Sends new packets at a given rate, and repeats packets whose acknowledgement is overdue.
#[derive(Debug)]
pub struct ArqSource {
    sender: Sender,
    length: Option<u64>,
    offset: u64,
    next: Option<Instant>,
}

impl ArqSource {
    /// A source that sends to `to`.
    pub fn new(spec: ArqSpec, to: SocketAddr, length: Option<u64>) -> Self {
        Self { sender: Sender::new(spec, to), length, offset: 0, next: None }
    }

    fn make(&mut self, now: Instant) {
        while let Some(due) = self.next.filter(|due| *due <= now) {
            let left = self.length.map_or(u64::MAX, |length| length - self.offset);
            let spec = &self.sender.spec;
            let (len, gap) = (u64::from(spec.payload).min(left), spec.rate.time_for(u64::from(spec.payload)));
            self.sender.ready.push_back(ByteRange::at(self.offset, len));
            self.offset += len;
            self.next = (len < left).then(|| due + gap);
        }
    }
}

impl Host for ArqSource {
    fn handle_packet(&mut self, _now: Instant, _face: Face, body: &mut Body) {
        if let Body::Segment(segment) = body {
            self.sender.on_ack(segment.offset);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
        self.make(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        self.make(now);
        self.sender.poll(now, out).map(Face::from)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.next, self.sender.poll_timeout()].into_iter().flatten().min()
    }

    fn start(&mut self, now: Instant) {
        self.next = Some(now);
    }
}

/// Acknowledges each packet, forwards it at once, in order or not, and repairs losses on its own part of the path.
#[derive(Debug)]
pub struct ArqRelay {
    sender: Sender,
    before: SocketAddr,
    seen: RangeSet,
    acks: VecDeque<u64>,
}

impl ArqRelay {
    /// A relay between its neighbours.
    pub fn new(spec: ArqSpec, before: SocketAddr, after: SocketAddr) -> Self {
        Self { sender: Sender::new(spec, after), before, seen: RangeSet::default(), acks: VecDeque::new() }
    }
}

impl Host for ArqRelay {
    fn handle_packet(&mut self, _now: Instant, face: Face, body: &mut Body) {
        let Body::Segment(segment) = body else { return };
        if face.remote != self.before {
            return self.sender.on_ack(segment.offset);
        }
        let range = ByteRange::at(segment.offset, u64::from(segment.len));
        self.acks.push_back(range.start);
        if !self.seen.overlaps(range) {
            self.seen.insert(range);
            self.sender.ready.push_back(range);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Body) -> Option<Face> {
        if let Some(offset) = self.acks.pop_front() {
            *out = acknowledgement(self.sender.spec.flow, offset);
            return Some(self.before.into());
        }
        self.sender.poll(now, out).map(Face::from)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }
}

/// Receives, acknowledges, and hands over.
#[derive(Debug)]
pub struct ArqSink {
    recorder: SharedRecorder,
    clock: Clock,
    length: Option<u64>,
    seen: RangeSet,
    acks: VecDeque<(SocketAddr, u32, u64)>,
}

impl ArqSink {
    /// A sink on a node whose clock is `clock`.
    pub fn new(recorder: SharedRecorder, clock: Clock, length: Option<u64>) -> Self {
        Self { recorder, clock, length, seen: RangeSet::default(), acks: VecDeque::new() }
    }
}

impl Host for ArqSink {
    fn handle_packet(&mut self, now: Instant, face: Face, body: &mut Body) {
        let Body::Segment(segment) = body else { return };
        let range = ByteRange::at(segment.offset, u64::from(segment.len));
        self.acks.push_back((face.remote, segment.flow, range.start));
        if self.seen.overlaps(range) {
            return;
        }
        self.seen.insert(range);
        let now = self.clock.world(now);
        let mut recorder = self.recorder.borrow_mut();
        recorder.on_received(now, segment.flow as usize, range);
        let end = self.seen.first().filter(|first| first.start == 0).map(|first| first.end);
        if self.length.is_some() && end == self.length {
            recorder.on_finished(now, segment.flow as usize);
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, out: &mut Body) -> Option<Face> {
        let (to, flow, offset) = self.acks.pop_front()?;
        *out = acknowledgement(flow, offset);
        Some(to.into())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
