use super::exchange::{Exchange, Offer};
use crate::peer::Incarnation;

/// Bytes in front of a sealed packet. They are authenticated and not encrypted.
pub const HEADER_LEN: usize = 17;

/// Bytes behind it.
pub const TAG_LEN: usize = 16;

/// The leading bit of a sealed datagram.
const MARK: u8 = 0x80;
/// The bit of a reply.
const REPLY: u8 = 0x40;
/// Position of the algorithm's two bits.
const ALGORITHM_SHIFT: u8 = 4;
/// The key hint's four bits.
const HINT_MASK: u8 = 0x0f;

/// The cipher of a packet; the sender chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Algorithm {
    /// AES-128-GCM (NIST SP 800-38D), where the processor has AES instructions.
    Aes128Gcm = 0,
    /// ChaCha20-Poly1305 (RFC 8439), where it has none.
    ChaCha20Poly1305 = 1,
    /// AES-256-GCM, where a rule asks for keys of 256 bits.
    Aes256Gcm = 2,
    /// AES-256-GCM-SIV (RFC 8452): where a nonce repeats, for one after a snapshot of a machine was restored, only the
    /// equality of two packets shows.
    Aes256GcmSiv = 3,
}

impl Algorithm {
    /// All of them with the names by which operators choose.
    pub const ALL: [(&'static str, Self); 4] = [
        ("aes-128-gcm", Self::Aes128Gcm),
        ("chacha20-poly1305", Self::ChaCha20Poly1305),
        ("aes-256-gcm", Self::Aes256Gcm),
        ("aes-256-gcm-siv", Self::Aes256GcmSiv),
    ];

    /// The cipher of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    fn from_bits(first: u8) -> Self {
        match (first >> ALGORITHM_SHIFT) & 3 {
            0 => Self::Aes128Gcm,
            1 => Self::ChaCha20Poly1305,
            2 => Self::Aes256Gcm,
            _ => Self::Aes256GcmSiv,
        }
    }
}

/// The direction of a packet over its hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// An Interest: bound to the address that it was sent to.
    Request,
    /// Data or a Notice: bound to the incarnation that asked.
    Reply,
}

/// The front of a sealed packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SealHeader {
    /// Its direction.
    pub direction: Direction,
    /// Its cipher.
    pub algorithm: Algorithm,
    /// Four bits that lead to the secret.
    pub hint: u8,
    /// The ephemeral keys that the secret of a reply depends on. In a request, the number of the key behind the packet.
    pub exchange: Exchange,
    /// The sender.
    pub sender: Incarnation,
    /// The sender's epoch, modulo 2^16 (three days).
    pub epoch: u16,
    /// The sender's packets in this epoch to this neighbour, from 0; below 2^24. It is the nonce.
    pub counter: u32,
}

impl SealHeader {
    /// One more than the largest counter.
    pub const COUNTER_END: u32 = 1 << 24;

    /// The bytes that travel.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let reply = if self.direction == Direction::Reply { REPLY } else { 0 };
        bytes[0] = MARK | reply | ((self.algorithm as u8) << ALGORITHM_SHIFT) | (self.hint & HINT_MASK);
        bytes[1] = self.exchange.emit();
        bytes[2..10].copy_from_slice(&self.sender.boot.to_be_bytes());
        bytes[10..12].copy_from_slice(&self.sender.link.to_be_bytes());
        bytes[12..14].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[14..].copy_from_slice(&self.counter.to_be_bytes()[1..]);
        bytes
    }

    /// Reads the front of a datagram; `None` when it is no sealed one, or too short to hold a packet.
    #[inline]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        if datagram.len() <= HEADER_LEN + TAG_LEN {
            return None;
        }
        let bytes: &[u8; HEADER_LEN] = datagram.first_chunk()?;
        let [first, exchange, b0, b1, b2, b3, b4, b5, b6, b7, l0, l1, e0, e1, c0, c1, c2] = *bytes;
        if first & MARK == 0 {
            return None;
        }
        Some(Self {
            direction: if first & REPLY == 0 { Direction::Request } else { Direction::Reply },
            algorithm: Algorithm::from_bits(first),
            hint: first & HINT_MASK,
            exchange: Exchange::parse(exchange),
            sender: Incarnation {
                boot: u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
                link: u16::from_be_bytes([l0, l1]),
            },
            epoch: u16::from_be_bytes([e0, e1]),
            counter: u32::from_be_bytes([0, c0, c1, c2]),
        })
    }

    /// The nonce: the key is of one sender, neighbour and epoch, so that the counter alone never repeats.
    pub fn nonce(&self) -> [u8; super::NONCE_LEN] {
        let mut nonce = [0; super::NONCE_LEN];
        nonce[8..].copy_from_slice(&self.counter.to_be_bytes());
        nonce
    }

    /// Algorithm, hint and exchange together, which tell the keys of one sender apart.
    pub(super) fn key_tag(&self) -> u16 {
        let exchange = match self.direction {
            Direction::Request => Exchange::NONE,
            Direction::Reply => self.exchange,
        };
        u16::from_be_bytes([((self.algorithm as u8) << ALGORITHM_SHIFT) | self.hint, exchange.emit()])
    }

    /// Bytes between the packet and the tag.
    pub fn offer_len(&self) -> usize {
        let has_offer = self.direction == Direction::Request && self.exchange.asker != 0;
        if has_offer { Offer::LEN } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_survives_its_journey(
            is_reply: bool, algorithm in 0u8..4, hint in 0u8..16, exchange: u8, boot: u64, link: u16, epoch: u16,
            counter in 0u32..1 << 24
        ) {
            let direction = if is_reply { Direction::Reply } else { Direction::Request };
            let algorithm = Algorithm::from_bits(algorithm << ALGORITHM_SHIFT);
            let sender = Incarnation { boot, link };
            let exchange = Exchange::parse(exchange);
            let header = SealHeader { direction, algorithm, hint, exchange, sender, epoch, counter };
            let mut datagram = header.emit().to_vec();
            prop_assert_eq!(SealHeader::parse(&datagram), None, "nothing is sealed in it");
            datagram.resize(HEADER_LEN + TAG_LEN + 1, 0);
            prop_assert_eq!(SealHeader::parse(&datagram), Some(header));
        }
    }

    #[test]
    fn a_cipher_has_one_name() {
        assert!(Algorithm::ALL.iter().all(|(name, algorithm)| algorithm.name() == *name));
        assert_eq!(Algorithm::named("aes-256-gcm-siv"), Some(Algorithm::Aes256GcmSiv));
        assert_eq!(Algorithm::named("rot13"), None);
    }

    #[test]
    fn a_plain_packet_is_no_sealed_one() {
        assert_eq!(SealHeader::parse(&[crate::wire::VERSION << 6; 100]), None);
    }

    /// The vector of docs/PROTOCOL.md.
    #[test]
    fn the_published_header_holds() {
        let sender = Incarnation { boot: 0x0102_0304_0506_0708, link: 9 };
        let header = SealHeader {
            direction: Direction::Reply,
            algorithm: Algorithm::Aes128Gcm,
            hint: 3,
            exchange: Exchange { asker: 5, answerer: 12 },
            sender,
            epoch: 0xabcd,
            counter: 0x01_02_03,
        };
        assert_eq!(header.emit(), [0xc3, 0x5c, 1, 2, 3, 4, 5, 6, 7, 8, 0, 9, 0xab, 0xcd, 1, 2, 3]);
        assert_eq!(header.nonce(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
    }
}
