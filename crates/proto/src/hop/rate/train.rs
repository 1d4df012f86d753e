use crate::time::{Duration, Instant};

/// The first gaps count. Later ones are those of the rate that was granted.
const MOST_GAPS: u32 = 5;
/// Two packets that left close together are waited for within so many. Single packets show nothing.
const MOST_PACKETS: u32 = 4;
/// The second of two packets may be late by this because of jitter, or of a sender that was woken late; but half of their
/// distance at least counts as its time on the wire.
const LATE: Duration = Duration::from_millis(4);

/// The spacing of the first packets of a hop. Its neighbour lets them leave close together, and the narrowest link puts them
/// apart (a packet train, Jain and Routhier 1986): a packet takes no longer on that link than the least gap between two. How far
/// apart they left shows in their delays: the second one's is longer by what the link added.
///
/// Jitter, and a link that delivers in bursts, make the least gap shorter. The link then seems faster than it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    /// A link on which a packet takes no longer than this need not be known better.
    quick: Duration,
    packets: u32,
    /// Arrival and delay of the packet before.
    before: Option<(Instant, Duration)>,
    gaps: u32,
    least: Duration,
    /// The link made one of the gaps, or is quick.
    is_known: bool,
}

impl Train {
    pub(super) fn new(quick: Duration) -> Self {
        Self { quick, packets: 0, before: None, gaps: 0, least: Duration::MAX, is_known: false }
    }

    /// A full packet arrived, with this hopRTT. Returns the longest time that a packet takes on the link, once it is known, as
    /// long as this packet may tell more of it.
    pub(super) fn on_packet(&mut self, now: Instant, hop_rtt: Duration) -> Option<Duration> {
        self.packets = self.packets.saturating_add(1);
        let (at, delay) = self.before.replace((now, hop_rtt))?;
        if self.gaps == MOST_GAPS {
            return None;
        }
        let gap = now.since(at);
        self.least = self.least.min(gap);
        let is_of_link = hop_rtt.saturating_sub(delay) > gap.scaled(1, 2);
        self.is_known |= is_of_link || self.on_wire() <= self.quick;
        self.gaps += u32::from(self.is_known);
        self.is_known.then(|| self.on_wire())
    }

    fn on_wire(&self) -> Duration {
        self.least.saturating_sub(LATE).max(self.least.scaled(1, 2))
    }

    /// The spacing is known, or packets come too rarely to show one.
    pub(super) fn is_over(&self) -> bool {
        self.is_known || self.packets >= MOST_PACKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to packets that arrive at these times with these hopRTTs, milliseconds.
    fn told<const N: usize>(train: &mut Train, packets: [(u64, u64); N]) -> [Option<f64>; N] {
        packets.map(|(at, hop_rtt)| {
            let at = Instant::ZERO + Duration::from_millis(at);
            train.on_packet(at, Duration::from_millis(hop_rtt)).map(|on_wire| on_wire.as_millis_f64())
        })
    }

    fn train() -> Train {
        Train::new(Duration::from_millis(1))
    }

    #[test]
    fn the_least_of_the_first_gaps_is_the_time_of_a_packet_and_four_milliseconds_at_most() {
        let mut train = train();
        let packets =
            [(1000, 100), (1050, 149), (1061, 159), (1068, 165), (1088, 184), (1108, 203), (1109, 203)];
        let on_wire = [None, Some(46.0), Some(7.0), Some(3.5), Some(3.5), Some(3.5), None];
        assert_eq!(told(&mut train, packets), on_wire);
        assert!(train.is_over());
    }

    #[test]
    fn a_gap_that_the_sender_made_tells_only_that_a_link_is_quick() {
        let mut train = train();
        assert_eq!(told(&mut train, [(1000, 100), (1011, 100)]), [None, None]);
        assert!(!train.is_over());
        assert_eq!(told(&mut train, [(1013, 100)]), [Some(1.0)]);
        assert!(train.is_over());
    }

    #[test]
    fn single_packets_are_not_waited_for_for_long() {
        let mut train = train();
        assert_eq!(told(&mut train, [(1000, 100), (2000, 103), (3000, 99)]), [None; 3]);
        assert!(!train.is_over());
        assert_eq!(told(&mut train, [(4000, 100)]), [None]);
        assert!(train.is_over());
    }
}
