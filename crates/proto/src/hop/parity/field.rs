//! Arithmetic in the field of 256 elements, with the polynomial x^8 + x^4 + x^3 + x^2 + 1.

use alloc::vec::Vec;

/// The polynomial without its highest power.
const POLYNOMIAL: u64 = 0x1d;
const LOW_BIT_OF_EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Each byte of a word times x.
fn times_x(word: u64) -> u64 {
    let carries = (word >> 7) & LOW_BIT_OF_EACH_BYTE;
    ((word & !(LOW_BIT_OF_EACH_BYTE << 7)) << 1) ^ (carries * POLYNOMIAL)
}

/// Each byte of a word times `factor`, given as masks of its bits.
fn product(mut word: u64, masks: &[u64; 8]) -> u64 {
    let mut sum = 0;
    for mask in masks {
        sum ^= word & mask;
        word = times_x(word);
    }
    sum
}

fn masks(factor: u8) -> [u64; 8] {
    core::array::from_fn(|bit| 0_u64.wrapping_sub(u64::from(factor >> bit) & 1))
}

/// The product of two elements.
pub(super) fn times(a: u8, b: u8) -> u8 {
    product(u64::from(a), &masks(b)) as u8
}

/// The element whose product with `a`, which is not zero, is one: `a` to the power of 254.
pub(super) fn inverse(a: u8) -> u8 {
    let square = |a| times(a, a);
    let (mut power, mut result) = (square(a), 1);
    for _ in 1..8 {
        result = times(result, power);
        power = square(power);
    }
    result
}

/// Adds `bytes` times `factor` to `sum`, which is at least as long.
pub(super) fn add_product(sum: &mut [u8], bytes: &[u8], factor: u8) {
    let masks = masks(factor);
    let (words, rest) = bytes.as_chunks::<8>();
    let (sums, sum_rest) = sum[..bytes.len()].as_chunks_mut::<8>();
    for (sum, word) in sums.iter_mut().zip(words) {
        let added = u64::from_ne_bytes(*sum) ^ product(u64::from_ne_bytes(*word), &masks);
        *sum = added.to_ne_bytes();
    }
    for (sum, byte) in sum_rest.iter_mut().zip(rest) {
        *sum ^= product(u64::from(*byte), &masks) as u8;
    }
}

/// The products of some bytes with every power of x: to add the bytes to many sums, each times a factor of its own, takes
/// four additions per sum on average, and no multiplication.
#[derive(Clone, Debug, Default)]
pub(super) struct Powers {
    /// Eight times as long as the bytes.
    products: Vec<u8>,
    length: usize,
}

impl Powers {
    /// The products of the bytes of `parts`, one after the other.
    pub(super) fn set(&mut self, parts: [&[u8]; 2]) {
        self.products.clear();
        parts.iter().for_each(|part| self.products.extend_from_slice(part));
        self.length = self.products.len();
        self.products.resize(8 * self.length, 0);
        for power in 1..8 {
            let (before, after) = self.products.split_at_mut(power * self.length);
            add_product(&mut after[..self.length], &before[(power - 1) * self.length..], 2);
        }
    }

    /// Adds the bytes times `factor` to `sum`, which is at least as long.
    pub(super) fn add_to(&self, sum: &mut [u8], factor: u8) {
        for bit in (0..8).filter(|bit| factor >> bit & 1 == 1) {
            add(&mut sum[..self.length], &self.products[bit * self.length..][..self.length]);
        }
    }
}

/// Adds bytes to a sum of the same length.
fn add(sum: &mut [u8], bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<8>();
    let (sums, sum_rest) = sum.as_chunks_mut::<8>();
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum = (u64::from_ne_bytes(*sum) ^ u64::from_ne_bytes(*word)).to_ne_bytes();
    }
    sum_rest.iter_mut().zip(rest).for_each(|(sum, byte)| *sum ^= byte);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a textbook: shift, add, reduce.
    fn slowly(a: u8, b: u8) -> u8 {
        let (mut a, mut product) = (u16::from(a), 0);
        for bit in 0..8 {
            product ^= if b >> bit & 1 == 1 { a } else { 0 };
            a <<= 1;
            a ^= if a & 0x100 != 0 { 0x11d } else { 0 };
        }
        product as u8
    }

    #[test]
    fn products_and_inverses_are_those_of_the_field() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(times(a, b), slowly(a, b), "{a} {b}");
            }
            assert!(a == 0 || times(a, inverse(a)) == 1, "{a}");
        }
    }

    #[test]
    fn powers_add_the_same_product() {
        let bytes: Vec<u8> = (0..37).map(|n| n * 7 + 3).collect();
        let mut powers = Powers::default();
        powers.set([&bytes[..3], &bytes[3..]]);
        for factor in 0..=255 {
            let (mut sum, mut expected) = ([0x33; 40], [0x33; 40]);
            powers.add_to(&mut sum, factor);
            add_product(&mut expected, &bytes, factor);
            assert_eq!(sum, expected, "{factor}");
        }
    }

    #[test]
    fn a_product_is_added_to_every_byte() {
        let bytes: Vec<u8> = (0..37).map(|n| n * 7 + 3).collect();
        let before: Vec<u8> = (0..40).map(|n| n * 5).collect();
        let mut sum = before.clone();
        add_product(&mut sum, &bytes, 0x8e);
        for at in 0..40 {
            let added = bytes.get(at).map_or(0, |byte| slowly(*byte, 0x8e));
            assert_eq!(sum[at], before[at] ^ added, "byte {at}");
        }
    }
}
