//! The papers' figures: files that describe runs, plots and claims; and the verdicts on the claims.
//!
//! A figure is a file of `figures/` (see [`spec`]): a scenario, the parameters that vary, plots and claims.
//! [`plan`] makes its simulations, [`crate::sweep`] runs them, [`finish`] makes data, plots and verdicts of them.

mod claim;
pub mod data;
mod draw;
mod form;
mod library;
mod page;
pub mod results;
pub mod spec;

pub use claim::Verdict;
pub use library::Library;
pub use page::{index, page};

use crate::report::plot::Plot;
use crate::result::RunResult;
use crate::scenario::{Change, Scenario};
use crate::sweep::{Metric, repeated};
use data::PanelData;
use spec::{Engine, Figure, Panel, PlotKind, written};
use std::path::{Path, PathBuf};

/// A figure that was read, with all its simulations to be.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Its id: the name of its file.
    pub id: String,
    /// The contents of its file.
    pub figure: Figure,
    /// All simulations: panel by panel, series by series, x by x, repetition by repetition.
    pub scenarios: Vec<Scenario>,
    /// The engine of each of them.
    pub engines: Vec<Engine>,
    /// Number of simulations of each panel.
    counts: Vec<usize>,
}

/// A figure that was run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Its id.
    pub id: String,
    /// The contents of its file.
    pub figure: Figure,
    /// Its panels.
    pub panels: Vec<FinishedPanel>,
    /// Time that its runs took, seconds of one core.
    pub cost_s: f64,
}

/// A panel that was run.
#[derive(Clone, Debug)]
pub struct FinishedPanel {
    /// Its name.
    pub name: String,
    /// Its numbers as CSV.
    pub csv: String,
    /// Its plots.
    pub plots: Vec<Plot>,
    /// The outcomes of its claims.
    pub verdicts: Vec<Verdict>,
    /// Everything that went wrong in its runs and must not have.
    pub problems: Vec<String>,
}

/// Reads a figure and all the scenarios that it needs.
///
/// # Errors
/// The file and its fault: the form, a scenario that the figure names, or a change to that scenario.
pub fn plan(library: Library, file: &Path, seeds: Option<u64>) -> Result<Planned, String> {
    let mut figure = read_figure(library, file)?;
    figure.seeds = seeds.unwrap_or(figure.seeds).max(1);
    if let Some(text) = said_twice(&figure) {
        return Err(format!(
            "{}: two claims say \"{text}\": verdicts go by what a claim says",
            file.display()
        ));
    }
    let id = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let (mut scenarios, mut engines, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for panel in &figure.panels {
        let before = scenarios.len();
        let of = |problem| format!("{}: panel \"{}\": {problem}", file.display(), panel.name);
        check(panel).map_err(of)?;
        let path = file.parent().unwrap_or(Path::new("")).join(&panel.scenario);
        for Case { changes, engine } in cases(panel).map_err(of)? {
            let read = |changes: &[Change]| read(library, &path, changes).map_err(of);
            scenarios.extend(repetitions(panel, figure.seeds, &changes, &read)?);
            engines.resize(scenarios.len(), engine.unwrap_or(figure.engine));
        }
        counts.push(scenarios.len() - before);
    }
    Ok(Planned { id, figure, scenarios, engines, counts })
}

/// The repetitions of a case: each has a seed of its own, and the changes whose turn it is.
fn repetitions(
    panel: &Panel,
    seeds: u64,
    changes: &[Change],
    read: &dyn Fn(&[Change]) -> Result<Scenario, String>,
) -> Result<Vec<Scenario>, String> {
    let turns = panel.set_in_turn.iter().map(|texts| parsed(texts)).collect::<Result<Vec<_>, _>>()?;
    let turns = if turns.is_empty() { vec![Vec::new()] } else { turns };
    let scenarios = turns.into_iter().map(|turn| read(&[changes, &turn].concat()));
    let scenarios = scenarios.take(seeds as usize).collect::<Result<Vec<_>, _>>()?;
    Ok(repeated(&scenarios, seeds).collect())
}

fn parsed(texts: &[String]) -> Result<Vec<Change>, String> {
    texts.iter().map(|text| text.parse()).collect()
}

/// The text that two claims have in common, if any.
fn said_twice(figure: &Figure) -> Option<&str> {
    let mut texts = figure.panels.iter().flat_map(|panel| &panel.claims).map(|claim| claim.text.as_str());
    let mut seen = std::collections::BTreeSet::new();
    texts.find(|text| !seen.insert(*text))
}

/// Reads a figure's file, without its scenarios.
fn read_figure(library: Library, file: &Path) -> Result<Figure, String> {
    let text = library.read(file)?;
    toml::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))
}

