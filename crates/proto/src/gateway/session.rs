use super::frame::{Frame, Opening, WireId};
use super::handover::{Part, parts};
use super::inbox::{Inbox, RECORD_OVERHEAD};
use super::stream::Stream;
use super::turns::Turns;
use super::{GatewayEvent, Reason, StreamId};
use crate::name::{FlowId, RangeSet};
use crate::table::Table;
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Between two signs of life.
const BEAT: Duration = Duration::from_millis(250);
/// Silence after which new streams take another path.
const DOWN_AFTER: Duration = Duration::from_secs(2);
/// Silence after which the peer is asked for its next packet: three signs of life. A peer that had more to send is
/// asked after a round trip, within these bounds.
const URGE_AFTER: Duration = Duration::from_millis(750);
const URGE_SOONEST: Duration = Duration::from_millis(50);
/// Requests may have been lost in a pause of at least this length, and of half a round trip, of a peer that had
/// more to send.
const SHORTEST_OUTAGE: Duration = Duration::from_millis(20);
/// Interval between two such questions: the silence so far, divided by this. So the questions prolong a silence by
/// at most this share, and there are at most four of 64 bytes a second.
const URGE_SHARE: u64 = 8;
const URGE_SLOWEST: Duration = Duration::from_millis(250);
/// A sign of life follows the last bytes that there were to send, and shows their loss. The pause before it is the
/// round trip divided by this, within the bounds below: long enough that both are not lost together, short beside
/// the round trip of a repair.
const TAIL_SHARE: u64 = 8;
const TAIL: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(50));
/// Bytes that have been missing for this time, and for four round trips, may have been given up.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// The first requests of a session are repeated once after this time: longer than the round trip over two
/// satellites.
const RENEW_AFTER: Duration = Duration::from_millis(1_500);
/// After a silence of this length the peer may have forgotten our requests.
const FORGETFUL_AFTER: Duration = Duration::from_secs(10);

/// Two gateways that know of each other: the streams between them and the frames about them.
pub(super) struct Session<K> {
    peer: u16,
    /// Which of the sessions with the peer this is.
    serial: u32,
    /// The number that the peer drew when it began.
    pub(super) theirs: u64,
    pub(super) out: Trunk<K>,
    pub(super) into: Trunk<K>,
    pub(super) inbox: Inbox,
    pub(super) turns: Turns,
    control: VecDeque<Frame<'static>>,
    next_number: u64,
    /// This node asks for the peer's trunk. Before the peer has begun the session, too, a request would have no
    /// answer.
    pub(super) is_asking: bool,
    /// Numbers of streams that the peer opened, ever.
    opened: RangeSet,
    /// Streams of ours from this number on find no room at the peer, as far as it has told.
    room: Option<u64>,
    /// The same of the peer's, as it was told last.
    told_room: u64,
    pulse: Pulse,
}

/// One direction: the flow's name, and the key of its records.
pub(super) struct Trunk<K> {
    pub(super) flow: FlowId,
    pub(super) key: K,
    /// Offset before which another process of this node has sent everything.
    pub(super) handed: u64,
}

impl<K> Trunk<K> {
    pub(super) fn new((flow, key): (FlowId, K)) -> Self {
        Self { flow, key, handed: 0 }
    }
}

/// The times at which the peer was heard, and at which it is to hear from us.
#[derive(Debug)]
struct Pulse {
    began: Instant,
    heard: Option<Instant>,
    /// The peer has heard us.
    is_mutual: bool,
    next_beat: Instant,
    next_urge: Instant,
    /// The peer had more to send than it was allowed to when it was heard last.
    is_more_due: bool,
    /// The peer was asked for its next packet since it was heard last.
    is_urged: bool,
    renewals: u32,
    /// The peer's clock in its last sign of life, and when that came.
    their_time: Option<(u64, Instant)>,
    rtt: Duration,
    told_received: u64,
    /// The end of the bytes in order at the last check, and the time of the check that last saw it grow.
    progress: (u64, Instant),
}

