//! The hop seal: every datagram between two nodes is encrypted, authenticated and taken at most once.
//!
//! docs/SECURITY.md names the attackers and the reasons. There is no handshake: each node draws a random id when it
//! starts, and a key is a function of a shared secret, that id, the neighbour's number and the time in
//! [epochs](WallClock). A request is bound to the address that it is sent to, a reply to the incarnation that
//! asked, and its key depends on ephemeral keys of both, too. [`Seal`] keeps the state of a [`Suite`](crate::wire::Suite): counters, replay windows, the keys in use.
//! The ciphers are injected: [`Keyring`] makes keys, and [`SealKey`] applies one to bytes.

mod binding;
mod exchange;
mod header;
mod identity;
mod incoming;
mod outgoing;
mod seal;
mod wall;
mod window;

pub use exchange::{Exchange, KEY_LIFE, MOST_AGREEMENTS, Offer, Public};
pub use header::{Algorithm, Direction, HEADER_LEN, SealHeader, TAG_LEN};
pub use identity::{Identity, NoCipher};
pub use incoming::witness;
pub use seal::{Limits, Seal, SealStats};
pub use wall::{EPOCH, TOLERANCE_EPOCHS, WallClock};
pub use window::{ReplayWindow, WINDOW};

use crate::peer::{Addressee, Incarnation, Member};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// Bytes of a nonce.
pub const NONCE_LEN: usize = 12;

/// An AEAD (RFC 5116) under one key, with tags of [`TAG_LEN`] bytes.
pub trait SealKey {
    /// Encrypts `out[start..]` in place and appends the tag; false when it cannot.
    fn seal(&self, nonce: [u8; NONCE_LEN], header: &[u8], out: &mut Vec<u8>, start: usize) -> bool;

    /// Decrypts `bytes`, whose last bytes are the tag, in place and returns the plaintext; `None` if `bytes` were
    /// not sealed under this key, nonce and header.
    fn open<'a>(&self, nonce: [u8; NONCE_LEN], header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]>;
}

/// A key to seal with.
pub struct Sealing<K> {
    /// The AEAD that the key belongs to.
    pub algorithm: Algorithm,
    /// The hint by which the receiver finds it.
    pub hint: u8,
    /// The key.
    pub key: K,
    /// This node does not know yet whether the receiver has the private half: the next packet may be sealed with
    /// another key.
    pub is_trial: bool,
}

/// The keys of a node, and the secrets and chance that they are made from.
pub trait Keyring {
    /// A key of one sender in one epoch.
    type Key: SealKey;

    /// The private half of an ephemeral key, overwritten when it is dropped.
    type Ephemeral;

    /// The result of an exchange of ephemeral keys, overwritten when it is dropped.
    type Agreed;

    /// A new ephemeral key; `None` if there is no chance to draw it from.
    fn ephemeral(&mut self) -> Option<(Self::Ephemeral, Public)>;

    /// The secret that this node shares with who answers at `remote`, by its own ephemeral key and, once it is known, that of
    /// the answerer. `None` if there is no secret.
    fn agree_asking(
        &mut self,
        remote: SocketAddr,
        ours: (&Self::Ephemeral, &Public),
        theirs: Option<&Public>,
    ) -> Option<Self::Agreed>;

    /// The same secret of the answerer, which may have no ephemeral key yet.
    fn agree_answering(
        &mut self,
        ours: Option<(&Self::Ephemeral, &Public)>,
        theirs: &Public,
    ) -> Option<Self::Agreed>;

    /// Whether there is a secret before the answerer has an ephemeral key.
    fn agrees_alone(&self) -> bool {
        false
    }

    /// A number that no other start of any node that shares a secret with this one draws: random.
    fn boot_id(&mut self) -> u64;

    /// Whether receivers find these keys by `boot`, which was drawn with other keys.
    fn is_found_by(&self, boot: u64) -> bool {
        let _ = boot;
        true
    }

    /// The key under which this node, as `sender`, seals for `to` in `epoch`, a reply with what was `agreed`. `None` when
    /// nothing is shared with `to`.
    fn sealing(
        &mut self,
        to: &Addressee,
        sender: Incarnation,
        epoch: u64,
        agreed: Option<&Self::Agreed>,
    ) -> Option<Sealing<Self::Key>>;

    /// In `epoch`, by this node's clock, a packet of `member` was taken, the first of `sender` under its key. True when
    /// another key seals for the member from now on.
    fn heard(&mut self, member: Member, sender: Incarnation, epoch: u64) -> bool {
        let _ = (member, sender, epoch);
        false
    }

    /// These keys take the place of `former`, which may have heard whose key is in use.
    fn succeed(&mut self, former: &Self) {
        let _ = former;
    }

    /// The `nth` key under which `header` says that it was sealed in `epoch`, a reply with what was `agreed`, and whose it
    /// is; `None` after the last. Hints are short, so that there may be several.
    fn opening(
        &mut self,
        header: &SealHeader,
        epoch: u64,
        agreed: Option<&Self::Agreed>,
        nth: usize,
    ) -> Option<(Self::Key, Member)>;

    /// The member to which an address belongs; no other member may speak from there.
    fn owner(&self, remote: SocketAddr) -> Option<Member> {
        let _ = remote;
        None
    }

    /// A number that only a receiver at `remote` can know; it depends on `secret`, which is this start's. `None` if
    /// no proof is needed.
    fn token(&mut self, secret: u64, remote: SocketAddr) -> Option<u32>;
}
