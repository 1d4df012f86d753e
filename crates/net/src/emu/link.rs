use super::departures::{Departures, TcpSegment};
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet comes out at the far end.
    Arrives(Arrival),
    /// The packet was sent and got lost on the way.
    Lost,
    /// The queue was full.
    Dropped,
}

/// The arrival of a packet at the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Arrival of the packet's last bit.
    pub at: Instant,
    /// A second copy arrives with the packet.
    pub is_doubled: bool,
    /// A bit of the packet is wrong.
    pub is_damaged: bool,
}

impl Arrival {
    /// An unharmed packet.
    pub fn at(at: Instant) -> Self {
        Self { at, is_doubled: false, is_damaged: false }
    }
}

/// One direction of a link, as a model: it decides the fate of packets and never changes them.
pub trait Link: Send {
    /// An IP packet enters. `now` never goes back.
    fn send(&mut self, now: Instant, packet: &[u8]) -> Verdict;
}

/// Drop-tail queue, constant rate, independent losses, constant delay.
#[derive(Debug)]
pub struct PlainLink {
    rate: Rate,
    delay: Duration,
    loss: f64,
    queue: usize,
    rng: Rng,
    /// Departure time of each queued packet, ascending.
    departures: VecDeque<Instant>,
    /// Record of the TCP bytes that enter, if anyone reads it.
    watch: Option<Arc<Mutex<Departures>>>,
}

impl PlainLink {
    /// A link with room for `queue` packets, the one being sent included.
    pub fn new(rate: Rate, delay: Duration, loss: f64, queue: usize, seed: u64) -> Self {
        Self { rate, delay, loss, queue, rng: Rng::new(seed), departures: VecDeque::new(), watch: None }
    }

    /// The same, noting when the bytes of a TCP connection enter it.
    #[must_use]
    pub fn watched(self, by: Arc<Mutex<Departures>>) -> Self {
        Self { watch: Some(by), ..self }
    }
}

impl Link for PlainLink {
    fn send(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        if let (Some(watch), Some(segment)) = (&self.watch, TcpSegment::parse(packet)) {
            watch.lock().unwrap_or_else(PoisonError::into_inner).on_segment(now, &segment);
        }
        while self.departures.front().is_some_and(|&at| at <= now) {
            self.departures.pop_front();
        }
        if self.departures.len() >= self.queue {
            return Verdict::Dropped;
        }
        let start = self.departures.back().map_or(now, |&at| at.max(now));
        let departure = start + self.rate.time_for(packet.len() as u64);
        self.departures.push_back(departure);
        // A lost packet was sent: it took its time on the wire.
        if self.rng.chance(self.loss) {
            Verdict::Lost
        } else {
            Verdict::Arrives(Arrival::at(departure + self.delay))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 1500] = [0; 1500];

    fn link(loss: f64, queue: usize) -> PlainLink {
        PlainLink::new(Rate::from_mbps(12), Duration::from_millis(10), loss, queue, 1)
    }

    #[test]
    fn packets_leave_one_after_the_other_and_then_travel() {
        let mut link = link(0.0, 10);
        let ms = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(link.send(ms(0), &PACKET), Verdict::Arrives(Arrival::at(ms(11))));
        assert_eq!(link.send(ms(0), &PACKET), Verdict::Arrives(Arrival::at(ms(12))));
        assert_eq!(link.send(ms(5), &PACKET), Verdict::Arrives(Arrival::at(ms(16))));
    }

    #[test]
    fn a_full_queue_drops_and_an_emptied_one_does_not() {
        let mut link = link(0.0, 2);
        let verdicts = [0, 0, 0].map(|at| link.send(Instant::from_nanos(at), &PACKET));
        assert_eq!(verdicts[2], Verdict::Dropped);
        assert_ne!(link.send(Instant::from_nanos(1_000_001), &PACKET), Verdict::Dropped);
    }

    #[test]
    fn losses_come_as_often_as_asked() {
        let mut link = link(0.01, 10);
        let lost = (0..100_000u64)
            .filter(|i| link.send(Instant::from_nanos(i * 2_000_000), &PACKET) == Verdict::Lost)
            .count();
        assert!((850..1150).contains(&lost), "{lost}");
    }
}