/// The action that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    /// Ask for the next packet.
    Urge,
    /// Ask again for bytes that have been missing for long.
    LookBack,
    /// Ask for everything that has not come.
    Renew,
    /// The peer is lost.
    End,
}

/// A pause of the peer's that is over: signs of life were due in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    /// Requests of ours may have been lost: the peer had nothing to answer.
    Short,
    /// It may have forgotten the flow.
    Long,
}

parts!(Pulse {
    began,
    heard,
    is_mutual,
    next_beat,
    next_urge,
    is_more_due,
    is_urged,
    renewals,
    their_time,
    rtt,
    told_received,
    progress,
});

impl Pulse {
    /// The longest pause that is not a silence.
    fn patience(&self) -> Duration {
        if self.is_more_due { self.rtt.max(URGE_SOONEST).min(URGE_AFTER) } else { URGE_AFTER }
    }
}

impl<K> Session<K> {
    pub(super) fn new(
        now: Instant,
        (peer, serial): (u16, u32),
        theirs: u64,
        out: Trunk<K>,
        into: Trunk<K>,
    ) -> Self {
        Self {
            peer,
            serial,
            theirs,
            out,
            into,
            inbox: Inbox::default(),
            turns: Turns::default(),
            control: VecDeque::new(),
            next_number: 0,
            is_asking: false,
            opened: RangeSet::new(),
            room: None,
            told_room: 0,
            pulse: Pulse {
                began: now,
                heard: None,
                is_mutual: false,
                next_beat: now,
                next_urge: now + RENEW_AFTER,
                is_more_due: false,
                is_urged: false,
                renewals: 0,
                their_time: None,
                rtt: Duration::from_millis(100),
                told_received: 0,
                progress: (0, now),
            },
        }
    }

    /// Appends the state that is not in the trunks' names.
    pub(super) fn put_state(&self, out: &mut Vec<u8>) {
        self.inbox.put(out);
        self.control.put(out);
        self.next_number.put(out);
        self.is_asking.put(out);
        self.opened.put(out);
        self.room.put(out);
        self.pulse.put(out);
    }

    /// Goes on with the state of another process.
    pub(super) fn take_state(&mut self, now: Instant, from: &mut &[u8]) -> Option<()> {
        self.inbox = Part::take(from)?;
        self.control = Part::take(from)?;
        self.next_number = Part::take(from)?;
        self.is_asking = Part::take(from)?;
        self.opened = Part::take(from)?;
        self.room = Part::take(from)?;
        self.pulse = Part::take(from)?;
        // The peer hears at once of the one that goes on.
        self.pulse.next_beat = now;
        Some(())
    }

    /// Whether the peer answers.
    pub(super) fn is_up(&self, now: Instant) -> bool {
        self.pulse.is_mutual && self.pulse.heard.is_some_and(|heard| now.since(heard) < DOWN_AFTER)
    }

    /// The round trip to the peer, as last seen.
    pub(super) fn rtt(&self) -> Duration {
        self.pulse.rtt
    }

    /// Time of the next [`Session::on_timeout`].
    pub(super) fn next_timeout(&self) -> Instant {
        self.pulse.next_beat.min(self.pulse.next_urge)
    }

    /// Time passed. `hold` is how long a silent peer is waited for.
    pub(super) fn on_timeout(&mut self, now: Instant, hold: Duration) -> Option<Due> {
        let pulse = &mut self.pulse;
        if pulse.next_beat <= now {
            pulse.next_beat = now + BEAT;
            self.beat(now);
        }
        let pulse = &mut self.pulse;
        let silent = now.since(pulse.heard.unwrap_or(pulse.began));
        if silent >= hold {
            return Some(Due::End);
        }
        if pulse.next_urge > now {
            return None;
        }
        if pulse.heard.is_none() {
            // Perhaps the peer did not know us yet when it was asked.
            pulse.next_urge = now + RENEW_AFTER.scaled(1 << pulse.renewals.min(4), 1);
            pulse.renewals += 1;
            return Some(Due::Renew);
        }
        let patience = pulse.patience();
        if silent < patience {
            pulse.next_urge = now + (patience - silent);
            return self.is_stuck(now).then_some(Due::LookBack);
        }
        let pause = silent.scaled(1, URGE_SHARE).max(pulse.rtt.scaled(1, 2)).max(URGE_SOONEST.scaled(1, 2));
        pulse.next_urge = now + pause.min(URGE_SLOWEST);
        pulse.is_urged = true;
        Some(Due::Urge)
    }

