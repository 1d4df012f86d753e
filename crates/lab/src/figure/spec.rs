//! The figure file: the scenario, the parameters that vary, the plots, and the claims.

use super::form::Form;
use crate::sweep::Metric;
use serde::Deserialize;

/// A figure.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Title of the figure.
    pub title: String,
    /// The publication and the number of its figure.
    pub source: String,
    /// Facts that a reader needs: the setup, and the choices where the source leaves something open.
    #[serde(default)]
    pub note: String,
    /// Repetitions of every case, each with a seed of its own.
    #[serde(default = "one")]
    pub seeds: u64,
    /// The engine of its scenarios.
    #[serde(default)]
    pub engine: Engine,
    /// It takes minutes to hours: left out of `all` unless asked for.
    #[serde(default)]
    pub is_long: bool,
    /// Its parts, each a scenario of its own.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
}

/// The engine that runs a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The simulator.
    #[default]
    Sim,
    /// Real processes, one run after the other.
    Emulate,
}

/// One part of a figure.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Its name in the data; unique within the figure.
    #[serde(default)]
    pub name: String,
    /// The scenario file, relative to the figure's.
    pub scenario: String,
    /// Changes to the scenario in all cases, as in `--set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Further changes for one repetition each, in turn: the parts of a long run that its repetitions share out.
    #[serde(default)]
    pub set_in_turn: Vec<Vec<String>>,
    /// The axis of the parameter that varies; without it, every series is one case.
    pub x: Option<AxisSpec>,
    /// The curves.
    pub series: Vec<SeriesSpec>,
    /// The numbers that go into the data beside those that plots and claims use.
    #[serde(default)]
    pub data: Vec<Metric>,
    /// The plots.
    #[serde(rename = "plot")]
    pub plots: Vec<PlotSpec>,
    /// The claims.
    #[serde(rename = "claim", default)]
    pub claims: Vec<ClaimSpec>,
}

/// The parameter that varies along x.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AxisSpec {
    /// Its name and unit.
    pub label: String,
    /// The fields that take the value, as in `--set`; a `{}` in a field's value stands for it, as in
    /// `topology.link.loss={}%`, and without `=` the field takes it whole.
    pub set: OneOrMany,
    /// The values, as written into the scenario.
    pub values: Vec<toml::Value>,
    /// Positions along x, for values that are no numbers.
    #[serde(default)]
    pub at: Vec<f64>,
    /// The axis is logarithmic.
    #[serde(default)]
    pub log: bool,
}

/// One string or a list of them.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// A curve: a way to change the scenario, or a closed form.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesSpec {
    /// Its name in the legend.
    pub name: String,
    /// Changes to the scenario, as in `--set`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Its engine, in place of the figure's: a model and the kernel may stand in one plot.
    pub engine: Option<Engine>,
}

/// A plot.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotSpec {
    /// Title of the plot; the figure's title by default.
    #[serde(default)]
    pub title: String,
    /// The form of the drawing.
    #[serde(default)]
    pub kind: PlotKind,
    /// The number along y, or the series of numbers (`flow.a.series.goodput_mbps`, `flow.a.owd_quantiles_ms`).
    pub y: String,
    /// The number along x of a scatter plot.
    pub x: Option<Metric>,
    /// Name and unit of y.
    pub label: String,
    /// Name and unit of the x of a scatter plot or a distribution.
    #[serde(default)]
    pub x_label: String,
    /// y is logarithmic.
    #[serde(default)]
    pub log: bool,
    /// The series that are drawn; all by default.
    #[serde(default)]
    pub only: Vec<String>,
    /// Series by whose values at the same x every line is divided.
    #[serde(default)]
    pub per: Option<String>,
    /// The value of x whose runs are drawn, for plots over time and distributions.
    pub at: Option<toml::Value>,
    /// Closed forms beside the measured curves.
    #[serde(default)]
    pub forms: Vec<Form>,
    /// The publication's own numbers over the measured curves.
    #[serde(default)]
    pub paper: Vec<PaperCurve>,
}

/// Numbers of a publication, as far as they can be read there.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperCurve {
    /// Which of its curves.
    pub name: String,
    /// The place in the publication from which the numbers are read: "text", "table II", "plot".
    pub read_from: String,
    /// x and y, each in the units of the plot.
    pub points: Vec<(f64, f64)>,
    /// Error of y: the rounding of the text, or the precision with which a plot can be read.
    pub error: f64,
}

/// The form in which a plot draws its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A number over x, one line per series.
    #[default]
    Line,
    /// Two numbers, one dot per case.
    Scatter,
    /// A time series of the first repetition.
    Time,
    /// Quantiles as a cumulative distribution.
    Distribution,
    /// A number as bars, one per series.
    Bars,
}

/// The claimant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The publication: our measurement agrees or disagrees.
    Paper,
    /// This project: its goal is met or missed.
    Ours,
}

/// Something that is claimed of the numbers, and checked.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSpec {
    /// The claimant.
    pub by: By,
    /// The claim, in words.
    pub text: String,
    /// The number.
    pub value: Metric,
    /// The series of the number.
    #[serde(default)]
    pub series: String,
    /// The value of x of the number; every value by default.
    pub at: Option<toml::Value>,
    /// The number is the slope over x rather than the value.
    #[serde(default)]
    pub slope: bool,
    /// Divisor of the number.
    pub per: Option<Operand>,
    /// Subtrahend of the number.
    pub minus: Option<Operand>,
    /// In place of the number itself: in how many cases, of all series where none is named, it lies between these.
    pub cases_within: Option<(f64, f64)>,
    /// Lower bound.
    pub least: Option<f64>,
    /// Upper bound.
    pub most: Option<f64>,
    /// In place of bounds: the value of these series does not fall from one to the next.
    #[serde(default)]
    pub rising: Vec<String>,
    /// Why it does not hold, where it does not.
    #[serde(default)]
    pub why: String,
}

/// The other side of a comparison; fields that are not given equal those of the first side.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operand {
    /// The series.
    pub series: Option<String>,
    /// The number.
    pub value: Option<Metric>,
    /// The value of x.
    pub at: Option<toml::Value>,
    /// A closed form in place of a measured number.
    pub form: Option<Form>,
}

fn one() -> u64 {
    1
}

/// A value of x as it is written into a scenario.
pub(super) fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Position of a value along x: its number, in any unit; a bare name has none.
pub(super) fn position(value: &toml::Value) -> Option<f64> {
    let text = written(value);
    let end = text.find(|c: char| !(c.is_ascii_digit() || ".-+eE".contains(c))).unwrap_or(text.len());
    let number = text[..end].trim_end_matches(['e', 'E']);
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_where_its_number_says() {
        let at = |text: &str| position(&toml::Value::String(text.to_owned()));
        assert_eq!((at("0.5%"), at("20ms"), at("1e-6")), (Some(0.5), Some(20.0), Some(1e-6)));
        assert_eq!((at("cubic"), at("10eggs")), (None, Some(10.0)));
        assert_eq!(position(&toml::Value::Integer(7)), Some(7.0));
    }
}
