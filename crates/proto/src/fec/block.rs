//! One block at the decoder.

use super::frame::{of_shard, shard_len, to_shard};
use crate::time::Instant;
use alloc::vec::Vec;
use reed_solomon_simd::ReedSolomonDecoder;

/// State of a packet of a block.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Slot {
    /// It did not come.
    #[default]
    Missing,
    /// It came.
    Came(Vec<u8>),
    /// It did not come, and parity gave it back.
    Repaired(Vec<u8>),
}

impl Slot {
    fn packet(&self) -> Option<&Vec<u8>> {
        match self {
            Self::Missing => None,
            Self::Came(packet) | Self::Repaired(packet) => Some(packet),
        }
    }
}

/// The shape of a block, which its parity tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) packets: u8,
    pub(super) parity: u8,
    pub(super) shard: usize,
}

/// Packets and parity of a block that came so far.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Arrival of its first packet.
    pub(super) began: Instant,
    slots: Vec<Slot>,
    shape: Option<Shape>,
    parity: Vec<(u8, Vec<u8>)>,
}

/// The losses of a block.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Losses {
    pub(super) packets: u32,
    pub(super) lost: u32,
    pub(super) runs: u32,
}

/// Places, and the packets that parity gives back for them.
type Restored = Vec<(usize, Option<Vec<u8>>)>;

impl Losses {
    /// So many packets in a row.
    pub(super) fn all(packets: u64) -> Self {
        Self { packets: packets as u32, lost: packets as u32, runs: 1 }
    }
}

impl Block {
    pub(super) fn new(began: Instant) -> Self {
        Self { began, slots: Vec::new(), shape: None, parity: Vec::new() }
    }

    /// A packet came; false where it is known already.
    pub(super) fn add_packet(&mut self, place: u8, packet: &[u8]) -> bool {
        let place = usize::from(place);
        if self.slots.len() <= place {
            self.slots.resize(place + 1, Slot::Missing);
        }
        let is_new = self.slots[place] == Slot::Missing;
        if is_new {
            self.slots[place] = Slot::Came(packet.to_vec());
        }
        is_new
    }

    /// Parity arrived. It is ignored if it contradicts earlier parity, or the packets that arrived.
    pub(super) fn add_parity(&mut self, shape: Shape, place: u8, shard: &[u8]) {
        let fits = self.slots.len() <= usize::from(shape.packets)
            && self.packets().all(|packet| shard_len(packet.len()) <= shape.shard)
            && self.shape.is_none_or(|known| known == shape);
        if fits && self.parity.iter().all(|(known, _)| *known != place) {
            self.shape = Some(shape);
            self.slots.resize(usize::from(shape.packets), Slot::Missing);
            self.parity.push((place, shard.to_vec()));
        }
    }

    /// Repairs the missing packets if enough arrived. Returns the number of repaired packets.
    pub(super) fn repair(&mut self) -> u32 {
        let Some(shape) = self.shape else { return 0 };
        let missing = self.slots.iter().filter(|slot| **slot == Slot::Missing).count();
        if missing == 0 || missing > self.parity.len() {
            return 0;
        }
        let Ok(restored) = self.restore(shape) else { return 0 };
        let mut repaired = 0;
        for (place, packet) in restored {
            if let (Some(slot @ Slot::Missing), Some(packet)) = (self.slots.get_mut(place), packet) {
                *slot = Slot::Repaired(packet);
                repaired += 1;
            }
        }
        repaired
    }

    fn restore(&self, shape: Shape) -> Result<Restored, reed_solomon_simd::Error> {
        let (packets, parity) = (usize::from(shape.packets), usize::from(shape.parity));
        let mut decoder = ReedSolomonDecoder::new(packets, parity, shape.shard)?;
        for (place, slot) in self.slots.iter().enumerate() {
            if let Some(packet) = slot.packet() {
                decoder.add_original_shard(place, to_shard(packet, shape.shard))?;
            }
        }
        for (place, shard) in &self.parity {
            decoder.add_recovery_shard(usize::from(*place), shard)?;
        }
        let result = decoder.decode()?;
        Ok(result.restored_original_iter().map(|(place, shard)| (place, of_shard(shard))).collect())
    }

    /// The packet at a place, if it came or was repaired.
    pub(super) fn packet(&self, place: u64) -> Option<&Vec<u8>> {
        self.slots.get(usize::try_from(place).ok()?)?.packet()
    }

    /// The first place from `place` on whose packet is there.
    pub(super) fn next_there(&self, place: u64) -> Option<u64> {
        (place..self.slots.len() as u64).find(|&place| self.packet(place).is_some())
    }

    /// Packets that are known to exist.
    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    /// There is no packet at `place` and none after it.
    pub(super) fn is_over(&self, place: u64) -> bool {
        self.shape.is_some() && place >= self.len()
    }

    /// Packets that did not arrive by themselves, among those that are known to exist.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses { packets: self.slots.len() as u32, ..Losses::default() };
        let mut before = true;
        for slot in &self.slots {
            let came = matches!(slot, Slot::Came(_));
            losses.lost += u32::from(!came);
            losses.runs += u32::from(before && !came);
            before = came;
        }
        losses
    }

    fn packets(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.slots.iter().filter_map(Slot::packet)
    }
}
