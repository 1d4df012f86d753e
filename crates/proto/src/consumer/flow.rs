mod due;

use super::ahead::Ahead;
use super::congestion::Congestion;
use super::live::LiveWindow;
use super::opening::Beginning;
use super::rto::Rto;
use super::share::{Arrived, Offer};
use super::silence::Silence;
use super::timeouts::Timeouts;
use super::{ConsumerEvent, FlowStats, Request, Shared, Sink};
use crate::config::{Config, Mechanisms};
use crate::hop::{Fetch, Heard, Intake, Waits};
use crate::name::{ByteRange, RangeSet};
use crate::table::Slot;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use crate::wire::{DataHeader, Interest, NotNow, Waited};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Requests timed at once; on a long path every fourth or so is enough.
const MAX_TIMED: usize = 64;

/// A flow is asked for by this many Interests at once, or by those for this many times what the hop brings it until the next
/// ones, and by as many again after this time: all of a window's together would queue on a slow way back, and the measured
/// queue would be their own.
const BURST: u32 = 4;
const BURST_OFFERS: u64 = 2;
const PAUSE: Duration = Duration::from_millis(2);

/// Number of steps from which the delay of a request that was put off is drawn.
const SPREAD: u64 = 1024;

/// One flow that a Consumer fetches: its requests, its received bytes, and its timeouts.
pub struct Flow<S> {
    pub(super) fetch: Fetch,
    sink: S,
    progress: Progress,
    ahead: Ahead,
    /// The Consumer's own control, where the hops have none.
    congestion: Option<Congestion>,
    rto: Rto,
    silence: Silence,
    mechanisms: Mechanisms,
    timeouts: Timeouts,
    /// Bytes asked for ahead of a live flow; the time of their arrival is unknown.
    live: Option<LiveWindow>,
    /// Offset from which requests of a live flow are repeated: they may have been lost in a silence of the path.
    repeats_from: Option<u64>,
    /// Time at which more of a live flow is to be asked for.
    asks_at: Option<Instant>,
    /// No look at how long others wait before.
    looks_at: Instant,
    /// The bytes that seem to wait for their turn were asked about since something of the flow came last.
    has_asked_in_quiet: bool,
    put_off: Option<PutOff>,
    stats: FlowStats,
}

/// A refusal for want of room. Until it is over there are no new requests and no timeouts.
#[derive(Clone, Copy, Debug)]
struct PutOff {
    until: Instant,
    /// Nothing of the flow was taken. Otherwise what was taken is on its way, and its losses are made good.
    is_whole: bool,
}

/// Progress of the transfer.
#[derive(Debug)]
struct Progress {
    received: RangeSet,
    length: Option<u64>,
    /// Everything below has been asked for or is here.
    asked_end: u64,
    /// Requests whose answer times the path: the first byte and when it was asked for.
    timed: VecDeque<(u64, Instant)>,
    /// Time of the last new byte, or of the last probe of a silent path.
    last: Instant,
    /// Probes since the last new byte.
    probes: u32,
    is_over: bool,
}

impl Progress {
    fn first_missing(&self) -> u64 {
        self.received.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }
}

impl<S> Flow<S> {
    /// The first offset that has not arrived: everything below is complete.
    pub fn in_order_end(&self) -> u64 {
        self.progress.first_missing()
    }

    /// Bytes below `end` that have not arrived, and the holes in which they lie.
    pub fn missing_below(&self, end: u64) -> (u64, u32) {
        let gaps = self.progress.received.gaps(ByteRange::new(0, end));
        gaps.fold((0, 0), |(bytes, holes), gap| (bytes + gap.len(), holes + 1))
    }

    /// The length of the flow, once it is known.
    pub fn length(&self) -> Option<u64> {
        self.progress.length
    }

    /// Counters since the flow was opened.
    pub fn stats(&self) -> FlowStats {
        self.stats
    }

    /// The sink.
    pub fn sink(&self) -> &S {
        &self.sink
    }

    /// The sink, to change it.
    pub fn sink_mut(&mut self) -> &mut S {
        &mut self.sink
    }

    /// Ends the flow.
    pub(super) fn into_sink(self) -> S {
        self.sink
    }

    /// Whether every byte is here, or the flow does not exist.
    pub(super) fn is_over(&self) -> bool {
        self.progress.is_over
    }

    /// Whether bytes are asked for and have not arrived.
    pub(super) fn is_waiting(&self) -> bool {
        !self.progress.is_over && !self.fetch.intake.expected().is_empty()
    }

