use super::{KEY_LIFE, LAST_NUMBER, OVERLAP, Public, id_of};
use crate::security::Keyring;
use crate::time::Instant;

/// The ephemeral keys of a node: one in use, and its predecessor for a while.
pub(crate) struct Own<E> {
    current: Option<Pair<E>>,
    former: Option<Pair<E>>,
    next_number: u8,
}

/// An ephemeral key. The private half is overwritten when it is dropped.
pub(super) struct Pair<E> {
    pub(super) number: u8,
    pub(super) public: Public,
    pub(super) private: E,
    since: Instant,
}

impl<E> Own<E> {
    pub(super) fn new(number: u8) -> Self {
        Self { current: None, former: None, next_number: number % LAST_NUMBER + 1 }
    }

    /// The key in use, drawn anew when it is too old.
    pub(super) fn current<R: Keyring<Ephemeral = E>>(
        &mut self,
        keys: &mut R,
        now: Instant,
    ) -> Option<&Pair<E>> {
        self.wipe(now);
        if self.current.as_ref().is_none_or(|pair| now.since(pair.since) >= KEY_LIFE) {
            let (private, public) = keys.ephemeral()?;
            let number = self.next_number;
            self.next_number = number % LAST_NUMBER + 1;
            self.former = self.current.replace(Pair { number, public, private, since: now });
        }
        self.current.as_ref()
    }

    /// The key that was drawn last.
    pub(super) fn newest(&self) -> Option<&Pair<E>> {
        self.current.as_ref()
    }

    /// All keys whose private half is there, the newest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Pair<E>> {
        self.current.iter().chain(&self.former)
    }

    /// The newest key whose id is one of these.
    pub(super) fn find(&self, ids: &[u32]) -> Option<&Pair<E>> {
        self.all().find(|pair| ids.contains(&id_of(&pair.public)))
    }

    /// Forgets private halves whose time is over. A key that nobody has asked for is over like any other.
    pub(super) fn wipe(&mut self, now: Instant) {
        let is_over = |pair: &Pair<E>| now.since(pair.since) >= KEY_LIFE + OVERLAP;
        if self.former.as_ref().is_some_and(is_over) {
            self.former = None;
        }
        if self.current.as_ref().is_some_and(is_over) {
            self.current = None;
        }
    }
}
