//! A live stream, sealed once from end to end: relays carry and keep ciphertext.
//!
//! The plain bytes are cut into records: two bytes of length, the ciphertext, the tag. A record's nonce is the offset in
//! the sealed stream at which it starts. How the sealed bytes are cut into packets later, and how often they are sent,
//! makes no difference: nothing is sealed again.

use super::aead::AeadKey;
use super::secret::{Secret, fill_random};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::security::{Algorithm, NONCE_LEN, SealKey, TAG_LEN};
use std::io;

/// The most plain bytes of one record.
pub const MAX_RECORD: usize = 16 * 1024;

const LENGTH: usize = 2;
const CONTEXT: &str = "starhop 2026 live stream v1";

/// The secret that the ends of a stream share, beforehand or in their own way.
#[derive(Clone, Debug)]
pub struct StreamSecret(Secret);

impl StreamSecret {
    /// A new one.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn random() -> io::Result<Self> {
        Secret::random().map(Self)
    }

    /// The key of one stream.
    fn key(&self, id: FlowId) -> io::Result<AeadKey> {
        let root = blake3::derive_key(CONTEXT, self.0.bytes());
        let bytes = Secret::new(*blake3::keyed_hash(&root, &id.0).as_bytes());
        AeadKey::new(Algorithm::ChaCha20Poly1305, bytes.bytes()).ok_or_else(|| io::Error::other("no key"))
    }
}

/// The sending end. It only ever appends: no offset is sealed twice.
#[derive(Debug)]
pub struct StreamSealer {
    key: AeadKey,
    id: FlowId,
    end: u64,
}

impl StreamSealer {
    /// A stream that begins. Its id is drawn here and goes into its key: a sender that restarts begins another
    /// stream, and its records never use a nonce of the earlier stream.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn begin(secret: &StreamSecret) -> io::Result<Self> {
        let mut id = FlowId([0; FlowId::LEN]);
        fill_random(&mut id.0)?;
        Ok(Self { key: secret.key(id)?, id, end: 0 })
    }

    /// Under which name it travels.
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Appends the records of `plain` to `out` and returns their range in the sealed stream.
    ///
    /// # Errors
    /// The cipher refuses. The sealer is then unchanged except for the offsets that are spent.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> io::Result<ByteRange> {
        let from = self.end;
        for record in plain.chunks(MAX_RECORD) {
            let nonce = nonce(self.end);
            let length = (record.len() as u16).to_be_bytes();
            // Spent before it is used.
            self.end += (LENGTH + record.len() + TAG_LEN) as u64;
            out.extend_from_slice(&length);
            let start = out.len();
            out.extend_from_slice(record);
            if !self.key.seal(nonce, &length, out, start) {
                return Err(io::Error::other("the cipher refused a record"));
            }
        }
        Ok(ByteRange::new(from, self.end))
    }
}

/// The receiving end, which is given the sealed stream in order.
#[derive(Debug)]
pub struct StreamOpener {
    key: AeadKey,
    /// Offset of `pending` in the sealed stream.
    at: u64,
    pending: Vec<u8>,
}

/// A record was changed since it was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the record at byte {offset} of the sealed stream is not what was sealed there")]
pub struct RecordError {
    /// Its offset.
    pub offset: u64,
}

impl StreamOpener {
    /// The stream called `id`, from its beginning.
    ///
    /// # Errors
    /// There is no key for it.
    pub fn new(secret: &StreamSecret, id: FlowId) -> io::Result<Self> {
        Ok(Self { key: secret.key(id)?, at: 0, pending: Vec::new() })
    }

    /// Takes the next sealed bytes, cut anywhere, and appends the records that they complete to `out`.
    ///
    /// # Errors
    /// [`RecordError`] names the first record that is wrong; nothing of it or after it is given out.
    pub fn push(&mut self, sealed: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        self.pending.extend_from_slice(sealed);
        let mut from = 0;
        while let Some(length) = self.pending[from..].first_chunk::<LENGTH>().copied() {
            let end = from + LENGTH + usize::from(u16::from_be_bytes(length)) + TAG_LEN;
            let Some(record) = self.pending.get_mut(from + LENGTH..end) else { break };
            let offset = self.at + from as u64;
            let plain = self.key.open(nonce(offset), &length, record).ok_or(RecordError { offset })?;
            out.extend_from_slice(plain);
            from = end;
        }
        self.pending.drain(..from);
        self.at += from as u64;
        Ok(())
    }
}

fn nonce(offset: u64) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[4..].copy_from_slice(&offset.to_be_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The nonces of a sealed stream: where its records start.
    fn records(sealed: &[u8]) -> Vec<u64> {
        let (mut at, mut starts) = (0, Vec::new());
        while let Some(length) = sealed[at..].first_chunk::<2>() {
            starts.push(at as u64);
            at += LENGTH + usize::from(u16::from_be_bytes(*length)) + TAG_LEN;
        }
        starts
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A sender that restarts, writes arbitrary bytes in arbitrary pieces, and even the same again.
        #[test]
        fn no_two_contents_meet_under_one_key_and_nonce(
            runs in prop::collection::vec(prop::collection::vec(0usize..40_000, 1..8), 2..6)
        ) {
            let secret = StreamSecret::random().unwrap();
            let mut seen = BTreeSet::new();
            for (run, pieces) in runs.iter().enumerate() {
                let mut sealer = StreamSealer::begin(&secret).unwrap();
                let (mut sealed, mut end) = (Vec::new(), 0);
                for &len in pieces {
                    let range = sealer.seal(&vec![run as u8; len], &mut sealed).unwrap();
                    prop_assert_eq!(range.start, end, "it appends");
                    end = range.end;
                    prop_assert_eq!(end, sealed.len() as u64);
                }
                for start in records(&sealed) {
                    prop_assert!(seen.insert((sealer.id(), start)));
                }
            }
        }

        /// Packets cut the sealed bytes anywhere.
        #[test]
        fn a_stream_opens_however_it_is_cut(
            pieces in prop::collection::vec(0usize..20_000, 1..6), cut in 1usize..3000, flip: prop::sample::Index
        ) {
            let secret = StreamSecret::random().unwrap();
            let mut sealer = StreamSealer::begin(&secret).unwrap();
            let (mut sealed, mut plain) = (Vec::new(), Vec::new());
            for (n, &len) in pieces.iter().enumerate() {
                let piece: Vec<u8> = (0..len).map(|i| (i * 7 + n) as u8).collect();
                sealer.seal(&piece, &mut sealed).unwrap();
                plain.extend(piece);
            }
            let open = |sealed: &[u8]| {
                let mut opener = StreamOpener::new(&secret, sealer.id()).unwrap();
                let mut out = Vec::new();
                let done = sealed.chunks(cut).try_for_each(|packet| opener.push(packet, &mut out));
                (done, out)
            };
            prop_assert_eq!(open(&sealed), (Ok(()), plain.clone()));
            if !sealed.is_empty() {
                let at = flip.index(sealed.len());
                sealed[at] ^= 1;
                let (_, out) = open(&sealed);
                prop_assert!(out.len() < plain.len().max(1) && plain.starts_with(&out), "byte {} was changed", at);
            }
        }
    }
}
