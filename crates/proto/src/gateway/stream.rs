use super::frame::Opening;
use super::handover::{Part, parts};
use super::rate_split::Kept;
use super::stock::Stock;
use crate::time::{Duration, Instant};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Bytes of a stream that may be under way before its receiver has said anything: 2 MiB last 0.8 s at 20 Mbit/s.
pub(super) const FIRST_WINDOW: u64 = 2 << 20;
/// The most bytes of a stream that may be under way.
const MOST_WINDOW: u64 = 16 << 20;

/// State of a stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// Unknown while only later frames of the stream have come.
    pub(super) opening: Option<Opening>,
    pub(super) send: Sending,
    pub(super) receive: Receiving,
    /// The application was told that there is something to read, and has not read since.
    pub(super) is_readable_told: bool,
    /// The application was refused bytes for want of room.
    pub(super) is_writer_waiting: bool,
    /// Its share of the link beside streams of weight 1.
    pub(super) weight: u8,
    /// The bytes of the user that may be stored.
    pub(super) stock: Stock,
    /// The bytes that were given and may be sent again, where they travel in segments.
    pub(super) kept: Option<Kept>,
}

impl Stream {
    pub(super) fn new(opening: Option<Opening>) -> Self {
        Self {
            opening,
            send: Sending::default(),
            receive: Receiving::default(),
            is_readable_told: false,
            is_writer_waiting: false,
            weight: 1,
            stock: Stock::default(),
            kept: None,
        }
    }

    /// A stream whose bytes travel in segments, which tell by themselves for how many there is room.
    pub(super) fn by_rate() -> Self {
        let mut stream = Self::new(None);
        stream.receive.granted = u64::MAX;
        stream.kept = Some(Kept::default());
        stream
    }

    /// Bytes that may still be handed over. They do not delay the bytes of other streams, but can no longer be refused.
    pub(super) fn room(&self) -> usize {
        self.send.room(self.stock.size())
    }

    /// Takes the bytes for which there is room. Returns their number.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.send.write(bytes, self.stock.size())
    }

    /// Takes at most `room` bytes to send into `out`; returns their offset and whether the stream ends behind them.
    pub(super) fn take(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) -> (u64, bool) {
        let before = out.len();
        let taken = self.send.take(room, out);
        self.stock.on_sent(now, (out.len() - before) as u64);
        taken
    }

    /// True if a user that was refused bytes is to hand over the next ones. It waits no longer then.
    pub(super) fn wakes_writer(&mut self) -> bool {
        let wakes = self.is_writer_waiting && self.room() >= self.stock.size() / 2;
        self.is_writer_waiting &= !wakes;
        wakes
    }
}

impl Part for Stream {
    fn put(&self, out: &mut Vec<u8>) {
        self.opening.put(out);
        self.send.put(out);
        self.receive.put(out);
        self.kept.put(out);
    }

    /// The application looks by itself whether there is something to read, and whether there is room; it knows the weight.
    fn take(from: &mut &[u8]) -> Option<Self> {
        let mut stream = Self::new(Part::take(from)?);
        (stream.send, stream.receive) = (Part::take(from)?, Part::take(from)?);
        stream.kept = Part::take(from)?;
        Some(stream)
    }
}

parts!(Sending { queue, sent, limit, is_ending, is_ended });
parts!(Receiving { ready, next, later, later_bytes, length, granted, window, grown_at, is_ended });

/// Gives the memory of an empty buffer back: most connections of a gateway are idle most of the time, and each would
/// keep as much as its longest burst took. An allocation for the next bytes costs less than their copy.
fn free_if_empty(buffer: &mut VecDeque<u8>) {
    if buffer.is_empty() {
        *buffer = VecDeque::new();
    }
}

/// The bytes that wait to be sent.
#[derive(Debug)]
pub(super) struct Sending {
    queue: VecDeque<u8>,
    /// Offset of the first byte in the queue: everything below is sent.
    pub(super) sent: u64,
    /// Bytes below may be sent.
    limit: u64,
    is_ending: bool,
    pub(super) is_ended: bool,
}

