//! Integers below 2^62 in 1, 3, 5 or 8 bytes.
//!
//! The two leading bits give the length, as in RFC 9000 section 16, but the lengths are chosen for offsets
//! and range lengths: five bytes name any byte of a 256 GiB object, where QUIC's lengths would need eight.
//! With them a Data header stays within 28 bytes (see [`super::DataHeader`]).

use alloc::vec::Vec;

const LENGTHS: [usize; 4] = [1, 3, 5, 8];

/// The largest value: 2^62 - 1.
pub const MAX: u64 = (1 << 62) - 1;

/// Bytes that `value` takes.
pub const fn len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x40_0000 => 3,
        0x40_0000..0x40_0000_0000 => 5,
        _ => 8,
    }
}

/// Appends `value`, which must not exceed [`MAX`].
pub fn write(value: u64, out: &mut Vec<u8>) {
    debug_assert!(value <= MAX, "{value} is no varint");
    let len = len(value);
    let class = LENGTHS.iter().position(|&l| l == len).unwrap_or(3) as u64;
    let tagged = value | (class << (8 * len - 2));
    out.extend_from_slice(&tagged.to_be_bytes()[8 - len..]);
}

/// Reads a value off the front and returns it with the rest; `None` when the bytes end too early. Longer
/// forms than needed are accepted.
#[inline]
pub fn read(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = LENGTHS[usize::from(bytes.first()? >> 6)];
    let (field, rest) = bytes.split_at_checked(len)?;
    let tagged = field.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    Some((tagged & (u64::MAX >> (66 - 8 * len)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_change_exactly_at_the_powers_of_two() {
        for (value, expected) in [
            (0, 1),
            (63, 1),
            (64, 3),
            ((1 << 22) - 1, 3),
            (1 << 22, 5),
            ((1 << 38) - 1, 5),
            (1 << 38, 8),
            (MAX, 8),
        ] {
            let mut out = Vec::new();
            write(value, &mut out);
            assert_eq!((out.len(), len(value)), (expected, expected), "{value}");
            assert_eq!(read(&out), Some((value, &[][..])));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in 0..=MAX) {
            let mut out = Vec::new();
            write(value, &mut out);
            prop_assert_eq!(read(&out), Some((value, &[][..])));
            prop_assert_eq!(read(&out[..out.len() - 1]), None);
        }
    }
}
