//! The Consumer: asks for a flow, writes what arrives into a [`Sink`], and times out as the last resort.

mod congestion;
mod rto;
mod silence;
mod timeouts;
mod window;

use crate::config::Config;
use crate::hop::{Control, Heard, Intake, Outbox, Received, Uplinks, emit_interest};
use crate::name::{ByteRange, FlowId, RangeSet};
use crate::node::{Node, Transmit};
use crate::rng::Rng;
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{DataHeader, Interest, Notice, Packet, Plain, Suite};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use congestion::Congestion;
use core::net::SocketAddr;
use rto::Rto;
use silence::Silence;
use timeouts::Timeouts;
use window::Window;

/// Where received bytes go: a file, a reassembly buffer, a recorder.
pub trait Sink {
    /// Takes bytes that were not received before. Called in order of arrival, not of offset.
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]);
}

/// What a Consumer is to fetch.
#[derive(Clone, Debug)]
pub struct Request {
    /// The flow.
    pub flow: FlowId,
    /// The neighbour to ask.
    pub upstream: SocketAddr,
    /// The length, where it is known beforehand.
    pub length: Option<u64>,
    /// Bytes that the application has already.
    pub have: RangeSet,
}

/// What a Consumer tells its application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsumerEvent {
    /// Every byte up to the end arrived.
    Finished {
        /// The length of the flow.
        length: u64,
    },
    /// The Producer has no such flow.
    NoSuchName,
    /// A timeout passed without an answer; this is the `count`th in a row.
    TimedOut {
        /// Timeouts since the last new byte.
        count: u32,
    },
}

/// Counters of a Consumer since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConsumerStats {
    /// New bytes received.
    pub received_bytes: u64,
    /// Bytes received again.
    pub duplicate_bytes: u64,
    /// Interests sent.
    pub interests_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Ranges asked for again on the last hop.
    pub repairs: u64,
    /// End-to-end timeouts.
    pub timeouts: u64,
    /// Bytes that the application found to be wrong.
    pub rejected_bytes: u64,
    /// Datagrams that were refused or did not parse.
    pub bad_datagrams: u64,
}

/// Fetches one flow.
pub struct Consumer<S, C = Plain> {
    sink: S,
    suite: C,
    config: Config,
    flow: FlowId,
    uplinks: Uplinks,
    uplink: Slot,
    intake: Intake,
    progress: Progress,
    window: Window,
    /// The Consumer's own control, where the hops have none.
    congestion: Option<Congestion>,
    rto: Rto,
    silence: Silence,
    timeouts: Timeouts,
    outbox: Outbox,
    events: VecDeque<ConsumerEvent>,
    repairs: Vec<ByteRange>,
    stats: ConsumerStats,
}

/// How far the transfer is.
#[derive(Debug)]
struct Progress {
    received: RangeSet,
    length: Option<u64>,
    /// Everything below has been asked for or is here.
    asked_end: u64,
    /// Requests whose answer times the path: the first byte and when it was asked for.
    timed: VecDeque<(u64, Instant)>,
    /// When the last new byte arrived, or the last probe of a silent path left.
    last: Instant,
    /// Probes since the last new byte.
    probes: u32,
    is_started: bool,
    is_over: bool,
}

impl Progress {
    fn first_missing(&self) -> u64 {
        self.received.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }
}

/// Requests timed at once; on a long path every fourth or so is enough.
const MAX_TIMED: usize = 64;

