//! The losses of a link.

use starhop_proto::rng::Rng;

/// A loss process, per packet.
#[derive(Clone, Debug, PartialEq)]
pub enum LossModel {
    /// Nothing is lost.
    None,
    /// Each packet by itself, with this probability.
    Bernoulli(f64),
    /// One loss every so many packets, as closed forms of congestion controls assume.
    Periodic(u64),
    /// Gilbert-Elliott: a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// Each bit by itself, with this probability; one wrong bit loses the packet.
    BitErrors(f64),
}

/// Two states with a loss probability each; the state may change before every packet (Elliott, 1963).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of good → bad, per packet.
    pub to_bad: f64,
    /// Probability of bad → good, per packet.
    pub to_good: f64,
    /// Loss probability in the good state.
    pub good_loss: f64,
    /// Loss probability in the bad state.
    pub bad_loss: f64,
}

impl GilbertElliott {
    /// Loses `mean` of the packets in runs of `burst` packets on average, and nothing in between (Gilbert).
    pub fn bursts(mean: f64, burst: f64) -> Self {
        let to_good = 1.0 / burst;
        Self { to_bad: mean / (1.0 - mean) * to_good, to_good, good_loss: 0.0, bad_loss: 1.0 }
    }

    /// The share of packets that are lost in the long run.
    pub fn mean(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        bad * self.bad_loss + (1.0 - bad) * self.good_loss
    }
}

impl LossModel {
    /// The share of packets of `bytes` that are lost in the long run.
    pub fn mean(&self, bytes: u32) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Bernoulli(p) => *p,
            Self::Periodic(packets) => 1.0 / *packets as f64,
            Self::GilbertElliott(model) => model.mean(),
            Self::BitErrors(ber) => -libm::expm1(f64::from(bytes) * 8.0 * libm::log1p(-ber)),
        }
    }
}

/// A running loss process.
#[derive(Clone, Debug)]
pub struct Loss {
    model: LossModel,
    is_bad: bool,
    /// Periodic losses only: packets since the last one.
    passed: u64,
    /// Bit errors only: packet length and its loss probability; most packets of a run have few lengths.
    known: [(u32, f64); 2],
}

impl Loss {
    /// A process that starts in the good state.
    pub fn new(model: LossModel) -> Self {
        Self { model, is_bad: false, passed: 0, known: [(0, 0.0); 2] }
    }

    /// The model.
    pub fn model(&self) -> &LossModel {
        &self.model
    }

    /// Whether the next packet, of `bytes`, is lost.
    pub fn loses(&mut self, bytes: u32, rng: &mut Rng) -> bool {
        match &self.model {
            LossModel::None => false,
            LossModel::Bernoulli(p) => rng.chance(*p),
            LossModel::Periodic(packets) => {
                self.passed = (self.passed + 1) % packets;
                self.passed == 0
            }
            LossModel::GilbertElliott(model) => {
                let change = if self.is_bad { model.to_good } else { model.to_bad };
                self.is_bad ^= rng.chance(change);
                rng.chance(if self.is_bad { model.bad_loss } else { model.good_loss })
            }
            LossModel::BitErrors(_) => {
                let p = self.bit_error_loss(bytes);
                rng.chance(p)
            }
        }
    }

    fn bit_error_loss(&mut self, bytes: u32) -> f64 {
        if let Some((_, p)) = self.known.iter().find(|(known, _)| *known == bytes) {
            return *p;
        }
        let p = self.model.mean(bytes);
        self.known = [(bytes, p), self.known[0]];
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_share(model: &LossModel, bytes: u32, packets: usize) -> (f64, f64) {
        let (mut loss, mut rng) = (Loss::new(model.clone()), Rng::new(3));
        let (mut lost, mut bursts, mut was_lost) = (0usize, 0usize, false);
        for _ in 0..packets {
            let is_lost = loss.loses(bytes, &mut rng);
            lost += usize::from(is_lost);
            bursts += usize::from(is_lost && !was_lost);
            was_lost = is_lost;
        }
        (lost as f64 / packets as f64, lost as f64 / bursts.max(1) as f64)
    }

    #[test]
    fn gilbert_elliott_has_its_mean_loss_and_its_burst_length() {
        let model = GilbertElliott::bursts(0.02, 5.0);
        assert!((model.mean() - 0.02).abs() < 1e-12);
        let (share, burst) = lost_share(&LossModel::GilbertElliott(model), 1500, 2_000_000);
        assert!((share - 0.02).abs() < 0.001, "{share}");
        assert!((burst - 5.0).abs() < 0.1, "{burst}");
    }

    #[test]
    fn bit_errors_lose_long_packets_more_often() {
        // 1 - (1 - 1e-5)^12000 = 0.1131 for 1500 bytes, 0.0032 for 40.
        let model = LossModel::BitErrors(1e-5);
        assert!((model.mean(1500) - 0.113_08).abs() < 1e-4);
        assert!((model.mean(40) - 0.003_195).abs() < 1e-5);
        let (share, _) = lost_share(&model, 1500, 1_000_000);
        assert!((share - 0.113).abs() < 0.002, "{share}");
    }

    #[test]
    fn single_losses_come_in_runs_of_one() {
        let (share, burst) = lost_share(&LossModel::Bernoulli(0.01), 1500, 1_000_000);
        assert!((share - 0.01).abs() < 0.0005 && (burst - 1.01).abs() < 0.01, "{share} {burst}");
    }
}
