//! The client: the arrived ranges, and the times of acknowledgements.

use super::config::SplitConfig;
use super::segment::{Acknowledgement, Blocks, MOST_BLOCKS, Message};
use super::state::ReceiverState;
use crate::name::{ByteRange, RangeSet};
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// A handshake that is not answered is tried again after this long (RFC 6298, rule 2.1), always: nothing backs off.
const HANDSHAKE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Link {
    Closed,
    /// The connection opens: the handshake is sent at this time, and again until it is answered.
    Opens(Instant),
    /// The application's request is sent at `at`, and again until data beyond `beyond` is there: such data
    /// acknowledges it.
    Asks {
        at: Instant,
        beyond: u64,
    },
    Open,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Nothing,
    Later(Instant),
    Now,
}

/// The receiving half of a connection. It keeps all bytes that it has acknowledged: it never reneges.
#[derive(Debug)]
pub struct Receiver {
    config: SplitConfig,
    link: Link,
    next: u64,
    beyond: RangeSet,
    /// Ranges of `beyond`, those that changed last first.
    recent: Vec<ByteRange>,
    /// Length of the flow, once known.
    end: Option<u64>,
    /// The first byte for which there was no room when that was last said.
    right_edge: u64,
    /// Bytes that arrived in order and that the owner still has.
    kept: u64,
    unacknowledged: u32,
    due: Due,
    /// Bytes that the client has asked with, and how many of them the last request had.
    asked: u64,
    last_request: u32,
}

impl Receiver {
    /// A receiver that waits for [`Self::open`].
    pub fn new(config: &SplitConfig) -> Self {
        Self {
            right_edge: u64::from(config.receive_window) * u64::from(config.mss),
            config: *config,
            kept: 0,
            link: Link::Closed,
            next: 0,
            beyond: RangeSet::new(),
            recent: Vec::new(),
            end: None,
            unacknowledged: 0,
            due: Due::Nothing,
            asked: 0,
            last_request: 0,
        }
    }

    /// A receiver of a connection that is open: its owner has settled that with the sender.
    pub fn opened(config: &SplitConfig) -> Self {
        Self { link: Link::Open, ..Self::new(config) }
    }

    /// Its settings.
    pub fn config(&self) -> &SplitConfig {
        &self.config
    }

    /// Opens the connection.
    pub fn open(&mut self, now: Instant) {
        self.link = Link::Opens(now);
    }

    /// The application asks the server with `len` bytes: at once, or as soon as the connection is open. A question
    /// is answered before the next is asked.
    pub fn request(&mut self, now: Instant, len: u32) {
        self.asked += u64::from(len);
        self.last_request = len;
        if self.link == Link::Open {
            self.link = Link::Asks { at: now, beyond: self.next };
        }
    }

    /// A segment arrived; `new` is called with every range that had not arrived before.
    pub fn on_message(&mut self, now: Instant, message: &Message, new: impl FnMut(ByteRange)) {
        match (message, self.link) {
            // Accepted again: the segment that completed the handshake was lost.
            (Message::Accept, Link::Opens(_) | Link::Asks { .. }) => {
                self.link = Link::Asks { at: now, beyond: self.next };
            }
            (Message::Accept, Link::Open) => self.due = Due::Now,
            (&Message::Data { range, is_last }, Link::Asks { .. } | Link::Open) => {
                if matches!(self.link, Link::Asks { beyond, .. } if range.end > beyond) {
                    self.link = Link::Open;
                }
                self.on_data(now, range, is_last, new);
            }
            _ => {}
        }
    }

    fn on_data(&mut self, now: Instant, range: ByteRange, is_last: bool, mut new: impl FnMut(ByteRange)) {
        if range.end > self.right_edge {
            // There is no room: it is not acknowledged, and so not reneged on.
            self.due = Due::Now;
            return;
        }
        if is_last {
            self.end = Some(range.end);
        }
        let is_in_order = range.start == self.next && self.beyond.is_empty();
        let fresh = ByteRange::new(range.start.max(self.next), range.end);
        if is_in_order {
            new(fresh);
            self.next = fresh.end;
        } else {
            self.beyond.gaps(fresh).for_each(&mut new);
            self.reassemble(fresh);
        }
        self.count(now, is_in_order);
    }

