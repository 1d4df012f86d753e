use crate::time::{Duration, Instant};

/// The most repairs that may be asked for again without a packet in between: those of a second of silence on a gigabit that loses a
/// hundredth; and as many of a hop that has brought nothing yet, or is heard again after a pause.
const MOST: u32 = 1_024;
const AT_FIRST: u32 = 128;
const PAUSE: Duration = Duration::from_millis(500);
/// On a hop that brings nothing one of all repairs is asked for again after so many hopRTTs, numerator and denominator, and not before
/// the least time. Each time is twice as long as the one before, up to the most: that of the Consumer on a silent path.
const PROBE: (u64, u64) = (3, 2);
const LEAST_PROBE: Duration = Duration::from_millis(20);
const MOST_PROBE: Duration = Duration::from_millis(600);

/// The number of repairs that may be asked for again on a hop: one for each packet that it brings, of whatever flow.
///
/// Each flow of a crowd on a slow hop repeats what it takes for lost, and each repetition is answered, even if only by a word that
/// the bytes are in line. With a bound for each flow 200 flows filled half a megabit with such words. And a neighbour that lies about
/// times, or a hop that is nearly gone, is not sent more requests than it answers. Nobody else asks for what a relay waits for: so a
/// hop that brings nothing is still asked now and then.
#[derive(Debug)]
pub(super) struct Repeats {
    left: u32,
    heard: Instant,
    /// A silent hop is asked from then on, and after this time again.
    probe_at: Instant,
    probe_after: Duration,
}

impl Default for Repeats {
    fn default() -> Self {
        Self { left: AT_FIRST, heard: Instant::ZERO, probe_at: Instant::ZERO, probe_after: Duration::ZERO }
    }
}

impl Repeats {
    /// The hop brought a packet of Data.
    #[inline]
    pub(super) fn on_data(&mut self, now: Instant) {
        if now.since(self.heard) >= PAUSE {
            self.left = self.left.max(AT_FIRST);
        }
        (self.heard, self.probe_after) = (now, Duration::ZERO);
        self.left = (self.left + 1).min(MOST);
    }

    /// True if one more repair may be asked for again on a hop that takes `hop_rtt`: then it counts.
    pub(super) fn take(&mut self, now: Instant, hop_rtt: Duration) -> bool {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return true;
        }
        let is_due = self.probe_at <= now;
        if is_due {
            let least = hop_rtt.scaled(PROBE.0, PROBE.1).max(LEAST_PROBE);
            self.probe_after = self.probe_after.scaled(2, 1).min(MOST_PROBE).max(least);
            self.probe_at = now + self.probe_after;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RTT: Duration = Duration::from_millis(20);

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    /// Takes what there is at `now`, but for the one that is due by time.
    fn taken(repeats: &mut Repeats, now: Instant) -> usize {
        (0..).take_while(|_| repeats.take(now, RTT)).count()
    }

    #[test]
    fn each_packet_allows_for_one() {
        let mut repeats = Repeats::default();
        assert_eq!(taken(&mut repeats, at(1)), AT_FIRST as usize + 1);
        repeats.on_data(at(2));
        assert_eq!(taken(&mut repeats, at(3)), 1);
        (0..2 * MOST).for_each(|_| repeats.on_data(at(4)));
        assert_eq!(taken(&mut repeats, at(5)), MOST as usize);
    }

    #[test]
    fn a_silent_hop_is_asked_ever_more_rarely_and_one_that_is_heard_again_as_at_first() {
        let mut repeats = Repeats::default();
        taken(&mut repeats, at(0));
        let asked: Vec<u64> = (1..3_000).filter(|milli| repeats.take(at(*milli), RTT)).collect();
        assert_eq!(asked, [30, 90, 210, 450, 930, 1_530, 2_130, 2_730]);
        repeats.on_data(at(3_400));
        assert_eq!(taken(&mut repeats, at(3_401)), AT_FIRST as usize + 2, "one for the packet, one by time");
    }
}
