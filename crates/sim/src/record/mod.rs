//! The recorder: the measurements of an ideal observer who sees all nodes and has one clock.

mod flow;
mod histogram;
mod sent;

pub use flow::{Delays, FlowRecord, StepSums};
pub use histogram::Histogram;

use crate::engine::{Body, HostId, Observer, TcpKind};
use crate::host::Protection;
use sent::{Sent, SentLog};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::split::Message;
use starhop_proto::time::Instant;
use starhop_proto::wire::Packet;
use std::cell::{Ref, RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The measurements of a piece of content, shared by all flows that carry it.
#[derive(Debug, Default)]
struct ContentRecord {
    sent: SentLog,
    readers: Vec<usize>,
    /// Payload bytes that the source sent, repairs included.
    source_bytes: u64,
}

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct Recorder {
    contents: Vec<ContentRecord>,
    by_name: BTreeMap<FlowId, usize>,
    last: Option<(FlowId, usize)>,
    flows: Vec<FlowRecord>,
    /// Delays that flows have in common.
    crowds: BTreeMap<u32, Rc<RefCell<Delays>>>,
    warm_up: Instant,
    problems: Vec<String>,
    scratch: Vec<Sent>,
}

/// Distance behind the newest byte within which a late packet of a flow without repairs is recognised, bytes.
const REORDERING: u64 = 1 << 20;

/// More problems than this tell nothing new.
const MOST_PROBLEMS: usize = 10;

impl Recorder {
    /// A recorder that measures from `warm_up` on.
    pub fn new(warm_up: Instant) -> Self {
        Self { warm_up, ..Self::default() }
    }

    /// Adds a flow that carries the content `name`, whose delays are counted together with those of its `crowd`; its
    /// number.
    pub fn add_flow(&mut self, name: FlowId, crowd: Option<u32>) -> usize {
        let contents = &mut self.contents;
        let content = *self.by_name.entry(name).or_insert_with(|| {
            contents.push(ContentRecord::default());
            contents.len() - 1
        });
        self.contents[content].readers.push(self.flows.len());
        let delays = crowd.map(|crowd| self.crowds.entry(crowd).or_default().clone()).unwrap_or_default();
        self.flows.push(FlowRecord::of(content, delays));
        self.flows.len() - 1
    }

    /// The record of a flow.
    pub fn flow(&self, flow: usize) -> &FlowRecord {
        &self.flows[flow]
    }

    /// The record of a flow, to change it.
    pub fn flow_mut(&mut self, flow: usize) -> &mut FlowRecord {
        &mut self.flows[flow]
    }

    /// Payload bytes that the source of a flow's content sent.
    pub fn source_bytes(&self, flow: usize) -> u64 {
        self.contents[self.flows[flow].content].source_bytes
    }

    /// Violations of the rules that every run must keep, in words.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Notes something that must not have happened.
    pub fn on_problem(&mut self, problem: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(problem);
        }
    }

    /// New bytes reached the client of `flow`.
    pub fn on_received(&mut self, now: Instant, flow: usize, range: ByteRange) {
        let Some(completed) = self.flows[flow].insert(range) else {
            return self.on_problem(format!("flow {flow}: bytes of {range:?} were handed over twice"));
        };
        let is_measured = now >= self.warm_up;
        let content = self.flows[flow].content;
        self.scratch.clear();
        self.scratch.extend(self.contents[content].sent.within(range));
        for &sent in &self.scratch {
            self.flows[flow].on_arrived(now, sent, is_measured);
        }
        if completed.is_empty() {
            return;
        }
        if completed != range {
            self.scratch.clear();
            self.scratch.extend(self.contents[content].sent.within(completed));
        }
        for &sent in &self.scratch {
            self.flows[flow].on_in_order(now, sent, is_measured);
        }
        self.flows[flow].count_in_order(completed.len(), is_measured);
        self.forget(content);
    }

    /// A packet of a flow without repairs reached its client. The application takes packets in the order of
    /// arrival.
    pub fn on_datagram(&mut self, now: Instant, flow: usize, range: ByteRange) {
        let is_measured = now >= self.warm_up;
        let content = self.flows[flow].content;
        self.scratch.clear();
        self.scratch.extend(self.contents[content].sent.within(range));
        for &sent in &self.scratch {
            self.flows[flow].on_arrived(now, sent, is_measured);
            self.flows[flow].on_in_order(now, sent, is_measured);
        }
        self.flows[flow].count_in_order(range.len(), is_measured);
        self.contents[content].sent.forget_below(range.end.saturating_sub(REORDERING));
    }

    /// The last byte of `flow` was handed over.
    pub fn on_finished(&mut self, now: Instant, flow: usize) {
        self.flows[flow].finished.get_or_insert(now);
        self.forget(self.flows[flow].content);
    }

    /// Forgets transmissions for which no reader waits any more. A reader that starts later finds old content in
    /// caches, and its delay since the first transmission means nothing.
    fn forget(&mut self, content: usize) {
        let content = &mut self.contents[content];
        let waiting = content.readers.iter().map(|&reader| &self.flows[reader]);
        let lowest = waiting
            .filter(|flow| flow.started.is_some() && flow.finished.is_none())
            .map(FlowRecord::in_order_end)
            .min();
        if let Some(lowest) = lowest {
            content.sent.forget_below(lowest);
        }
    }

    fn content_of(&mut self, body: &Body) -> Option<(usize, ByteRange)> {
        match body {
            Body::Segment(segment) => {
                let content = self.flows.get(segment.flow as usize)?.content;
                (segment.len > 0).then(|| (content, ByteRange::at(segment.offset, u64::from(segment.len))))
            }
            Body::Tcp(segment) => {
                let content = self.flows.get(segment.flow as usize)?.content;
                let has_data = segment.kind == TcpKind::Data && segment.len > 0;
                has_data.then(|| (content, segment.range()))
            }
            Body::Split(segment) => {
                let content = self.flows.get(segment.connection.0 as usize)?.content;
                if let Message::Data { range, .. } = segment.message { Some((content, range)) } else { None }
            }
            // Whose bytes it carries is for its ends to know.
            Body::Opaque(_) => None,
            Body::Datagram(bytes) => {
                // The suite's own bytes are not payload: a Data packet does not say how long it is.
                let packet = Packet::parse(Protection::packet_in(bytes)?);
                let Ok(Packet::Data(header, payload)) = packet else { return None };
                let content = self.content_named(header.flow)?;
                (!payload.is_empty()).then(|| (content, header.range(payload.len())))
            }
        }
    }

    fn content_named(&mut self, name: FlowId) -> Option<usize> {
        if let Some((_, content)) = self.last.filter(|(last, _)| *last == name) {
            return Some(content);
        }
        let content = *self.by_name.get(&name)?;
        self.last = Some((name, content));
        Some(content)
    }
}

