//! Sweeps: one scenario, some of its fields varied, every combination run with several seeds.

mod axis;
mod batch;
mod metric;
mod stats;
mod store;
mod table;

pub use axis::SweepAxis;
pub use batch::{Options, Progress, run_all};
pub use metric::{Document, Metric};
pub use stats::Mean;
pub use store::{Kind, Store};
pub use table::{Row, csv, rows, text};

use crate::scenario::{Change, Scenario};

/// Every combination of the values of some axes, the last axis fastest.
pub fn combinations(axes: &[SweepAxis]) -> Vec<Vec<Change>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let with = |before: &Vec<Change>| {
            let before = before.clone();
            (0..axis.values.len()).map(move |value| {
                let mut changes = before.clone();
                changes.push(axis.change(value));
                changes
            })
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// The repetitions of a scenario, or of several in turn: its own seed, and the ones after it.
pub fn repeated(turns: &[Scenario], seeds: u64) -> impl Iterator<Item = Scenario> + '_ {
    let repetition = |(more, scenario): (u64, &Scenario)| Scenario {
        seed: scenario.seed.wrapping_add(more),
        ..scenario.clone()
    };
    (0..seeds).zip(turns.iter().cycle()).map(repetition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_comes_once_in_order() {
        let axes: Vec<SweepAxis> = ["a=1,2", "b=x,y,z"].iter().filter_map(|text| text.parse().ok()).collect();
        let all = combinations(&axes);
        let names: Vec<String> =
            all.iter().map(|changes| changes.iter().map(|c| c.value.as_str()).collect()).collect();
        assert_eq!(names, ["1x", "1y", "1z", "2x", "2y", "2z"]);
    }
}
