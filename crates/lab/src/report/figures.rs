//! Which plots a report has.

use super::curve::{Curve, curves, over_time, time_axis};
use super::plot::{Axis, Plot, Shape};
use super::traces;
use crate::result::{LinkResult, LinkSeries, RunResult, SeriesResult};

/// The plots of the runs, in the order in which they are read.
pub(super) fn figures(results: &[RunResult]) -> Vec<Plot> {
    let curves = curves(results);
    let mut plots = vec![throughput(results, &curves), delay(results, &curves), distribution(&curves)];
    plots.push(traces::retransmitted(&curves));
    plots.push(queues(results, &curves));
    plots.push(traces::windows(&curves));
    plots.push(traces::fairness(results));
    if curves.len() > 1 {
        plots.push(shares(&curves));
        plots.push(trade(&curves));
    }
    plots.retain(Plot::has_points);
    plots
}

/// Links with their measurements over time. Links of a constellation come and go: the result sums them up by kind,
/// behind the others, and they have no series.
fn measured<'a>(
    run: &'a RunResult,
    series: &'a SeriesResult,
) -> impl Iterator<Item = (&'a LinkResult, &'a LinkSeries)> {
    run.links.iter().zip(&series.links).filter(|(link, _)| link.packets > 0)
}

/// Path changes, unless there are so many that they would hide the curves.
fn marks(results: &[RunResult]) -> Vec<f64> {
    let marks: Vec<f64> = results.iter().flat_map(|run| run.path_changes_s.iter().copied()).collect();
    if marks.len() <= 80 { marks } else { Vec::new() }
}

fn throughput(results: &[RunResult], curves: &[Curve<'_>]) -> Plot {
    let mut plot = Plot::new("Goodput over time", time_axis(), Axis::linear("Mbit/s").from(0.0));
    if let Some((step, capacity)) = results.first().and_then(capacity) {
        plot.add("narrowest link", 7, Shape::Area, over_time(step, &capacity));
    }
    for (colour, curve) in curves.iter().enumerate() {
        if let Some(series) = &curve.run.series {
            let points = over_time(series.step_s, &series.flows[curve.index].goodput_mbps);
            plot.add(&curve.name, colour, Shape::Line, points);
        }
    }
    plot.marks = marks(results);
    plot
}

/// The least capacity over the links that carried data, step by step; none where some of them have no series.
fn capacity(run: &RunResult) -> Option<(f64, Vec<Option<f64>>)> {
    let series = run.series.as_ref().filter(|series| series.links.len() == run.links.len())?;
    let used: Vec<_> = measured(run, series).filter(|(link, _)| link.direction == "forward").collect();
    let steps = used.first()?.1.capacity_mbps.len();
    let least = |i: usize| used.iter().filter_map(|(_, s)| s.capacity_mbps[i]).reduce(f64::min);
    Some((series.step_s, (0..steps).map(least).collect()))
}

fn delay(results: &[RunResult], curves: &[Curve<'_>]) -> Plot {
    let mut plot = Plot::new("Delay over time", time_axis(), Axis::linear("ms").from(0.0));
    for (colour, curve) in curves.iter().enumerate() {
        let Some(series) = &curve.run.series else { continue };
        let flow = &series.flows[curve.index];
        let in_order = over_time(series.step_s, &flow.in_order_owd_ms);
        let arrival = over_time(series.step_s, &flow.owd_ms);
        if curves.len() == 1 {
            plot.add("in order", 1, Shape::Line, in_order);
            plot.add("arrival", 0, Shape::Line, arrival);
        } else {
            plot.add(&format!("{}, in order", curve.name), colour, Shape::Line, in_order);
        }
    }
    plot.marks = marks(results);
    plot
}

fn distribution(curves: &[Curve<'_>]) -> Plot {
    let quantiles =
        curves.iter().flat_map(|c| c.flow.in_order_quantiles_ms.iter().chain(&c.flow.owd_quantiles_ms));
    let (low, high) = quantiles.fold((f64::INFINITY, 0f64), |(l, h), v| (l.min(*v), h.max(*v)));
    // Delays of seconds beside delays of milliseconds need a logarithmic axis. It would distort a narrow band.
    let x = if high > 20.0 * low { Axis::log("ms") } else { Axis::linear("ms") };
    let mut plot =
        Plot::new("Share of bytes with at most this delay", x, Axis::linear("share").from(0.0).to(1.0));
    for (colour, curve) in curves.iter().enumerate() {
        let (name, flow) = (&curve.name, curve.flow);
        plot.add(&format!("{name}, in order"), colour, Shape::Line, shares_of(&flow.in_order_quantiles_ms));
        plot.add(&format!("{name}, arrival"), colour, Shape::Dashed, shares_of(&flow.owd_quantiles_ms));
    }
    plot
}

fn shares_of(quantiles: &[f64]) -> Vec<(f64, f64)> {
    let last = quantiles.len().saturating_sub(1).max(1) as f64;
    quantiles.iter().enumerate().map(|(i, v)| (*v, i as f64 / last)).collect()
}

/// The links with the longest queues; of several runs the one longest of each.
fn queues(results: &[RunResult], curves: &[Curve<'_>]) -> Plot {
    let mut plot = Plot::new("The longest queues over time", time_axis(), Axis::linear("wait, ms").from(0.0));
    let most = if results.len() > 1 { 1 } else { 4 };
    for run in results {
        let Some(series) = &run.series else { continue };
        let of_run =
            curves.iter().find(|curve| std::ptr::eq(curve.run, run)).map(|curve| curve.name.as_str());
        let prefix =
            of_run.filter(|_| results.len() > 1).map_or_else(String::new, |name| format!("{name} · "));
        let mut links: Vec<_> = measured(run, series).collect();
        links.sort_by(|a, b| b.0.mean_queue_ms.total_cmp(&a.0.mean_queue_ms));
        for (link, samples) in links.into_iter().take(most) {
            let arrow = if link.direction == "forward" { "→" } else { "←" };
            let points = over_time(series.step_s, &samples.queue_ms);
            plot.add(&format!("{prefix}{} {arrow}", link.name), plot.layers.len(), Shape::Line, points);
        }
    }
    plot.marks = marks(results);
    plot
}

fn shares(curves: &[Curve<'_>]) -> Plot {
    // Room for the number above the highest bar.
    let top = curves.iter().map(|curve| curve.flow.efficiency).fold(0.0, f64::max);
    let y = Axis::linear("goodput / ideal").from(0.0).to(top.max(1.0) * 1.12);
    let mut plot = Plot::new("Goodput as a share of the ideal", Axis::linear(""), y);
    for (colour, curve) in curves.iter().enumerate() {
        plot.categories.push(curve.name.clone());
        plot.add("", colour, Shape::Bars, vec![(colour as f64, curve.flow.efficiency)]);
    }
    plot
}

fn trade(curves: &[Curve<'_>]) -> Plot {
    let delays = curves.iter().map(|c| c.flow.in_order_owd_ms.mean);
    let (low, high) = delays.fold((f64::INFINITY, 0f64), |(l, h), v| (l.min(v), h.max(v)));
    let label = "mean in-order delay, ms";
    let x = if high > 10.0 * low { Axis::log(label) } else { Axis::linear(label) };
    let mut plot = Plot::new("Goodput against delay", x, Axis::linear("Mbit/s").from(0.0));
    for (colour, curve) in curves.iter().enumerate() {
        let point = (curve.flow.in_order_owd_ms.mean, curve.flow.goodput_mbps);
        plot.add(&curve.name, colour, Shape::Dots, vec![point]);
    }
    plot
}
