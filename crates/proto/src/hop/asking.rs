use super::subject::Subject;
use crate::peer::Peer;
use crate::table::Slot;
use crate::wire::{Interest, NotNow, Suite};

/// An Interest as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Its sender.
    pub peer: Peer,
    /// The Interest.
    pub interest: &'a Interest,
    /// Its subject.
    pub subject: Subject,
    /// Bytes of its datagram.
    pub len: usize,
    /// The token that the node wants from this address; `None` if it wants none.
    pub wanted_token: Option<u32>,
    /// The node serves no request without the token.
    pub needs_token: bool,
}

impl<'a> Asking<'a> {
    /// An Interest of `peer` that `suite` opened, whose datagram had `len` bytes.
    pub fn new<C: Suite>(
        suite: &mut C,
        peer: Peer,
        (interest, subject): (&'a Interest, Subject),
        len: usize,
    ) -> Self {
        let (wanted_token, needs_token) = (suite.token(peer.face.remote), suite.is_young());
        Self { peer, interest, subject, len, wanted_token, needs_token }
    }

    /// The token that the Interest lacks: its sender has not shown that it receives at its address.
    pub(super) fn missing_token(&self) -> Option<u32> {
        self.wanted_token.filter(|&wanted| self.interest.token != Some(wanted))
    }
}

/// The reason why an Interest changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// There is no room for one more neighbour.
    NoRoom(NotNow),
    /// The neighbour must repeat this token first.
    Unproven(u32),
}

/// The hop of an Interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The hop.
    pub link: Slot,
    /// The token that its neighbour must repeat.
    pub token: Option<u32>,
    /// The neighbour has just shown that it receives at its address.
    pub is_settled_now: bool,
}
