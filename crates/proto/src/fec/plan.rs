//! Length and parity of blocks for a measured loss.

use super::Gilbert;
use alloc::vec;
use alloc::vec::Vec;

/// Price, in parity packets, of each packet time that a lost packet waits for its repair: long blocks need less
/// parity, short ones repair sooner. At this price the best block has some 64 packets at 0.1 % and 32 at 1 %.
const PRICE_OF_WAITING: f64 = 0.25;

/// Parity packets that a block may have however short it is: a lone packet is to arrive as surely as one of many, and short
/// blocks are those of a path that has little to carry.
const SHORT_BLOCKS: usize = 3;

/// Length and parity of blocks.
///
/// The path is taken for Gilbert's channel. Of all lengths the one is chosen whose parity and whose waiting cost least
/// together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FecPlan {
    /// Packets of a block.
    block: u8,
    /// Parity packets by packets of a block.
    parity: Vec<u8>,
}

impl FecPlan {
    /// For a path that loses `share` of its packets in runs of `burst` on average, where `residual` of them may stay
    /// lost, and parity may be `most_overhead` per packet in blocks of up to `most_block`.
    pub fn new(share: f64, burst: f64, residual: f64, most_overhead: f64, most_block: u8) -> Self {
        let most = usize::from(most_block).max(1);
        let most_parity =
            |packets: usize| ((packets as f64 * most_overhead) as usize).clamp(SHORT_BLOCKS, 127);
        let unrepaired = unrepaired(share, burst, most + most_parity(most));
        let least_parity = |packets: usize| {
            let enough = (0..=most_parity(packets)).find(|&r| unrepaired[packets + r][r] <= residual);
            enough.unwrap_or(most_parity(packets)) as u8
        };
        let parity: Vec<u8> =
            (0..=most).map(|packets| if packets == 0 { 0 } else { least_parity(packets) }).collect();
        let cost = |packets: &usize| {
            let packets_f64 = *packets as f64;
            f64::from(parity[*packets]) / packets_f64 + share * packets_f64 * PRICE_OF_WAITING
        };
        let enough = |packets: &usize| {
            unrepaired[packets + usize::from(parity[*packets])][usize::from(parity[*packets])] <= residual
        };
        // If no length repairs enough, the longest repairs most.
        let best = (1..=most).filter(enough).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        Self { block: best.unwrap_or(most) as u8, parity }
    }

    /// Packets of a full block.
    pub fn block(&self) -> u8 {
        self.block
    }

    /// Parity packets of a block of `packets`.
    pub fn parity(&self, packets: u8) -> u8 {
        self.parity.get(usize::from(packets)).or(self.parity.last()).copied().unwrap_or(0)
    }
}

