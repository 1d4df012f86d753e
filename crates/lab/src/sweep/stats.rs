//! Means over repetitions, and how far to trust them.

/// A mean over repetitions with its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % interval (Student's t); 0 for a single value, which has none.
    pub half_width: f64,
    /// Repetitions.
    pub count: usize,
}

/// Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The normal quantile, near enough for more degrees of freedom than the table has.
const NORMAL_95: f64 = 1.96;

impl Mean {
    /// Statistics of the values that are numbers; `None` if no value is.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        if count == 1 {
            return Some(Self { mean, half_width: 0.0, count });
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        let t = T_95.get(count - 2).copied().unwrap_or(NORMAL_95);
        Some(Self { mean, half_width: t * (variance / count as f64).sqrt(), count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let Some(mean) = Mean::of(&[9.0, 10.0, 11.0]) else { panic!() };
        assert_eq!((mean.mean, mean.count), (10.0, 3));
        assert!((mean.half_width - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{mean:?}");
    }

    #[test]
    fn one_value_has_no_interval_and_no_value_no_mean() {
        assert_eq!(Mean::of(&[3.0]).map(|mean| mean.half_width), Some(0.0));
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[1.0, f64::NAN]), None);
    }
}