    /// Whether the bytes in order have not grown for long although the peer is heard. Its signs of life are among
    /// the bytes.
    fn is_stuck(&mut self, now: Instant) -> bool {
        let (end, rtt) = (self.inbox.in_order_end(), self.pulse.rtt);
        let (before, since) = self.pulse.progress;
        let is_stuck = end == before && now.since(since) >= STUCK_AFTER.max(rtt.scaled(4, 1));
        if end != before || is_stuck {
            self.pulse.progress = (end, now);
        }
        is_stuck
    }

    /// Queues a sign of life.
    pub(super) fn beat(&mut self, now: Instant) {
        let received = self.inbox.in_order_end();
        self.pulse.told_received = received;
        let echo = self.pulse.their_time.map_or(0, |(time, at)| time + now.since(at).as_micros());
        let time = now.since(Instant::ZERO).as_micros().max(1);
        self.control.retain(|frame| !matches!(frame, Frame::Beat { .. }));
        self.control.push_front(Frame::Beat { time, echo, received });
    }

    /// Bytes that came in order since the peer was told how many.
    pub(super) fn untold(&self) -> u64 {
        self.inbox.in_order_end() - self.pulse.told_received
    }

    /// A packet came from the peer; `is_more_due` says whether more is to follow. Returns the silence before it, in
    /// which requests to the peer may have been lost.
    pub(super) fn on_heard(&mut self, now: Instant, is_more_due: bool) -> Option<Silence> {
        let pulse = &mut self.pulse;
        let was_more_due = core::mem::replace(&mut pulse.is_more_due, is_more_due);
        let noticed = if was_more_due { pulse.rtt.scaled(1, 2).max(SHORTEST_OUTAGE) } else { Duration::MAX };
        pulse.next_urge = pulse.next_urge.min(now + pulse.patience());
        let is_urged = core::mem::take(&mut pulse.is_urged);
        let before = pulse.heard.replace(now)?;
        match now.since(before) {
            silent if silent >= FORGETFUL_AFTER => Some(Silence::Long),
            silent if is_urged || silent >= noticed => Some(Silence::Short),
            _ => None,
        }
    }

    /// The last bytes that there were to send have left: a sign of life is to follow. True if that is sooner than
    /// [`Session::next_timeout`] was.
    pub(super) fn on_tail(&mut self, now: Instant) -> bool {
        let pause = self.pulse.rtt.scaled(1, TAIL_SHARE).max(TAIL.0).min(TAIL.1);
        let is_sooner = now + pause < self.next_timeout();
        self.pulse.next_beat = self.pulse.next_beat.min(now + pause);
        is_sooner
    }

    /// The peer's sign of life; returns how much of our trunk it has.
    pub(super) fn on_beat(&mut self, now: Instant, (time, echo, received): (u64, u64, u64)) -> u64 {
        self.pulse.their_time = Some((time, now));
        if echo > 0 {
            self.pulse.is_mutual = true;
            let clock = now.since(Instant::ZERO).as_micros();
            self.pulse.rtt = Duration::from_micros(clock.saturating_sub(echo).max(1));
        }
        received
    }

    /// Has the peer know that there is room for `free` more streams, unless it knows.
    pub(super) fn tell_room(&mut self, free: u64) {
        let below = self.opened.last().map_or(0, |range| range.end) + free;
        if core::mem::replace(&mut self.told_room, below) != below {
            self.control.retain(|frame| !matches!(frame, Frame::Room { .. }));
            self.say(Frame::Room { below });
        }
    }

