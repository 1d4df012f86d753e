//! Arithmetic in the field of 256 elements, with the polynomial x^8 + x^4 + x^3 + x^2 + 1.

use alloc::vec::Vec;

/// The polynomial without its highest power.
const POLYNOMIAL: u64 = 0x1d;
/// The bits of an element: [`Powers`] and [`Planes`] hold as many packets.
pub(super) const BITS: usize = 8;
const LOW_BIT_OF_EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// Each byte of a word times x.
fn times_x(word: u64) -> u64 {
    let carries = (word >> 7) & LOW_BIT_OF_EACH_BYTE;
    ((word & !(LOW_BIT_OF_EACH_BYTE << 7)) << 1) ^ (carries * POLYNOMIAL)
}

/// Each byte of a word times `factor`, given as masks of its bits.
fn product(mut word: u64, masks: &[u64; BITS]) -> u64 {
    let mut sum = 0;
    for mask in masks {
        sum ^= word & mask;
        word = times_x(word);
    }
    sum
}

fn masks(factor: u8) -> [u64; BITS] {
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
    each_word(&mut sum[..bytes.len()], bytes, |sum, word| sum ^ product(word, &masks));
}

/// The products of some bytes with every power of x: to add the bytes to many sums, each times a factor of its own, takes
/// four additions per sum on average, and no multiplication.
#[derive(Clone, Debug, Default)]
pub(super) struct Powers {
    /// [`BITS`] times as long as the bytes.
    products: Vec<u8>,
    length: usize,
}

impl Powers {
    /// The products of the bytes of `parts`, one after the other.
    pub(super) fn set(&mut self, parts: [&[u8]; 2]) {
        self.products.clear();
        parts.iter().for_each(|part| self.products.extend_from_slice(part));
        self.length = self.products.len();
        self.products.resize(BITS * self.length, 0);
        for power in 1..BITS {
            let (before, after) = self.products.split_at_mut(power * self.length);
            let before = &before[(power - 1) * self.length..];
            each_word(&mut after[..self.length], before, |_, word| times_x(word));
        }
    }

    /// Adds the bytes times `factor` to `sum`, which is at least as long.
    pub(super) fn add_to(&self, sum: &mut [u8], factor: u8) {
        for bit in (0..BITS).filter(|bit| factor >> bit & 1 == 1) {
            add(&mut sum[..self.length], &self.products[bit * self.length..][..self.length]);
        }
    }
}

/// The sum of many parts of different lengths, each times a factor. A factor has eight bits: each part is added to one sum
/// per bit that is set, four additions on average, and the eight sums are multiplied by their powers of x once, at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Planes {
    /// One sum per bit, the lowest first.
    sums: Vec<u8>,
    length: usize,
}

impl Planes {
    /// Begins a sum of parts of at most `length` bytes.
    pub(super) fn begin(&mut self, length: usize) {
        self.length = length;
        self.sums.clear();
        self.sums.resize(BITS * length, 0);
    }

    /// Adds `part` times `factor`.
    pub(super) fn add(&mut self, part: &[u8], factor: u8) {
        for bit in (0..BITS).filter(|bit| factor >> bit & 1 == 1) {
            add(&mut self.sums[bit * self.length..][..part.len()], part);
        }
    }

    /// Adds the sum to `to`, which has its length: by Horner's rule.
    pub(super) fn add_to(&mut self, to: &mut [u8]) {
        for power in (1..BITS).rev() {
            let (lower, higher) = self.sums.split_at_mut(power * self.length);
            let lower = &mut lower[(power - 1) * self.length..];
            each_word(lower, &higher[..self.length], |sum, word| sum ^ times_x(word));
        }
        add(to, &self.sums[..self.length]);
    }
}

/// Adds bytes to a sum of the same length.
fn add(sum: &mut [u8], bytes: &[u8]) {
    each_word(sum, bytes, |sum, word| sum ^ word);
}

/// Replaces each word of `to` by a function of it and of the word of `from`, which is as long. The function treats each
/// byte of a word by itself.
#[inline]
fn each_word(to: &mut [u8], from: &[u8], change: impl Fn(u64, u64) -> u64) {
    let (words, rest) = from.as_chunks::<8>();
    let (changed, rest_changed) = to.as_chunks_mut::<8>();
    for (to, word) in changed.iter_mut().zip(words) {
        *to = change(u64::from_ne_bytes(*to), u64::from_ne_bytes(*word)).to_ne_bytes();
    }
    for (to, byte) in rest_changed.iter_mut().zip(rest) {
        *to = change(u64::from(*to), u64::from(*byte)) as u8;
    }
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
    fn planes_add_the_same_products() {
        let parts: Vec<Vec<u8>> =
            (0..=255_usize).map(|n| (0..n % 41).map(|at| (at * 11 + n) as u8).collect()).collect();
        let mut planes = Planes::default();
        for _ in 0..2 {
            let (mut sum, mut expected) = ([0x5a; 40], [0x5a; 40]);
            planes.begin(sum.len());
            for (factor, part) in (0..=255).zip(&parts) {
                planes.add(part, factor);
                add_product(&mut expected, part, factor);
            }
            planes.add_to(&mut sum);
            assert_eq!(sum, expected, "also where the memory was used before");
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
