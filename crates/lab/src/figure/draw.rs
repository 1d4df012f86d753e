//! The plots of a panel.

use super::data::{Cell, PanelData};
use super::spec::{PaperCurve, PlotKind, PlotSpec, written};
use crate::report::plot::{Axis, Plot, Shape};
use crate::sweep::Metric;

/// Draws one plot.
///
/// # Errors
/// A metric or a series that does not exist, with the plot's title.
pub(super) fn draw(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let title = if spec.title.is_empty() { title } else { &spec.title };
    let drawn = match spec.kind {
        PlotKind::Line => lines(data, spec, title),
        PlotKind::Scatter => scatter(data, spec, title),
        PlotKind::Time => time(data, spec, title),
        PlotKind::Distribution => distribution(data, spec, title),
        PlotKind::Bars => bars(data, spec, title),
    };
    let mut plot = drawn.map_err(|problem| format!("plot \"{title}\": {problem}"))?;
    for (index, curve) in spec.paper.iter().enumerate() {
        overlay(&mut plot, curve, index);
    }
    Ok(plot)
}

/// The publication's own numbers over ours, with how far they may be misread.
fn overlay(plot: &mut Plot, curve: &PaperCurve, index: usize) {
    let colour = 7usize.saturating_sub(index);
    let name = format!("{}, the paper ({})", curve.name, curve.read_from);
    let ranges = curve.points.iter().flat_map(|(x, y)| [(*x, y - curve.error), (*x, y + curve.error)]);
    plot.add("", colour, Shape::Ranges, ranges.collect());
    let shape = if curve.points.len() > 1 { Shape::Dashed } else { Shape::Dots };
    plot.add(&name, colour, shape, curve.points.clone());
}

fn y_axis(spec: &PlotSpec) -> Axis {
    if spec.log { Axis::log(&spec.label) } else { Axis::linear(&spec.label).from(0.0) }
}

/// The series that the plot shows: number and name.
fn shown<'a>(
    data: &'a PanelData<'_>,
    spec: &'a PlotSpec,
) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
    let all = data.panel.series.iter().enumerate().map(|(index, series)| (index, series.name.as_str()));
    all.filter(|(_, name)| spec.only.is_empty() || spec.only.iter().any(|only| only == name))
}

fn lines(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let metric: Metric = spec.y.parse()?;
    let Some(axis) = &data.panel.x else { return Err("a line needs the panel to have an x".to_owned()) };
    let x = if axis.log { Axis::log(&axis.label) } else { Axis::linear(&axis.label) };
    let mut plot = Plot::new(title, x, y_axis(spec));
    for (colour, form) in spec.forms.iter().enumerate() {
        let points = super::data::points(data.panel).into_iter().map(|(_, x)| (x, form.value(Some(x))));
        plot.add(&form.title(), 7 - colour, Shape::Dashed, points.collect());
    }
    for (series, name) in shown(data, spec) {
        let (mut means, mut ranges) = (Vec::new(), Vec::new());
        for cell in data.of_series(series) {
            let Some(mean) = cell.mean(&metric)? else { continue };
            let Some(unit) = unit(data, spec, &metric, cell)? else { continue };
            means.push((cell.position, mean.mean / unit));
            // The error of a quotient cannot be computed from the errors of its parts.
            if mean.half_width > 0.0 && spec.per.is_none() {
                ranges.push((cell.position, mean.mean - mean.half_width));
                ranges.push((cell.position, mean.mean + mean.half_width));
            }
        }
        plot.add(name, series, Shape::Line, means.clone());
        plot.add("", series, Shape::Points, means);
        plot.add("", series, Shape::Ranges, ranges);
    }
    Ok(plot)
}

/// The divisor of a line at the x of a cell: 1 without `per`; `None` if the divisor's series has no number there.
fn unit(data: &PanelData<'_>, spec: &PlotSpec, metric: &Metric, cell: &Cell) -> Result<Option<f64>, String> {
    let Some(per) = &spec.per else { return Ok(Some(1.0)) };
    let series = data.series_named(per)?;
    match data.of_series(series).find(|other| other.x == cell.x) {
        Some(other) => Ok(other.mean(metric)?.map(|mean| mean.mean)),
        None => Ok(None),
    }
}

fn scatter(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let y: Metric = spec.y.parse()?;
    let Some(x) = &spec.x else { return Err("a scatter plot needs an x".to_owned()) };
    let mut plot = Plot::new(title, Axis::linear(&spec.x_label).from(0.0), y_axis(spec));
    for (series, name) in shown(data, spec) {
        let mut points = Vec::new();
        for cell in data.of_series(series) {
            if let (Some(x), Some(y)) = (cell.mean(x)?, cell.mean(&y)?) {
                points.push((x.mean, y.mean));
            }
        }
        plot.add(name, series, Shape::Dots, points);
    }
    Ok(plot)
}

/// The cell whose runs are drawn: at the given x, or at the first.
fn cell<'a>(data: &'a PanelData<'_>, spec: &PlotSpec, series: usize) -> Result<&'a Cell, String> {
    let at = spec.at.as_ref().map(written);
    let found = data.of_series(series).find(|cell| at.as_ref().is_none_or(|at| *at == cell.x));
    found.ok_or_else(|| format!("x is never \"{}\"", at.unwrap_or_default()))
}

fn time(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let step: Metric = "series.step_s".parse()?;
    let mut plot = Plot::new(title, Axis::linear("time, s").from(0.0), y_axis(spec));
    for (series, name) in shown(data, spec) {
        let Some(run) = cell(data, spec, series)?.runs.first() else { continue };
        let step_s = run.number(&step)?;
        // Several flows in one plot: their names stand in the y, separated by commas.
        for (more, y) in spec.y.split(", ").enumerate() {
            let values: Vec<Option<f64>> = run.numbers(y)?.into_iter().map(Some).collect();
            let name = if more == 0 && !spec.y.contains(", ") {
                name.to_owned()
            } else {
                format!("{name}, {}", y.split('.').nth(1).unwrap_or(y))
            };
            plot.add(&name, series + more, Shape::Line, crate::report::over_time(step_s, &values));
        }
    }
    Ok(plot)
}

fn distribution(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let label = if spec.x_label.is_empty() { "ms" } else { &spec.x_label };
    let x = if spec.log { Axis::log(label) } else { Axis::linear(label) };
    let mut plot = Plot::new(title, x, Axis::linear(&spec.label).from(0.0).to(1.0));
    for (series, name) in shown(data, spec) {
        let Some(run) = cell(data, spec, series)?.runs.first() else { continue };
        let quantiles = run.numbers(&spec.y)?;
        let last = quantiles.len().saturating_sub(1).max(1) as f64;
        let points = quantiles.iter().enumerate().map(|(i, value)| (*value, i as f64 / last));
        plot.add(name, series, Shape::Line, points.collect());
    }
    Ok(plot)
}

fn bars(data: &PanelData<'_>, spec: &PlotSpec, title: &str) -> Result<Plot, String> {
    let metric: Metric = spec.y.parse()?;
    let mut plot = Plot::new(title, Axis::linear(""), y_axis(spec));
    for (place, (series, name)) in shown(data, spec).enumerate() {
        let mean = cell(data, spec, series)?.mean(&metric)?;
        plot.categories.push(name.to_owned());
        plot.add("", series, Shape::Bars, mean.map(|mean| (place as f64, mean.mean)).into_iter().collect());
    }
    Ok(plot)
}
