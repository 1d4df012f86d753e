//! Which start of the other end speaks.

use super::FecFrame;
use crate::peer::Incarnation;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// Time between two hellos to an end that has not answered.
const AGAIN: Duration = Duration::from_millis(200);

/// The other end, as far as its hellos tell.
///
/// A frame counts if the start that sent it has repeated the token of this start. So what was recorded before this end
/// started counts for nothing, whatever the clocks show, and late frames of the other end's start before this one
/// change nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Greeting {
    /// The start whose frames count.
    start: Option<Incarnation>,
    /// The number that it last sent.
    theirs: u32,
    /// A hello is due at once.
    is_owed: bool,
    said_at: Option<Instant>,
}

/// What a hello says of the start that sent it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It has not shown yet that it hears this start, or was known.
    Nothing,
    /// Its frames count from now on: the first start, or one after another.
    New {
        /// Another start spoke before.
        is_another: bool,
    },
}

impl Greeting {
    /// `start` sent a hello; `own` is the token for it.
    pub(super) fn on_hello(&mut self, start: Incarnation, own: u32, (token, echo): (u32, u32)) -> Verdict {
        self.is_owed = self.is_owed || token != self.theirs || echo != own;
        self.theirs = token;
        if echo != own || self.start == Some(start) {
            return Verdict::Nothing;
        }
        let is_another = self.start.replace(start).is_some();
        Verdict::New { is_another }
    }

    /// Whether frames of `start` count.
    pub(super) fn counts(&self, start: Incarnation) -> bool {
        self.start == Some(start)
    }

    /// Whether the other end has been met.
    pub(super) fn is_met(&self) -> bool {
        self.start.is_some()
    }

    /// The hello to send at `now`, with the token `own`; `None` when none is due.
    pub(super) fn poll(&mut self, now: Instant, own: u32) -> Option<Vec<u8>> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        self.is_owed = false;
        self.said_at = Some(now);
        Some(FecFrame::Hello { token: own, echo: self.theirs }.to_bytes())
    }

    /// Time of the next hello; it may lie in the past.
    pub(super) fn due(&self) -> Option<Instant> {
        match (self.is_owed, self.is_met(), self.said_at) {
            (true, _, _) | (false, false, None) => Some(Instant::ZERO),
            (false, false, Some(at)) => Some(at + AGAIN),
            (false, true, _) => None,
        }
    }
}
