//! Whether what is claimed of the numbers holds.

use super::data::{Cell, PanelData};
use super::spec::{By, ClaimSpec, Operand, written};
use crate::sweep::Metric;
use serde::Serialize;

/// What came of a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// Who claims.
    pub by: By,
    /// What.
    pub text: String,
    /// It holds.
    pub holds: bool,
    /// The number that decided: of all values of x the worst.
    pub measured: f64,
    /// The bound, in words.
    pub bound: String,
    /// Why it does not hold; empty where it does.
    pub why: String,
}

/// Judges one claim.
///
/// # Errors
/// A series, a value of x or a metric that does not exist, by name.
pub(super) fn judge(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Verdict, String> {
    let context = |problem: String| format!("claim \"{}\": {problem}", claim.text);
    let (holds, measured, bound) =
        if claim.rising.is_empty() { bounded(data, claim) } else { rising(data, claim) }.map_err(context)?;
    let why = if holds { String::new() } else { claim.why.clone() };
    Ok(Verdict { by: claim.by, text: claim.text.clone(), holds, measured, bound, why })
}

type Judgement = (bool, f64, String);

fn bounded(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Judgement, String> {
    if claim.least.is_none() && claim.most.is_none() {
        return Err("has no bound: give least, most or rising".to_owned());
    }
    let values = match claim.cases_within {
        Some(range) => vec![cases_within(data, claim, range)?],
        None if claim.slope => vec![slope_compared(data, claim)?],
        None => compared(data, claim, &claim.series)?,
    };
    let (least, most) = (claim.least.unwrap_or(f64::NEG_INFINITY), claim.most.unwrap_or(f64::INFINITY));
    // A number that is missing holds nothing up.
    let holds = !values.is_empty() && values.iter().all(|value| *value >= least && *value <= most);
    let excess = |value: f64| if value.is_nan() { f64::INFINITY } else { (least - value).max(value - most) };
    let worst = values.iter().copied().max_by(|a, b| excess(*a).total_cmp(&excess(*b)));
    Ok((holds, worst.unwrap_or(f64::NAN), bound_words(claim)))
}

fn bound_words(claim: &ClaimSpec) -> String {
    match (claim.least, claim.most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => String::new(),
    }
}

/// In how many cases the number lies within a range, its ends included.
fn cases_within(data: &PanelData<'_>, claim: &ClaimSpec, range: (f64, f64)) -> Result<f64, String> {
    let all = data.panel.series.iter().map(|series| &series.name);
    let mut count = 0;
    for series in all.filter(|name| claim.series.is_empty() || **name == claim.series) {
        let values = compared(data, claim, series)?;
        count += values.iter().filter(|value| (range.0..=range.1).contains(*value)).count();
    }
    Ok(count as f64)
}

/// The number at every value of x that the claim is about, divided by or less its other side.
fn compared(data: &PanelData<'_>, claim: &ClaimSpec, series: &str) -> Result<Vec<f64>, String> {
    let series = data.series_named(series)?;
    let at = claim.at.as_ref().map(written);
    let cells: Vec<&Cell> =
        data.of_series(series).filter(|cell| at.as_ref().is_none_or(|at| *at == cell.x)).collect();
    if cells.is_empty() {
        return Err(format!("x is never \"{}\"", at.unwrap_or_default()));
    }
    let mut values = Vec::new();
    for cell in cells {
        let mut value = number(cell, &claim.value)?;
        if let Some(per) = &claim.per {
            value /= other_side(data, claim, per, cell)?;
        }
        if let Some(minus) = &claim.minus {
            value -= other_side(data, claim, minus, cell)?;
        }
        values.push(value);
    }
    Ok(values)
}

fn other_side(
    data: &PanelData<'_>,
    claim: &ClaimSpec,
    operand: &Operand,
    here: &Cell,
) -> Result<f64, String> {
    if let Some(form) = &operand.form {
        return Ok(form.value(data.panel.x.as_ref().map(|_| here.position)));
    }
    let series = data.series_named(operand.series.as_ref().unwrap_or(&claim.series))?;
    let x = operand.at.as_ref().map_or_else(|| here.x.clone(), written);
    let cell = data.of_series(series).find(|cell| cell.x == x);
    let cell = cell.ok_or_else(|| format!("x is never \"{x}\""))?;
    number(cell, operand.value.as_ref().unwrap_or(&claim.value))
}

fn number(cell: &Cell, metric: &Metric) -> Result<f64, String> {
    Ok(cell.mean(metric)?.map_or(f64::NAN, |mean| mean.mean))
}

fn slope_compared(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<f64, String> {
    let own = slope(data, &claim.series, &claim.value)?;
    let Some(per) = &claim.per else { return Ok(own) };
    let series = per.series.as_ref().unwrap_or(&claim.series);
    Ok(own / slope(data, series, per.value.as_ref().unwrap_or(&claim.value))?)
}

/// The slope of the least-squares line over x.
fn slope(data: &PanelData<'_>, series: &str, metric: &Metric) -> Result<f64, String> {
    let series = data.series_named(series)?;
    let points = data.of_series(series).map(|cell| Ok((cell.position, number(cell, metric)?)));
    let points = points.collect::<Result<Vec<(f64, f64)>, String>>()?;
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x / n, sy + y / n));
    let (sxy, sxx) = points
        .iter()
        .fold((0.0, 0.0), |(sxy, sxx), (x, y)| (sxy + (x - mx) * (y - my), sxx + (x - mx).powi(2)));
    Ok(sxy / sxx)
}

fn rising(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Judgement, String> {
    let at = claim.at.as_ref().map(written);
    let points = super::data::points(data.panel);
    let points = points.iter().filter(|(x, _)| at.as_ref().is_none_or(|at| at == x));
    // The smallest step from one series to the next, as a share of the former.
    let mut least = f64::INFINITY;
    for (x, _) in points {
        let mut before = None;
        for name in &claim.rising {
            let series = data.series_named(name)?;
            let cell = data.of_series(series).find(|cell| cell.x == *x);
            let value = cell.map_or(Ok(f64::NAN), |cell| number(cell, &claim.value))?;
            if let Some(before) = before.replace(value) {
                let step = value / before - 1.0;
                least = if step.is_nan() { f64::NEG_INFINITY } else { least.min(step) };
            }
        }
    }
    let order = claim.rising.join(" ≤ ");
    Ok((least >= 0.0, least, format!("{order}; the number is the smallest step up")))
}
