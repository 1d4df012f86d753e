//! Which start of the other end speaks, and whether it hears this one.

use super::FecFrame;
use crate::peer::Incarnation;
use crate::time::{Duration, Instant};
use alloc::vec::Vec;

/// Time between two hellos to an end that does not hear this one, or that is not heard.
const AGAIN: Duration = Duration::from_millis(200);
/// Time between two hellos otherwise, so that silence is noticed.
const ALIVE: Duration = Duration::from_secs(1);
/// An end that said nothing for so long is gone: three hellos were lost, or never sent.
const GONE: Duration = Duration::from_millis(3_500);

/// A hello that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    /// A number of the start that sent it.
    pub(super) token: u32,
    /// The number that it last got.
    pub(super) echo: u32,
    /// It counts this end's frames.
    pub(super) is_met: bool,
}

/// The other end, as far as its hellos tell.
///
/// A frame counts if the start that sent it has repeated the token of this start. So what was recorded before this end
/// started counts for nothing, whatever the clocks show, and late frames of the other end's start before this one
/// change nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Greeting {
    /// The start whose frames count.
    start: Option<Incarnation>,
    /// It counts our frames.
    is_heard: bool,
    /// The number that it last sent.
    theirs: u32,
    /// A hello is due at once.
    is_owed: bool,
    said_at: Option<Instant>,
    /// When a frame that counts, or a hello of the start that counts, last came.
    heard_at: Instant,
}

/// The meaning of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Its sender has not shown that it hears this start, or was known.
    Nothing,
    /// Its sender's frames count from now on.
    New {
        /// Another start spoke before.
        is_another: bool,
    },
}

impl Greeting {
    /// `start` sent a hello; `own` is the token for it.
    pub(super) fn on_hello(&mut self, now: Instant, start: Incarnation, own: u32, hello: Hello) -> Verdict {
        let Hello { token, echo, is_met } = hello;
        self.is_owed |= token != self.theirs || echo != own || !is_met;
        self.theirs = token;
        if echo != own {
            self.is_heard = false;
            return Verdict::Nothing;
        }
        (self.is_heard, self.heard_at) = (is_met, now);
        if self.start == Some(start) {
            return Verdict::Nothing;
        }
        let is_another = self.start.replace(start).is_some();
        Verdict::New { is_another }
    }

    /// A frame of `start` came. Returns whether it counts.
    pub(super) fn on_frame(&mut self, now: Instant, start: Incarnation) -> bool {
        let counts = self.start == Some(start);
        if counts {
            self.heard_at = now;
        }
        counts
    }

    /// The other end has been met.
    fn is_met(&self) -> bool {
        self.start.is_some()
    }

    /// The other end counts this end's frames, as far as it is there.
    pub(super) fn is_heard(&self, now: Instant) -> bool {
        self.is_met() && self.is_heard && now.since(self.heard_at) < GONE
    }

    /// The hello that is sent at `now`, with the token `own`.
    pub(super) fn hello(&mut self, now: Instant, own: u32) -> Vec<u8> {
        self.is_owed = false;
        self.said_at = Some(now);
        FecFrame::Hello { token: own, echo: self.theirs, is_met: self.is_met() }.to_bytes()
    }

    /// Time of the next hello; it may lie in the past.
    pub(super) fn due(&self) -> Instant {
        let Some(said_at) = self.said_at.filter(|_| !self.is_owed) else { return Instant::ZERO };
        said_at + if self.is_met() && self.is_heard { ALIVE } else { AGAIN }
    }
}
