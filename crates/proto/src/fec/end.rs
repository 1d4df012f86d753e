//! One end of a pair of hosts that protect each other's packets.

use super::{FecConfig, FecDecoder, FecDecoderStats, FecEncoder, FecEncoderStats, FecPlan, FrameError};
use crate::time::Instant;
use alloc::vec::Vec;

/// An encoder towards the other end, and a decoder of what comes from there.
///
/// Inputs: [`Self::on_packet`], [`Self::on_frame`], and [`Self::on_timeout`] when [`Self::poll_timeout`] is due.
/// Outputs: [`Self::poll_transmit`] and [`Self::poll_packet`], each until `None` after every input. `now` never goes
/// back.
#[derive(Debug)]
pub struct FecEnd {
    config: FecConfig,
    encoder: FecEncoder,
    decoder: FecDecoder,
    /// Counters of the decoders before this one.
    before: FecDecoderStats,
}

impl FecEnd {
    /// An end that has sent and seen nothing.
    pub fn new(config: FecConfig) -> Self {
        let (encoder, decoder) = (FecEncoder::new(config), FecDecoder::new(config));
        Self { config, encoder, decoder, before: FecDecoderStats::default() }
    }

    /// A packet of at most 65,000 bytes is to go to the other end.
    pub fn on_packet(&mut self, now: Instant, packet: Vec<u8>) {
        self.encoder.on_packet(now, packet);
    }

    /// A frame came from the other end.
    ///
    /// # Errors
    /// Bytes that are no frame; nothing is changed by them.
    pub fn on_frame(&mut self, now: Instant, bytes: &[u8]) -> Result<(), FrameError> {
        if let Some(report) = self.decoder.on_frame(now, bytes)? {
            self.encoder.on_report(report);
        }
        Ok(())
    }

    /// The other end started anew: it numbers its packets and its reports from the beginning.
    pub fn other_began_anew(&mut self) {
        self.before = self.stats();
        self.decoder = FecDecoder::new(self.config);
        self.encoder.forget_reports();
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Instant) {
        self.encoder.on_timeout(now);
        self.decoder.on_timeout(now);
    }

    /// The next frame for the other end.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.encoder.poll_transmit().or_else(|| self.decoder.poll_report(now))
    }

    /// The next packet that came from the other end.
    pub fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.decoder.poll_packet()
    }

    /// Time of the next call of [`Self::on_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.encoder.poll_timeout(), self.decoder.poll_timeout()].into_iter().flatten().min()
    }

    /// Frames that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.encoder.waiting()
    }

    /// Length and parity of the blocks that it sends.
    pub fn plan(&self) -> &FecPlan {
        self.encoder.plan()
    }

    /// The share of packets that the path to the other end loses, by its reports.
    pub fn loss(&self) -> f64 {
        self.encoder.loss()
    }

    /// Counters of its encoder.
    pub fn sent(&self) -> FecEncoderStats {
        self.encoder.stats()
    }

    /// Counters of its decoders, for all starts of the other end.
    pub fn stats(&self) -> FecDecoderStats {
        let (now, before) = (self.decoder.stats(), self.before);
        FecDecoderStats {
            packets: before.packets + now.packets,
            repaired: before.repaired + now.repaired,
            given_up: before.given_up + now.given_up,
        }
    }
}
