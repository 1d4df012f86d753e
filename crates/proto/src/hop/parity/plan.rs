use super::weather::Loss;
use crate::fec::Gilbert;
use crate::time::Duration;
use crate::units::Rate;
use crate::wire::{CodePlan, MAX_OVERLAP};

/// A repair by request within this time comes before users notice the loss.
const NOTICED: Duration = Duration::from_millis(50);
/// Parity has to repair a loss within this time: the rest of [`NOTICED`] is for the hop's own queue.
const IN_TIME: Duration = Duration::from_millis(40);
/// The share of packets that may wait longer than [`IN_TIME`]: half of the hundredth that a 99th percentile leaves.
const MOST_LATE: f64 = 0.005;
/// The share of packets that may wait for a repair by request, because parity was not enough.
const MOST_REPAIRED: f64 = 0.002;
/// Benefit that parity must have: 30 ms less waiting for a loss, for each hundredth of the rate that it takes.
/// Parity of a tenth of the rate is worth it if a loss waits for more than 300 ms: on geostationary hops, not on
/// those of lower orbits.
const WORTH: Duration = Duration::from_secs(3);
/// Packets per Parity packet, with steps of a fifth. The first is the limit of a tenth, the last that of the field.
pub(super) const EVERY: [u8; 19] =
    [10, 12, 14, 17, 20, 24, 28, 33, 39, 46, 55, 65, 78, 93, 111, 133, 160, 210, 255];
/// The most packets that a sum covers, so that a Requester keeps less than a megabyte.
pub(super) const MOST_REACH: usize = 512;

/// The most additions of a packet to a sum per second: at an eighth of a microsecond each, they take a tenth of a
/// core.
const MOST_ADDITIONS: f64 = 800_000.0;

/// The hop that a plan is for.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// Its loss.
    pub loss: Option<Loss>,
    /// Its round trip.
    pub rtt: Duration,
    /// The granted rate.
    pub rate: Rate,
    /// Bytes of a full packet.
    pub packet: u64,
}

/// The parity that is worth its bytes on a hop: the least with which few packets wait longer than users notice.
pub fn plan(hop: Hop) -> Option<CodePlan> {
    let loss = hop.loss.filter(|_| hop.rtt >= NOTICED)?;
    let per_second = hop.rate.as_bps() as f64 / (8 * hop.packet.max(1)) as f64;
    let in_packets = |span: Duration| per_second * span.as_secs_f64();
    let round_trip = in_packets(hop.rtt);
    // A loss delays the packets of a round trip; if these are a small share of all packets, repair by request is
    // enough.
    if loss.share * round_trip.max(1.0) < MOST_LATE {
        return None;
    }
    let channel = Gilbert::new(loss.share, loss.burst);
    let in_time = (in_packets(IN_TIME) as usize).clamp(1, MOST_REACH);
    let is_in_time = |every: u8| Wait::new(channel, every).longer_than(in_time) <= MOST_LATE;
    // Late packets only become more with fewer Parity packets.
    let every = EVERY[EVERY.partition_point(|every| is_in_time(*every)).saturating_sub(1)];
    let price = WORTH.as_secs_f64() / f64::from(u16::from(every) + 1);
    if price > hop.rtt.saturating_sub(IN_TIME).as_secs_f64() {
        return None;
    }
    let wait = Wait::new(channel, every);
    let is_enough = |overlap: &u8| {
        // A packet gets no more parity after as many packets as a sum covers, and then waits for a round trip.
        let covered = usize::from(every) * (usize::from(*overlap) - 1).max(1);
        wait.longer_than(covered) * round_trip / f64::from(every) <= MOST_REPAIRED
    };
    let affordable = (MOST_ADDITIONS / per_second.max(1.0)).min(f64::from(MAX_OVERLAP)) as usize;
    let most = (MOST_REACH / usize::from(every)).min(affordable).max(2) as u8;
    let overlap = (2..most).find(is_enough).unwrap_or(most);
    let span = in_time_for(every, per_second).max(IN_TIME);
    Some(CodePlan { every, overlap, within: (span.as_millis_f64() as u64).clamp(1, 255) as u8 })
}

/// The time of a Parity packet's share, with a quarter to spare: in a steady flow no pause makes parity come early.
fn in_time_for(every: u8, per_second: f64) -> Duration {
    Duration::from_secs_f64((1.25 * f64::from(every) / per_second.max(1.0)).min(1.0))
}

/// The most losses that wait for parity at once; more are counted as this many.
const MOST_WAITING: usize = 32;

/// The chances of the number of losses that wait for parity, in the good and in the bad state of the channel.
type Waiting = [[f64; 2]; MOST_WAITING];

/// Waiting time of losses for parity: each Parity packet that arrives repairs one of the waiting losses.
struct Wait {
    channel: Gilbert,
    every: usize,
    /// In the long run, right behind each packet of the share of a Parity packet.
    steady: alloc::vec::Vec<Waiting>,
}

impl Wait {
    fn new(channel: Gilbert, every: u8) -> Self {
        let every = usize::from(every);
        let mut waiting: Waiting = [[0.0; 2]; MOST_WAITING];
        waiting[0] = [1.0 - channel.share, channel.share];
        let mut wait = Self { channel, every, steady: alloc::vec::Vec::new() };
        // Losses that wait now began to wait within this many Parity packets, or so many wait that the plan is no
        // good.
        for _ in 0..MOST_WAITING {
            wait.steady.clear();
            for _ in 0..every {
                waiting = wait.after_packet(&waiting);
                wait.steady.push(waiting);
            }
            waiting = wait.after_parity(&waiting);
        }
        wait
    }

