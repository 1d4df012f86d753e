//! Makes the result document from the notes of both ends of every flow: the simulator's recorder hears them in the
//! order of time, so that every number has the same meaning as in a simulation.

use super::model::{LinkState, Lost, datagram_of};
use super::world::Tick;
use crate::result::{LinkResult, LinkSeries, rounded};
use crate::scenario::{LinkNames, Scenario};
use starhop_net::clock;
use starhop_net::security::{KeyFile, Keys};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::peer::Incarnation;
use starhop_proto::security::{WallClock, witness};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::wire::{Packet, Plain};
use starhop_sim::engine::{Body, HostId, LinkId, Network, Observer, Segment};
use starhop_sim::record::{Recorder, SharedRecorder};
use starhop_sim::run::{FlowSample, Simulation};

/// The event of some bytes of a flow. Events of one moment are sorted in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The source sent them.
    Sent,
    /// A packet with them was lost.
    Lost,
    /// They reached the client.
    Arrived,
}

/// Something that happened to bytes of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    /// Time since the scenario's beginning.
    pub(super) at: Instant,
    pub(super) what: What,
    pub(super) flow: usize,
    pub(super) range: ByteRange,
}

/// A flow as the recorder is to know it.
pub(super) struct Subject {
    /// Flows of the same name carry the same bytes.
    pub(super) content: FlowId,
    pub(super) start: Instant,
    /// Time at which its client had the last byte, if it did.
    pub(super) finished: Option<Instant>,
    /// Propagation and serialisation of a full packet, from each instant on.
    pub(super) bases: Vec<(Instant, Duration)>,
}

/// The recorder after the replay, and the time series of each flow.
pub(super) struct Recorded {
    pub(super) recorder: SharedRecorder,
    pub(super) series: Vec<Vec<FlowSample>>,
}

/// Tells a recorder all that happened until `end`.
pub(super) fn replay(
    scenario: &Scenario,
    subjects: &[Subject],
    mut events: Vec<Event>,
    end: Instant,
) -> Recorded {
    let mut recorder = SharedRecorder::new(Recorder::new(Instant::ZERO + scenario.warmup));
    for (index, subject) in subjects.iter().enumerate() {
        let mut recorder = recorder.borrow_mut();
        recorder.add_flow(subject.content, None);
        recorder.flow_mut(index).started = Some(subject.start);
        for &(at, base) in &subject.bases {
            recorder.flow_mut(index).set_base(at, base);
        }
    }
    events.sort_by_key(|event| (event.at, event.what));
    let mut series = vec![Vec::new(); subjects.len()];
    let mut boundary = Instant::ZERO + scenario.step;
    for event in &events {
        while event.at > boundary && boundary <= end {
            sample(&recorder, scenario.step, &mut series);
            boundary += scenario.step;
        }
        tell(&mut recorder, event);
    }
    while boundary <= end {
        sample(&recorder, scenario.step, &mut series);
        boundary += scenario.step;
    }
    for (index, at) in
        subjects.iter().enumerate().filter_map(|(i, subject)| subject.finished.map(|at| (i, at)))
    {
        recorder.borrow_mut().on_finished(at, index);
    }
    Recorded { recorder, series }
}

fn tell(recorder: &mut SharedRecorder, event: &Event) {
    let Event { at, what, flow, range } = *event;
    let segment = || {
        Body::Segment(Segment {
            flow: flow as u32,
            len: range.len() as u32,
            offset: range.start,
            ..Segment::default()
        })
    };
    match what {
        What::Sent => recorder.on_sent(at, HostId(0), &segment()),
        What::Lost => recorder.on_lost(at, &segment()),
        What::Arrived => recorder.borrow_mut().on_received(at, flow, range),
    }
}

fn sample(recorder: &SharedRecorder, step: Duration, series: &mut [Vec<FlowSample>]) {
    for (index, samples) in series.iter_mut().enumerate() {
        let mut recorder = recorder.borrow_mut();
        let record = recorder.flow_mut(index);
        let sums = std::mem::take(&mut record.step);
        samples.push(FlowSample {
            goodput_mbps: sums.in_order_bytes as f64 * 8e-6 / step.as_secs_f64(),
            owd_ms: sums.owd / sums.owd_bytes as f64 * 1e-6,
            in_order_owd_ms: sums.in_order_owd / sums.in_order_owd_bytes as f64 * 1e-6,
            // The kernel keeps these to itself.
            cwnd: f64::NAN,
            ssthresh: f64::NAN,
            srtt_ms: f64::NAN,
            in_flight: f64::NAN,
            backlog_bytes: f64::NAN,
            out_of_order_bytes: record.out_of_order() as f64,
            delivered_bytes: record.in_order_bytes as f64,
        });
    }
}

