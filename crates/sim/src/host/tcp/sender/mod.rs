//! The sending half of a connection.
//!
//! [`Sender::on_segment`], [`Sender::on_timeout`] and [`Sender::provide`] are its inputs, [`Sender::poll_transmit`]
//! and [`Sender::poll_timeout`] its outputs. The machines in this folder decide; this file and `acks.rs` route.

mod acks;
mod limit;
mod pacing;
mod prr;
mod rack;
mod rate_sample;
mod rto;
mod scoreboard;
#[cfg(test)]
mod tests;

pub(super) use rto::Rtt;

use super::config::{LossDetection, TcpConfig};
use super::congestion::{CongestionControl, Loss, LossKind, Recovery, Setup};
use crate::engine::{
    IP_HEADER, TCP_HEADER, TCP_TIMESTAMPS, TcpKind, TcpSegment, TcpStats, WindowSample, XCP_HEADER,
};
use crate::link::XcpHeader;
use limit::CwndLimit;
use pacing::Pacer;
use prr::Prr;
use rack::Rack;
use rate_sample::RateMeter;
use scoreboard::Scoreboard;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// Header bytes of a full segment on the wire, IP's included.
pub(crate) const OVERHEAD: u32 = IP_HEADER + TCP_HEADER + TCP_TIMESTAMPS;
/// A tail loss probe waits this much longer than two round trips (as in Linux).
const PROBE_SLACK: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    /// Waits for a SYN.
    Listens,
    /// Answered it, and waits for the third segment; the answer is to be sent (again) at this time.
    Accepts(Instant),
    /// Sends.
    Open,
}

/// The state of the connection with respect to losses and their repair.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Open,
    /// Fast recovery, until everything below `high` is acknowledged.
    Recovery {
        high: u64,
        prr: Prr,
        window: f64,
    },
    /// After a timeout, until everything below `high` is acknowledged.
    Loss {
        high: u64,
    },
}

