use super::handover::parts;
use crate::name::{ByteRange, FlowId};
use crate::producer::{Lookup, Source};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Bytes of a hello's answer: when the gateway that gives it began, as a number drawn then.
pub(super) const HELLO_LEN: u64 = 8;

/// The bytes that a gateway's Producer gives: its answers to hellos, and its trunks.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// By the first half of the name: the second half is the asker's number.
    greetings: BTreeMap<[u8; 8], Greeting>,
    trunks: BTreeMap<FlowId, Log>,
    /// Questions since the last look: the greeting, and the asker's number.
    asked: Vec<([u8; 8], u64)>,
}

/// The answer to a peer's hello.
#[derive(Clone, Copy, Debug)]
struct Greeting {
    number: u64,
    /// The asker that was reported last.
    asker: Option<u64>,
}

/// Bytes that were appended and are not known to have arrived.
#[derive(Debug, Default)]
pub(super) struct Log {
    start: u64,
    bytes: VecDeque<u8>,
}

parts!(Log { start, bytes });

impl Log {
    /// Offset before which everything has arrived.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Offset after the last byte.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Bytes kept.
    pub(super) fn kept(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Everything below `end` has arrived.
    pub(super) fn forget(&mut self, end: u64) {
        let count = end.min(self.end()).saturating_sub(self.start);
        self.bytes.drain(..count as usize);
        self.start += count;
    }

    fn read(&self, range: ByteRange, out: &mut Vec<u8>) -> bool {
        if range.start < self.start || range.end > self.end() {
            return false;
        }
        let (from, to) = ((range.start - self.start) as usize, (range.end - self.start) as usize);
        let (front, back) = self.bytes.as_slices();
        let seam = front.len();
        out.extend_from_slice(&front[from.min(seam)..to.min(seam)]);
        out.extend_from_slice(&back[from.saturating_sub(seam)..to.saturating_sub(seam)]);
        true
    }
}

/// The flow by which a gateway that began as `asker` asks for the gateway behind `tag`.
pub(super) fn hello_flow(tag: [u8; 8], asker: u64) -> FlowId {
    let mut id = [0; FlowId::LEN];
    id[..8].copy_from_slice(&tag);
    id[8..].copy_from_slice(&asker.to_be_bytes());
    FlowId(id)
}

impl Store {
    /// Answers hellos under `tag` with `number` from now on.
    pub(super) fn greet(&mut self, tag: [u8; 8], number: u64) {
        self.greetings.insert(tag, Greeting { number, asker: None });
    }

    /// Answers under the tag `after` as it did under `before`, which nobody is answered under any more.
    pub(super) fn greet_as(&mut self, before: [u8; 8], after: [u8; 8]) {
        if let Some(greeting) = self.greetings.remove(&before) {
            self.greetings.insert(after, greeting);
        }
    }

    /// A peer that asked, as a number that was not told yet.
    pub(super) fn pop_asked(&mut self) -> Option<([u8; 8], u64)> {
        self.asked.pop()
    }

    pub(super) fn open(&mut self, flow: FlowId) {
        self.trunks.insert(flow, Log::default());
    }

    /// Goes on with a trunk of another process.
    pub(super) fn resume(&mut self, flow: FlowId, log: Log) {
        self.trunks.insert(flow, log);
    }

    pub(super) fn close(&mut self, flow: FlowId) {
        self.trunks.remove(&flow);
    }

    pub(super) fn trunk(&self, flow: FlowId) -> Option<&Log> {
        self.trunks.get(&flow)
    }

    pub(super) fn trunk_mut(&mut self, flow: FlowId) -> Option<&mut Log> {
        self.trunks.get_mut(&flow)
    }

    fn greeting(&mut self, flow: FlowId) -> Option<(&mut Greeting, [u8; 8], u64)> {
        let (tag, asker) = flow.0.split_first_chunk::<8>()?;
        let asker = u64::from_be_bytes(asker.try_into().ok()?);
        self.greetings.get_mut(tag).map(|greeting| (greeting, *tag, asker))
    }
}

impl Source for Store {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        if let Some(log) = self.trunks.get(&flow) {
            // Relays may keep it: their repairs come from there. No other node knows its name, or can read it.
            return Lookup::Live { available: log.end(), is_volatile: false };
        }
        let Some((greeting, tag, asker)) = self.greeting(flow) else {
            // A trunk of a session that is over, or that begins: its end shows otherwise.
            return Lookup::NotYet;
        };
        if greeting.asker.replace(asker) != Some(asker) {
            self.asked.push((tag, asker));
        }
        Lookup::Found { length: Some(HELLO_LEN), is_volatile: true }
    }

    fn read(&mut self, _now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        if let Some(log) = self.trunks.get(&flow) {
            return log.read(range, out);
        }
        let Some((greeting, ..)) = self.greeting(flow) else { return false };
        let answer = greeting.number.to_be_bytes();
        let wanted = answer.get(range.start as usize..range.end as usize);
        out.extend_from_slice(wanted.unwrap_or_default());
        wanted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gives_what_it_has_and_nothing_else() {
        let mut log = Log::default();
        (0..10).for_each(|n| log.append(&[n; 100]));
        log.forget(250);
        log.append(&[10; 200]);
        let mut out = Vec::new();
        assert!(log.read(ByteRange::new(290, 310), &mut out));
        assert_eq!(out, [[2; 10], [3; 10]].concat());
        assert!(!log.read(ByteRange::new(249, 260), &mut out), "forgotten");
        assert!(!log.read(ByteRange::new(1_190, 1_201), &mut out), "not there yet");
    }

    #[test]
    fn who_says_hello_is_told_of_once() {
        let (mut store, tag) = (Store::default(), [7; 8]);
        store.greet(tag, 99);
        for _ in 0..3 {
            let found = store.lookup(hello_flow(tag, 5));
            assert_eq!(found, Lookup::Found { length: Some(HELLO_LEN), is_volatile: true });
        }
        assert_eq!((store.pop_asked(), store.pop_asked()), (Some((tag, 5)), None));
        let mut out = Vec::new();
        assert!(store.read(Instant::ZERO, hello_flow(tag, 5), ByteRange::new(0, 8), &mut out));
        assert_eq!(out, 99u64.to_be_bytes());
        assert_eq!(store.lookup(hello_flow([8; 8], 5)), Lookup::NotYet);
    }
}
