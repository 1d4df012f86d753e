use super::sink::FileSink;
use super::{FetchError, Watched};
use crate::outboard::{GROUP, Outboard, group_range};
use starhop_proto::consumer::Sink;
use starhop_proto::name::{ByteRange, RangeSet};
use starhop_proto::time::Instant;
use std::collections::BTreeMap;

/// Passes only those bytes on to the file that are proved to belong to the object.
///
/// Without an outboard all bytes pass, and the whole is verified at the end. An incomplete group waits here: as
/// many as the receive window has room for.
#[derive(Debug)]
pub(super) struct GroupSink {
    file: FileSink,
    outboard: Option<Outboard>,
    length: Option<u64>,
    waiting: BTreeMap<u64, Group>,
    /// Bytes of an earlier attempt, which are verified at the end.
    have: RangeSet,
    spare: Vec<Box<[u8; GROUP as usize]>>,
    /// Groups whose bytes are wrong.
    bad: Vec<ByteRange>,
}

#[derive(Debug)]
struct Group {
    bytes: Box<[u8; GROUP as usize]>,
    here: RangeSet,
}

impl GroupSink {
    pub(super) fn new(
        file: FileSink,
        outboard: Option<Outboard>,
        length: Option<u64>,
        have: RangeSet,
    ) -> Self {
        Self { file, outboard, length, waiting: BTreeMap::new(), have, spare: Vec::new(), bad: Vec::new() }
    }

    pub(super) fn into_file(self) -> FileSink {
        self.file
    }

    fn add(&mut self, number: u64, range: ByteRange, bytes: &[u8]) {
        let whole = group_range(number, self.length);
        if self.have.overlaps(whole) {
            // Part of it is in the file already: the hash of the whole will tell.
            self.file.store(range, bytes);
            return;
        }
        let Self { waiting, spare, .. } = self;
        let mut fresh = || spare.pop().unwrap_or_else(|| Box::new([0; GROUP as usize]));
        let group = waiting.entry(number).or_insert_with(|| Group { bytes: fresh(), here: RangeSet::new() });
        let at = (range.start - whole.start) as usize;
        group.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        group.here.insert(range);
        if group.here.contains(whole) {
            self.judge(number, whole);
        }
    }

    fn judge(&mut self, number: u64, whole: ByteRange) {
        let Some(group) = self.waiting.remove(&number) else { return };
        let bytes = &group.bytes[..whole.len() as usize];
        match &self.outboard {
            Some(outboard) if !outboard.verifies(number, bytes) => self.bad.push(whole),
            _ => self.file.store(whole, bytes),
        }
        self.spare.push(group.bytes);
    }
}

impl Sink for GroupSink {
    fn write(&mut self, now: Instant, range: ByteRange, bytes: &[u8]) {
        if self.outboard.is_none() {
            self.file.write(now, range, bytes);
            return;
        }
        self.file.note(now, range);
        let mut at = range.start;
        while at < range.end {
            let number = at / GROUP;
            let piece = ByteRange::new(at, range.end.min((number + 1) * GROUP));
            let from = (at - range.start) as usize;
            self.add(number, piece, &bytes[from..from + piece.len() as usize]);
            at = piece.end;
        }
    }
}

impl Watched for GroupSink {
    fn flush(&mut self) {
        self.file.flush();
    }

    fn failure(&mut self) -> Option<FetchError> {
        self.file.failure()
    }

    fn on_length(&mut self, length: u64) {
        if self.length.replace(length) == Some(length) || self.outboard.is_none() {
            return;
        }
        // The last group is whole with fewer bytes than was thought.
        let last = length.saturating_sub(1) / GROUP;
        let whole = group_range(last, Some(length));
        if self.waiting.get(&last).is_some_and(|group| group.here.contains(whole)) {
            self.judge(last, whole);
        }
    }

    fn take_bad(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.bad)
    }
}
