//! Agreement on secrets by X25519 (RFC 7748).

use super::keys::tag_of;
use super::secret::Secret;
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use starhop_proto::security::Public;
use zeroize::Zeroizing;

/// An X25519 key pair. The library overwrites the private half when it is dropped.
#[derive(Debug)]
pub(super) struct Pair {
    private: PrivateKey,
    pub(super) public: Public,
}

impl Pair {
    pub(super) fn new(secret: &Secret) -> Option<Self> {
        let private = PrivateKey::from_private_key(&X25519, secret.bytes()).ok()?;
        let public = private.compute_public_key().ok()?.as_ref().try_into().ok()?;
        Some(Self { private, public })
    }

    /// The secret shared with the owner of `theirs`; `None` if `theirs` is no key, or one that makes every secret zero.
    pub(super) fn agree(&self, theirs: &Public) -> Option<Secret> {
        agree(&self.private, UnparsedPublicKey::new(&X25519, theirs), (), |shared| {
            let shared = Zeroizing::new(*shared.first_chunk::<32>().ok_or(())?);
            Ok(Secret::new(*shared))
        })
        .ok()
    }
}

/// An ephemeral key of this node.
#[derive(Debug)]
pub struct Ephemeral(Pair);

impl Ephemeral {
    pub(super) fn new() -> Option<(Self, Public)> {
        let pair = Pair::new(&Secret::random().ok()?)?;
        let public = pair.public;
        Some((Self(pair), public))
    }
}

/// The result of an exchange: what the ephemeral keys of both sides make, and what that of the asker makes with the
/// answerer's static keys.
#[derive(Debug)]
pub struct Agreed {
    asker: Public,
    answerer: Option<Public>,
    both: Option<Secret>,
    /// By the tags of the static keys; `None` in a domain, whose nodes have none.
    statics: Option<Vec<(u16, Secret)>>,
}

impl Agreed {
    /// Bytes that go into the secret: two secrets and two public keys, zeros for those that do not exist.
    pub(super) const LEN: usize = 4 * 32;

    /// With the key of an answerer, and the static keys that it may have.
    pub(super) fn of_asker(
        (ours, public): (&Ephemeral, &Public),
        theirs: Option<&Public>,
        statics: Option<&[Public]>,
    ) -> Option<Self> {
        let with = |theirs: &Public| Some((tag_of(theirs), ours.0.agree(theirs)?));
        let statics = statics.map(|keys| keys.iter().filter_map(with).collect());
        Self::new((*public, theirs.copied()), theirs.map(|theirs| ours.0.agree(theirs)), statics)
    }

    /// With the key of an asker.
    pub(super) fn of_answerer(
        ours: Option<(&Ephemeral, &Public)>,
        theirs: &Public,
        own: Option<&Pair>,
    ) -> Option<Self> {
        let statics = match own {
            Some(own) => Some(vec![(tag_of(&own.public), own.agree(theirs)?)]),
            None => None,
        };
        let both = ours.map(|(ours, _)| ours.0.agree(theirs));
        Self::new((*theirs, ours.map(|(_, public)| *public)), both, statics)
    }

    fn new(
        (asker, answerer): (Public, Option<Public>),
        both: Option<Option<Secret>>,
        statics: Option<Vec<(u16, Secret)>>,
    ) -> Option<Self> {
        let both = match both {
            Some(both) => Some(both?),
            None => None,
        };
        (both.is_some() || statics.is_some()).then_some(Self { asker, answerer, both, statics })
    }

    /// Writes [`Agreed::LEN`] bytes for the answerer whose static key has this tag; `None` if there is no such key.
    pub(super) fn write(&self, tag: Option<u16>, out: &mut [u8]) -> Option<()> {
        let with_static = match (&self.statics, tag) {
            (Some(statics), Some(tag)) => Some(&statics.iter().find(|(of, _)| *of == tag)?.1),
            (None, None) => None,
            _ => return None,
        };
        let zeros = &[0; 32];
        let parts = [
            with_static.map_or(zeros, Secret::bytes),
            self.both.as_ref().map_or(zeros, Secret::bytes),
            &self.asker,
            self.answerer.as_ref().unwrap_or(zeros),
        ];
        out.chunks_exact_mut(32).zip(parts).for_each(|(chunk, part)| chunk.copy_from_slice(part));
        Some(())
    }
}

#[cfg(test)]
mod tests;
