use super::{Delivery, RateController};
use crate::hop::rtt::HopRtt;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Growth per round trip of the hop while there is no congestion. From 5 to 35 Mbit/s are nine rounds: a fifth of a second
/// over 20 ms, as the square waves of figure 5a ask for.
const GROWTH: f64 = 1.25;
/// Share of the bandwidth that the hop carried that is left after congestion (k in the authors' program).
const BACK_OFF: f64 = 0.9;
/// Packets of queue that count as congestion: three, as a hole is confirmed by three packets.
const QUEUE_PACKETS: f64 = 3.0;
/// A loss above this share of a round is an overflow, even if the delay does not show it.
const OVERFLOW: f64 = 0.2;

/// A reading of INTCP's controller (section III). The paper names its inputs and goals and no equation: its inputs
/// are the delay of the hop, its losses, and the bandwidth that it carried; the free buffer bounds the flow's rate
/// elsewhere (LEOTP's eq. 9). Once every round trip of the hop, the rate grows by a quarter, to at most twice the
/// bandwidth that the hop carried, or falls to nine tenths of that bandwidth if a queue stands or a fifth of the
/// packets is lost. A round with a pause in it shows nothing about the hop: either the path broke off, and its
/// losses were those of the old path, or there were no requests.
#[derive(Debug)]
pub struct Intcp {
    rate: f64,
    packet: f64,
    round_started: Option<Instant>,
    last: Instant,
    round: Round,
}

/// Arrivals of one round trip.
#[derive(Debug, Default)]
struct Round {
    bytes: u64,
    packets: u32,
    lost: u32,
    backlog: bool,
}

impl Intcp {
    /// Starts with `initial` for packets of `packet` bytes.
    pub fn new(initial: Rate, packet: u64) -> Self {
        Self {
            rate: initial.as_bps() as f64 / 8.0,
            packet: packet as f64,
            round_started: None,
            last: Instant::ZERO,
            round: Round::default(),
        }
    }

    fn end_round(&mut self, elapsed: Duration, rtt: &HopRtt) {
        let round = core::mem::take(&mut self.round);
        let available = round.bytes as f64 / elapsed.as_secs_f64();
        let queue = available * rtt.smoothed().saturating_sub(rtt.min()).as_secs_f64();
        let loss = f64::from(round.lost) / f64::from(round.lost + round.packets);
        if queue > QUEUE_PACKETS * self.packet || loss > OVERFLOW {
            self.rate = BACK_OFF * available;
        } else if round.backlog {
            // A sender that is not held by the rate does not show the capacity of the hop.
            self.rate = (self.rate * GROWTH).min(2.0 * available.max(self.rate / 2.0));
        }
        self.rate = self.rate.max(self.packet / rtt.smoothed().max(Duration::from_micros(1)).as_secs_f64());
    }
}

impl RateController for Intcp {
    fn on_delivery(&mut self, delivery: Delivery, rtt: &HopRtt) -> Option<Duration> {
        let pause = delivery.now.since(core::mem::replace(&mut self.last, delivery.now));
        if pause > rtt.smoothed() {
            self.round = Round::default();
            self.round_started = Some(delivery.now);
            return None;
        }
        self.round.bytes += delivery.bytes;
        self.round.packets += 1;
        self.round.lost += delivery.lost;
        self.round.backlog |= delivery.backlog;
        let started = *self.round_started.get_or_insert(delivery.now);
        let elapsed = delivery.now.since(started);
        // The base round trip: while a queue builds up, the smoothed one grows nearly as fast as time passes.
        if elapsed >= rtt.min() && !elapsed.is_zero() {
            self.end_round(elapsed, rtt);
            self.round_started = Some(delivery.now);
        }
        None
    }

    fn rate(&self) -> Rate {
        Rate::from_bps((self.rate * 8.0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::ways::Detained;

    const PACKET: u64 = 1406;

    /// A second of a hop that carries at most `capacity` Mbit/s with a base round trip of 20 ms.
    fn second(intcp: &mut Intcp, rtt: &mut HopRtt, now: &mut Instant, capacity: f64, loss: u32) -> f64 {
        let mut queue = 0.0f64;
        let until = *now + Duration::from_secs(1);
        let mut count = 0;
        while *now < until {
            let offered = intcp.rate().as_mbps();
            let carried = if queue > 0.0 { capacity } else { capacity.min(offered) };
            let gap = PACKET as f64 * 8.0 / (carried * 1e6);
            queue = (queue + (offered - capacity) * 1e6 / 8.0 * gap).max(0.0);
            *now += Duration::from_nanos((gap * 1e9) as u64);
            let sample = Duration::from_nanos((20e6 + queue * 8.0 / capacity * 1e3) as u64);
            rtt.on_echo(*now, now.before(sample), Detained::default());
            count += 1;
            let lost = u32::from(loss > 0 && count % loss == 0);
            let delivery = Delivery {
                now: *now,
                bytes: PACKET,
                lost,
                runs: lost.min(1),
                passed: 1 + lost,
                sent: 1 + lost,
                hop_rtt: sample,
                backlog: true,
            };
            intcp.on_delivery(delivery, rtt);
        }
        intcp.rate().as_mbps()
    }

    #[test]
    fn it_finds_seven_times_the_rate_within_a_second_and_gives_it_up_as_soon() {
        let (mut intcp, mut rtt) =
            (Intcp::new(Rate::from_mbps(5), PACKET), HopRtt::new(Duration::from_millis(20)));
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let low = second(&mut intcp, &mut rtt, &mut now, 5.0, 0);
        let high = second(&mut intcp, &mut rtt, &mut now, 35.0, 0);
        let again = second(&mut intcp, &mut rtt, &mut now, 5.0, 0);
        assert!((3.0..7.0).contains(&low) && (24.0..46.0).contains(&high), "{low} {high}");
        assert!((3.0..7.0).contains(&again), "{again}");
    }

    #[test]
    fn a_path_that_breaks_off_leaves_the_rate_as_it_was() {
        let (mut intcp, mut rtt) =
            (Intcp::new(Rate::from_mbps(5), PACKET), HopRtt::new(Duration::from_millis(20)));
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let before = second(&mut intcp, &mut rtt, &mut now, 20.0, 0);
        now += Duration::from_millis(500);
        let base = Duration::from_millis(20);
        let after_loss = Delivery {
            now,
            bytes: PACKET,
            passed: 101,
            lost: 100,
            runs: 1,
            sent: 101,
            hop_rtt: base,
            backlog: true,
        };
        intcp.on_delivery(after_loss, &rtt);
        assert_eq!(intcp.rate().as_mbps(), before);
        let after = second(&mut intcp, &mut rtt, &mut now, 20.0, 0);
        assert!(after > 15.0, "{after}");
    }

    #[test]
    fn single_losses_are_no_congestion() {
        let (mut intcp, mut rtt) =
            (Intcp::new(Rate::from_mbps(5), PACKET), HopRtt::new(Duration::from_millis(20)));
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let rate = second(&mut intcp, &mut rtt, &mut now, 20.0, 20);
        assert!(rate > 15.0, "{rate}");
    }
}