    /// Whether bytes are known to be missing.
    pub(super) fn has_holes(&self) -> bool {
        !self.progress.is_over && self.fetch.intake.has_holes()
    }

    /// The turn that Interests carry.
    pub(super) fn turn(&self) -> u16 {
        self.fetch.intake.turn()
    }

    /// The turn in which nothing is asked for any more.
    pub(super) fn forget(&mut self) -> u16 {
        self.fetch.intake.forget();
        self.fetch.intake.turn()
    }

    /// An Interest of `bytes` was sent.
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.stats.interests_sent += 1;
        self.stats.sent_bytes += bytes as u64;
    }
}

impl<S: Sink> Flow<S> {
    pub(super) fn new(
        now: Instant,
        config: &Config,
        uplink: Slot,
        (request, live): (Request, Option<LiveWindow>),
        beginning: Beginning,
        sink: S,
    ) -> Self {
        let progress = Progress {
            received: request.have,
            length: request.length,
            asked_end: 0,
            timed: VecDeque::new(),
            last: now,
            probes: 0,
            is_over: false,
        };
        Self {
            fetch: Fetch {
                id: request.flow,
                uplink,
                intake: match live {
                    Some(_) => Intake::live(now, config),
                    None => Intake::new(now, config, 0),
                },
            },
            sink,
            progress,
            ahead: Ahead::new(config, beginning),
            congestion: config.end_to_end_control.then(|| Congestion::new(config)),
            rto: Rto::new(config.initial_rto, config.min_rto, config.max_rto),
            silence: Silence::default(),
            mechanisms: config.mechanisms,
            timeouts: Timeouts::default(),
            live,
            repeats_from: None,
            asks_at: None,
            looks_at: now,
            has_asked_in_quiet: false,
            put_off: None,
            stats: FlowStats::default(),
        }
    }

    /// Notes the end if it is reached, and asks for more as far as the window allows.
    pub(super) fn advance(&mut self, now: Instant, shared: &mut Shared) {
        self.check_finished(now, shared);
        self.refill(now, shared);
    }

    fn check_finished(&mut self, now: Instant, shared: &mut Shared) {
        let Some(length) = self.progress.length else { return };
        if !self.progress.is_over && self.progress.first_missing() >= length {
            self.progress.is_over = true;
            if let Some(bytes) = self.ahead.learnt() {
                shared.neighbours.note_habit(now, self.fetch.uplink, bytes);
            }
            shared.events.push_back(ConsumerEvent::Finished { flow: self.fetch.id, length });
        }
    }

    fn refill(&mut self, now: Instant, shared: &mut Shared) {
        if self.asks_at.is_some_and(|at| now < at) {
            return;
        }
        let (usual, mut left) = match self.live {
            Some(_) => (shared.config.step_bytes(), BURST),
            None => {
                let step = self.ahead.step(&shared.config);
                let offer = BURST_OFFERS * shared.offer(self.fetch.uplink).rate.bytes_in(PAUSE);
                (step, BURST.max((offer / step) as u32))
            }
        };
        self.asks_at = None;
        while !self.progress.is_over && self.put_off.is_none() {
            if left == 0 {
                self.asks_at = Some(now + PAUSE);
                return;
            }
            if self.repeat_next(shared) {
                left -= 1;
                continue;
            }
            let from = self.progress.asked_end;
            let end = self.progress.length.unwrap_or(u64::MAX >> 2);
            let limit = self.congestion.as_ref().map_or(u64::MAX, Congestion::window);
            let size = self.live.as_ref().map_or_else(|| self.ahead.size().min(limit), LiveWindow::size);
            let room = size.saturating_sub(self.fetch.intake.expected().byte_count());
            // A live flow is asked for long before it comes: in few Interests, which still overlap.
            let wide = shared.config.span_bytes() / 2;
            let step = if self.live.is_some() && room >= wide { wide.max(usual) } else { usual };
            if from >= end || room < step {
                return;
            }
            left -= 1;
            // All that there is room for at once costs the fewest Interests.
            let whole_packets = room - room % shared.config.payload as u64;
            let asked = step.max(whole_packets.min(shared.config.step_bytes()));
            let next = ByteRange::at(from, asked).intersect(ByteRange::new(0, end));
            let Some(gap) = self.progress.received.gaps(next).next() else {
                // Bytes that are here need no request: on to the end of that piece.
                let piece = self.progress.received.gaps(ByteRange::new(from, end)).next();
                self.progress.asked_end = piece.map_or(end, |gap| gap.start);
                continue;
            };
            self.progress.asked_end = gap.end;
            if self.live.is_none() {
                self.time(now, gap);
            }
            self.fetch.ask(gap, Interest::DEFAULT_HOP_LIMIT, &mut shared.outbox);
        }
    }

