//! The numbers of a panel: one cell per series and value of x, each with its repetitions.

use super::spec::{Figure, Panel, position, written};
use crate::result::RunResult;
use crate::sweep::{Document, Mean, Metric};

/// The runs of one series at one value of x.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The number of the series.
    pub series: usize,
    /// The value of x as written; empty without an axis.
    pub x: String,
    /// Its position along x; its number from 0 for a value that is no number.
    pub position: f64,
    /// Its runs, one per repetition.
    pub runs: Vec<Document>,
}

/// A panel that was run.
#[derive(Clone, Debug)]
pub struct PanelData<'a> {
    /// The panel.
    pub panel: &'a Panel,
    /// Series by series, each in the order of x.
    pub cells: Vec<Cell>,
}

impl<'a> PanelData<'a> {
    /// Sorts results into cells; they come series by series, x by x, repetition by repetition.
    ///
    /// # Errors
    /// Never for documents that this program wrote.
    pub fn new(figure: &Figure, panel: &'a Panel, results: &[RunResult]) -> Result<Self, String> {
        let repetitions = figure.seeds.max(1) as usize;
        let points = points(panel);
        let mut cells = Vec::new();
        for (index, runs) in results.chunks(repetitions).enumerate() {
            let (x, position) = points[index % points.len()].clone();
            let runs = runs.iter().map(Document::of).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
            cells.push(Cell { series: index / points.len(), x, position, runs });
        }
        Ok(Self { panel, cells })
    }

    /// The cells of a series.
    pub fn of_series(&self, series: usize) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.series == series)
    }

    /// The number of a series by its name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn series_named(&self, name: &str) -> Result<usize, String> {
        let all = &self.panel.series;
        let found = all.iter().position(|series| series.name == name);
        let names = || all.iter().map(|series| series.name.as_str()).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| format!("there is no series \"{name}\"; there are {}", names()))
    }
}

impl Cell {
    /// The mean of a number over the repetitions; `None` where it is missing in one of them.
    ///
    /// # Errors
    /// A metric that is not in the document.
    pub fn mean(&self, metric: &Metric) -> Result<Option<Mean>, String> {
        let values = self.runs.iter().map(|run| run.number(metric)).collect::<Result<Vec<_>, _>>()?;
        Ok(Mean::of(&values))
    }
}

/// Every value of x, as written and where it lies; one nameless point without an axis.
pub(super) fn points(panel: &Panel) -> Vec<(String, f64)> {
    let Some(axis) = &panel.x else { return vec![(String::new(), 0.0)] };
    let point = |(index, value): (usize, &toml::Value)| {
        let at = axis.at.get(index).copied().or_else(|| position(value));
        (written(value), at.unwrap_or(index as f64))
    };
    axis.values.iter().enumerate().map(point).collect()
}

/// The numbers of a panel as CSV: one row per series, x and repetition.
///
/// # Errors
/// A metric that is not in the documents.
pub fn csv(data: &PanelData<'_>) -> Result<String, String> {
    let metrics = metrics(data.panel);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut head = vec!["series".to_owned(), "x".to_owned(), "seed".to_owned()];
    head.extend(metrics.iter().map(Metric::to_string));
    writer.write_record(&head).map_err(|e| e.to_string())?;
    let seed: Metric = "seed".parse()?;
    for cell in &data.cells {
        for run in &cell.runs {
            let mut record = vec![data.panel.series[cell.series].name.clone(), cell.x.clone()];
            record.push(run.number(&seed)?.to_string());
            for metric in &metrics {
                let number = run.number(metric)?;
                record.push(if number.is_finite() { number.to_string() } else { String::new() });
            }
            writer.write_record(&record).map_err(|e| e.to_string())?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Everything that the panel's plots, claims and data name, once.
pub(super) fn metrics(panel: &Panel) -> Vec<Metric> {
    use super::spec::PlotKind;
    let mut all: Vec<Metric> = Vec::new();
    for plot in &panel.plots {
        if matches!(plot.kind, PlotKind::Line | PlotKind::Scatter | PlotKind::Bars) {
            all.extend(plot.y.parse());
        }
        all.extend(plot.x.clone());
    }
    all.extend(panel.claims.iter().map(|claim| claim.value.clone()));
    all.extend(panel.data.iter().cloned());
    let mut seen: Vec<Metric> = Vec::new();
    for metric in all {
        if !seen.contains(&metric) {
            seen.push(metric);
        }
    }
    seen
}