/// One recorder, shared by the engine, the sources and the sinks of a world.
#[derive(Clone, Debug)]
pub struct SharedRecorder(Rc<RefCell<Recorder>>);

impl SharedRecorder {
    /// Shares a recorder.
    pub fn new(recorder: Recorder) -> Self {
        Self(Rc::new(RefCell::new(recorder)))
    }

    /// The recorder.
    pub fn borrow(&self) -> Ref<'_, Recorder> {
        self.0.borrow()
    }

    /// The recorder, to change it.
    pub fn borrow_mut(&self) -> RefMut<'_, Recorder> {
        self.0.borrow_mut()
    }
}

impl Observer for SharedRecorder {
    fn on_sent(&mut self, now: Instant, _host: HostId, body: &Body) {
        let mut recorder = self.borrow_mut();
        if let Some((content, range)) = recorder.content_of(body) {
            let content = &mut recorder.contents[content];
            content.source_bytes += range.len();
            content.sent.on_sent(now, range);
        }
    }

    fn on_lost(&mut self, _now: Instant, body: &Body) {
        let mut recorder = self.borrow_mut();
        if let Some((content, range)) = recorder.content_of(body) {
            recorder.contents[content].sent.on_lost(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::time::Duration;
    use starhop_proto::wire::{DataFlags, DataHeader, Echo, Waited};

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn segment(offset: u64) -> Body {
        Body::Segment(crate::engine::Segment { flow: 0, len: 100, offset, header: 40 })
    }

    fn recorder() -> SharedRecorder {
        let mut recorder = Recorder::new(Instant::ZERO);
        recorder.add_flow(FlowId([1; 16]), None);
        recorder.flow_mut(0).started = Some(Instant::ZERO);
        recorder.flow_mut(0).set_base(Instant::ZERO, Duration::from_millis(8));
        SharedRecorder::new(recorder)
    }

    #[test]
    fn in_order_delay_waits_for_the_hole_and_arrival_delay_does_not() {
        let mut shared = recorder();
        (0..3).for_each(|i| shared.on_sent(at(i), HostId(0), &segment(i * 100)));
        shared.on_lost(at(5), &segment(0));
        shared.borrow_mut().on_received(at(11), 0, ByteRange::new(100, 200));
        shared.borrow_mut().on_received(at(12), 0, ByteRange::new(200, 300));
        shared.borrow_mut().on_received(at(50), 0, ByteRange::new(0, 100));
        let recorder = shared.borrow();
        let delays = &recorder.flow(0).delays();
        assert_eq!(delays.owd.mean(), 70e6 / 3.0);
        assert_eq!(delays.in_order.mean(), (50.0 + 49.0 + 48.0) * 1e6 / 3.0);
        assert_eq!((delays.retransmitted.total(), delays.retransmitted.mean()), (100, 50e6));
        assert_eq!(delays.undisturbed.mean(), 10e6);
        assert_eq!(delays.queueing.mean(), (42.0 + 2.0 + 2.0) * 1e6 / 3.0);
        assert_eq!(recorder.flow(0).in_order_bytes, 300);
    }

    #[test]
    fn what_a_suite_adds_to_a_packet_is_no_payload() {
        let mut shared = recorder();
        for offset in [0, 1000] {
            let (counter, flow, echo, flags) = (0, FlowId([1; 16]), Echo::default(), DataFlags::default());
            let mut datagram = Vec::new();
            let waited = Waited::default();
            DataHeader { counter, flow, offset, echo, flags, waited }.emit(&mut datagram);
            datagram.extend_from_slice(&[0; 1000 + starhop_proto::wire::Plain::TRAILER]);
            shared.on_sent(at(offset), HostId(0), &Body::Datagram(datagram));
        }
        assert_eq!(shared.borrow().source_bytes(0), 2000);
        let first: Vec<_> = shared.borrow().contents[0].sent.within(ByteRange::new(1000, 1002)).collect();
        assert_eq!(first.iter().map(|sent| sent.at).collect::<Vec<_>>(), [at(1000)]);
    }

    #[test]
    fn bytes_handed_over_twice_are_a_problem() {
        let shared = recorder();
        shared.borrow_mut().on_received(at(1), 0, ByteRange::new(0, 100));
        shared.borrow_mut().on_received(at(2), 0, ByteRange::new(99, 150));
        assert_eq!(shared.borrow().problems().len(), 1);
    }
}
