use super::BadRecord;
use super::handover::Part;
use crate::name::{ByteRange, RangeSet};
use crate::security::{NONCE_LEN, SealKey, TAG_LEN};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Bytes of a record's length field.
const LENGTH: usize = 2;
/// Bytes of a record beyond its contents.
pub(super) const RECORD_OVERHEAD: usize = LENGTH + TAG_LEN;

/// Appends `plain` as the record at `offset` of a trunk: its length, and the rest sealed. The offset is the nonce: a
/// trunk only grows, and no other has its key. False when the cipher refuses.
pub(super) fn seal_record(key: &impl SealKey, offset: u64, plain: &[u8], out: &mut Vec<u8>) -> bool {
    let length = (plain.len() as u16).to_be_bytes();
    out.extend_from_slice(&length);
    let start = out.len();
    out.extend_from_slice(plain);
    key.seal(nonce(offset), &length, out, start)
}

fn nonce(offset: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&offset.to_be_bytes());
    nonce
}

/// Opens the records of a trunk, whose bytes come in any order.
///
/// A packet nearly always is one record, and is opened at once, even if bytes before it are missing: a loss of one
/// stream delays no other. A repair may be cut elsewhere; bytes that do not open wait for their neighbours before
/// and behind.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    opened: RangeSet,
    /// Bytes that did not open yet, by offset.
    waiting: BTreeMap<u64, Vec<u8>>,
    scratch: Vec<u8>,
    /// Something was skipped: where records begin is not certain any more.
    has_skipped: bool,
}

impl Part for Inbox {
    fn put(&self, out: &mut Vec<u8>) {
        self.opened.put(out);
        self.waiting.put(out);
        self.has_skipped.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (opened, waiting) = (Part::take(from)?, Part::take(from)?);
        Some(Self { opened, waiting, scratch: Vec::new(), has_skipped: Part::take(from)? })
    }
}

impl Inbox {
    /// The bytes that came, whether they opened or not.
    pub(super) fn came(&self) -> RangeSet {
        let mut came = self.opened.clone();
        let waiting = self.waiting.iter().map(|(start, bytes)| ByteRange::at(*start, bytes.len() as u64));
        waiting.for_each(|range| came.insert(range));
        came
    }

