//! Loss of a ground link. Time, not packets, is the axis: the sender of packets looks up the loss of a moment.

use crate::link::LinkView;

/// Probability that something sent is lost.
#[derive(Clone, Debug, PartialEq)]
pub enum LossPolicy {
    /// Always the same, 0..1.
    Fixed(f64),
    /// A function of elevation: (degrees, probability) in rising order of degrees, straight lines between, constant
    /// outside.
    ByElevation(Vec<(f64, f64)>),
    /// Two states that alternate.
    GilbertElliott(GilbertElliott),
}

/// A channel that is good for a while and then bad for a while, both exponentially distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Mean length of a good spell, s.
    pub good_s: f64,
    /// Mean length of a bad spell, s.
    pub bad_s: f64,
    /// Loss in a good spell, 0..1.
    pub good_loss: f64,
    /// Loss in a bad spell, 0..1.
    pub bad_loss: f64,
}

impl GilbertElliott {
    /// Loss averaged over a long time.
    pub fn mean_loss(&self) -> f64 {
        (self.good_s * self.good_loss + self.bad_s * self.bad_loss) / (self.good_s + self.bad_s)
    }

    /// Length of a spell in s, from a random number in 0..1 of the caller's.
    pub fn spell_s(&self, bad: bool, uniform: f64) -> f64 {
        let mean = if bad { self.bad_s } else { self.good_s };
        -mean * (1.0 - uniform).ln()
    }
}

impl LossPolicy {
    /// The probability at this moment; the mean where it depends on chance.
    pub fn probability(&self, view: &LinkView) -> f64 {
        match self {
            Self::Fixed(p) => *p,
            Self::ByElevation(points) => interpolate(points, view.elevation_deg),
            Self::GilbertElliott(channel) => channel.mean_loss(),
        }
    }
}

fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|p| p.0 <= x);
    match (after.checked_sub(1).map(|i| points[i]), points.get(after)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
        (Some(end), None) => end.1,
        (None, Some(end)) => end.1,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_follows_elevation_between_the_given_points() {
        let policy = LossPolicy::ByElevation(vec![(25.0, 0.02), (45.0, 0.01), (90.0, 0.001)]);
        let at = |elevation_deg| {
            policy.probability(&LinkView { since_s: 0.0, until_s: 1.0, range_m: 1.0, elevation_deg })
        };
        assert_eq!((at(10.0), at(25.0), at(90.0)), (0.02, 0.02, 0.001));
        assert!((at(35.0) - 0.015).abs() < 1e-12);
    }

    #[test]
    fn spells_have_their_mean_length_and_loss_its_mean() {
        let channel = GilbertElliott { good_s: 9.0, bad_s: 1.0, good_loss: 0.0, bad_loss: 0.5 };
        assert!((channel.mean_loss() - 0.05).abs() < 1e-12);
        let n = 100_000;
        let mean = (0..n).map(|i| channel.spell_s(true, (f64::from(i) + 0.5) / f64::from(n))).sum::<f64>()
            / f64::from(n);
        assert!((mean - 1.0).abs() < 1e-3, "{mean}");
    }
}
