//! Rate of a ground link over its life.

use crate::link::{LinkView, RadioBudget, Rain};

/// The rate of a ground link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RatePolicy {
    /// Always the same, bit/s.
    Fixed(f64),
    /// The papers' V curve: an inverted parabola between two handovers, 4B/T²·(t_end - t)·(t - t_start),
    /// 0 at the handovers and B (bit/s) in the middle.
    VCurve(f64),
    /// Shannon's capacity of a radio link, dry or in rain.
    Radio(RadioBudget, Option<Rain>),
}

impl RatePolicy {
    /// The rate at this moment, bit/s.
    pub fn bit_s(&self, view: &LinkView) -> f64 {
        match self {
            Self::Fixed(rate) => *rate,
            Self::VCurve(peak) => {
                let life = view.since_s + view.until_s;
                if life > 0.0 { 4.0 * peak * view.since_s * view.until_s / (life * life) } else { 0.0 }
            }
            Self::Radio(budget, rain) => budget.capacity_bit_s(view.range_m, view.elevation_deg, *rain),
        }
    }

    /// Mean over a life, bit/s, where a closed form exists: a parabola covers two thirds of its box.
    pub fn mean_bit_s(&self) -> Option<f64> {
        match self {
            Self::Fixed(rate) => Some(*rate),
            Self::VCurve(peak) => Some(peak * 2.0 / 3.0),
            Self::Radio(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_v_curve_is_nothing_at_handovers_and_its_peak_between_them() {
        let at = |since_s: f64| {
            let view = LinkView { since_s, until_s: 40.0 - since_s, range_m: 0.0, elevation_deg: 0.0 };
            RatePolicy::VCurve(10e6).bit_s(&view)
        };
        assert_eq!((at(0.0), at(20.0), at(40.0)), (0.0, 10e6, 0.0));
        let mean = (0..4_000).map(|i| at(f64::from(i) / 100.0)).sum::<f64>() / 4_000.0;
        assert!((mean / RatePolicy::VCurve(10e6).mean_bit_s().unwrap() - 1.0).abs() < 1e-6);
    }
}
