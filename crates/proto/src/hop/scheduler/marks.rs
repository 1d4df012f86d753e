use crate::time::{Duration, Instant};

/// Time for which a queue is empty before its first mark, and from there to its second.
const AFTER: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(25)];
/// Where losses are rare, the first mark waits for a quarter more than the longest pause of the queue lately, and no longer than this:
/// the next packet tells the same by then. Of 300 programs with a packet each 80 ms, each was woken by two marks more per packet.
const LATEST: Duration = Duration::from_millis(200);
/// Decay of the longest pause, per pause.
const FORGET: (u64, u64) = (31, 32);
/// Marks that come early whatever the pauses are: the first ones, what a loss adds to them, and the most. So they come early for at
/// least a hundred packets after each loss, which is always where a hundredth is lost.
const FIRST_EARLY: u32 = 32;
const EARLY_FOR_LOSS: u32 = 256;
const MOST_EARLY: u32 = 1024;

/// While other packets wait, marks may take this part of the link's bytes: one divided by the number. Of ten thousand
/// flows each has a pause after every packet, and two marks in each would be a tenth of the bytes.
pub(super) const SHARE: u64 = 64;
/// Bytes of a mark on the wire, roughly, and the marks that may be saved up.
pub(super) const MARK_BYTES: u64 = 96;
const MOST_MARKS: u64 = 16;
/// A mark that finds no room waits so long: by then most flows have sent another packet, which tells the same.
const BACK: Duration = Duration::from_millis(100);

/// The marks that a link may send: while other packets wait, their bytes stay within their share of the bytes of data; and they come
/// early where losses are not rare.
#[derive(Clone, Copy, Debug)]
pub(super) struct MarkBudget {
    /// Bytes of packets for which marks may still leave beside others, times [`SHARE`].
    room: u64,
    /// Marks that may still come early.
    early: u32,
}

impl Default for MarkBudget {
    fn default() -> Self {
        Self { room: Self::MOST, early: FIRST_EARLY }
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

    /// The neighbour asks for something that was lost.
    #[inline]
    pub(super) fn on_loss(&mut self) {
        self.early = (self.early + EARLY_FOR_LOSS).min(MOST_EARLY);
    }

    /// Whether there is room for a mark beside waiting packets.
    fn has_room(self) -> bool {
        self.room >= Self::MARK
    }

    /// A mark leaves.
    fn spend(&mut self) {
        self.room = self.room.saturating_sub(Self::MARK);
        self.early = self.early.saturating_sub(1);
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
    /// When the running pause began; none runs before the first.
    began: Option<Instant>,
    /// The longest pause lately.
    longest: Duration,
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
        Self { left: 0, at: Instant::NEVER, began: None, longest: Duration::ZERO }
    }
}

impl Pause {
    /// The queue's last packet has left. Returns the time of the first look.
    #[inline]
    pub(super) fn begin(&mut self, now: Instant, budget: &MarkBudget) -> Instant {
        let usual = if budget.early > 0 { Duration::ZERO } else { self.longest.scaled(5, 4).min(LATEST) };
        (self.left, self.began) = (AFTER.len() as u8, Some(now));
        self.at = now + usual.max(AFTER[0]);
        self.at
    }

    /// The queue has something to send again.
    #[inline]
    pub(super) fn end(&mut self, now: Instant) {
        self.left = 0;
        if let Some(began) = self.began.take() {
            self.longest = now.since(began).min(LATEST).max(self.longest.scaled(FORGET.0, FORGET.1));
        }
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
        assert_eq!(pause.begin(at(0), &budget), at(5));
        assert_eq!(pause.look(at(4), &mut budget, false), Look { is_mark: false, next: Some(at(5)) });
        assert_eq!(pause.look(at(5), &mut budget, false), mark(Some(at(30))));
        assert_eq!(pause.look(at(30), &mut budget, false), mark(None));
        assert_eq!(pause.look(at(99), &mut budget, false), Look { is_mark: false, next: None });
    }

    #[test]
    fn a_pause_that_has_ended_is_not_marked() {
        let (mut pause, mut budget) = (Pause::default(), MarkBudget::default());
        pause.begin(at(0), &budget);
        pause.end(at(4));
        assert_eq!(pause.look(at(5), &mut budget, false), Look { is_mark: false, next: None });
    }

    #[test]
    fn a_mark_that_finds_no_room_beside_other_packets_waits() {
        let mut budget = MarkBudget::default();
        let marks = (0..20).filter(|_| {
            let mut pause = Pause::default();
            pause.begin(at(0), &budget);
            pause.look(at(5), &mut budget, true).is_mark
        });
        assert_eq!(marks.count() as u64, MOST_MARKS);
        let mut pause = Pause::default();
        pause.begin(at(0), &budget);
        assert_eq!(pause.look(at(5), &mut budget, true), Look { is_mark: false, next: Some(at(105)) });
        budget.on_sent(MARK_BYTES * SHARE);
        assert!(pause.look(at(105), &mut budget, true).is_mark);
        assert!(!budget.has_room(), "a link that is idle needs none");
        assert!(pause.look(at(130), &mut budget, false).is_mark);
    }

    /// Begins a pause after each of `pauses`, of so many milliseconds. Returns the marks of all.
    fn marks(budget: &mut MarkBudget, pauses: impl IntoIterator<Item = u64>) -> u32 {
        let (mut pause, mut now, mut marks) = (Pause::default(), 0, 0);
        for length in pauses {
            let end = at(now + length);
            let mut next = Some(pause.begin(at(now), budget));
            while let Some(look) = next.filter(|look| *look < end) {
                let look = pause.look(look, budget, false);
                (next, marks) = (look.next, marks + u32::from(look.is_mark));
            }
            now += length;
            pause.end(at(now));
        }
        marks
    }

    #[test]
    fn where_nothing_is_lost_pauses_as_long_as_usual_are_not_marked() {
        let mut budget = MarkBudget::default();
        let usual = (0..1000).map(|n| 70 + 7 * (n % 5));
        assert_eq!(marks(&mut budget, usual.chain([250])), FIRST_EARLY + 2, "one that is longer is");
    }

    #[test]
    fn where_a_hundredth_is_lost_every_pause_is_marked_early() {
        let mut budget = MarkBudget::default();
        for _ in 0..10 {
            budget.on_loss();
            assert_eq!(marks(&mut budget, [90; 100]), 200);
        }
    }
}