    fn reassemble(&mut self, fresh: ByteRange) {
        if fresh.is_empty() {
            return;
        }
        self.beyond.insert(fresh);
        let is_around = |run: &ByteRange| run.start <= fresh.start && fresh.start < run.end;
        let run = self.beyond.iter().find(is_around).unwrap_or(fresh);
        self.recent.retain(|known| known.end < run.start || known.start > run.end);
        if run.start <= self.next {
            self.next = run.end;
            self.beyond.remove(run);
            return;
        }
        self.recent.insert(0, run);
        self.recent.truncate(MOST_BLOCKS);
    }

    fn count(&mut self, now: Instant, is_in_order: bool) {
        self.unacknowledged += 1;
        let is_disordered = self.config.ack_disorder && !is_in_order;
        if self.unacknowledged >= self.config.ack_every || is_disordered || self.is_complete() {
            self.due = Due::Now;
        } else if self.due == Due::Nothing {
            self.due = Due::Later(now + self.config.ack_delay);
        }
    }

    /// Time of the next timeout.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let handshake = match self.link {
            Link::Opens(at) | Link::Asks { at, .. } => Some(at),
            Link::Closed | Link::Open => None,
        };
        let acknowledgement = if let Due::Later(at) = self.due { Some(at) } else { None };
        handshake.into_iter().chain(acknowledgement).min()
    }

    /// Time from which on [`Self::poll`] finds something, as things are.
    pub fn due_at(&self) -> Option<Instant> {
        if self.due == Due::Now && self.link == Link::Open {
            Some(Instant::ZERO)
        } else {
            self.poll_timeout()
        }
    }

    /// The client's next message.
    pub fn poll(&mut self, now: Instant) -> Option<Message> {
        match self.link {
            Link::Closed => None,
            Link::Opens(at) => (at <= now).then(|| {
                self.link = Link::Opens(now + HANDSHAKE);
                Message::Open
            }),
            Link::Asks { at, beyond } if at <= now => {
                self.link = Link::Asks { at: now + HANDSHAKE, beyond };
                Some(self.question())
            }
            Link::Asks { .. } | Link::Open => self.is_due(now).then(|| Message::Ack(self.acknowledgement())),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        match self.due {
            Due::Now => true,
            Due::Later(at) => at <= now,
            Due::Nothing => false,
        }
    }

    fn question(&mut self) -> Message {
        let ack = self.acknowledgement();
        match self.last_request {
            0 => Message::Ack(ack),
            len => Message::Request { ack, len },
        }
    }

    fn acknowledgement(&mut self) -> Acknowledgement {
        self.due = Due::Nothing;
        self.unacknowledged = 0;
        self.right_edge = self.right_edge.max(self.edge());
        // Rounded down to whole segments.
        let window = ((self.right_edge - self.next) / u64::from(self.config.mss)) as u16;
        let blocks = Blocks::of(self.recent.iter().copied());
        Acknowledgement { next: self.next, window, blocks, asked: self.asked }
    }

    /// The first byte for which there is no room.
    fn edge(&self) -> u64 {
        let room = u64::from(self.config.receive_window) * u64::from(self.config.mss);
        self.next + room.saturating_sub(self.kept)
    }

    /// The owner still has the last `kept` bytes of those that arrived in order; at first it keeps none.
    pub fn keep(&mut self, kept: u64) {
        self.kept = kept;
        let (mss, left) = (u64::from(self.config.mss), self.right_edge - self.next);
        // A sender that was told of almost no room is told when there is some (RFC 9293, section 3.8.6.2.2).
        if self.link == Link::Open && left < 2 * mss && self.edge() >= self.right_edge + 2 * mss {
            self.due = Due::Now;
        }
    }

    /// The state, for a receiver that goes on.
    pub fn state(&self) -> ReceiverState {
        ReceiverState {
            next: self.next,
            beyond: self.beyond.iter().map(|range| (range.start, range.end)).collect(),
            end: self.end,
            right_edge: self.right_edge,
            kept: self.kept,
            window: u64::from(self.config.receive_window) * u64::from(self.config.mss),
        }
    }

    /// Its sender is told at once how things are.
    pub(super) fn put_state(&mut self, state: &ReceiverState) {
        (self.next, self.end, self.kept) = (state.next, state.end, state.kept);
        self.right_edge = state.right_edge;
        let beyond = state.beyond.iter().filter(|(start, end)| start <= end);
        beyond.clone().for_each(|&(start, end)| self.beyond.insert(ByteRange::new(start, end)));
        self.recent = self.beyond.iter().take(MOST_BLOCKS).collect();
        self.due = Due::Now;
    }

    /// Bytes that the application has asked with.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Everything below arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that wait for others before them.
    pub fn out_of_order(&self) -> u64 {
        self.beyond.byte_count()
    }

    /// All bytes of the flow have arrived.
    pub fn is_complete(&self) -> bool {
        self.end == Some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SplitSettings;
    use super::*;
    use crate::rng::Rng;
    use crate::units::Rate;
    use alloc::vec;

    const MSS: u64 = 512;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn receiver(change: impl Fn(&mut SplitSettings)) -> Receiver {
        let mut settings = SplitSettings::new(Rate::from_mbps(1));
        change(&mut settings);
        let Ok(config) = SplitConfig::new(settings) else { unreachable!("the test's settings are possible") };
        let mut receiver = Receiver::new(&config);
        receiver.link = Link::Open;
        receiver
    }

    fn data(segment: u64, is_last: bool) -> Message {
        Message::Data { range: ByteRange::at(segment * MSS, MSS), is_last }
    }

    fn ack(receiver: &mut Receiver, now: Instant) -> Option<Acknowledgement> {
        receiver.poll(now).and_then(|message| if let Message::Ack(ack) = message { Some(ack) } else { None })
    }

    #[test]
    fn every_nth_segment_is_acknowledged_whatever_its_order() {
        for every in [1, 4, 16, 64] {
            let mut receiver = receiver(|s| {
                (s.ack_every, s.ack_disorder, s.receive_window) = (every, false, 1000);
            });
            let mut acks = 0;
            // Every tenth segment is missing.
            for segment in (0..710).filter(|segment| segment % 10 != 3) {
                receiver.on_message(at(segment), &data(segment, false), |_| ());
                acks += u32::from(ack(&mut receiver, at(segment)).is_some());
            }
            assert_eq!(acks, 639 / every);
        }
    }

    #[test]
    fn disorder_is_acknowledged_at_once_where_that_is_asked_for() {
        let mut receiver = receiver(|s| s.ack_every = 2);
        receiver.on_message(at(0), &data(0, false), |_| ());
        assert_eq!(ack(&mut receiver, at(0)), None);
        receiver.on_message(at(1), &data(2, false), |_| ());
        let sent = ack(&mut receiver, at(1)).unwrap_or_default();
        assert_eq!((sent.next, sent.blocks.as_slice()), (MSS, &[ByteRange::at(2 * MSS, MSS)][..]));
    }

    #[test]
    fn the_last_segment_and_a_long_wait_are_acknowledged_before_the_nth() {
        let mut receiver = receiver(|s| s.ack_every = 64);
        receiver.on_message(at(0), &data(0, false), |_| ());
        assert_eq!(receiver.poll_timeout(), Some(at(500)));
        assert_eq!(ack(&mut receiver, at(500)).map(|ack| ack.next), Some(MSS));
        receiver.on_message(at(501), &data(1, true), |_| ());
        assert_eq!(ack(&mut receiver, at(501)).map(|ack| ack.next), Some(2 * MSS));
        assert!(receiver.is_complete());
    }

    #[test]
    fn four_blocks_name_what_changed_last() {
        let mut receiver = receiver(|s| s.ack_every = 6);
        for segment in [2, 4, 6, 8, 10, 3] {
            receiver.on_message(at(0), &data(segment, false), |_| ());
        }
        let blocks = ack(&mut receiver, at(0)).unwrap_or_default().blocks;
        let run = |from: u64, to: u64| ByteRange::new(from * MSS, to * MSS);
        assert_eq!(blocks.as_slice(), [run(2, 5), run(10, 11), run(8, 9), run(6, 7)]);
    }

    #[test]
    fn what_was_acknowledged_is_never_asked_for_again() {
        // Arbitrary arrivals in arbitrary order, more than the window holds included: the sets only grow.
        let mut rng = Rng::new(7);
        for _ in 0..50 {
            let mut receiver = receiver(|s| s.receive_window = 20);
            let (mut said, mut handed) = (RangeSet::new(), RangeSet::new());
            for step in 0..400 {
                let segment = receiver.next() / MSS + rng.below(30);
                receiver.on_message(at(step), &data(segment, false), |range| {
                    assert!(!handed.overlaps(range), "handed over twice");
                    handed.insert(range);
                });
                if let Some(ack) = ack(&mut receiver, at(step)) {
                    said.insert(ByteRange::new(0, ack.next));
                    ack.blocks.as_slice().iter().for_each(|block| said.insert(*block));
                }
                assert!(said.iter().all(|range| handed.contains(range)), "acknowledged and not kept");
                assert!(receiver.out_of_order() <= 20 * MSS);
            }
            assert!(receiver.next() > 0);
        }
    }

    #[test]
    fn the_window_is_full_segments_beyond_what_arrived_in_order() {
        let mut receiver = receiver(|s| (s.receive_window, s.ack_every) = (3, 1));
        receiver.on_message(at(0), &data(3, false), |_| ());
        assert_eq!(ack(&mut receiver, at(0)).map(|ack| ack.blocks.as_slice().len()), Some(0), "no room");
        receiver.on_message(at(0), &data(2, false), |_| ());
        let ack = ack(&mut receiver, at(0)).unwrap_or_default();
        assert_eq!((ack.next, ack.window, ack.blocks.as_slice().len()), (0, 3, 1));
    }

    #[test]
    fn what_the_owner_keeps_is_taken_off_the_window_and_its_end_is_told() {
        let mut receiver = receiver(|s| (s.receive_window, s.ack_every) = (4, 1));
        for segment in 0..4 {
            receiver.on_message(at(0), &data(segment, false), |_| ());
            receiver.keep((segment + 1) * MSS);
            let window = ack(&mut receiver, at(0)).map(|ack| ack.window);
            assert_eq!(window, Some(3 - segment as u16));
        }
        receiver.keep(3 * MSS);
        assert_eq!(ack(&mut receiver, at(9)), None, "one segment is not worth an acknowledgement");
        receiver.keep(2 * MSS);
        assert_eq!(ack(&mut receiver, at(9)).map(|ack| ack.window), Some(2));
    }

    #[test]
    fn the_handshake_is_repeated_until_data_comes() {
        let mut receiver = receiver(|_| ());
        receiver.open(at(0));
        assert_eq!((receiver.poll(at(0)), receiver.poll(at(999))), (Some(Message::Open), None));
        assert_eq!(receiver.poll(at(1_000)), Some(Message::Open));
        receiver.on_message(at(1_500), &Message::Accept, |_| ());
        assert!(matches!(receiver.poll(at(1_500)), Some(Message::Ack(_))));
        assert!(matches!(receiver.poll(at(2_500)), Some(Message::Ack(_))));
        let mut new = vec![];
        receiver.on_message(at(2_600), &data(0, false), |range| new.push(range));
        assert_eq!((new.len(), receiver.poll(at(2_999))), (1, None));
    }

    #[test]
    fn a_question_is_asked_again_until_its_own_answer_comes() {
        let mut receiver = receiver(|s| s.ack_every = 1);
        let asks = |receiver: &mut Receiver, now| match receiver.poll(now) {
            Some(Message::Request { ack, len }) => Some((ack.asked, len)),
            _ => None,
        };
        receiver.request(at(0), 300);
        assert_eq!(asks(&mut receiver, at(0)), Some((300, 300)));
        receiver.on_message(at(500), &data(0, false), |_| ());
        assert!(matches!(receiver.poll(at(500)), Some(Message::Ack(_))));
        receiver.request(at(600), 200);
        assert_eq!(asks(&mut receiver, at(600)), Some((500, 200)));
        // A copy of the first answer is acknowledged, and answers nothing.
        receiver.on_message(at(700), &data(0, false), |_| ());
        assert!(matches!(receiver.poll(at(700)), Some(Message::Ack(_))));
        assert_eq!(asks(&mut receiver, at(1_600)), Some((500, 200)));
        receiver.on_message(at(1_700), &data(1, false), |_| ());
        assert_eq!((asks(&mut receiver, at(1_700)), receiver.poll(at(9_000))), (None, None));
    }
}
