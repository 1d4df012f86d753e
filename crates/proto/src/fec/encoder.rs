//! The encoder: packets go out as they come, parity after every block.

use super::frame::{shard_len, to_shard};
use super::{FecConfig, FecFrame, FecPlan, FecReport, LossEstimate};
use crate::time::Instant;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use reed_solomon_simd::ReedSolomonEncoder;

/// Counters of an encoder.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FecEncoderStats {
    /// Packets that it was given.
    pub packets: u64,
    /// Parity packets that it made.
    pub parity: u64,
}

/// The near end of the lossy part.
///
/// Inputs: [`Self::on_packet`], [`Self::on_report`], and [`Self::on_timeout`] when [`Self::poll_timeout`] is due.
/// Output: [`Self::poll_transmit`] until `None` after every input. `now` never goes back.
#[derive(Debug)]
pub struct FecEncoder {
    config: FecConfig,
    estimate: LossEstimate,
    plan: FecPlan,
    next: u32,
    block: Vec<Vec<u8>>,
    closes: Option<Instant>,
    outgoing: VecDeque<Vec<u8>>,
    stats: FecEncoderStats,
}

impl FecEncoder {
    /// An encoder that has sent nothing.
    pub fn new(config: FecConfig) -> Self {
        let estimate = LossEstimate::new(config.first_guess);
        let plan = plan(&config, &estimate);
        let (block, outgoing) = (Vec::new(), VecDeque::new());
        Self {
            config,
            estimate,
            plan,
            next: 0,
            block,
            closes: None,
            outgoing,
            stats: FecEncoderStats::default(),
        }
    }

    /// A packet of at most 65,000 bytes is to go.
    pub fn on_packet(&mut self, now: Instant, packet: Vec<u8>) {
        let frame = FecFrame::Packet { number: self.next, place: self.block.len() as u8, packet: &packet };
        self.outgoing.push_back(frame.to_bytes());
        self.next = self.next.wrapping_add(1);
        self.stats.packets += 1;
        self.block.push(packet);
        self.closes.get_or_insert(now + self.config.block_time);
        if self.block.len() >= usize::from(self.plan.block()) {
            self.close();
        }
    }

    /// The far end reported its losses.
    pub fn on_report(&mut self, report: FecReport) {
        self.estimate.on_report(report);
        self.plan = plan(&self.config, &self.estimate);
    }

    /// The far end counts from the beginning again.
    pub fn forget_reports(&mut self) {
        self.estimate.begin_anew();
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.closes.is_some_and(|closes| closes <= now) {
            self.close();
        }
    }

    /// The next frame to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.pop_front()
    }

    /// Time of the next call of [`Self::on_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.closes
    }

    /// Frames that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.outgoing.len()
    }

    /// The share of packets lost, by the far end's reports.
    pub fn loss(&self) -> f64 {
        self.estimate.share()
    }

    /// Length and parity of its blocks as they are now.
    pub fn plan(&self) -> &FecPlan {
        &self.plan
    }

    /// Its counters.
    pub fn stats(&self) -> FecEncoderStats {
        self.stats
    }

    fn close(&mut self) {
        self.closes = None;
        let block = core::mem::take(&mut self.block);
        let first = self.next.wrapping_sub(block.len() as u32);
        let parity = self.plan.parity(block.len() as u8);
        let shards = parity_of(&block, parity);
        for (place, shard) in shards.iter().enumerate() {
            let (packets, place) = (block.len() as u8, place as u8);
            self.outgoing.push_back(FecFrame::Parity { first, packets, parity, place, shard }.to_bytes());
        }
        self.stats.parity += shards.len() as u64;
    }
}

fn plan(config: &FecConfig, estimate: &LossEstimate) -> FecPlan {
    let (share, burst) = (estimate.share(), estimate.burst());
    FecPlan::new(share, burst, config.residual, config.most_overhead, config.most_block)
}

/// The parity shards of a block; none where there is nothing to do.
fn parity_of(block: &[Vec<u8>], parity: u8) -> Vec<Vec<u8>> {
    let len = block.iter().map(|packet| shard_len(packet.len())).max().unwrap_or(0);
    if parity == 0 || len == 0 {
        return Vec::new();
    }
    let encode = || {
        let mut encoder = ReedSolomonEncoder::new(block.len(), usize::from(parity), len)?;
        for packet in block {
            encoder.add_original_shard(to_shard(packet, len))?;
        }
        let result = encoder.encode()?;
        Ok::<_, reed_solomon_simd::Error>(result.recovery_iter().map(<[u8]>::to_vec).collect())
    };
    // Counts and lengths are within the limits of the code: 255 packets at most, all shards alike and even.
    encode().unwrap_or_default()
}