/// The share of packets that are lost and not repaired if any n - r packets of n are enough; by the number n of
/// packets in a row, and by r.
fn unrepaired(share: f64, burst: f64, most: usize) -> Vec<Vec<f64>> {
    let channel = Gilbert::new(share, burst);
    // By the number of losses so far: the probability of that number, in the good or the bad state.
    let (mut good, mut bad) = (vec![0.0; most + 2], vec![0.0; most + 2]);
    (good[0], bad[0]) = (1.0 - channel.share, channel.share);
    let mut table = vec![vec![0.0]];
    for n in 1..=most {
        // A channel in the bad state loses this packet, and then every state moves on.
        let lost: Vec<f64> = core::iter::once(0.0).chain(bad[..n].iter().copied()).collect();
        let kept: Vec<f64> = good[..=n].to_vec();
        let chance = |j: usize| kept[j] + lost[j];
        let mut row = vec![0.0; n + 1];
        // From the tail on: the sum over j > r of P(j) · j / n.
        for r in (0..n).rev() {
            row[r] = row[r + 1] + chance(r + 1) * (r + 1) as f64 / n as f64;
        }
        for j in 0..=n {
            (good[j], bad[j]) = channel.step(kept[j], lost[j]);
        }
        table.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// P(more than r of n lost) weighted by the losses, for independent losses: the binomial sum.
    fn binomial(share: f64, n: u32, r: u32) -> f64 {
        let mut term = libm::pow(1.0 - share, f64::from(n));
        let mut sum = 0.0;
        for j in 1..=n {
            term *= f64::from(n - j + 1) / f64::from(j) * share / (1.0 - share);
            sum += if j > r { term * f64::from(j) / f64::from(n) } else { 0.0 };
        }
        sum
    }

    #[test]
    fn without_bursts_it_is_the_binomial_distribution() {
        // Gilbert's channel without memory has runs of 1 / (1 - p).
        for share in [0.001, 0.02, 0.2] {
            let table = unrepaired(share, 1.0 / (1.0 - share), 40);
            for (n, r) in [(10, 0), (10, 2), (40, 5), (39, 12)] {
                let (got, expected) = (table[n][r], binomial(share, n as u32, r as u32));
                assert!((got / expected - 1.0).abs() < 1e-6, "{share} {n} {r}: {got} {expected}");
            }
        }
    }

    #[test]
    fn with_bursts_it_is_what_a_simulated_channel_does() {
        let (share, burst, n, r) = (0.05, 4.0, 30_usize, 5_usize);
        let expected = unrepaired(share, burst, n)[n][r];
        let (mut rng, mut is_bad, mut stayed) = (Rng::new(3), false, 0_u64);
        let blocks = 200_000;
        for _ in 0..blocks {
            let mut lost = 0;
            for _ in 0..n {
                lost += usize::from(is_bad);
                let (to_good, to_bad) = (1.0 / burst, share / (1.0 - share) / burst);
                is_bad = if is_bad { !rng.chance(to_good) } else { rng.chance(to_bad) };
            }
            stayed += if lost > r { lost as u64 } else { 0 };
        }
        let measured = stayed as f64 / (blocks * n) as f64;
        assert!((measured / expected - 1.0).abs() < 0.05, "{measured} {expected}");
    }

    fn plan(share: f64, burst: f64) -> FecPlan {
        FecPlan::new(share, burst, 1e-5, 0.5, 64)
    }

    #[test]
    fn more_loss_means_more_parity_and_shorter_blocks() {
        let plans = [0.0001, 0.001, 0.01, 0.05].map(|share| plan(share, 1.0));
        let overheads = plans.each_ref().map(|p| f64::from(p.parity(p.block())) / f64::from(p.block()));
        assert!(overheads.is_sorted_by(|a, b| a < b), "{overheads:?}");
        assert!(overheads[0] < 0.03 && (0.08..0.2).contains(&overheads[2]), "{overheads:?}");
        let blocks = plans.map(|p| p.block());
        assert!(blocks.is_sorted_by(|a, b| a >= b) && blocks[3] < blocks[0], "{blocks:?}");
    }

    #[test]
    fn a_lone_packet_is_as_safe_as_one_of_many() {
        let plan = plan(0.02, 1.0);
        let stays_lost = |packets: i32| libm::pow(0.02, f64::from(packets));
        let copies = 1 + i32::from(plan.parity(1));
        assert!(stays_lost(copies) <= 1e-5 && stays_lost(copies - 1) > 1e-5, "{copies}");
    }

    #[test]
    fn bursts_need_more_parity_than_the_same_loss_spread_out() {
        let (spread, bursts) = (plan(0.01, 1.0), plan(0.01, 4.0));
        assert!(bursts.parity(32) > spread.parity(32) + 2, "{} {}", bursts.parity(32), spread.parity(32));
    }

    #[test]
    fn overhead_has_its_limit_and_a_clean_path_none() {
        let hopeless = plan(0.4, 3.0);
        assert_eq!((hopeless.block(), hopeless.parity(64)), (64, 32));
        assert_eq!(plan(1e-6, 1.0).parity(64), 0);
    }
}
