//! The decoder: packets go on in order, gaps are repaired where parity allows.

use super::block::{Block, Losses, Shape};
use super::{FecConfig, FecFrame, FecReport, FrameError};
use crate::time::Instant;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Counters of a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FecDecoderStats {
    /// Packets handed on.
    pub packets: u64,
    /// Those of them that did not come and were repaired.
    pub repaired: u64,
    /// Packets given up.
    pub given_up: u64,
}

/// The far end of the lossy part.
///
/// Inputs: [`Self::on_frame`], and [`Self::on_timeout`] when [`Self::poll_timeout`] is due. Outputs:
/// [`Self::poll_packet`] and [`Self::poll_report`], each until `None` after every input. `now` never goes back. The
/// memory that an encoder's peer can make it use is bounded: [`MOST_BLOCKS`] blocks.
#[derive(Debug)]
pub struct FecDecoder {
    config: FecConfig,
    /// The number of the packet that is handed on next; `None` before the first.
    next: Option<u64>,
    /// The highest number seen.
    highest: u64,
    /// By the number of their first packets.
    blocks: BTreeMap<u64, Block>,
    /// The packet for which others wait, and since when.
    stuck: Option<(u64, Instant)>,
    /// The latest packets given up: they are still welcome.
    given_up: VecDeque<u64>,
    ready: VecDeque<Vec<u8>>,
    seen: FecReport,
    reported: FecReport,
    report_at: Option<Instant>,
    stats: FecDecoderStats,
}

/// Blocks that are held at most; older ones are given up.
const MOST_BLOCKS: usize = 64;
/// Packets given up whose late arrival is recognised.
const MOST_GIVEN_UP: usize = 256;
/// Numbers begin here, so that packets before the first have no negative numbers.
const BASE: u64 = 1 << 32;
/// A number further away than this belongs to another start of the encoder: the decoder begins anew too.
const LONGEST_LEAP: u64 = 1 << 16;

impl FecDecoder {
    /// A decoder that has seen nothing.
    pub fn new(config: FecConfig) -> Self {
        Self {
            config,
            next: None,
            highest: BASE,
            blocks: BTreeMap::new(),
            stuck: None,
            given_up: VecDeque::new(),
            ready: VecDeque::new(),
            seen: FecReport::default(),
            reported: FecReport::default(),
            report_at: None,
            stats: FecDecoderStats::default(),
        }
    }

    /// A frame came from the encoder. Reports are of the other direction and for its encoder: they are returned.
    ///
    /// # Errors
    /// Bytes that are no frame; nothing is changed by them.
    pub fn on_frame(&mut self, now: Instant, bytes: &[u8]) -> Result<Option<FecReport>, FrameError> {
        match FecFrame::parse(bytes)? {
            FecFrame::Report(report) => return Ok(Some(report)),
            // It is about starts, which the caller knows.
            FecFrame::Hello { .. } => return Ok(None),
            FecFrame::Packet { number, place, packet } => self.on_packet(now, number, place, packet),
            FecFrame::Parity { first, packets, parity, place, shard } => {
                let shape = Shape { packets, parity, shard: shard.len() };
                self.on_parity(now, first, shape, place, shard);
            }
        }
        self.report_at.get_or_insert(now + self.config.report_every);
        self.advance(now);
        Ok(None)
    }

    /// Time passed.
    pub fn on_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The next packet to hand on.
    pub fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// The frame of a report, when one is due.
    pub fn poll_report(&mut self, now: Instant) -> Option<Vec<u8>> {
        let due = self.report_at.is_some_and(|at| at <= now);
        if !due {
            return None;
        }
        self.report_at = None;
        if self.seen == self.reported {
            return None;
        }
        self.reported = self.seen;
        Some(FecFrame::Report(self.seen).to_bytes())
    }