/// The keys of a run, to read the packets that its links lost.
pub(super) struct Seals {
    keys: Keys,
    epoch: u64,
    askers: Vec<Incarnation>,
}

impl Seals {
    /// The keys of a domain, and all incarnations that asked in the run. Packets may be a day and a half old.
    pub(super) fn new(file: &KeyFile, askers: Vec<Incarnation>) -> Self {
        let now = clock::now();
        let epoch = WallClock::new(now, clock::unix_nanos()).epoch(now);
        Self { keys: Keys::domain(file), epoch, askers }
    }
}

/// The flow and the bytes of a lost packet, where it is one of ours with payload.
pub(super) fn lost_bytes(
    (at, packet): &Lost,
    seals: Option<&mut Seals>,
    flow_of: impl Fn(FlowId) -> Option<usize>,
) -> Option<Event> {
    let mut datagram = datagram_of(packet)?.to_vec();
    let opened = match seals {
        Some(seals) => witness(&mut seals.keys, None, seals.epoch, &seals.askers, &mut datagram)?,
        None => datagram.get(..datagram.len().checked_sub(Plain::TRAILER)?)?,
    };
    let Ok(Packet::Data(data, payload)) = Packet::parse(opened) else { return None };
    let range = data.range(payload.len());
    let flow = flow_of(data.flow)?;
    (!range.is_empty()).then_some(Event { at: *at, what: What::Lost, flow, range })
}

/// Counts of every direction from the end of the warm-up to the last tick; those of a sky by their kinds.
pub(super) fn links(
    names: &[LinkNames],
    network: &Network,
    sky: Option<&Simulation>,
    warm: &Tick,
    last: &Tick,
) -> Vec<LinkResult> {
    let done = |LinkId(id): LinkId| {
        let (before, after) = (state(warm, id as usize), state(last, id as usize));
        (after.counters.since(before.counters), after.sent_bits - before.sent_bits)
    };
    let on_the_ground = names.iter().zip(network.link_ids()).map(|(names, id)| {
        let capacity = network.link(id).schedule().bits_between(warm.at, last.at);
        LinkResult::new(&names.name, names.direction, done(id), capacity)
    });
    let over_us = sky.map(|sky| sky.sky_links_elsewhere(done)).unwrap_or_default();
    let over_us = over_us.into_iter().map(|group| {
        LinkResult::new(&group.name, group.direction, (group.counters, group.sent_bits), group.capacity_bits)
    });
    on_the_ground.chain(over_us).collect()
}

fn state(tick: &Tick, index: usize) -> LinkState {
    tick.links.get(index).copied().unwrap_or_default()
}

/// The series of the first `count` directions; `ticks` are the ends of its steps.
pub(super) fn link_series(
    network: &Network,
    count: usize,
    step: Duration,
    ticks: &[Tick],
) -> Vec<LinkSeries> {
    let value = |v: f64| Some(rounded(v)).filter(|v| v.is_finite());
    let seconds = step.as_secs_f64();
    let series = |id: LinkId| {
        let index = id.0 as usize;
        let mut sent_before = 0.0;
        let mut series =
            LinkSeries { queue_ms: Vec::new(), sent_mbps: Vec::new(), capacity_mbps: Vec::new() };
        for tick in ticks {
            let LinkState { backlog, sent_bits, .. } = state(tick, index);
            let capacity = network.link(id).schedule().bits_between(tick.at.before(step), tick.at);
            series.queue_ms.push(value(backlog.as_millis_f64()));
            series.sent_mbps.push(value((sent_bits - sent_before) * 1e-6 / seconds));
            series.capacity_mbps.push(value(capacity * 1e-6 / seconds));
            sent_before = sent_bits;
        }
        series
    };
    network.link_ids().take(count).map(series).collect()
}
