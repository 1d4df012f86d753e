//! The document of all verdicts (docs/RESULTS.md), figure by figure, each with the build that measured it.
//!
//! The document is its own state: verdicts of figures that were not run now stay as they are, so that figures may
//! be measured one after the other, by a command that may be interrupted. A claim that was changed since is open
//! again.

use super::claim::bound_words;
use super::page::{measured, word};
use super::spec::{By, ClaimSpec, Figure};
use super::{Finished, Library};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const INTRODUCTION: &str = "\
# Verdicts

Written by `starhop figure all --long --results docs/RESULTS.md --resume`, which may be cut off and goes on where it was. Each
figure says which build measured it. A paper's claim *agrees* if the 95 % interval of at least five repetitions lies within
its bound, *disagrees* if the mean does not, and is *open* in between, or as long as it has not been measured (–). Our goals
are *met* or *missed*. The number is the worst over x, with half of its 95 % interval.
";

/// A row of a figure's table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    word: String,
    claim: String,
    measured: String,
    bound: String,
}

/// The document's section on one figure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Section {
    /// Its measurement: build, repetitions, cost. Empty if it was not measured.
    origin: String,
    rows: Vec<Row>,
}

/// The build that measured a figure's numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Build(String);

impl Build {
    /// The build of this commit.
    pub fn of_commit(commit: &str) -> Self {
        Self(commit.to_owned())
    }

    /// Whether `document` has all claims of a figure as this build measured them.
    pub fn has_measured(&self, document: &str, id: &str, figure: &Figure) -> bool {
        let sections = sections(document);
        let Some(section) = sections.get(id) else { return false };
        let is_ours = section.origin.starts_with(&format!("Build {},", self.0));
        is_ours && claims(figure).all(|claim| section.kept(claim).is_some())
    }
}

/// The document with the figures that were finished now, and with the others as `before` has them.
///
/// # Errors
/// A figure of this program that cannot be read.
pub fn document(before: &str, finished: &[&Finished], build: &Build) -> Result<String, String> {
    let before = sections(before);
    let (mut body, mut words, mut count) = (String::new(), Vec::new(), 0);
    for id in Library::ids() {
        let (figure, section) = match finished.iter().find(|figure| figure.id == id) {
            Some(now) => (now.figure.clone(), Section::measured(now, build)),
            None => {
                let figure = super::read_figure(Library::BuiltIn, Path::new(&format!("figures/{id}.toml")))?;
                let old = before.get(id).cloned().unwrap_or_default();
                let section = old.taken_over(&figure);
                (figure, section)
            }
        };
        count += 1;
        words.extend(claims(&figure).zip(&section.rows).map(|(claim, row)| (claim.by, row.word.clone())));
        body += &section.text(id, &figure);
    }
    let words = words.iter().map(|(by, word)| (*by, word.as_str()));
    Ok(format!("{INTRODUCTION}\n{}\n{body}", tally(count, words)))
}

/// Number of claims by outcome.
pub(super) fn tally<'a>(figures: usize, words: impl Iterator<Item = (By, &'a str)>) -> String {
    let words: Vec<(By, &str)> = words.collect();
    let count = |by: By, word: &str| words.iter().filter(|known| **known == (by, word)).count();
    let all = |by: By| words.iter().filter(|(whose, _)| *whose == by).count();
    format!(
        "{figures} figures. Of the project's own {} goals {} are met, {} are missed and {} not measured yet. Of the {} claims \
         taken from the papers {} came out here as well, {} did not, and the reason stands with them; {} are open.",
        all(By::Ours),
        count(By::Ours, "met"),
        count(By::Ours, "missed"),
        count(By::Ours, "open"),
        all(By::Paper),
        count(By::Paper, "agrees"),
        count(By::Paper, "disagrees"),
        count(By::Paper, "open"),
    )
}

fn claims(figure: &Figure) -> impl Iterator<Item = &ClaimSpec> {
    figure.panels.iter().flat_map(|panel| &panel.claims)
}

impl Row {
    fn open(claim: &ClaimSpec) -> Self {
        let measured = "–".to_owned();
        Self { word: "open".to_owned(), claim: claim.text.clone(), measured, bound: bound_words(claim) }
    }

    fn cells(&self) -> [&String; 4] {
        [&self.word, &self.claim, &self.measured, &self.bound]
    }

    fn parse(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| ")?.strip_suffix(" |")?.replace("\\|", "\u{1}");
        let cells: Vec<String> = cells.split(" | ").map(|cell| cell.replace('\u{1}', "|")).collect();
        let [word, claim, measured, bound] = cells.try_into().ok()?;
        (!word.is_empty()).then_some(Self { word, claim, measured, bound })
    }
}

impl Section {
    fn measured(now: &Finished, build: &Build) -> Self {
        let seeds = now.figure.seeds;
        let plural = if seeds == 1 { "" } else { "s" };
        let origin =
            format!("Build {}, {seeds} repetition{plural}, {:.0} s of one core.", build.0, now.cost_s);
        let row = |verdict: &super::Verdict| Row {
            word: word(verdict).to_owned(),
            claim: verdict.text.clone(),
            measured: measured(verdict),
            bound: verdict.bound.clone(),
        };
        Self { origin, rows: now.verdicts().map(row).collect() }
    }

