//! Seals without a cipher: for simulations, which need no secrecy but must tell nodes apart as in reality.

use super::{Algorithm, Keyring, NONCE_LEN, Public, SealHeader, SealKey, Sealing, TAG_LEN};
use crate::peer::{Addressee, Incarnation, Member};
use crate::rng::Rng;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// A keyring whose seals have all of a seal's fields, sizes and refusals, and protect nothing.
#[derive(Clone, Debug)]
pub struct Identity {
    rng: Rng,
    ephemerals: Rng,
}

impl Identity {
    /// A node that draws its boot ids from `seed`.
    pub fn new(seed: u64) -> Self {
        let rng = Rng::new(seed);
        Self { ephemerals: rng.fork(1), rng }
    }
}

/// Up to eight bytes as a number, the first is the lowest.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// FNV-1a over words of eight bytes, with a rotation: the last bytes stand for one more word, if there are any.
fn mix(sum: u64, bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(sum, |sum, bytes| step(sum, u64::from_le_bytes(*bytes)));
    if rest.is_empty() { sum } else { step(sum, word(rest)) }
}

/// A checksum of header, receiver, packet and exchange stands in the tag; the packet itself is left as it is.
#[derive(Clone, Copy, Debug)]
pub struct NoCipher(u64);

impl NoCipher {
    fn tag(&self, nonce: [u8; NONCE_LEN], header: &[u8], packet: &[u8]) -> [u8; TAG_LEN] {
        // It has to tell receivers apart, nothing else. The packet's words are only added up, which detects noise on a link:
        // simulations do it to every packet twice on every hop. Words of a known size are read without a copy.
        let (words, rest) = packet.as_chunks::<8>();
        let start = word(rest).wrapping_add(0xcbf2_9ce4_8422_2325);
        let sum = words.iter().fold(start, |sum: u64, bytes| sum.wrapping_add(u64::from_le_bytes(*bytes)));
        let sum = mix(mix(mix(sum, &nonce), header), &self.0.to_le_bytes());
        let mut tag = [0; TAG_LEN];
        tag[..8].copy_from_slice(&sum.to_le_bytes());
        tag
    }
}

impl SealKey for NoCipher {
    fn seal(&self, nonce: [u8; NONCE_LEN], header: &[u8], out: &mut Vec<u8>, start: usize) -> bool {
        let tag = self.tag(nonce, header, &out[start..]);
        out.extend_from_slice(&tag);
        true
    }

    fn open<'a>(&self, nonce: [u8; NONCE_LEN], header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let (packet, tag) = bytes.split_last_chunk::<TAG_LEN>()?;
        (*tag == self.tag(nonce, header, packet)).then_some(packet)
    }
}

/// The result of an exchange: the same for both sides.
fn sum(ours: &Public, theirs: &Public) -> u64 {
    ours.iter()
        .chain(theirs)
        .zip(0..)
        .fold(0, |sum: u64, (&byte, at)| sum.wrapping_add(u64::from(byte).rotate_left(at * 8)))
}

impl Keyring for Identity {
    type Key = NoCipher;
    type Ephemeral = ();
    type Agreed = u64;

    fn boot_id(&mut self) -> u64 {
        self.rng.next_u64()
    }

    fn ephemeral(&mut self) -> Option<((), Public)> {
        let mut public = [0; 32];
        public.chunks_mut(8).for_each(|part| part.copy_from_slice(&self.ephemerals.next_u64().to_be_bytes()));
        Some(((), public))
    }

    fn agree_asking(
        &mut self,
        _remote: SocketAddr,
        (_, ours): (&(), &Public),
        theirs: Option<&Public>,
    ) -> Option<u64> {
        theirs.map(|theirs| sum(ours, theirs))
    }

    fn agree_answering(&mut self, ours: Option<(&(), &Public)>, theirs: &Public) -> Option<u64> {
        ours.map(|(_, ours)| sum(ours, theirs))
    }

    fn sealing(
        &mut self,
        _to: &Addressee,
        _sender: Incarnation,
        _epoch: u64,
        agreed: Option<&u64>,
    ) -> Option<Sealing<NoCipher>> {
        let key = NoCipher(agreed.copied().unwrap_or(0));
        Some(Sealing { algorithm: Algorithm::Aes128Gcm, hint: 0, key, is_trial: false })
    }

    fn opening(
        &mut self,
        _header: &SealHeader,
        _epoch: u64,
        agreed: Option<&u64>,
        nth: usize,
    ) -> Option<(NoCipher, Member)> {
        let key = NoCipher(agreed.copied().unwrap_or(0));
        (nth == 0).then_some((key, Member::default()))
    }

    fn token(&mut self, secret: u64, remote: SocketAddr) -> Option<u32> {
        let tag = NoCipher(0).tag([0; NONCE_LEN], &secret.to_le_bytes(), &[]);
        let port = u64::from(remote.port());
        Some((u64::from_le_bytes([tag[0], tag[1], tag[2], tag[3], 0, 0, 0, 0]) ^ port) as u32 | 1)
    }
}
