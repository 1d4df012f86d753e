//! The receiving half of a connection: reassembly, and when to acknowledge.

use super::config::TcpConfig;
use super::runs::Runs;
use super::sender::Rtt;
use crate::engine::{SackBlocks, TcpKind, TcpSegment};
use crate::link::XcpHeader;
use starhop_proto::name::ByteRange;
use starhop_proto::time::{Duration, Instant};

/// Segments at the start that are acknowledged one by one (quick acknowledgements, as in Linux).
const QUICK_ACKS: u32 = 16;
/// Ranges that are remembered for SACK blocks (as in Linux).
const REMEMBERED: usize = 4;
/// A window field has 16 bits (RFC 9293), shifted at most this far (RFC 7323, section 2.3).
const WINDOW_FIELD: u64 = 65_535;
const MOST_SHIFT: u32 = 14;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Link {
    Closed,
    /// Sends SYN, again at this time.
    Opens(Instant),
    /// Sends the request, and repeats it at this time, until data beyond `beyond` has come.
    Requests {
        at: Instant,
        beyond: u64,
    },
    Open,
}

/// The time at which an acknowledgement is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Nothing,
    Later(Instant),
    Now,
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(in crate::host) struct Receiver {
    config: TcpConfig,
    flow: u32,
    link: Link,
    rtt: Rtt,
    next: u64,
    beyond: Runs,
    /// Ranges of `beyond`, those that changed last first.
    recent: Vec<ByteRange>,
    duplicate: Option<ByteRange>,
    /// Length of the flow; known once its last segment has come.
    end: Option<u64>,
    /// Bytes beyond `next` for which the owner has room.
    room: u64,
    advertised: u64,
    shift: u32,
    due: Due,
    unacknowledged: u32,
    quick: u32,
    acknowledged: u64,
    echo: Option<Instant>,
    marks: u64,
    xcp: Option<XcpHeader>,
    /// Bytes that the client has asked with, and how many of them nothing has come for.
    asked: u64,
    unanswered: u32,
    /// Round trip of the handshake.
    handshake_rtt: Option<Duration>,
}

impl Receiver {
    /// A receiver with a buffer of `buffer` bytes.
    pub(in crate::host) fn new(config: &TcpConfig, flow: u32, buffer: u64) -> Self {
        let shift = (0..MOST_SHIFT).find(|shift| buffer >> shift <= WINDOW_FIELD).unwrap_or(MOST_SHIFT);
        Self {
            flow,
            link: Link::Closed,
            rtt: Rtt::new(config.min_rto),
            next: 0,
            beyond: Runs::default(),
            recent: Vec::new(),
            duplicate: None,
            end: None,
            room: buffer,
            advertised: if config.handshake { 0 } else { buffer },
            shift,
            due: Due::Nothing,
            unacknowledged: 0,
            quick: QUICK_ACKS,
            acknowledged: 0,
            echo: None,
            marks: 0,
            xcp: None,
            asked: 0,
            unanswered: 0,
            handshake_rtt: None,
            config: config.clone(),
        }
    }

    /// Opens the connection, with a handshake or without.
    pub(in crate::host) fn open(&mut self, now: Instant) {
        self.link = if self.config.handshake { Link::Opens(now) } else { Link::Open };
    }

    /// The application asks with `len` bytes: at once, or as soon as the connection is open.
    pub(in crate::host) fn request(&mut self, now: Instant, len: u32) {
        self.asked += u64::from(len);
        self.unanswered += len;
        match self.link {
            Link::Open => self.link = Link::Requests { at: now, beyond: self.next },
            // More of a question: it leaves at once, and a repetition has all of it.
            Link::Requests { beyond, .. } => self.link = Link::Requests { at: now, beyond },
            Link::Opens(_) | Link::Closed => {}
        }
    }

    /// Bytes that the application has asked with.
    pub(in crate::host) fn asked(&self) -> u64 {
        self.asked
    }

    /// The round trip of the handshake, once it is over.
    pub(in crate::host) fn handshake_rtt(&self) -> Option<Duration> {
        self.handshake_rtt
    }

    /// The bytes up to here have arrived.
    pub(in crate::host) fn next(&self) -> u64 {
        self.next
    }

