//! Whether the claims about the numbers hold, and with what certainty.

use super::data::{Cell, PanelData};
use super::spec::{By, ClaimSpec, Operand, written};
use crate::sweep::{Mean, Metric};
use serde::Serialize;

/// A paper's claim is confirmed by no fewer repetitions than these.
pub(super) const ENOUGH_SEEDS: usize = 5;

/// The outcome of a claim.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The claimant.
    pub by: By,
    /// The claim, in words.
    pub text: String,
    /// It holds.
    pub holds: bool,
    /// It holds with its whole 95 % interval, from at least five repetitions.
    pub is_sure: bool,
    /// The number that decided: of all values of x the worst.
    pub measured: f64,
    /// Half of its 95 % interval; infinite where it has none.
    pub half_width: f64,
    /// The bound, in words.
    pub bound: String,
    /// Why it does not hold; empty where it does.
    pub why: String,
}

/// A number, and the same of each repetition by itself: repetitions of two series have the same seeds.
#[derive(Clone, Debug)]
struct Number {
    value: f64,
    runs: Vec<f64>,
}

impl Number {
    fn of(cell: &Cell, metric: &Metric) -> Result<Self, String> {
        let runs = cell.runs.iter().map(|run| run.number(metric)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { value: Mean::of(&runs).map_or(f64::NAN, |mean| mean.mean), runs })
    }

    fn exact(value: f64, repetitions: usize) -> Self {
        Self { value, runs: vec![value; repetitions] }
    }

    fn with(&self, other: &Self, act: impl Fn(f64, f64) -> f64) -> Self {
        let runs = self.runs.iter().zip(&other.runs).map(|(a, b)| act(*a, *b)).collect();
        Self { value: act(self.value, other.value), runs }
    }

    /// Half of the 95 % interval; infinite if there is no interval.
    fn half_width(&self) -> f64 {
        let mean = Mean::of(&self.runs).filter(|mean| mean.count > 1);
        mean.map_or(f64::INFINITY, |mean| mean.half_width)
    }

    fn is_within(&self, least: f64, most: f64) -> bool {
        self.value >= least && self.value <= most
    }

    fn is_surely_within(&self, least: f64, most: f64) -> bool {
        let half = self.half_width();
        self.runs.len() >= ENOUGH_SEEDS && self.value - half >= least && self.value + half <= most
    }
}

/// The numbers that a claim is about and the bound that all of them have to keep.
struct Judgement {
    numbers: Vec<Number>,
    least: f64,
    most: f64,
    bound: String,
}