    /// Time of the next call of [`Self::on_timeout`] and [`Self::poll_report`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.give_up_at(), self.report_at].into_iter().flatten().min()
    }

    /// Its counters.
    pub fn stats(&self) -> FecDecoderStats {
        self.stats
    }

    /// The losses that it saw since the start.
    pub fn report(&self) -> FecReport {
        self.seen
    }

    fn on_packet(&mut self, now: Instant, number: u32, place: u8, packet: &[u8]) {
        let number = self.whole(number);
        let first = number - u64::from(place);
        let next = *self.next.get_or_insert(first);
        if number < next {
            if let Some(index) = self.given_up.iter().position(|&given| given == number) {
                self.given_up.remove(index);
                self.ready.push_back(packet.to_vec());
                self.stats.packets += 1;
            }
            return;
        }
        let block = self.blocks.entry(first).or_insert_with(|| Block::new(now));
        if block.add_packet(place, packet) {
            self.stats.repaired += u64::from(block.repair());
        }
    }

    fn on_parity(&mut self, now: Instant, first: u32, shape: Shape, place: u8, shard: &[u8]) {
        let first = self.whole(first);
        let next = *self.next.get_or_insert(first);
        if first + u64::from(shape.packets) <= next {
            return;
        }
        let block = self.blocks.entry(first).or_insert_with(|| Block::new(now));
        block.add_parity(shape, place, shard);
        self.stats.repaired += u64::from(block.repair());
    }

    /// The whole number of which `low` are the lower bits: the one nearest to the highest so far.
    fn whole(&mut self, low: u32) -> u64 {
        if self.next.is_none() {
            self.highest = BASE + u64::from(low);
            return self.highest;
        }
        let ahead = low.wrapping_sub(self.highest as u32) as i32;
        let number = self.highest.saturating_add_signed(i64::from(ahead)).max(u64::from(u8::MAX));
        if number > self.highest + LONGEST_LEAP || number + LONGEST_LEAP < self.highest {
            self.begin_anew(low);
            return self.highest;
        }
        self.highest = self.highest.max(number);
        number
    }

    fn begin_anew(&mut self, low: u32) {
        self.blocks.clear();
        self.given_up.clear();
        (self.next, self.stuck) = (None, None);
        self.highest = BASE + u64::from(low);
    }

    /// Hands on the packets that are ready, and gives up overdue ones.
    fn advance(&mut self, now: Instant) {
        loop {
            self.hand_on();
            let Some(waiting_for) = self.next.filter(|_| self.is_anything_ahead()) else {
                self.stuck = None;
                return;
            };
            if self.stuck.is_none_or(|(number, _)| number != waiting_for) {
                self.stuck = Some((waiting_for, now));
            }
            let is_overdue = self.give_up_at().is_some_and(|at| at <= now);
            if !is_overdue && self.blocks.len() <= MOST_BLOCKS {
                return;
            }
            self.give_up(waiting_for);
        }
    }

    fn hand_on(&mut self) {
        let Some(mut next) = self.next else { return };
        while let Some((&first, block)) = self.blocks.range(..=next).next_back() {
            let Some(packet) = block.packet(next - first) else {
                if block.is_over(next - first) {
                    self.finish_before(first + 1);
                }
                break;
            };
            self.ready.push_back(packet.clone());
            self.stats.packets += 1;
            next += 1;
            self.finish_before(first);
        }
        self.next = Some(next);
    }

    /// A packet that came is waiting behind a gap.
    fn is_anything_ahead(&self) -> bool {
        let Some(next) = self.next else { return false };
        self.next_there(next).is_some()
    }

    fn next_there(&self, next: u64) -> Option<u64> {
        let own = self.blocks.range(..=next).next_back();
        let own = own.and_then(|(first, block)| Some(first + block.next_there(next - first)?));
        let later = || {
            let mut later = self.blocks.range(next + 1..);
            later.find_map(|(first, block)| Some(first + block.next_there(0)?))
        };
        own.or_else(later)
    }

    /// Time at which waiting for the gap at the front ends.
    fn give_up_at(&self) -> Option<Instant> {
        let (number, since) = self.stuck?;
        let later =
            self.blocks.range(number + 1..).next().map(|(_, block)| block.began + self.config.reorder);
        let held = since + self.config.hold;
        Some(later.map_or(held, |later| later.min(held)))
    }

    /// Gives up everything from `from` to the next packet that is there.
    fn give_up(&mut self, from: u64) {
        let to = self.next_there(from).unwrap_or(from + 1);
        for number in from..to {
            self.given_up.push_back(number);
            self.stats.given_up += 1;
        }
        let overflow = self.given_up.len().saturating_sub(MOST_GIVEN_UP);
        self.given_up.drain(..overflow);
        // Packets of which not even the block is known; the others are counted with their blocks.
        let before = self.blocks.range(..=from).next_back();
        let unknown_from = before.map_or(from, |(first, block)| (first + block.len()).max(from));
        let unknown_to = self.blocks.range(..=to).next_back().map_or(to, |(&first, _)| first);
        if unknown_from < unknown_to {
            self.count(Losses::all(unknown_to - unknown_from));
        }
        (self.next, self.stuck) = (Some(to), None);
    }

    /// The blocks before `number` are finished: their losses are counted.
    fn finish_before(&mut self, number: u64) {
        while let Some(entry) = self.blocks.first_entry()
            && *entry.key() < number
        {
            let losses = entry.remove().losses();
            self.count(losses);
        }
    }

    fn count(&mut self, losses: Losses) {
        self.seen.packets = self.seen.packets.wrapping_add(losses.packets);
        self.seen.lost = self.seen.lost.wrapping_add(losses.lost);
        self.seen.runs = self.seen.runs.wrapping_add(losses.runs);
    }
}
