use crate::time::{Duration, Instant};

/// Time for which a queue is empty before its first and before its second mark.
const AFTER: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(25)];

/// While other packets wait, marks may take this part of the link's bytes: one divided by the number. Of ten thousand
/// flows each has a pause after every packet, and two marks in each would be a tenth of the bytes.
pub(super) const SHARE: u64 = 64;
/// Bytes of a mark on the wire, roughly, and the marks that may be saved up.
pub(super) const MARK_BYTES: u64 = 96;
const MOST_MARKS: u64 = 16;
/// A mark that finds no room waits so long: by then most flows have sent another packet, which tells the same.
const BACK: Duration = Duration::from_millis(100);

/// The marks that a link may send while other packets wait: their bytes stay within their share of the bytes of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkBudget {
    /// Bytes of packets for which marks may still leave, times [`SHARE`].
    room: u64,
}

impl Default for MarkBudget {
    fn default() -> Self {
        Self { room: Self::MOST }
    }
}

impl MarkBudget {
    const MARK: u64 = MARK_BYTES * SHARE;
    const MOST: u64 = MOST_MARKS * Self::MARK;

    /// So many bytes of data leave.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.room = (self.room + bytes).min(Self::MOST);
    }

    /// Whether there is room for a mark beside waiting packets.
    fn has_room(self) -> bool {
        self.room >= Self::MARK
    }

    /// A mark leaves.
    fn spend(&mut self) {
        self.room = self.room.saturating_sub(Self::MARK);
    }
}

/// The pause of an empty queue after its last packet: two marks tell of it, at their times. Its timer is left alone while packets
/// flow, and looks here when it fires.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    /// Marks still to send.
    left: u8,
    /// Time of the next one.
    at: Instant,
}

/// The result of a look at a [`Pause`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// A mark leaves.
    pub(super) is_mark: bool,
    /// Time of the next look.
    pub(super) next: Option<Instant>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { left: 0, at: Instant::NEVER }
    }
}

impl Pause {
    /// The queue's last packet has left. Returns the time of the first look.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant) -> Instant {
        *self = Self { left: AFTER.len() as u8, at: now + AFTER[0] };
        self.at
    }

    /// The queue has something to send again.
    #[inline]
    pub(super) fn end(&mut self) {
        self.left = 0;
    }

    /// Looks at `now` whether a mark is due. `is_beside` says that packets of other queues wait.
    pub(super) fn look(&mut self, now: Instant, budget: &mut MarkBudget, is_beside: bool) -> Look {
        if self.at > now {
            return Look { is_mark: false, next: self.at.if_ever() };
        }
        if self.left == 0 {
            return Look { is_mark: false, next: None };
        }
        if is_beside && !budget.has_room() {
            self.at = now + BACK;
            return Look { is_mark: false, next: Some(self.at) };
        }
        self.left -= 1;
        budget.spend();
        self.at = if self.left > 0 { now + AFTER[1] } else { Instant::NEVER };
        Look { is_mark: true, next: self.at.if_ever() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn mark(next: Option<Instant>) -> Look {
        Look { is_mark: true, next }
    }

    #[test]
    fn a_pause_has_two_marks_and_no_third() {
        let (mut pause, mut budget) = (Pause::default(), MarkBudget::default());
        assert_eq!(pause.begin(at(0)), at(5));
        assert_eq!(pause.look(at(4), &mut budget, false), Look { is_mark: false, next: Some(at(5)) });
        assert_eq!(pause.look(at(5), &mut budget, false), mark(Some(at(30))));
        assert_eq!(pause.look(at(30), &mut budget, false), mark(None));
        assert_eq!(pause.look(at(99), &mut budget, false), Look { is_mark: false, next: None });
    }

    #[test]
    fn a_pause_that_has_ended_is_not_marked() {
        let (mut pause, mut budget) = (Pause::default(), MarkBudget::default());
        pause.begin(at(0));
        pause.end();
        assert_eq!(pause.look(at(5), &mut budget, false), Look { is_mark: false, next: None });
    }

    #[test]
    fn a_mark_that_finds_no_room_beside_other_packets_waits() {
        let mut budget = MarkBudget::default();
        let marks = (0..20).filter(|_| {
            let mut pause = Pause::default();
            pause.begin(at(0));
            pause.look(at(5), &mut budget, true).is_mark
        });
        assert_eq!(marks.count() as u64, MOST_MARKS);
        let mut pause = Pause::default();
        pause.begin(at(0));
        assert_eq!(pause.look(at(5), &mut budget, true), Look { is_mark: false, next: Some(at(105)) });
        budget.on_sent(MARK_BYTES * SHARE);
        assert!(pause.look(at(105), &mut budget, true).is_mark);
        assert!(!budget.has_room(), "a link that is idle needs none");
        assert!(pause.look(at(130), &mut budget, false).is_mark);
    }
}