    /// The share of packets behind which more than `packets` others come before all losses until then are repaired.
    fn longer_than(&self, packets: usize) -> f64 {
        // A few places in the share of a Parity packet stand for all.
        let step = (self.every / 8).max(1);
        let places = (step / 2..self.every).step_by(step);
        let count = places.len().max(1) as f64;
        places.map(|place| self.longer_from(place, packets)).sum::<f64>() / count
    }

    fn longer_from(&self, place: usize, packets: usize) -> f64 {
        let mut waiting = self.steady[place];
        waiting[0] = [0.0; 2];
        for n in 1..=packets {
            if (place + n).is_multiple_of(self.every) {
                waiting = self.after_parity(&waiting);
                waiting[0] = [0.0; 2];
            }
            waiting = self.after_packet(&waiting);
        }
        waiting.iter().flatten().sum()
    }

    /// One packet later, which waits if it was lost.
    fn after_packet(&self, before: &Waiting) -> Waiting {
        let lost = |n: usize| {
            let last = if n + 1 == MOST_WAITING { before[n][1] } else { 0.0 };
            last + if n > 0 { before[n - 1][1] } else { 0.0 }
        };
        core::array::from_fn(|n| {
            let (good, bad) = self.channel.step(before[n][0], lost(n));
            [good, bad]
        })
    }

    /// One Parity packet later: if it arrived, one loss fewer waits.
    fn after_parity(&self, before: &Waiting) -> Waiting {
        let made_good = |n: usize| {
            let one_more = if n + 1 < MOST_WAITING { before[n + 1][0] } else { 0.0 };
            one_more + if n == 0 { before[0][0] } else { 0.0 }
        };
        core::array::from_fn(|n| {
            let (good, bad) = self.channel.step(made_good(n), before[n][1]);
            [good, bad]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::vec::Vec;

    fn hop(share: f64, burst: f64) -> Hop {
        let loss = (share > 0.0).then_some(Loss { share, burst });
        Hop { loss, rtt: Duration::from_millis(500), rate: Rate::from_mbps(20), packet: 1406 }
    }

    fn parity(plan: Option<CodePlan>) -> f64 {
        plan.map_or(0.0, |plan| 1.0 / (1.0 + f64::from(plan.every)))
    }

    #[test]
    fn parity_is_within_what_the_losses_of_a_satellite_hop_are_worth() {
        let shares =
            [(0.001, 1.0), (0.01, 1.0), (0.01, 5.0)].map(|(share, burst)| parity(plan(hop(share, burst))));
        assert!(shares[0] <= 0.015 && shares[1] <= 0.06 && shares[2] <= 0.1, "{shares:?}");
        assert!(shares.is_sorted_by(|a, b| a < b) && shares[0] > 0.005, "{shares:?}");
    }

    #[test]
    fn there_is_none_where_it_is_not_worth_it() {
        assert_eq!(plan(hop(0.0, 1.0)), None, "no loss");
        assert_eq!(plan(hop(1e-6, 1.0)), None, "hardly any loss");
        assert_eq!(plan(Hop { rtt: Duration::from_millis(40), ..hop(0.01, 1.0) }), None, "a short hop");
        assert_eq!(plan(Hop { rtt: Duration::from_millis(100), ..hop(0.05, 1.0) }), None, "much for little");
    }

    #[test]
    fn every_plan_can_be_carried_out() {
        for share in [1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.2, 0.6] {
            for burst in [1.0, 3.0, 20.0, 200.0] {
                for rate in [64_000, 1_000_000, 20_000_000, 1_000_000_000] {
                    let hop = Hop { rate: Rate::from_bps(rate), ..hop(share, burst) };
                    let Some(plan) = plan(hop) else { continue };
                    assert!((10..=255).contains(&plan.every) && plan.within >= 40, "{plan:?}");
                    assert!((2..=MAX_OVERLAP).contains(&plan.overlap), "{plan:?}");
                    assert!(plan.reach() <= MOST_REACH.max(2 * 255), "{plan:?}");
                }
            }
        }
    }

    #[test]
    fn the_wait_is_that_of_a_simulated_hop() {
        for (share, burst, every, packets) in [(0.01, 1.0, 30, 40), (0.03, 1.0, 12, 30), (0.01, 5.0, 12, 60)]
        {
            let channel = Gilbert::new(share, burst);
            let expected = Wait::new(channel, every).longer_than(packets);
            let mut rng = Rng::new(3);
            let (mut is_bad, mut waiting, mut late, mut now) = (false, 0, 0, 0);
            let mut since: Vec<usize> = Vec::new();
            let total = 2_000_000;
            let mut lost = |rng: &mut Rng| {
                let was_bad = is_bad;
                is_bad = if is_bad { !rng.chance(channel.to_good) } else { rng.chance(channel.to_bad) };
                was_bad
            };
            while now < total {
                for _ in 0..every {
                    now += 1;
                    waiting += usize::from(lost(&mut rng));
                    if waiting > 0 {
                        since.push(now);
                    }
                }
                if !lost(&mut rng) && waiting > 0 {
                    waiting -= 1;
                }
                if waiting == 0 {
                    late += since.iter().filter(|sent| now - **sent >= packets).count();
                    since.clear();
                }
            }
            let measured = late as f64 / total as f64;
            assert!(
                (measured / expected - 1.0).abs() < 0.2,
                "{share} {burst} {every}: {measured} {expected}"
            );
        }
    }
}