    /// Repeats the next request of before a silence. The neighbour answers once what it was asked for twice; two Interests
    /// name each byte, so that one may be lost. False if none is left.
    fn repeat_next(&mut self, shared: &mut Shared) -> bool {
        let Some(from) = self.repeats_from else { return false };
        let left = ByteRange::new(from.max(self.fetch.intake.seen_end()), self.progress.asked_end);
        let Some(piece) = self.fetch.intake.expected().intersect(left).next() else {
            self.repeats_from = None;
            return false;
        };
        let limit = shared.config.request_limit;
        let named = piece.prefix(limit);
        self.repeats_from = Some(if named.end < piece.end { named.start + limit / 2 } else { named.end });
        shared.outbox.ask_fresh(self.fetch.uplink, self.fetch.id, [named]);
        true
    }

    /// A request for `gap` leaves: its answer times the path, and it may time out.
    fn time(&mut self, now: Instant, gap: ByteRange) {
        if self.progress.timed.len() < MAX_TIMED {
            self.progress.timed.push_back((gap.start, now));
        }
        self.timeouts.on_ask(now, gap);
    }

    /// Bytes of the flow arrived: `offer` is the hop that they came by, where the requests ran out; `shown` is the rate that its link has
    /// shown room for.
    pub(super) fn on_bytes(
        &mut self,
        now: Instant,
        header: &DataHeader,
        payload: &[u8],
        (offer, shown): (Option<Offer>, Option<Rate>),
    ) {
        let range = header.range(payload.len());
        self.accept(now, range, payload, (header.waited, offer, shown));
        if header.flags.end {
            self.progress.length = Some(range.end);
            self.fetch.intake.on_length(range.end);
        }
    }

    /// Writes the bytes of a packet that are new and were asked for.
    fn accept(
        &mut self,
        now: Instant,
        range: ByteRange,
        payload: &[u8],
        (waited, offer, shown): (Waited, Option<Offer>, Option<Rate>),
    ) {
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
        self.time_path(now, range, waited.time);
        if let Some(live) = &mut self.live {
            live.on_bytes(new_bytes, waited.is_dry);
        }
        let is_in_order = range.start >= self.fetch.intake.seen_end();
        let waited = is_in_order.then_some(waited);
        self.ahead.on_bytes(Arrived { now, bytes: new_bytes, waited, offer, shown });
        self.silence.on_bytes(now);
        if let Some(congestion) = &mut self.congestion {
            congestion.on_bytes(new_bytes);
        }
        self.progress.last = now;
        self.progress.probes = 0;
        self.has_asked_in_quiet = false;
    }

    fn time_path(&mut self, now: Instant, range: ByteRange, waited: Duration) {
        while let Some(&(offset, asked)) = self.progress.timed.front() {
            if offset >= range.end {
                return;
            }
            self.progress.timed.pop_front();
            // Only the original packet times the path: a lost or repaired one would time the repair.
            if offset >= range.start && self.progress.probes == 0 {
                let took = now.since(asked);
                let path = if self.mechanisms.share { took.saturating_sub(waited) } else { took };
                self.ahead.on_rtt(now, path);
                if let Some(congestion) = &mut self.congestion {
                    congestion.on_rtt(now, took);
                }
                self.rto.on_sample(path);
            }
        }
    }

    /// The Producer has no such flow.
    pub(super) fn on_no_such_name(&mut self, shared: &mut Shared) {
        self.progress.is_over = true;
        shared.events.push_back(ConsumerEvent::NoSuchName { flow: self.fetch.id });
    }

    /// A packet or mark of this flow brought news of its hop: losses are asked for again. Returns the number of the
    /// hop's losses that nothing explains.
    pub(super) fn on_heard(&mut self, now: Instant, heard: &Heard, shared: &mut Shared) -> u32 {
        let noted = self.fetch.on_heard(now, heard, &mut shared.uplinks, &mut shared.outbox);
        self.stats.repairs += noted.repairs;
        self.rto.set_patience(self.fetch.intake.patience_for_turn());
        if self.fetch.intake.take_wake() && self.live.is_some() {
            (self.repeats_from, self.asks_at) = (Some(0), Some(now));
        }
        if noted.is_feedback_due && !self.progress.is_over {
            shared.outbox.feedback(self.fetch.uplink, self.fetch.id);
        }
        noted.unexplained
    }

