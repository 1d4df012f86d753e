//! The bytes of a connection that its receiver may still ask for.

use super::super::handover::parts;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes that a user gave and that are not known to have arrived in order. The end of the connection takes an offset of
/// its own, so that it is acknowledged as bytes are.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Kept {
    bytes: VecDeque<u8>,
    start: u64,
    is_ending: bool,
}

parts!(Kept { bytes, start, is_ending });

impl Kept {
    /// Takes bytes of the user.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// No bytes follow.
    pub(in crate::gateway) fn finish(&mut self) {
        self.is_ending = true;
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Offset after the user's last byte.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Offset after all that there is to send, the end included.
    pub(super) fn given(&self) -> u64 {
        self.end() + u64::from(self.is_ending)
    }

    /// Everything below has arrived. Returns the number of users' bytes among it that was not known to have.
    pub(super) fn forget(&mut self, below: u64) -> u64 {
        let count = below.min(self.end()).saturating_sub(self.start);
        self.bytes.drain(..count as usize);
        self.start += count;
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
        count
    }

    /// Appends the users' bytes of `range`, from which an end is left out.
    pub(super) fn read(&self, range: crate::name::ByteRange, out: &mut Vec<u8>) {
        let place = |offset: u64| (offset.clamp(self.start, self.end()) - self.start) as usize;
        let (from, to) = (place(range.start), place(range.end));
        let (front, back) = self.bytes.as_slices();
        let seam = front.len();
        out.extend_from_slice(&front[from.min(seam)..to.min(seam)]);
        out.extend_from_slice(&back[from.saturating_sub(seam)..to.saturating_sub(seam)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ByteRange;

    fn read(kept: &Kept, from: u64, to: u64) -> Vec<u8> {
        let mut out = Vec::new();
        kept.read(ByteRange::new(from, to), &mut out);
        out
    }

    #[test]
    fn bytes_stay_until_all_before_them_have_arrived_and_the_end_takes_an_offset() {
        let mut kept = Kept::default();
        kept.write(b"hello ");
        kept.write(b"world");
        assert_eq!(read(&kept, 4, 8), b"o wo");
        assert_eq!((kept.forget(4), kept.forget(4)), (4, 0));
        assert_eq!(read(&kept, 4, 11), b"o world");
        kept.finish();
        assert_eq!((kept.end(), kept.given()), (11, 12));
        assert_eq!(read(&kept, 9, 12), b"ld");
        assert_eq!((kept.forget(12), read(&kept, 11, 12)), (7, Vec::new()));
    }
}