impl<S: Sink, C: Suite> Consumer<S, C> {
    /// A Consumer that will ask for `request` once [`Consumer::start`] is called.
    pub fn new(config: Config, request: Request, sink: S, suite: C, seed: u64) -> Self {
        let config = config.for_suite(&suite);
        let mut uplinks = Uplinks::new(&config, Rng::new(seed));
        let uplink = uplinks.link(request.upstream, request.flow);
        let progress = Progress {
            received: request.have,
            length: request.length,
            asked_end: 0,
            timed: VecDeque::new(),
            last: Instant::ZERO,
            probes: 0,
            is_started: false,
            is_over: false,
        };
        Self {
            sink,
            suite,
            flow: request.flow,
            uplinks,
            uplink,
            intake: Intake::new(Instant::ZERO, &config, 0),
            progress,
            window: Window::new(config.receive_window, config.span_bytes(), config.store_ahead),
            congestion: config.end_to_end_control.then(|| Congestion::new(&config)),
            rto: Rto::new(config.initial_rto, config.min_rto, config.max_rto),
            silence: Silence::default(),
            timeouts: Timeouts::default(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            repairs: Vec::new(),
            stats: ConsumerStats::default(),
            config,
        }
    }

    /// Begins to ask.
    pub fn start(&mut self, now: Instant) {
        self.progress.is_started = true;
        self.progress.last = now;
        self.check_finished();
        self.refill(now);
    }

    /// Asks another neighbour from now on: the route changed.
    pub fn set_upstream(&mut self, now: Instant, upstream: SocketAddr) {
        let uplink = self.uplinks.link(upstream, self.flow);
        if uplink == self.uplink {
            return;
        }
        let left = core::mem::replace(&mut self.uplink, uplink);
        if let Some(requester) = self.uplinks.get_mut(uplink) {
            requester.resume();
        }
        self.outbox.feedback(left, self.flow);
        self.ask_anew(now);
    }

    /// Asks the neighbour, another than before, for all that has not arrived.
    fn ask_anew(&mut self, now: Instant) {
        self.window.on_new_path();
        self.progress.timed.clear();
        self.intake.on_new_path(now);
        self.repairs.extend(self.intake.expected().iter());
        self.outbox.ask_anew(self.uplink, self.flow, &self.repairs, self.config.request_limit);
        self.repairs.clear();
    }

    /// The bytes of `range` that arrived are wrong: they count as missing and are asked for again, of the upstream
    /// that is set now. A Consumer that had finished goes on.
    pub fn reject(&mut self, now: Instant, range: ByteRange) {
        let wrong: Vec<ByteRange> = self.progress.received.intersect(range).collect();
        for piece in wrong {
            self.progress.received.remove(piece);
            self.stats.rejected_bytes += piece.len();
            self.timeouts.on_ask(now, piece);
            let ask = self.intake.ask_again(now, piece);
            self.outbox.ask(self.uplink, self.flow, ask, Interest::DEFAULT_HOP_LIMIT);
        }
        if self.progress.length.is_some_and(|length| self.progress.first_missing() < length) {
            self.progress.is_over = false;
            self.events.retain(|event| !matches!(event, ConsumerEvent::Finished { .. }));
        }
    }

    /// The first offset that has not arrived: everything below is complete.
    pub fn in_order_end(&self) -> u64 {
        self.progress.first_missing()
    }

    /// The length of the flow, once it is known.
    pub fn length(&self) -> Option<u64> {
        self.progress.length
    }

    /// Counters since the start.
    pub fn stats(&self) -> ConsumerStats {
        self.stats
    }

    /// The smoothed hopRTT to the upstream, once it is measured.
    pub fn hop_rtt(&self) -> Option<Duration> {
        self.uplinks.get(self.uplink).filter(|requester| requester.is_measured()).map(|r| r.hop_rtt())
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, to change it.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// The suite.
    pub fn suite(&self) -> &C {
        &self.suite
    }

    /// The suite, to change its keys.
    pub fn suite_mut(&mut self) -> &mut C {
        &mut self.suite
    }

    /// Asks for more as far as the window allows.
    fn refill(&mut self, now: Instant) {
        let step = self.config.step_bytes();
        while self.progress.is_started && !self.progress.is_over {
            let from = self.progress.asked_end;
            let end = self.progress.length.unwrap_or(u64::MAX >> 2);
            let limit = self.congestion.as_ref().map_or(u64::MAX, Congestion::window);
            let room = self.window.size().min(limit).saturating_sub(self.intake.expected().byte_count());
            if from >= end || room < step {
                return;
            }
            let next = ByteRange::at(from, step).intersect(ByteRange::new(0, end));
            let Some(gap) = self.progress.received.gaps(next).next() else {
                // What is here need not be asked for: on to the end of that piece.
                let piece = self.progress.received.gaps(ByteRange::new(from, end)).next();
                self.progress.asked_end = piece.map_or(end, |gap| gap.start);
                continue;
            };
            self.progress.asked_end = gap.end;
            if self.progress.timed.len() < MAX_TIMED {
                self.progress.timed.push_back((gap.start, now));
            }
            self.timeouts.on_ask(now, gap);
            let ask = self.intake.ask(gap);
            self.outbox.ask(self.uplink, self.flow, ask, Interest::DEFAULT_HOP_LIMIT);
        }
    }

    fn on_data(&mut self, now: Instant, from: SocketAddr, header: DataHeader, payload: &[u8]) {
        if header.flow != self.flow || self.progress.is_over {
            return;
        }
        // Only who was asked may answer.
        let Some(link) = self.uplinks.find(from, self.flow) else {
            self.stats.bad_datagrams += 1;
            return;
        };
        let range = header.range(payload.len());
        let received = Received::data(&header, payload.len());
        let heard = self.uplinks.on_packet(now, link, received);
        if header.flags.no_such_name {
            self.progress.is_over = true;
            self.events.push_back(ConsumerEvent::NoSuchName);
            return;
        }
        self.accept(now, range, payload);
        if header.flags.end {
            self.progress.length = Some(range.end);
            self.intake.on_length(range.end);
        }
        if let Some(heard) = heard {
            self.on_heard(now, &heard);
        }
        self.check_finished();
        self.refill(now);
    }

    /// Writes what is new of a packet, as far as it was asked for.
    fn accept(&mut self, now: Instant, range: ByteRange, payload: &[u8]) {
        let asked = range.intersect(ByteRange::new(0, self.progress.asked_end));
        let mut new_bytes = 0;
        for gap in self.progress.received.gaps(asked) {
            let start = (gap.start - range.start) as usize;
            self.sink.write(now, gap, &payload[start..start + gap.len() as usize]);
            new_bytes += gap.len();
        }
        self.stats.duplicate_bytes += range.len() - new_bytes;
        if new_bytes == 0 {
            return;
        }
        self.stats.received_bytes += new_bytes;
        self.progress.received.insert(asked);
        self.window.on_bytes(now, new_bytes);
        self.silence.on_bytes(now);
        if let Some(congestion) = &mut self.congestion {
            congestion.on_bytes(new_bytes);
        }
        self.time_path(now, range);
        self.progress.last = now;
        self.progress.probes = 0;
    }

    fn time_path(&mut self, now: Instant, range: ByteRange) {
        while let Some(&(offset, asked)) = self.progress.timed.front() {
            if offset >= range.end {
                return;
            }
            self.progress.timed.pop_front();
            // Only the very packet times it: one that was lost, or repaired, tells about the repair.
            if offset >= range.start && self.progress.probes == 0 {
                self.window.on_rtt(now.since(asked));
                if let Some(congestion) = &mut self.congestion {
                    congestion.on_rtt(now, now.since(asked));
                }
                self.rto.on_sample(now.since(asked));
            }
        }
    }

    fn on_heard(&mut self, now: Instant, heard: &Heard) {
        if heard.link != self.uplink {
            return;
        }
        if heard.is_new_neighbour {
            self.ask_anew(now);
        }
        let Some(requester) = self.uplinks.get_mut(heard.link) else { return };
        let missing = |after, before| requester.missing_between(after, before);
        let explained = self.intake.on_seen(heard.seen, heard.number, missing, &mut self.repairs);
        if requester.settle(explained, heard.lost) > 0 {
            self.intake.on_unexplained_loss(now, &mut self.repairs);
        }
        let is_feedback_due = requester.feedback_due(now);
        self.send_repairs(self.config.repair_hop_limit);
        if is_feedback_due && self.outbox.is_empty() && !self.progress.is_over {
            self.outbox.feedback(self.uplink, self.flow);
        }
    }

    fn on_notice(&mut self, now: Instant, from: SocketAddr, notice: Notice) {
        if notice.flow != self.flow || self.progress.is_over {
            return;
        }
        let Some(link) = self.uplinks.find(from, self.flow) else { return };
        let Some(heard) = self.uplinks.on_packet(now, link, Received::notice(&notice)) else { return };
        self.on_heard(now, &heard);
        if !notice.range.is_empty() {
            self.intake.on_notice(now, notice.range);
            // LEOTP section III.B: a Void Packet Header restarts the timer of what it names.
            self.timeouts.on_notice(now, notice.range);
        }
    }

    fn send_repairs(&mut self, hop_limit: u8) {
        if hop_limit == self.config.repair_hop_limit {
            self.stats.repairs += self.repairs.len() as u64;
        }
        self.outbox.ask_repairs(self.uplink, self.flow, &self.repairs, self.config.request_limit, hop_limit);
        self.repairs.clear();
    }

    fn check_finished(&mut self) {
        let Some(length) = self.progress.length else { return };
        if !self.progress.is_over && self.progress.first_missing() >= length {
            self.progress.is_over = true;
            self.events.push_back(ConsumerEvent::Finished { length });
        }
    }

    /// When the end-to-end timeout passes. A silent path is probed, with a timeout that backs off; otherwise
    /// every request has its own.
    fn timeout_due(&self) -> Option<Instant> {
        if !self.progress.is_started || self.progress.is_over {
            return None;
        }
        let silent = self.progress.last + self.rto.timeout(self.progress.probes);
        let due = self.timeouts.next_due(&self.rto)?;
        Some(if self.progress.probes > 0 { due.max(silent) } else { due })
    }

    /// When a flow that has stopped is to be asked about. (The published protocols have no such question.)
    fn probe_due(&self) -> Option<Instant> {
        let is_asking = self.config.repair_tries > 1 && !self.intake.expected().is_empty();
        is_asking.then(|| self.silence.due()).flatten()
    }

    /// Asks for one packet of what is due, all the way up: its answer tells who is there now.
    fn probe(&mut self, now: Instant) {
        self.silence.on_probe();
        let Some(missing) = self.intake.expected().first() else { return };
        let packet = missing.prefix(self.config.payload as u64);
        // Its answer may be to either request, and times none (Karn's rule).
        self.progress.timed.retain(|(offset, _)| !packet.contains(ByteRange::at(*offset, 1)));
        let ask = self.intake.ask_again(now, packet);
        self.outbox.ask(self.uplink, self.flow, ask, Interest::DEFAULT_HOP_LIMIT);
    }

    /// The last resort: asks once more, all the way up, for what has waited too long.
    fn on_timeout(&mut self, now: Instant) {
        let is_silent = now.since(self.progress.last) >= self.rto.timeout(0);
        while let Some((range, tries)) = self.timeouts.take_due(now, &self.rto) {
            let missing = self.intake.expected().intersect(range).next();
            let Some(missing) = missing else { continue };
            if !is_silent && (missing.start >= self.intake.seen_end() || self.intake.is_tracking(missing)) {
                // Its turn has not come yet, or the hops know of its loss and are at it.
                self.timeouts.put_back(now, range, tries);
                continue;
            }
            self.stats.timeouts += 1;
            self.progress.timed.clear();
            self.timeouts.put_back(now, range, tries + 1);
            self.repairs.extend(self.intake.expected().intersect(range));
            for missing in self.repairs.drain(..) {
                let ask = self.intake.ask_again(now, missing);
                self.outbox.ask(self.uplink, self.flow, ask, Interest::DEFAULT_HOP_LIMIT);
            }
            if is_silent {
                // The others would meet the same silence: one asks for all.
                self.progress.probes += 1;
                self.progress.last = now;
                self.events.push_back(ConsumerEvent::TimedOut { count: self.progress.probes });
                return;
            }
        }
    }
}

impl<S: Sink, C: Suite> Node for Consumer<S, C> {
    type Event = ConsumerEvent;

    fn handle_datagram(&mut self, now: Instant, from: SocketAddr, datagram: &mut [u8]) {
        match self.suite.open(now, from, datagram).ok().map(Packet::parse) {
            Some(Ok(Packet::Data(header, payload))) => self.on_data(now, from, header, payload),
            Some(Ok(Packet::Notice(notice))) => self.on_notice(now, from, notice),
            // Nobody asks a Consumer.
            Some(Ok(Packet::Interest(_)) | Err(_)) | None => self.stats.bad_datagrams += 1,
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.uplinks.on_timeout(now).is_some() {
            self.intake.on_unexplained_loss(now, &mut self.repairs);
        }
        let hop_rtt = self.uplinks.hop_rtt(self.uplink);
        self.intake.on_timeout(now, hop_rtt, &mut self.repairs);
        self.send_repairs(self.config.repair_hop_limit);
        if self.probe_due().is_some_and(|at| at <= now) {
            self.probe(now);
        }
        if self.timeout_due().is_some_and(|at| at <= now) {
            self.on_timeout(now);
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        loop {
            let Control::Interest(request) = self.outbox.pop()? else { continue };
            let of_flow = (self.intake.epoch(), Rate::UNLIMITED);
            let sent = emit_interest(&mut self.uplinks, &mut self.suite, now, request, of_flow, out);
            if let Some(transmit) = sent {
                self.stats.interests_sent += 1;
                self.stats.sent_bytes += transmit.len as u64;
                return Some(transmit);
            }
        }
    }

    fn poll_event(&mut self) -> Option<ConsumerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.progress.is_over {
            return None;
        }
        let hop_rtt = self.uplinks.hop_rtt(self.uplink);
        let timeouts = [
            self.timeout_due(),
            self.probe_due(),
            self.intake.next_timeout(hop_rtt),
            self.uplinks.next_timeout().if_ever(),
        ];
        timeouts.into_iter().flatten().min()
    }
}