fn read(library: Library, path: &Path, changes: &[Change]) -> Result<Scenario, String> {
    let text = library.read(path)?;
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let read = |name: &str| library.read(&folder.join(name));
    Scenario::parse_changed(&text, changes, &read).map_err(|error| {
        let set: Vec<String> = changes.iter().map(|c| format!("{}={}", c.path.join("."), c.value)).collect();
        format!("{} with {}: {error}", path.display(), set.join(", "))
    })
}

/// Faults that a panel can have by itself, before anything is run.
fn check(panel: &Panel) -> Result<(), String> {
    if panel.series.is_empty() {
        return Err("has no series".to_owned());
    }
    if let Some(axis) = &panel.x
        && (axis.values.is_empty() || !(axis.at.is_empty() || axis.at.len() == axis.values.len()))
    {
        return Err("x needs values, and as many entries in `at` as there are values, or none".to_owned());
    }
    let known = |name: &String| panel.series.iter().any(|series| series.name == *name);
    let claims = panel.claims.iter().flat_map(|claim| {
        let sides = [&claim.per, &claim.minus].into_iter().flatten().filter_map(|side| side.series.as_ref());
        let own = (!claim.series.is_empty()).then_some(&claim.series);
        sides.chain(own).chain(&claim.rising)
    });
    let mut named = claims.chain(panel.plots.iter().flat_map(|plot| plot.only.iter().chain(&plot.per)));
    match named.find(|name| !known(name)) {
        Some(name) => Err(format!("there is no series \"{name}\"")),
        None => Ok(()),
    }
}

/// One case of a panel: the changes to its scenario, and its engine if its series names one.
struct Case {
    changes: Vec<Change>,
    engine: Option<Engine>,
}

/// Every case: series by series, each in the order of x.
fn cases(panel: &Panel) -> Result<Vec<Case>, String> {
    let common = parsed(&panel.set)?;
    let mut cases = Vec::new();
    for series in &panel.series {
        let own = parsed(&series.set)?;
        let points =
            panel.x.as_ref().map_or_else(|| vec![None], |axis| axis.values.iter().map(Some).collect());
        for value in points {
            let mut changes = common.clone();
            if let (Some(axis), Some(value)) = (&panel.x, value) {
                for set in axis.set.all() {
                    changes.push(with_value(set, &written(value)).parse()?);
                }
            }
            changes.extend(own.iter().cloned());
            cases.push(Case { changes, engine: series.engine });
        }
    }
    Ok(cases)
}

fn with_value(set: &str, value: &str) -> String {
    if set.contains('=') { set.replace("{}", value) } else { format!("{set}={value}") }
}

/// Makes data, plots and verdicts of the results of a figure's simulations, which come in their order.
///
/// # Errors
/// A number that a plot or a claim names and the results do not have.
pub fn finish(planned: Planned, results: &[RunResult]) -> Result<Finished, String> {
    let Planned { id, figure, counts, .. } = planned;
    let (mut panels, mut rest) = (Vec::new(), results);
    for (panel, count) in figure.panels.iter().zip(counts) {
        let (own, others) = rest.split_at(count.min(rest.len()));
        rest = others;
        panels.push(finish_panel(&figure, panel, own).map_err(|problem| format!("{id}: {problem}"))?);
    }
    let cost_s = results.iter().map(|run| run.wall_s).sum();
    Ok(Finished { id, figure, panels, cost_s })
}

fn finish_panel(figure: &Figure, panel: &Panel, results: &[RunResult]) -> Result<FinishedPanel, String> {
    let data = PanelData::new(figure, panel, results)?;
    let plots = panel.plots.iter().map(|plot| draw::draw(&data, plot, &figure.title));
    let verdicts = panel.claims.iter().map(|claim| claim::judge(&data, claim));
    Ok(FinishedPanel {
        name: panel.name.clone(),
        csv: data::csv(&data)?,
        plots: plots.collect::<Result<_, _>>()?,
        verdicts: verdicts.collect::<Result<_, _>>()?,
        problems: results.iter().flat_map(|run| run.problems.iter().cloned()).collect(),
    })
}

impl Figure {
    /// Some plot shows a time series, or some number is a part of one: the results need to keep theirs.
    pub fn needs_series(&self) -> bool {
        let drawn = |panel: &Panel| panel.plots.iter().any(|plot| plot.kind == PlotKind::Time);
        self.panels.iter().any(|panel| drawn(panel) || data::metrics(panel).iter().any(Metric::needs_series))
    }
}

#[cfg(test)]
mod tests;
