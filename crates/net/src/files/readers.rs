use super::catalogue::{Entry, Stamp};
use starhop_proto::name::{ByteRange, FlowId};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Memory for bytes that are read ahead of flows that are read in order.
const MEMORY: usize = 64 << 20;

/// The most, and the least, that is read ahead of one flow. Many flows share the memory: 300 of them that had 256 KiB each, with room
/// for 256, read as much from the disk for each packet.
const AHEAD: (usize, usize) = (16 << 10, 256 << 10);

/// Files that may be open, of the descriptors of a process: one divided by the number. The rest is for sockets and for hashing.
const DESCRIPTORS: u64 = 2;

/// The files that are being read.
#[derive(Debug)]
pub(super) struct Readers {
    open: BTreeMap<FlowId, Reader>,
    /// The same by their last use: the idlest first.
    by_use: BTreeMap<u64, FlowId>,
    uses: u64,
    most: usize,
}

/// A file that is being read.
#[derive(Debug)]
struct Reader {
    entry: Arc<Entry>,
    file: File,
    /// The bytes of the file from `start` on.
    ahead: Vec<u8>,
    start: u64,
    used: u64,
}

impl Readers {
    /// No files yet, in a process that may have so many descriptors.
    pub(super) fn new(descriptors: u64) -> Self {
        let most = usize::try_from(descriptors / DESCRIPTORS).unwrap_or(usize::MAX);
        let most = most.clamp(1, MEMORY / AHEAD.0);
        Self { open: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0, most }
    }

    /// Appends the bytes of `range` of the file that `flow` is. False, and nothing, if it is not any more what it was.
    pub(super) fn read(
        &mut self,
        flow: FlowId,
        entry: &Arc<Entry>,
        range: ByteRange,
        out: &mut Vec<u8>,
    ) -> bool {
        if !self.open.get(&flow).is_some_and(|reader| Arc::ptr_eq(&reader.entry, entry)) {
            self.close(flow);
            let Ok(Some(reader)) = self.open(entry) else { return false };
            self.open.insert(flow, reader);
        }
        let ahead = (MEMORY / self.open.len().max(1)).clamp(AHEAD.0, AHEAD.1);
        let Some(reader) = self.open.get_mut(&flow) else { return false };
        self.uses += 1;
        self.by_use.remove(&reader.used);
        reader.used = self.uses;
        self.by_use.insert(self.uses, flow);
        let done = reader.read(range, ahead, out);
        if !done {
            self.close(flow);
        }
        done
    }

    /// Opens a file; none if it is not any more what it was. Others close where it is one too many.
    fn open(&mut self, entry: &Arc<Entry>) -> io::Result<Option<Reader>> {
        loop {
            while self.open.len() >= self.most {
                self.close_the_idlest();
            }
            match Reader::new(entry) {
                Err(error) if is_one_too_many(&error) && !self.open.is_empty() => self.close_the_idlest(),
                done => return done,
            }
        }
    }

    fn close(&mut self, flow: FlowId) {
        if let Some(reader) = self.open.remove(&flow) {
            self.by_use.remove(&reader.used);
        }
    }

    fn close_the_idlest(&mut self) {
        if let Some((_, flow)) = self.by_use.pop_first() {
            self.open.remove(&flow);
        }
    }

    /// True if the bytes of `range` can be had without a look at the file.
    #[cfg(test)]
    pub(super) fn has(&self, flow: FlowId, range: ByteRange) -> bool {
        self.open.get(&flow).is_some_and(|reader| reader.copy_ahead(range, &mut Vec::new()))
    }
}

fn is_one_too_many(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl Reader {
    fn new(entry: &Arc<Entry>) -> io::Result<Option<Self>> {
        let file = entry.place.root.open_below(&entry.place.path)?;
        let is_same = Stamp::of(&file).is_ok_and(|stamp| stamp == entry.stamp);
        Ok(is_same.then(|| Self { entry: entry.clone(), file, ahead: Vec::new(), start: 0, used: 0 }))
    }

    fn is_unchanged(&self) -> bool {
        Stamp::of(&self.file).is_ok_and(|stamp| stamp == self.entry.stamp)
    }

    /// Appends the bytes of `range`, with as many as `most` read ahead.
    fn read(&mut self, range: ByteRange, most: usize, out: &mut Vec<u8>) -> bool {
        if self.copy_ahead(range, out) {
            return true;
        }
        let end = self.start + self.ahead.len() as u64;
        let goes_on = range.start >= self.start && range.start <= end + most as u64;
        if goes_on || self.ahead.is_empty() {
            return self.fill(range, most) && self.copy_ahead(range, out);
        }
        // A repair far back: reading ahead there would throw away the bytes that the flow reads next.
        let from = out.len();
        out.resize(from + range.len() as usize, 0);
        let done = self.file.read_exact_at(&mut out[from..], range.start).is_ok() && self.is_unchanged();
        if !done {
            out.truncate(from);
        }
        done
    }

    fn copy_ahead(&self, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let Some(from) = range.start.checked_sub(self.start) else { return false };
        let Some(bytes) = self.ahead.get(from as usize..(from + range.len()) as usize) else { return false };
        out.extend_from_slice(bytes);
        true
    }

    fn fill(&mut self, range: ByteRange, most: usize) -> bool {
        let left = self.entry.stamp.length.saturating_sub(range.start);
        let len = (most as u64).max(range.len()).min(left) as usize;
        if self.ahead.capacity() > 2 * len {
            self.ahead = Vec::with_capacity(len);
        }
        self.ahead.resize(len, 0);
        self.start = range.start;
        // Checked after the read: a change before or during it shows in the stamp.
        self.file.read_exact_at(&mut self.ahead, range.start).is_ok() && self.is_unchanged()
    }
}