    /// Everything below has come.
    pub(super) fn in_order_end(&self) -> u64 {
        self.opened.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// Missing bytes below `end` will not come.
    pub(super) fn skip(&mut self, end: u64) {
        self.has_skipped = true;
        self.opened.insert(ByteRange::new(0, end));
        self.waiting = self.waiting.split_off(&end);
    }

    /// Takes the bytes at `offset` and appends the contents of each record that they complete to `out`.
    ///
    /// # Errors
    /// [`BadRecord`] if a record whose beginning is certain was not sealed by the key's owner.
    pub(super) fn push(
        &mut self,
        key: &impl SealKey,
        offset: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BadRecord> {
        let end = self.open(key, offset, bytes, out)?;
        let rest = &bytes[(end - offset) as usize..];
        if !rest.is_empty() {
            self.keep(end, rest);
        }
        self.reconsider(key, end, out)
    }

    /// Opens records from the front of `bytes`; returns where those end that opened.
    fn open(
        &mut self,
        key: &impl SealKey,
        offset: u64,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u64, BadRecord> {
        let mut at = offset;
        loop {
            let rest = &bytes[(at - offset) as usize..];
            let Some((length, body)) = rest.split_first_chunk::<LENGTH>() else { return Ok(at) };
            let Some(sealed) = body.get(..usize::from(u16::from_be_bytes(*length)) + TAG_LEN) else {
                return Ok(at);
            };
            self.scratch.clear();
            self.scratch.extend_from_slice(sealed);
            let Some(plain) = key.open(nonce(at), length, &mut self.scratch) else {
                let is_beginning = at == 0 || self.opened.contains(ByteRange::at(at - 1, 1));
                let is_beginning = is_beginning && !self.has_skipped;
                return if is_beginning { Err(BadRecord) } else { Ok(at) };
            };
            out.extend_from_slice(plain);
            let record = ByteRange::at(at, (LENGTH + sealed.len()) as u64);
            self.opened.insert(record);
            at = record.end;
        }
    }

    /// Keeps bytes, joined to those that they adjoin.
    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        let mut joined = (offset, bytes.to_vec());
        if let Some((&start, before)) = self.waiting.range(..offset).next_back()
            && start + before.len() as u64 == offset
        {
            let mut before = self.waiting.remove(&start).unwrap_or_default();
            before.extend_from_slice(bytes);
            joined = (start, before);
        }
        if let Some(behind) = self.waiting.remove(&(joined.0 + joined.1.len() as u64)) {
            joined.1.extend_from_slice(&behind);
        }
        self.waiting.insert(joined.0, joined.1);
    }

    /// Tries the waiting bytes again, now that the beginning of a record at `end` may be certain.
    fn reconsider(&mut self, key: &impl SealKey, end: u64, out: &mut Vec<u8>) -> Result<(), BadRecord> {
        // The piece at `end`, or the piece that was just joined to its predecessor.
        let start = self.waiting.range(..=end).next_back().map(|(start, _)| *start);
        let Some(start) =
            start.filter(|start| *start == 0 || self.opened.contains(ByteRange::at(start - 1, 1)))
        else {
            return Ok(());
        };
        let Some(bytes) = self.waiting.remove(&start) else { return Ok(()) };
        let opened = self.open(key, start, &bytes, out)?;
        if (opened - start) as usize == bytes.len() {
            return self.after(key, opened, out);
        }
        self.waiting.insert(opened, bytes[(opened - start) as usize..].to_vec());
        Ok(())
    }

    /// All bytes before `end` are opened: the bytes that wait there may follow.
    fn after(&mut self, key: &impl SealKey, end: u64, out: &mut Vec<u8>) -> Result<(), BadRecord> {
        let Some(bytes) = self.waiting.remove(&end) else { return Ok(()) };
        self.push(key, end, &bytes, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::PlainKey;
    use proptest::prelude::*;

    const KEY: PlainKey = PlainKey(7);

    fn trunk(lens: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for (n, &len) in lens.iter().enumerate() {
            let offset = out.len() as u64;
            assert!(seal_record(&KEY, offset, &alloc::vec![n as u8; len], &mut out));
        }
        out
    }

    proptest! {
        /// Packets may be cut anywhere and come in any order: every record is given once, and whole.
        #[test]
        fn each_record_is_given_once_however_the_trunk_is_cut(
            lens in prop::collection::vec(1usize..300, 1..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            order in any::<u64>(),
        ) {
            let bytes = trunk(&lens);
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            at.dedup();
            let mut pieces: Vec<(usize, usize)> = at.windows(2).map(|pair| (pair[0], pair[1])).collect();
            let mut rng = crate::rng::Rng::new(order);
            for last in (1..pieces.len()).rev() {
                pieces.swap(last, rng.below(last as u64 + 1) as usize);
            }
            let (mut inbox, mut given) = (Inbox::default(), Vec::new());
            for (from, to) in pieces {
                inbox.push(&KEY, from as u64, &bytes[from..to], &mut given).unwrap();
            }
            let count = |n: usize| given.iter().filter(|byte| usize::from(**byte) == n).count();
            prop_assert_eq!((0..lens.len()).map(count).collect::<Vec<_>>(), lens);
            prop_assert_eq!(inbox.in_order_end(), bytes.len() as u64);
            prop_assert!(inbox.waiting.is_empty());
        }
    }

    #[test]
    fn a_record_that_was_changed_is_found_out() {
        let mut bytes = trunk(&[100, 100]);
        // The test's key notices only changes of its tag, so the tag is changed.
        bytes[LENGTH + 100 + 3] ^= 1;
        let mut inbox = Inbox::default();
        assert_eq!(inbox.push(&KEY, 0, &bytes, &mut Vec::new()), Err(BadRecord));
    }
}