    /// All bytes of the flow have arrived.
    pub(in crate::host) fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }

    /// A segment arrived; `new` is called with every range that had not arrived before.
    pub(in crate::host) fn on_segment(
        &mut self,
        now: Instant,
        segment: &TcpSegment,
        new: impl FnMut(ByteRange),
    ) {
        match (segment.kind, self.link) {
            (TcpKind::SynAck, Link::Opens(_)) => {
                if let Some(echo) = segment.echo {
                    let rtt = now.since(echo);
                    self.rtt.on_sample(now, rtt, rtt);
                    self.handshake_rtt = Some(rtt);
                }
                self.echo = Some(segment.timestamp);
                self.link = Link::Requests { at: now, beyond: self.next };
            }
            (TcpKind::SynAck, Link::Requests { beyond, .. }) => {
                self.link = Link::Requests { at: now, beyond };
            }
            (TcpKind::SynAck, Link::Open) => self.due = Due::Now,
            (TcpKind::Data, Link::Requests { .. } | Link::Open) => {
                if matches!(self.link, Link::Requests { beyond, .. } if segment.range().end > beyond) {
                    self.link = Link::Open;
                    self.unanswered = 0;
                    self.rtt.end_back_off();
                }
                self.on_data(now, segment, new);
            }
            _ => {}
        }
    }

    fn on_data(&mut self, now: Instant, segment: &TcpSegment, mut new: impl FnMut(ByteRange)) {
        let range = segment.range();
        if range.start <= self.acknowledged {
            self.echo = self.echo.max(Some(segment.timestamp));
        }
        self.marks += u64::from(segment.is_marked);
        self.note_xcp(segment);
        if range.is_empty() || range.end > self.advertised {
            self.due = Due::Now;
            return;
        }
        if segment.is_last {
            self.end = Some(range.end);
        }
        let is_hole_open = !self.beyond.is_empty();
        if range.start == self.next && !is_hole_open {
            new(range);
            self.next = range.end;
            return self.acknowledge_later(now);
        }
        self.reassemble(range, new);
        // A segment that is out of order, or fills a hole, is acknowledged at once (RFC 5681, section 4.2).
        self.due = Due::Now;
    }

    fn reassemble(&mut self, range: ByteRange, mut new: impl FnMut(ByteRange)) {
        let fresh = ByteRange::new(range.start.max(self.next), range.end);
        let mut count = 0;
        let run = self.beyond.insert(fresh.start, fresh.end, |from, to| {
            count += to - from;
            new(ByteRange::new(from, to));
        });
        if count < range.len() {
            self.duplicate = Some(range);
        }
        if run.0 <= self.next {
            self.next = self.next.max(run.1);
            self.beyond.remove_below(self.next);
            self.recent.retain(|known| known.start > run.1);
        } else if count > 0 {
            self.recent.retain(|known| known.end < run.0 || known.start > run.1);
            self.recent.insert(0, ByteRange::new(run.0, run.1));
            self.recent.truncate(REMEMBERED);
        }
    }

    fn note_xcp(&mut self, segment: &TcpSegment) {
        let Some(header) = segment.xcp else { return };
        // One acknowledgement answers several segments: their changes of the window add up.
        let before = self.xcp.map_or(0.0, |xcp| xcp.feedback_bytes);
        self.xcp = Some(XcpHeader { feedback_bytes: before + header.feedback_bytes, ..header });
    }

    fn acknowledge_later(&mut self, now: Instant) {
        self.unacknowledged += 1;
        if self.unacknowledged >= self.config.ack_every || self.quick > 0 || self.is_complete() {
            self.due = Due::Now;
        } else if self.due == Due::Nothing {
            self.due = Due::Later(now + self.config.delayed_ack);
        }
    }

    /// The owner has room for `room` bytes beyond those that arrived in order.
    pub(in crate::host) fn set_room(&mut self, room: u64) {
        self.room = room;
        // A window that was nearly shut and opens is worth a segment (RFC 9293, section 3.8.6.2.2).
        let left = self.advertised.saturating_sub(self.next);
        let mss = u64::from(self.config.mss);
        if self.link == Link::Open && left < 2 * mss && room >= left + 2 * mss {
            self.due = Due::Now;
        }
    }

    /// As [`Self::set_room`], for an owner whose room changes with time: every two further segments of room are
    /// advertised.
    pub(in crate::host) fn open_room(&mut self, room: u64) {
        self.room = room;
        let right_edge = self.next + self.room;
        if self.link == Link::Open && right_edge >= self.advertised + 2 * u64::from(self.config.mss) {
            self.due = Due::Now;
        }
    }

    /// Time of the next timer.
    pub(in crate::host) fn poll_timeout(&self) -> Option<Instant> {
        let handshake = match self.link {
            Link::Opens(at) | Link::Requests { at, .. } => Some(at),
            Link::Closed | Link::Open => None,
        };
        let acknowledgement = if let Due::Later(at) = self.due { Some(at) } else { None };
        handshake.into_iter().chain(acknowledgement).min()
    }

    /// The next segment to send.
    pub(in crate::host) fn poll_transmit(&mut self, now: Instant) -> Option<TcpSegment> {
        match self.link {
            Link::Opens(at) if at <= now => {
                self.link = Link::Opens(self.after_timeout(now));
                Some(self.segment(now, TcpKind::Syn))
            }
            Link::Requests { at, beyond } if at <= now => {
                self.link = Link::Requests { at: self.after_timeout(now), beyond };
                Some(TcpSegment { len: self.unanswered, ..self.segment(now, TcpKind::Ack) })
            }
            Link::Requests { .. } | Link::Open => self.acknowledgement(now),
            Link::Opens(_) | Link::Closed => None,
        }
    }

    fn after_timeout(&mut self, now: Instant) -> Instant {
        let at = now + self.rtt.rto();
        self.rtt.back_off();
        at
    }

    fn acknowledgement(&mut self, now: Instant) -> Option<TcpSegment> {
        match self.due {
            Due::Now => {}
            Due::Later(at) if at <= now => {}
            _ => return None,
        }
        self.due = Due::Nothing;
        self.quick = self.quick.saturating_sub(self.unacknowledged.max(1));
        self.unacknowledged = 0;
        self.acknowledged = self.next;
        let has_dsack = self.duplicate.is_some();
        let mut sack = SackBlocks::default();
        self.duplicate
            .take()
            .into_iter()
            .chain(self.recent.iter().copied())
            .for_each(|block| sack.push(block));
        let xcp = self.xcp.take();
        Some(TcpSegment { sack, has_dsack, xcp, ..self.segment(now, TcpKind::Ack) })
    }

    fn segment(&mut self, now: Instant, kind: TcpKind) -> TcpSegment {
        let window = (self.room >> self.shift).min(WINDOW_FIELD) << self.shift;
        // The right edge never moves back (RFC 9293, section 3.8.6).
        self.advertised = self.advertised.max(self.next + window);
        TcpSegment {
            flow: self.flow,
            kind,
            seq: self.asked,
            ack: self.next,
            window: self.advertised - self.next,
            timestamp: now,
            echo: self.echo,
            marks: self.marks,
            ..TcpSegment::default()
        }
    }
}
