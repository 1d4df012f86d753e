//! Figures as one self-contained HTML page.

use super::spec::By;
use super::{Finished, FinishedPanel, Verdict, results};
use crate::report::plot::escape;
use crate::report::{document, table};
use std::fmt::Write;

/// The page of some figures: of one, or of all of them with a table of all verdicts on top.
pub fn page(figures: &[Finished], title: &str) -> String {
    let mut html = format!("<h1>{}</h1>", escape(title));
    if figures.len() > 1 {
        html += &summary(figures);
    }
    figures.iter().for_each(|figure| html += &section(figure));
    document(title, &html)
}

/// All verdicts as text: one line each, failed ones with their reason.
pub fn index(figures: &[Finished]) -> String {
    let mut text = String::new();
    for figure in figures {
        let _ = writeln!(text, "{}  {}", figure.id, figure.figure.title);
        for verdict in figure.verdicts() {
            let Verdict { text: claim, bound, why, .. } = verdict;
            let _ = writeln!(text, "  {:<9} {claim}: {} ({bound})", word(verdict), measured(verdict));
            if !why.is_empty() {
                let _ = writeln!(text, "            {why}");
            }
        }
    }
    text
}

impl Finished {
    /// The outcomes of all its claims.
    pub fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.panels.iter().flat_map(|panel| &panel.verdicts)
    }

    /// Everything that went wrong in its runs and must not have.
    pub fn problems(&self) -> impl Iterator<Item = &String> {
        self.panels.iter().flat_map(|panel| &panel.problems)
    }
}

/// The verdict in a word. A paper's claim that the mean keeps and the interval does not, or that has too few
/// repetitions for one, is open.
pub(super) fn word(verdict: &Verdict) -> &'static str {
    match (verdict.by, verdict.holds) {
        (By::Paper, true) if verdict.is_sure => "agrees",
        (By::Paper, true) => "open",
        (By::Paper, false) => "disagrees",
        (By::Ours, true) => "met",
        (By::Ours, false) => "missed",
    }
}

/// The number that decided, with half of its 95 % interval where it has one.
pub(super) fn measured(verdict: &Verdict) -> String {
    let value = number(verdict.measured);
    if verdict.half_width.is_finite() { format!("{value} ± {}", number(verdict.half_width)) } else { value }
}

/// Four significant digits.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    format!("{value:.*}", digits.clamp(0, 9) as usize)
}

/// Number of claims by outcome.
fn tally(figures: &[Finished]) -> String {
    let words = figures.iter().flat_map(Finished::verdicts).map(|verdict| (verdict.by, word(verdict)));
    results::tally(figures.len(), words)
}

fn summary(figures: &[Finished]) -> String {
    let mut html = format!("<p>{}</p>", tally(figures));
    let rows: Vec<Vec<String>> = figures
        .iter()
        .flat_map(|figure| figure.verdicts().map(move |verdict| row(&figure.id, verdict)))
        .collect();
    html += &table(&["figure", "", "claim", "measured", "bound"], &rows);
    html
}

fn row(id: &str, verdict: &Verdict) -> Vec<String> {
    let Verdict { text, bound, .. } = verdict;
    vec![id.to_owned(), word(verdict).to_owned(), text.clone(), measured(verdict), bound.clone()]
}

fn section(figure: &Finished) -> String {
    let spec = &figure.figure;
    let mut html = format!(
        "<h2 id=\"{id}\">{id} · {}</h2><p>{}</p><p>{}</p>",
        escape(&spec.title),
        escape(&spec.source),
        escape(&spec.note),
        id = escape(&figure.id),
    );
    for problem in figure.problems() {
        let _ = write!(html, "<p class=\"bad\">A run failed: {}</p>", escape(problem));
    }
    html += &claims(figure);
    let plots: String =
        figure.panels.iter().flat_map(|panel| &panel.plots).map(|plot| plot.to_html()).collect();
    let _ = write!(html, "<div class=\"plots\">{plots}</div>");
    html += &figure.panels.iter().map(|panel| numbers(figure, panel)).collect::<String>();
    html
}

fn claims(figure: &Finished) -> String {
    let item = |verdict: &Verdict| {
        let class = if verdict.holds { "held" } else { "bad" };
        let who = if verdict.by == By::Paper { "The paper" } else { "Our goal" };
        let why = if verdict.why.is_empty() { String::new() } else { format!(" {}", escape(&verdict.why)) };
        format!(
            "<li><b class=\"{class}\">{}</b> {who}: {}. Measured {}; bound: {}.{why}</li>",
            word(verdict),
            escape(&verdict.text),
            measured(verdict),
            escape(&verdict.bound),
        )
    };
    format!("<ul class=\"claims\">{}</ul>", figure.verdicts().map(item).collect::<String>())
}

fn numbers(figure: &Finished, panel: &FinishedPanel) -> String {
    let name = if panel.name.is_empty() { &figure.id } else { &panel.name };
    format!(
        "<details><summary>Numbers of {}</summary><pre>{}</pre></details>",
        escape(name),
        escape(&panel.csv)
    )
}