impl Default for Sending {
    fn default() -> Self {
        Self { queue: VecDeque::new(), sent: 0, limit: FIRST_WINDOW, is_ending: false, is_ended: false }
    }
}

impl Sending {
    /// Bytes that may still be handed over, where `most` may be stored.
    fn room(&self, most: usize) -> usize {
        if self.is_ending { 0 } else { most.saturating_sub(self.queue.len()) }
    }

    /// Takes the bytes for which there is room. Returns their number.
    fn write(&mut self, bytes: &[u8], most: usize) -> usize {
        let taken = bytes.len().min(self.room(most));
        self.queue.extend(&bytes[..taken]);
        taken
    }

    /// No bytes follow.
    pub(super) fn finish(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn on_credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    /// Whether something may be sent now: bytes, or the end.
    pub(super) fn is_ready(&self) -> bool {
        let has_bytes = !self.queue.is_empty() && self.sent < self.limit;
        has_bytes || (self.is_ending && self.queue.is_empty() && !self.is_ended)
    }

    /// Takes at most `room` bytes into `out`; returns their offset and whether the stream ends behind them.
    pub(super) fn take(&mut self, room: usize, out: &mut Vec<u8>) -> (u64, bool) {
        let allowed = self.limit.saturating_sub(self.sent).min(room as u64) as usize;
        let count = self.queue.len().min(allowed);
        let offset = self.sent;
        let (front, back) = self.queue.as_slices();
        let first = count.min(front.len());
        out.extend_from_slice(&front[..first]);
        out.extend_from_slice(&back[..count - first]);
        self.queue.drain(..count);
        free_if_empty(&mut self.queue);
        self.sent += count as u64;
        self.is_ended = self.is_ending && self.queue.is_empty();
        (offset, self.is_ended)
    }
}

/// The bytes that came, in order as far as they are whole.
#[derive(Debug)]
pub(super) struct Receiving {
    ready: VecDeque<u8>,
    /// Offset after the last byte in `ready`.
    next: u64,
    /// Bytes that came ahead of their turn, by offset.
    later: BTreeMap<u64, Vec<u8>>,
    later_bytes: usize,
    length: Option<u64>,
    granted: u64,
    window: u64,
    grown_at: Option<Instant>,
    pub(super) is_ended: bool,
}

impl Default for Receiving {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            next: 0,
            later: BTreeMap::new(),
            later_bytes: 0,
            length: None,
            granted: FIRST_WINDOW,
            window: FIRST_WINDOW,
            grown_at: None,
            is_ended: false,
        }
    }
}

impl Receiving {
    /// Bytes arrived. False when the sender had no right to send them.
    pub(super) fn on_bytes(&mut self, offset: u64, bytes: &[u8], is_end: bool) -> bool {
        let end = offset + bytes.len() as u64;
        let is_contradiction = self.length.is_some_and(|length| end > length || (is_end && end != length));
        if end > self.granted || is_contradiction {
            return false;
        }
        if is_end {
            self.length = Some(end);
        }
        if offset == self.next {
            self.ready.extend(bytes);
            self.next = end;
            self.advance();
        } else if offset > self.next {
            self.later_bytes += bytes.len();
            self.later.insert(offset, bytes.to_vec());
        }
        true
    }

    fn advance(&mut self) {
        while let Some(first) = self.later.first_entry() {
            if *first.key() != self.next {
                return;
            }
            let bytes = first.remove();
            self.later_bytes -= bytes.len();
            self.next += bytes.len() as u64;
            self.ready.extend(&bytes);
        }
    }

    /// The readable bytes, as two pieces.
    pub(super) fn ready(&self) -> (&[u8], &[u8]) {
        self.ready.as_slices()
    }

    /// Whether all bytes were read and the stream ended in order.
    pub(super) fn is_at_end(&self) -> bool {
        self.ready.is_empty() && self.length == Some(self.next)
    }