    /// The row of a claim that is still made as it was when it was measured.
    fn kept(&self, claim: &ClaimSpec) -> Option<&Row> {
        let bound = bound_words(claim);
        self.rows.iter().find(|row| row.claim == claim.text && row.bound == bound && row.measured != "–")
    }

    fn taken_over(&self, figure: &Figure) -> Self {
        let rows = claims(figure).map(|claim| match self.kept(claim) {
            // An older document knew of no intervals: its word "agrees" does not prove agreement yet.
            Some(row) if row.word == "agrees" && !row.measured.contains(" ± ") => {
                Row { word: "open".to_owned(), ..row.clone() }
            }
            Some(row) => row.clone(),
            None => Row::open(claim),
        });
        let rows: Vec<Row> = rows.collect();
        let is_measured = rows.iter().any(|row| row.measured != "–");
        Self { origin: if is_measured { self.origin.clone() } else { String::new() }, rows }
    }

    fn text(&self, id: &str, figure: &Figure) -> String {
        let origin = if self.origin.is_empty() { "Not measured yet." } else { &self.origin };
        let mut text = format!("\n## {id}: {}\n\n{}\n\n{origin}\n\n", figure.title, figure.source);
        text += "| | claim | measured | bound |\n|---|---|---|---|\n";
        for row in &self.rows {
            let cells = row.cells().map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        let why = |row: &&Row| row.word == "disagrees" || row.word == "missed";
        for row in self.rows.iter().filter(why) {
            let claim = claims(figure).find(|claim| claim.text == row.claim);
            if let Some(claim) = claim.filter(|claim| !claim.why.is_empty()) {
                let _ = writeln!(text, "\n*{}*: {}", claim.text, claim.why);
            }
        }
        text
    }
}

fn sections(document: &str) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let mut id = None;
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            id = heading.split_once(": ").map(|(id, _)| id.to_owned());
            continue;
        }
        let Some(section) = id.clone().map(|id| all.entry(id).or_default()) else { continue };
        if line.starts_with("Build ") && section.rows.is_empty() {
            section.origin = line.to_owned();
        } else if let Some(row) = Row::parse(line).filter(|row| row.claim != "claim") {
            section.rows.push(row);
        }
    }
    all
}

/// Whether every reason that the document needs is there: a claim of a paper that came out otherwise has one.
///
/// # Errors
/// The claim without a reason.
pub fn check_reasons(document: &str) -> Result<(), String> {
    let sections = sections(document);
    for id in Library::ids() {
        let figure = super::read_figure(Library::BuiltIn, Path::new(&format!("figures/{id}.toml")))?;
        let Some(section) = sections.get(id) else { return Err(format!("{id} is not in the document")) };
        for claim in claims(&figure).filter(|claim| claim.by == By::Paper && claim.why.is_empty()) {
            if section.kept(claim).is_some_and(|row| row.word == "disagrees") {
                return Err(format!("{id}: \"{}\" disagrees, and nothing says why", claim.text));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS: &str = include_str!("../../../../docs/RESULTS.md");

    fn build() -> Build {
        Build::of_commit("0123456789ab")
    }

    #[test]
    fn the_document_and_the_figures_agree() {
        let again = document(RESULTS, &[], &build()).unwrap_or_else(|problem| panic!("{problem}"));
        for (theirs, ours) in RESULTS.lines().zip(again.lines()) {
            assert_eq!(
                theirs, ours,
                "run `starhop figure --results docs/RESULTS.md`: it takes the new claims over"
            );
        }
        assert_eq!(RESULTS.lines().count(), again.lines().count());
    }

    #[test]
    fn every_disagreement_has_its_reason() {
        assert_eq!(check_reasons(RESULTS), Ok(()));
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let row = Row {
            word: "met".to_owned(),
            claim: "a | b".to_owned(),
            measured: "1.000 ± 0.1".to_owned(),
            bound: "at least 1".to_owned(),
        };
        let line = format!("| {} |", row.cells().map(|cell| cell.replace('|', "\\|")).join(" | "));
        assert_eq!(Row::parse(&line), Some(row));
        assert_eq!(Row::parse("|---|---|---|---|"), None);
    }

    #[test]
    fn a_claim_that_was_changed_is_open_again() {
        let id = "leotp-fig3";
        let figure = super::super::read_figure(Library::BuiltIn, Path::new("figures/leotp-fig3.toml"));
        let figure = figure.unwrap_or_else(|problem| panic!("{problem}"));
        let first = claims(&figure).next().expect("a claim");
        let with_bound = |bound: &str| {
            let row = format!("| disagrees | {} | 100.0 ± 1.0 | {bound} |", first.text);
            format!("## {id}: t\n\nBuild 0123456789ab, 5 repetitions, 3 s of one core.\n\n{row}\n")
        };
        let same = document(&with_bound(&bound_words(first)), &[], &build()).unwrap_or_default();
        assert!(same.contains("100.0 ± 1.0") && same.contains("Build 0123456789ab, 5"), "{same}");
        let other = document(&with_bound("at most 7"), &[], &build()).unwrap_or_default();
        assert!(!other.contains("100.0 ± 1.0") && !other.contains("Build 0123456789ab, 5"));
    }
}
