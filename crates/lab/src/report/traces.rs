//! Plots of internal state: windows, repairs, fairness over time.

use super::curve::{Curve, over_time, time_axis};
use super::plot::{Axis, Plot, Shape};
use crate::result::{FlowResult, RunResult, Spread, jain};

/// Jain's index is taken over stretches of this many seconds: shorter ones show packets rather than shares.
const STRETCH_S: f64 = 1.0;

/// Congestion windows of TCP's sources, with the slow-start threshold where one curve leaves room for it.
pub(super) fn windows(curves: &[Curve<'_>]) -> Plot {
    let mut plot = Plot::new("Congestion window", time_axis(), Axis::linear("segments").from(0.0));
    for (colour, curve) in curves.iter().enumerate() {
        let Some(series) = &curve.run.series else { continue };
        let flow = &series.flows[curve.index];
        if !flow.cwnd.is_empty() {
            plot.add(&curve.name, colour, Shape::Line, known(over_time(series.step_s, &flow.cwnd)));
        }
        if curves.len() == 1 && !flow.ssthresh.is_empty() {
            let points = known(over_time(series.step_s, &flow.ssthresh));
            plot.add("slow-start threshold", colour, Shape::Dashed, points);
        }
    }
    plot
}

fn known(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.retain(|(_, y)| y.is_finite());
    points
}

/// Distribution of the delay of bytes that were sent more than once.
pub(super) fn retransmitted(curves: &[Curve<'_>]) -> Plot {
    let spreads = || curves.iter().map(|curve| (curve, &curve.flow.retransmitted_owd_ms));
    let (low, high) = spreads()
        .filter(|(_, spread)| spread.max > 0.0)
        .fold((f64::INFINITY, 0f64), |(low, high), (_, s)| (low.min(s.p5), high.max(s.max)));
    let x = if high > 20.0 * low { Axis::log("ms") } else { Axis::linear("ms") };
    let y = Axis::linear("share").from(0.0).to(1.0);
    let mut plot = Plot::new("Share of retransmitted bytes with at most this delay", x, y);
    for (colour, (curve, spread)) in spreads().enumerate() {
        if spread.max > 0.0 {
            plot.add(&curve.name, colour, Shape::Line, points_of(spread));
        }
    }
    plot
}

fn points_of(spread: &Spread) -> Vec<(f64, f64)> {
    let Spread { p5, p50, p95, p99, max, .. } = *spread;
    vec![(p5, 0.05), (p50, 0.5), (p95, 0.95), (p99, 0.99), (max, 1.0)]
}

/// Jain's index of the flows that run at the time, of every run that has several.
pub(super) fn fairness(results: &[RunResult]) -> Plot {
    let y = Axis::linear("Jain's index").from(0.0).to(1.05);
    let mut plot = Plot::new("Fairness over time", time_axis(), y);
    for (colour, run) in results.iter().filter(|run| run.flows.len() > 1).enumerate() {
        let points = indices(run);
        let name = run.flows.first().map_or("", |flow| flow.transport.as_str());
        plot.add(name, colour, Shape::Line, points);
    }
    plot
}

fn indices(run: &RunResult) -> Vec<(f64, f64)> {
    let Some(series) = &run.series else { return Vec::new() };
    let steps = series.flows.first().map_or(0, |flow| flow.goodput_mbps.len());
    let width = ((STRETCH_S / series.step_s).round() as usize).max(1);
    let stretch = |from: usize| {
        let span = from..(from + width).min(steps);
        let (starts, ends) = (from as f64 * series.step_s, span.end as f64 * series.step_s);
        let running =
            |flow: &FlowResult| flow.start_s <= starts && stop_of(flow).is_none_or(|stop| ends <= stop);
        let flows = run.flows.iter().zip(&series.flows).filter(|(flow, _)| running(flow));
        let shares: Vec<f64> = flows
            .map(|(_, values)| values.goodput_mbps[span.clone()].iter().flatten().sum::<f64>())
            .collect();
        (shares.len() > 1).then(|| (ends, jain(&shares)))
    };
    (0..steps).step_by(width).filter_map(stretch).collect()
}

/// Time at which a flow had no more to send; documents without the time say 0.
fn stop_of(flow: &FlowResult) -> Option<f64> {
    let finished = flow.completion_s.map(|seconds| flow.start_s + seconds);
    finished.or_else(|| (flow.stop_s > 0.0).then_some(flow.stop_s))
}