/// Judges one claim.
///
/// # Errors
/// A series, a value of x or a metric that does not exist, by name.
pub(super) fn judge(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Verdict, String> {
    let context = |problem: String| format!("claim \"{}\": {problem}", claim.text);
    let judged =
        if claim.rising.is_empty() { bounded(data, claim) } else { rising(data, claim) }.map_err(context)?;
    let Judgement { numbers, least, most, bound } = judged;
    // A claim about missing numbers does not hold.
    let holds = !numbers.is_empty() && numbers.iter().all(|number| number.is_within(least, most));
    let is_sure = holds && numbers.iter().all(|number| number.is_surely_within(least, most));
    let excess = |value: f64| if value.is_nan() { f64::INFINITY } else { (least - value).max(value - most) };
    let worst = numbers.iter().max_by(|a, b| excess(a.value).total_cmp(&excess(b.value)));
    Ok(Verdict {
        by: claim.by,
        text: claim.text.clone(),
        holds,
        is_sure,
        measured: worst.map_or(f64::NAN, |number| number.value),
        half_width: worst.map_or(f64::INFINITY, Number::half_width),
        bound,
        why: if holds { String::new() } else { claim.why.clone() },
    })
}

fn bounded(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Judgement, String> {
    if claim.least.is_none() && claim.most.is_none() {
        return Err("has no bound: give least, most or rising".to_owned());
    }
    let numbers = match claim.cases_within {
        Some(range) => vec![cases_within(data, claim, range)?],
        None if claim.slope => vec![slope_compared(data, claim)?],
        None => compared(data, claim, &claim.series)?,
    };
    let (least, most) = (claim.least.unwrap_or(f64::NEG_INFINITY), claim.most.unwrap_or(f64::INFINITY));
    Ok(Judgement { numbers, least, most, bound: bound_words(claim) })
}

/// The bound of a claim, in words.
pub(super) fn bound_words(claim: &ClaimSpec) -> String {
    if !claim.rising.is_empty() {
        return format!("{}; the number is the smallest step up", claim.rising.join(" ≤ "));
    }
    match (claim.least, claim.most) {
        (Some(least), Some(most)) => format!("{least} to {most}"),
        (Some(least), None) => format!("at least {least}"),
        (None, Some(most)) => format!("at most {most}"),
        (None, None) => String::new(),
    }
}

/// In how many cases the number lies within a range, its ends included.
fn cases_within(data: &PanelData<'_>, claim: &ClaimSpec, range: (f64, f64)) -> Result<Number, String> {
    let all = data.panel.series.iter().map(|series| &series.name);
    let mut cases = Vec::new();
    for series in all.filter(|name| claim.series.is_empty() || **name == claim.series) {
        cases.extend(compared(data, claim, series)?);
    }
    let count = |value: &dyn Fn(&Number) -> f64| {
        cases.iter().filter(|number| (range.0..=range.1).contains(&value(number))).count() as f64
    };
    let repetitions = cases.iter().map(|number| number.runs.len()).min().unwrap_or(0);
    let runs = (0..repetitions).map(|index| count(&|number| number.runs[index])).collect();
    Ok(Number { value: count(&|number| number.value), runs })
}

/// The number at every value of x that the claim is about, divided by or less its other side.
fn compared(data: &PanelData<'_>, claim: &ClaimSpec, series: &str) -> Result<Vec<Number>, String> {
    let series = data.series_named(series)?;
    let at = claim.at.as_ref().map(written);
    let cells: Vec<&Cell> =
        data.of_series(series).filter(|cell| at.as_ref().is_none_or(|at| *at == cell.x)).collect();
    if cells.is_empty() {
        return Err(format!("x is never \"{}\"", at.unwrap_or_default()));
    }
    let mut numbers = Vec::new();
    for cell in cells {
        let mut number = Number::of(cell, &claim.value)?;
        if let Some(per) = &claim.per {
            number = number.with(&other_side(data, claim, per, cell)?, |a, b| a / b);
        }
        if let Some(minus) = &claim.minus {
            number = number.with(&other_side(data, claim, minus, cell)?, |a, b| a - b);
        }
        numbers.push(number);
    }
    Ok(numbers)
}

fn other_side(
    data: &PanelData<'_>,
    claim: &ClaimSpec,
    operand: &Operand,
    here: &Cell,
) -> Result<Number, String> {
    if let Some(form) = &operand.form {
        let value = form.value(data.panel.x.as_ref().map(|_| here.position));
        return Ok(Number::exact(value, here.runs.len()));
    }
    let series = data.series_named(operand.series.as_ref().unwrap_or(&claim.series))?;
    let x = operand.at.as_ref().map_or_else(|| here.x.clone(), written);
    let cell = data.of_series(series).find(|cell| cell.x == x);
    let cell = cell.ok_or_else(|| format!("x is never \"{x}\""))?;
    Number::of(cell, operand.value.as_ref().unwrap_or(&claim.value))
}

fn slope_compared(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Number, String> {
    let own = slope(data, &claim.series, &claim.value)?;
    let Some(per) = &claim.per else { return Ok(own) };
    let series = per.series.as_ref().unwrap_or(&claim.series);
    Ok(own.with(&slope(data, series, per.value.as_ref().unwrap_or(&claim.value))?, |a, b| a / b))
}

/// The slope of the least-squares line over x.
fn slope(data: &PanelData<'_>, series: &str, metric: &Metric) -> Result<Number, String> {
    let series = data.series_named(series)?;
    let mut points = Vec::new();
    for cell in data.of_series(series) {
        points.push((cell.position, Number::of(cell, metric)?));
    }
    let of = |value: &dyn Fn(&Number) -> f64| {
        let n = points.len() as f64;
        let all = || points.iter().map(|(x, number)| (*x, value(number)));
        let (mx, my) = all().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x / n, sy + y / n));
        let (sxy, sxx) =
            all().fold((0.0, 0.0), |(sxy, sxx), (x, y)| (sxy + (x - mx) * (y - my), sxx + (x - mx).powi(2)));
        sxy / sxx
    };
    let repetitions = points.iter().map(|(_, number)| number.runs.len()).min().unwrap_or(0);
    let runs = (0..repetitions).map(|index| of(&|number| number.runs[index])).collect();
    Ok(Number { value: of(&|number| number.value), runs })
}

/// The steps from one series to the next, as shares of the former.
fn rising(data: &PanelData<'_>, claim: &ClaimSpec) -> Result<Judgement, String> {
    let at = claim.at.as_ref().map(written);
    let points = super::data::points(data.panel);
    let mut numbers = Vec::new();
    for (x, _) in points.iter().filter(|(x, _)| at.as_ref().is_none_or(|at| at == x)) {
        let mut before: Option<Number> = None;
        for name in &claim.rising {
            let series = data.series_named(name)?;
            let cell = data.of_series(series).find(|cell| cell.x == *x);
            let number =
                cell.map_or(Ok(Number::exact(f64::NAN, 0)), |cell| Number::of(cell, &claim.value))?;
            if let Some(before) = before.replace(number.clone()) {
                numbers.push(number.with(&before, |after, before| after / before - 1.0));
            }
        }
    }
    Ok(Judgement { numbers, least: 0.0, most: f64::INFINITY, bound: bound_words(claim) })
}