/// The window before a reduction, restored if the reduction was a mistake.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Undo {
    cwnd: f64,
    ssthresh: f64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Probe {
    /// Everything that had been sent when the probe was.
    end: u64,
    is_repeat: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Timers {
    retransmission: Option<Instant>,
    probe: Option<Instant>,
    reordering: Option<Instant>,
    persist: Option<Instant>,
    pace: Option<Instant>,
}

impl Timers {
    fn next(&self) -> Option<Instant> {
        let all = [self.retransmission, self.probe, self.reordering, self.persist, self.pace];
        all.into_iter().flatten().min()
    }
}

/// The bytes that the application has provided.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Data {
    /// Bytes, from the first on.
    bytes: u64,
    /// There will be no more.
    is_all: bool,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(in crate::host) struct Sender {
    config: TcpConfig,
    flow: u32,
    link: Link,
    control: Box<dyn CongestionControl>,
    board: Scoreboard,
    rtt: Rtt,
    rack: Rack,
    meter: RateMeter,
    limit: CwndLimit,
    pacer: Pacer,
    phase: Phase,
    undo: Option<Undo>,
    probe: Option<Probe>,
    /// The next segment leaves in spite of the window: after a timeout, or as a probe.
    must_send: bool,
    /// The segment that a probe repeats.
    repeat: Option<u64>,
    timers: Timers,
    data: Data,
    /// The first byte for which the receiver has no room.
    right_edge: u64,
    /// The peer's clock, to send back.
    echo: Option<Instant>,
    /// Marks that the peer reported.
    marks: u64,
    /// Losses that were not reported with an acknowledgement yet.
    untold_losses: u64,
    /// Bytes that the peer has asked with.
    asked: u64,
    stats: TcpStats,
}

impl Sender {
    /// A sender that waits for its peer to open, or for [`Self::open`].
    pub(in crate::host) fn new(config: &TcpConfig, flow: u32, seed: u64) -> Self {
        let setup = Setup {
            mss: config.mss,
            overhead: OVERHEAD,
            initial_window: f64::from(config.initial_window),
            initial_ssthresh: config.initial_ssthresh.map_or(f64::INFINITY, f64::from),
            receive_window: config.receive_window as f64 / f64::from(config.mss),
            tuning: config.tuning,
            hystart: config.hystart,
            seed,
        };
        Self {
            flow,
            link: Link::Listens,
            control: config.control.construct(&setup),
            board: Scoreboard::default(),
            rtt: Rtt::new(config.min_rto),
            rack: Rack::new(),
            meter: RateMeter::default(),
            limit: CwndLimit::default(),
            pacer: Pacer::default(),
            phase: Phase::Open,
            undo: None,
            probe: None,
            must_send: false,
            repeat: None,
            timers: Timers::default(),
            data: Data::default(),
            right_edge: 0,
            echo: None,
            marks: 0,
            untold_losses: 0,
            asked: 0,
            stats: TcpStats::default(),
            config: config.clone(),
        }
    }

    /// The connection is open without a handshake.
    pub(in crate::host) fn open(&mut self) {
        self.link = Link::Open;
        // The room of every receiver of the connection, as its first segment would have said.
        let room = self.config.split_buffer.unwrap_or(u64::MAX);
        self.right_edge = self.config.receive_window.min(room);
    }

    /// Whether data may flow.
    pub(in crate::host) fn is_open(&self) -> bool {
        self.link == Link::Open
    }

    /// The application has given `bytes` bytes in all, and no more will follow where `is_all`.
    pub(in crate::host) fn provide(&mut self, bytes: u64, is_all: bool) {
        self.data = Data { bytes, is_all };
    }

    /// Bytes that the peer has asked with.
    pub(in crate::host) fn asked(&self) -> u64 {
        self.asked
    }

    /// Bytes that the application gave and that were never sent.
    pub(in crate::host) fn unsent(&self) -> u64 {
        self.data.bytes.saturating_sub(self.board.next() * u64::from(self.config.mss))
    }

    /// Everything below this byte is acknowledged.
    pub(in crate::host) fn acknowledged(&self) -> u64 {
        (self.board.first() * u64::from(self.config.mss)).min(self.data.bytes)
    }

    /// The counters of the sender.
    pub(in crate::host) fn stats(&self) -> TcpStats {
        self.stats
    }

    /// Its window now.
    pub(in crate::host) fn window(&self) -> WindowSample {
        WindowSample {
            cwnd: self.cwnd(),
            ssthresh: self.control.ssthresh(),
            srtt: self.rtt.srtt(),
            in_flight: self.board.in_flight(),
        }
    }

    /// The window in force, segments.
    fn cwnd(&self) -> f64 {
        match self.phase {
            Phase::Recovery { window, .. } if self.control.recovery() == Recovery::Proportional => window,
            _ => self.control.cwnd(),
        }
    }

    /// A segment of the peer arrived.
    pub(in crate::host) fn on_segment(&mut self, now: Instant, segment: &TcpSegment) {
        self.echo = Some(segment.timestamp);
        self.asked = self.asked.max(segment.seq);
        match (segment.kind, self.link) {
            (TcpKind::Syn, Link::Listens | Link::Accepts(_)) => self.link = Link::Accepts(now),
            (TcpKind::Ack, Link::Accepts(_)) => {
                self.link = Link::Open;
                if let Some(echo) = segment.echo {
                    let rtt = now.since(echo);
                    self.rtt.on_sample(now, rtt, rtt);
                }
                self.on_ack(now, segment);
            }
            (TcpKind::Ack, Link::Open) => self.on_ack(now, segment),
            _ => {}
        }
    }

    /// Time passed.
    pub(in crate::host) fn on_timeout(&mut self, now: Instant) {
        let is_due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        if self.control.poll_timeout().is_some_and(|at| at <= now) {
            self.control.on_timer(now);
        }
        if is_due(self.timers.reordering) {
            self.timers.reordering = None;
            self.find_losses(now);
        }
        if is_due(self.timers.probe) {
            self.timers.probe = None;
            self.begin_probe(now);
        }
        if is_due(self.timers.retransmission) {
            self.on_retransmission_timeout(now);
        }
    }

    /// Time of the next timer.
    pub(in crate::host) fn poll_timeout(&self) -> Option<Instant> {
        match self.link {
            Link::Listens => None,
            Link::Accepts(at) => Some(at),
            Link::Open => self.timers.next().into_iter().chain(self.control.poll_timeout()).min(),
        }
    }

    /// The next segment to send.
    pub(in crate::host) fn poll_transmit(&mut self, now: Instant) -> Option<TcpSegment> {
        match self.link {
            Link::Listens => return None,
            Link::Accepts(at) if at > now => return None,
            Link::Accepts(_) => {
                self.link = Link::Accepts(now + self.rtt.rto());
                self.rtt.back_off();
                return Some(self.segment(now, TcpKind::SynAck));
            }
            Link::Open => {}
        }
        if self.timers.persist.is_some_and(|at| at <= now) {
            self.rtt.back_off();
            self.timers.persist = Some(now + self.rtt.rto());
            return Some(self.segment(now, TcpKind::Data));
        }
        self.timers.pace = None;
        let is_limited = f64::from(self.board.in_flight()) >= self.cwnd().floor().max(1.0);
        if is_limited && !self.must_send {
            self.stop(true);
            return None;
        }
        let Some(segment) = self.choose() else {
            self.stop(false);
            return None;
        };
        let rate = self.pacing_rate();
        if rate.is_some() && self.pacer.next() > now && !self.must_send {
            self.timers.pace = Some(self.pacer.next());
            self.stop(false);
            return None;
        }
        self.must_send = false;
        Some(self.send(now, segment, rate))
    }

    /// The segment that is to be sent next: the first lost one, or a new one.
    fn choose(&mut self) -> Option<u64> {
        if let Some(repeat) = self.repeat.take().filter(|repeat| *repeat >= self.board.first()) {
            return Some(repeat);
        }
        if let Some(lost) = self.board.first_lost() {
            return Some(lost);
        }
        let next = self.board.next();
        let (start, end) = self.extent(next);
        let is_whole = end - start == u64::from(self.config.mss) || (self.data.is_all && end > start);
        if !is_whole {
            self.meter.on_app_limited(self.board.in_flight());
            return None;
        }
        (end <= self.right_edge).then_some(next)
    }

    /// The bytes of a segment, as far as the application gave them.
    fn extent(&self, segment: u64) -> (u64, u64) {
        let mss = u64::from(self.config.mss);
        let start = segment * mss;
        (start, (start + mss).min(self.data.bytes).max(start))
    }

    /// Nothing more can be sent now.
    fn stop(&mut self, is_cwnd_limited: bool) {
        let board = &self.board;
        self.limit.on_stop(is_cwnd_limited, board.outstanding(), board.first(), board.next());
        self.must_send = false;
    }

    fn send(&mut self, now: Instant, segment: u64, rate: Option<Rate>) -> TcpSegment {
        let snapshot = self.meter.snapshot(now, self.board.in_flight(), self.board.lost_total());
        let is_repeat = segment < self.board.next();
        if is_repeat {
            self.board.send_again(segment, now, snapshot);
            self.stats.retransmitted += 1;
        } else {
            self.board.send_next(now, snapshot);
        }
        self.stats.segments += 1;
        if let Phase::Recovery { prr, .. } = &mut self.phase {
            prr.on_sent();
        }
        if let Some(rate) = rate {
            self.pacer.on_sent(now, self.config.mss + OVERHEAD, rate);
        }
        // The timer runs from the transmission of the first segment, or from the last progress.
        if self.timers.retransmission.is_none() || segment == self.board.first() {
            self.timers.retransmission = Some(now + self.rtt.rto());
        }
        if !is_repeat {
            self.arm_probe(now);
        }
        self.control.on_sent(now, f64::from(self.board.in_flight()));
        let (start, end) = self.extent(segment);
        let is_last = self.data.is_all && end == self.data.bytes;
        let (len, xcp) = ((end - start) as u32, self.xcp());
        TcpSegment { len, seq: start, is_last, xcp, ..self.segment(now, TcpKind::Data) }
    }

    fn segment(&self, now: Instant, kind: TcpKind) -> TcpSegment {
        let seq = self.board.next() * u64::from(self.config.mss);
        TcpSegment { flow: self.flow, kind, seq, timestamp: now, echo: self.echo, ..TcpSegment::default() }
    }

    fn xcp(&self) -> Option<XcpHeader> {
        let srtt = self.rtt.srtt().unwrap_or_default();
        let demand = self.control.xcp_demand(srtt)?;
        let (cwnd, packet) = (self.cwnd().max(1.0), self.xcp_packet());
        Some(XcpHeader::wish(cwnd * packet, srtt, demand * packet, packet as u32))
    }

    /// Bytes on the wire of a full segment with XCP's header: routers count bytes, controls segments.
    fn xcp_packet(&self) -> f64 {
        f64::from(self.config.mss + OVERHEAD + XCP_HEADER)
    }

    fn pacing_rate(&self) -> Option<Rate> {
        if let Some(rate) = self.control.pacing_rate() {
            return Some(rate);
        }
        let srtt = self.rtt.srtt().filter(|_| self.config.pacing)?;
        let bytes = self.config.mss + OVERHEAD;
        Some(pacing::window_rate(self.cwnd(), self.control.ssthresh(), srtt, bytes))
    }

    /// A tail loss probe is due two round trips after the last new segment, unless the timeout comes before
    /// (RFC 8985, section 7.2).
    fn arm_probe(&mut self, now: Instant) {
        self.timers.probe = None;
        let is_calm = self.phase == Phase::Open && self.board.sacked_count() == 0 && self.probe.is_none();
        if self.config.loss_detection != LossDetection::Rack || !is_calm || self.board.in_flight() == 0 {
            return;
        }
        let Some(srtt) = self.rtt.srtt() else { return };
        // A single segment may wait for the peer's delayed acknowledgement.
        let slack = if self.board.outstanding() == 1 { self.config.min_rto } else { PROBE_SLACK };
        let at = now + srtt + srtt + slack;
        if self.timers.retransmission.is_some_and(|timeout| at < timeout) {
            self.timers.probe = Some(at);
        }
    }

    /// Sends a new segment, or the last one again, to draw an acknowledgement (RFC 8985, section 7.3).
    fn begin_probe(&mut self, now: Instant) {
        if self.board.outstanding() == 0 {
            return;
        }
        self.timers.retransmission = Some(now + self.rtt.rto());
        let (start, end) = self.extent(self.board.next());
        let has_new = end > start
            && end <= self.right_edge
            && (self.data.is_all || end - start == u64::from(self.config.mss));
        self.probe = Some(Probe { end: self.board.next(), is_repeat: !has_new });
        self.must_send = true;
        self.stats.probes += 1;
        self.repeat = if has_new { None } else { self.board.next().checked_sub(1) };
    }

    fn loss(&self, now: Instant, kind: LossKind) -> Loss {
        Loss {
            now,
            kind,
            in_flight: f64::from(self.board.in_flight()),
            srtt: self.rtt.srtt().unwrap_or_default(),
            min_rtt: self.rtt.min(),
        }
    }

    fn on_retransmission_timeout(&mut self, now: Instant) {
        self.timers.probe = None;
        self.timers.reordering = None;
        if self.board.outstanding() == 0 {
            self.timers.retransmission = None;
            return;
        }
        self.stats.timeouts += 1;
        let loss = self.loss(now, LossKind::Timeout);
        let latest = match self.config.loss_detection {
            LossDetection::Rack => now.before(self.rack.rtt()),
            LossDetection::DupAck => now,
            LossDetection::NoSack => {
                self.board.forget_sacked();
                now
            }
        };
        let (cwnd, ssthresh) = (self.cwnd(), self.control.ssthresh());
        self.board.lose_all(latest);
        if self.phase == Phase::Open {
            self.undo = Some(Undo { cwnd, ssthresh });
            self.control.on_loss(&loss);
        } else {
            self.control.on_repeated_timeout(&loss);
        }
        self.phase = Phase::Loss { high: self.board.next() };
        self.probe = None;
        self.must_send = true;
        self.rtt.back_off();
        self.timers.retransmission = Some(now + self.rtt.rto());
    }
}