    /// Whether there is something to read: bytes, or the end.
    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || (self.is_at_end() && !self.is_ended)
    }

    /// Bytes that came in order and were not read.
    pub(super) fn unread(&self) -> usize {
        self.ready.len()
    }

    /// Bytes held.
    pub(super) fn held(&self) -> usize {
        self.ready.len() + self.later_bytes
    }

    /// `count` bytes were read. Returns the new limit when it is time to tell the sender. A stream whose credit lasts
    /// less than two round trips, although it is read at once, gets more.
    pub(super) fn consume(&mut self, now: Instant, count: usize, rtt: Duration) -> Option<u64> {
        self.ready.drain(..count);
        free_if_empty(&mut self.ready);
        let consumed = self.next - self.ready.len() as u64;
        if self.length.is_some() || self.granted - consumed > self.window - self.window / 4 {
            return None;
        }
        let is_fast = self.grown_at.is_none_or(|at| now.since(at) < rtt.scaled(2, 1));
        if is_fast {
            self.window = (2 * self.window).min(MOST_WINDOW);
        }
        self.grown_at = Some(now);
        self.granted = consumed + self.window;
        Some(self.granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(receive: &mut Receiving) -> Vec<u8> {
        let (front, back) = receive.ready();
        let bytes = [front, back].concat();
        receive.consume(Instant::ZERO, bytes.len(), Duration::from_millis(1));
        bytes
    }

    #[test]
    fn bytes_are_read_in_order_however_they_come_and_the_end_after_them() {
        let mut receive = Receiving::default();
        assert!(receive.on_bytes(6, b"world", true));
        assert!(!receive.is_readable());
        assert!(receive.on_bytes(0, b"hello ", false));
        assert_eq!(read(&mut receive), b"hello world");
        assert!(receive.is_at_end());
    }

    #[test]
    fn what_exceeds_the_credit_or_contradicts_the_end_is_refused() {
        let mut receive = Receiving::default();
        assert!(!receive.on_bytes(FIRST_WINDOW, b"x", false));
        assert!(receive.on_bytes(0, b"abc", true));
        assert!(!receive.on_bytes(3, b"d", false));
        assert!(!receive.on_bytes(3, b"", false) || receive.is_readable());
    }

    #[test]
    fn a_sender_waits_for_credit_and_ends_after_its_last_byte() {
        let mut send = Sending { limit: 5, ..Sending::default() };
        let mut out = Vec::new();
        assert_eq!(send.write(b"hello world", 1_000), 11);
        send.finish();
        assert_eq!(send.take(1_000, &mut out), (0, false));
        assert!(!send.is_ready(), "no credit is left");
        send.on_credit(100);
        assert_eq!(send.take(1_000, &mut out), (5, true));
        assert_eq!((out.as_slice(), send.is_ready()), (&b"hello world"[..], false));
    }

    #[test]
    fn a_stream_keeps_no_memory_for_bytes_that_have_gone() {
        let mut stream = Stream::new(None);
        assert_eq!(stream.send.write(&[1; 100_000], 1_000_000), 100_000);
        stream.send.take(60_000, &mut Vec::new());
        stream.send.take(40_000, &mut Vec::new());
        assert!(stream.receive.on_bytes(50_000, &[1; 50_000], false));
        assert!(stream.receive.on_bytes(0, &[1; 50_000], false));
        stream.receive.consume(Instant::ZERO, 30_000, Duration::ZERO);
        assert_eq!(stream.receive.held(), 70_000);
        stream.receive.consume(Instant::ZERO, 70_000, Duration::ZERO);
        assert_eq!((stream.send.queue.capacity(), stream.receive.ready.capacity()), (0, 0));
    }

    #[test]
    fn a_reader_that_does_not_read_stops_the_sender() {
        let mut receive = Receiving::default();
        let bytes = [0; 1 << 16];
        let mut at = 0;
        while receive.on_bytes(at, &bytes, false) {
            at += bytes.len() as u64;
        }
        assert_eq!(at, FIRST_WINDOW);
        assert_eq!(receive.held() as u64, FIRST_WINDOW);
        let more = receive.consume(Instant::ZERO, at as usize, Duration::from_millis(500));
        assert_eq!(more, Some(3 * FIRST_WINDOW), "it keeps up, and gets twice as much");
    }
}