    /// Others' bytes on the flow's hop have waited up to `waits` lately, and the hop takes `hop_rtt`.
    pub(super) fn on_hop(&mut self, waits: Waits, hop_rtt: Duration) {
        self.rto.set_hop_rtt(hop_rtt);
        self.fetch.intake.on_others_waited(waits);
        self.rto.set_patience(self.fetch.intake.patience_for_turn());
    }

    /// A node on the way has no room for the request. It is asked again at the time that it named, or up to half as
    /// much later, so that nodes that were put off together do not come back together.
    pub(super) fn on_not_now(&mut self, now: Instant, not_now: NotNow, shared: &mut Shared) {
        let spread = not_now.after.scaled(shared.rng.below(SPREAD), 2 * SPREAD);
        let (before, is_whole) = (self.put_off, not_now.limit.is_whole());
        let until = (now + not_now.after + spread).max(before.map_or(Instant::ZERO, |before| before.until));
        self.put_off = Some(PutOff { until, is_whole });
        self.stats.put_off += 1;
        shared.events.push_back(ConsumerEvent::PutOff { flow: self.fetch.id, not_now });
        // A range that is asked for twice times no path (Karn's rule).
        self.progress.timed.clear();
        // Interests that left together are refused one by one, for the same want of room.
        if before.is_none() && !is_whole {
            self.ahead.on_refused();
        }
    }

    /// Repeats the requests after a refusal: nodes do not answer twice the parts that they had accepted. Nothing
    /// was lost meanwhile.
    fn resume(&mut self, now: Instant, shared: &mut Shared) {
        let is_whole = self.put_off.take().is_some_and(|put_off| put_off.is_whole);
        self.fetch.intake.on_resumed(now, is_whole);
        self.timeouts.on_notice(now, ByteRange::new(0, u64::MAX));
        self.silence.on_probe();
        self.progress.last = now;
        self.fetch.ask_on(&mut shared.outbox);
        self.refill(now, shared);
    }

    /// `range` is on its way; an empty range only reports the sender's progress.
    pub(super) fn on_notice(&mut self, now: Instant, range: ByteRange) {
        if range.is_empty() {
            return;
        }
        self.fetch.intake.on_notice(now, range);
        // LEOTP section III.B: a Void Packet Header restarts the timer of the bytes that it names.
        self.timeouts.on_notice(now, range);
    }

    /// Another neighbour is asked from now on.
    pub(super) fn turn_to(&mut self, now: Instant, uplink: Slot, shared: &mut Shared) {
        self.fetch.turn_to(uplink, &mut shared.outbox);
        if self.mechanisms.epochs {
            self.ask_anew(now, shared);
        }
    }

    /// Asks the neighbour, another than before, for all that has not arrived.
    pub(super) fn ask_anew(&mut self, now: Instant, shared: &mut Shared) {
        self.ahead.on_new_path();
        self.put_off = None;
        self.progress.timed.clear();
        self.fetch.ask_anew(now, &mut shared.outbox);
    }

    /// As [`super::Consumer::skip`].
    pub(super) fn skip(&mut self, now: Instant, end: u64, shared: &mut Shared) {
        self.progress.received.insert(ByteRange::new(0, end));
        self.fetch.intake.skip(now, end);
        self.refill(now, shared);
    }

    /// As [`super::Consumer::look_back`].
    pub(super) fn look_back(&mut self, now: Instant) {
        self.fetch.intake.suspect_missing(now);
    }

    /// As [`super::Consumer::reject`].
    pub(super) fn reject(&mut self, now: Instant, range: ByteRange, shared: &mut Shared) {
        let wrong: Vec<ByteRange> = self.progress.received.intersect(range).collect();
        for piece in wrong {
            self.progress.received.remove(piece);
            self.stats.rejected_bytes += piece.len();
            self.timeouts.on_ask(now, piece);
            self.fetch.ask_again(now, piece, Interest::DEFAULT_HOP_LIMIT, &mut shared.outbox);
        }
        if self.progress.length.is_some_and(|length| self.progress.first_missing() < length) {
            self.progress.is_over = false;
            let is_end = |event: &ConsumerEvent| matches!(event, ConsumerEvent::Finished { flow, .. } if *flow == self.fetch.id);
            shared.events.retain(|event| !is_end(event));
        }
    }
}
