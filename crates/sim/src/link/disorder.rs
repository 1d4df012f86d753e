//! Faults of a path other than loss: swapped, doubled and damaged packets.

use starhop_proto::rng::Rng;
use starhop_proto::time::Duration;

/// Probabilities per packet; all zero by default.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Disorder {
    /// A packet is held back for `reorder_by`, so that others may overtake it.
    pub reorder: f64,
    /// Time for which a packet is held back.
    pub reorder_by: Duration,
    /// A packet arrives twice.
    pub duplicate: f64,
    /// A bit of a packet is wrong.
    pub corrupt: f64,
}

/// The fate of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fate {
    /// Held back by this long, out of order.
    pub held: Option<Duration>,
    /// Arrives twice.
    pub is_doubled: bool,
    /// Arrives with a wrong bit.
    pub is_damaged: bool,
}

impl Disorder {
    /// Whether it does nothing, and so draws nothing.
    pub fn is_none(&self) -> bool {
        self.reorder == 0.0 && self.duplicate == 0.0 && self.corrupt == 0.0
    }

    /// Draws the fate of the next packet.
    pub fn draw(&self, rng: &mut Rng) -> Fate {
        Fate {
            held: rng.chance(self.reorder).then_some(self.reorder_by),
            is_doubled: rng.chance(self.duplicate),
            is_damaged: rng.chance(self.corrupt),
        }
    }
}
