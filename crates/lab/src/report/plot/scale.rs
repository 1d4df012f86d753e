//! Axes: from values to positions, and the values worth a tick.

/// Spacing of the values along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// Each factor of ten takes the same room. Values must be above zero.
    Log,
}

/// An axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// Spacing of the values.
    pub scale: Scale,
    /// The value at its beginning; by default the least value.
    pub from: Option<f64>,
    /// The value at its end; by default the largest value.
    pub to: Option<f64>,
}

impl Axis {
    /// A linear axis that fits its values.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), scale: Scale::Linear, from: None, to: None }
    }

    /// A logarithmic axis that fits its values.
    pub fn log(label: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label) }
    }

    /// The axis with a set beginning.
    pub fn from(self, from: f64) -> Self {
        Self { from: Some(from), ..self }
    }

    /// The axis with a set end.
    pub fn to(self, to: f64) -> Self {
        Self { to: Some(to), ..self }
    }
}

/// An axis whose ends are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fitted {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Fitted {
    /// Fits an axis to values, with room to the next tick.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let usable = values.filter(|v| v.is_finite() && (axis.scale == Scale::Linear || *v > 0.0));
        let (low, high) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if low > high { (0.1, 1.0) } else { (low, high) };
        let (low, high) = (axis.from.unwrap_or(low), axis.to.unwrap_or(high));
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        match axis.scale {
            Scale::Log => {
                let low = if axis.from.is_some() { low } else { low / 1.1 };
                Self { scale: axis.scale, low: low.max(1e-9), high: high * 1.1 }
            }
            Scale::Linear => {
                let step = step(high - low);
                let low = if axis.from.is_some() { low } else { (low / step).floor() * step };
                let high = if axis.to.is_some() { high } else { (high / step).ceil() * step };
                Self { scale: axis.scale, low, high }
            }
        }
    }

    /// Position of a value: 0 at the beginning of the axis, 1 at its end.
    pub(super) fn position(self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        share.clamp(0.0, 1.0)
    }

    /// The values worth a tick, with their names.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => {
                let step = step(self.high - self.low);
                let first = (self.low / step - 1e-9).ceil() as i64;
                let last = (self.high / step + 1e-9).floor() as i64;
                (first..=last).map(|i| (i as f64 * step, name(i as f64 * step, step))).collect()
            }
            Scale::Log => {
                let decades = (self.high / self.low).log10();
                let marks: &[f64] = if decades < 1.5 { &[1.0, 2.0, 3.0, 5.0, 7.0] } else { &[1.0] };
                let first = self.low.log10().floor() as i32;
                let all = (first..first + 20).flat_map(|e| marks.iter().map(move |m| m * 10f64.powi(e)));
                all.filter(|v| *v >= self.low && *v <= self.high).map(|v| (v, name(v, v))).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that a span has about five steps.
fn step(span: f64) -> f64 {
    let rough = (span / 5.0).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.999).unwrap_or(power)
}

/// A value with as many decimals as its step needs.
fn name(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    if value.abs() >= 1e6 { format!("{value:.0e}") } else { format!("{value:.decimals$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis, values: &[f64]) -> Vec<String> {
        Fitted::new(axis, values.iter().copied()).ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round_numbers_that_cover_the_values() {
        assert_eq!(names(&Axis::linear("x").from(0.0), &[3.0, 19.3]), ["0", "5", "10", "15", "20"]);
        assert_eq!(names(&Axis::linear("x"), &[0.13, 0.48]), ["0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(names(&Axis::log("x"), &[0.5, 2000.0]), ["1", "10", "100", "1000"]);
    }

    #[test]
    fn positions_run_from_one_end_to_the_other() {
        let log = Fitted::new(&Axis::log("x").from(1.0), [10.0 / 1.1 * 11.0].into_iter());
        assert!((log.position(10.0) - 0.5).abs() < 0.03, "{}", log.position(10.0));
        let empty = Fitted::new(&Axis::linear("x"), std::iter::empty());
        assert!(empty.position(1.0).is_finite());
    }
}