    /// The peer told that streams of ours below this number find room.
    pub(super) fn on_room(&mut self, below: u64) {
        self.room = Some(below);
    }

    /// Whether the next stream of ours finds room at the peer, as far as that is known.
    pub(super) fn has_room(&self) -> bool {
        self.room.is_none_or(|below| self.next_number < below)
    }

    /// A stream of ours begins.
    pub(super) fn open(&mut self, opening: Opening) -> StreamId {
        let number = self.next_number;
        self.next_number += 1;
        self.say(Frame::Open { number, opening });
        StreamId { peer: self.peer, session: self.serial, ours: true, number }
    }

    /// The stream that a frame of the peer names.
    pub(super) fn named(&self, id: WireId) -> StreamId {
        StreamId { peer: self.peer, session: self.serial, ours: !id.senders, number: id.number }
    }

    /// Notes that the peer opened a stream; false when it had done so before.
    pub(super) fn note_opened(&mut self, number: u64) -> bool {
        let range = crate::name::ByteRange::at(number, 1);
        let is_new = !self.opened.contains(range);
        self.opened.insert(range);
        is_new
    }

    /// Whether frames of the peer may name `id` before we know of it: its opening is still to come.
    pub(super) fn is_to_come(&self, id: WireId) -> bool {
        id.senders && !self.opened.contains(crate::name::ByteRange::at(id.number, 1))
    }

    /// Queues a frame without payload.
    pub(super) fn say(&mut self, frame: Frame<'static>) {
        self.control.push_back(frame);
    }

    /// Whether there is something to send.
    pub(super) fn has_something(&self) -> bool {
        !self.control.is_empty() || !self.turns.is_empty()
    }

    /// Whether there is more to send than a sign of life, and the room that is told with it.
    pub(super) fn has_news(&self) -> bool {
        let is_sign = |frame: &Frame<'_>| matches!(frame, Frame::Beat { .. } | Frame::Room { .. });
        !self.turns.is_empty() || !self.control.iter().all(is_sign)
    }

    /// Fills a record of at most `room` bytes, its overhead included: first frames about streams, then their bytes.
    /// Adds to `news` the streams that may write again, and the streams that ended here. Returns the number of users' bytes.
    pub(super) fn fill(
        &mut self,
        (now, streams): (Instant, &mut Table<StreamId, Stream>),
        room: usize,
        scratch: &mut Vec<u8>,
        plain: &mut Vec<u8>,
        news: (&mut VecDeque<GatewayEvent>, &mut Vec<StreamId>),
    ) -> u64 {
        let ((events, ended), mut taken) = (news, 0);
        let room = room - RECORD_OVERHEAD;
        while plain.len() + Frame::MAX_CONTROL <= room {
            let Some(frame) = self.control.pop_front() else { break };
            frame.emit(plain);
        }
        while plain.len() + Frame::DATA_OVERHEAD < room {
            let Some(stream_id) = self.turns.next() else { break };
            let Some(stream) = streams.find(&stream_id).and_then(|slot| streams.get_mut(slot)) else {
                self.turns.remove(stream_id);
                continue;
            };
            scratch.clear();
            let (offset, is_end) = stream.take(now, room - plain.len() - Frame::DATA_OVERHEAD, scratch);
            if !scratch.is_empty() || is_end {
                let id = WireId { senders: stream_id.ours, number: stream_id.number };
                Frame::Data { id, offset, bytes: scratch, is_end }.emit(plain);
            }
            taken += scratch.len() as u64;
            self.turns.on_sent(stream_id, scratch.len(), !stream.send.is_ready());
            if is_end {
                ended.push(stream_id);
            }
            if stream.wakes_writer() {
                events.push_back(GatewayEvent::Writable { stream: stream_id });
            }
        }
        taken
    }

    /// Ends a stream of the peer's or ours before its time.
    pub(super) fn reset(&mut self, id: StreamId, reason: Reason) {
        self.turns.remove(id);
        self.say(Frame::Reset { id: WireId { senders: id.ours, number: id.number }, reason });
    }
}
