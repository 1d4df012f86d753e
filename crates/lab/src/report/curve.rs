//! The common start of every plot over flows and over time.

use super::plot::Axis;
use crate::result::{FlowResult, RunResult};

/// Everything that is plotted of one flow.
pub(super) struct Curve<'a> {
    pub(super) name: String,
    pub(super) run: &'a RunResult,
    pub(super) index: usize,
    pub(super) flow: &'a FlowResult,
}

/// More curves in one plot cannot be distinguished.
const MOST_CURVES: usize = 8;

/// The curves of the first flows.
pub(super) fn curves(results: &[RunResult]) -> Vec<Curve<'_>> {
    let flows = || results.iter().flat_map(|run| &run.flows);
    let has_titles = results.iter().any(|run| run.title != results[0].title);
    let has_transports =
        flows().any(|flow| Some(&flow.transport) != flows().next().map(|first| &first.transport));
    let name = |run: &RunResult, flow: &FlowResult| {
        let transport = if has_transports { format!(" · {}", flow.transport) } else { String::new() };
        let title = if has_titles { format!(" · {}", run.title) } else { String::new() };
        format!("{}{transport}{title}", flow.name)
    };
    let all =
        results.iter().flat_map(|run| run.flows.iter().enumerate().map(move |(i, flow)| (run, i, flow)));
    all.take(MOST_CURVES)
        .map(|(run, index, flow)| Curve { name: name(run, flow), run, index, flow })
        .collect()
}

/// More points than this make a band of a line.
const MOST_POINTS: usize = 150;

/// A series as points, neighbours averaged where there are too many.
pub(crate) fn over_time(step: f64, values: &[Option<f64>]) -> Vec<(f64, f64)> {
    let width = values.len().div_ceil(MOST_POINTS).max(1);
    let point = |(index, bin): (usize, &[Option<f64>])| {
        let known = bin.iter().flatten();
        let mean = known.clone().sum::<f64>() / known.count() as f64;
        ((index * width + bin.len()) as f64 * step, mean)
    };
    values.chunks(width).enumerate().map(point).collect()
}

pub(super) fn time_axis() -> Axis {
    Axis::linear("time, s").from(0.0)
}
