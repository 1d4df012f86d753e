//! The outcome of a sweep: one row per combination and flow, means over the seeds.

use super::stats::Mean;
use crate::result::{FlowResult, RunResult};
use crate::scenario::Change;
use crate::text::columns;
use serde::Serialize;
use std::fmt::Write;

/// The results of a flow under one combination, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The values of the swept fields, in the order of the axes.
    pub values: Vec<String>,
    /// The flow.
    pub flow: String,
    /// Its transport.
    pub transport: String,
    /// Goodput, Mbit/s.
    pub goodput_mbps: Option<Mean>,
    /// Share of the fluid bound.
    pub efficiency: Option<Mean>,
    /// Mean one-way delay of bytes handed over in order, ms.
    pub in_order_owd_ms: Option<Mean>,
    /// Its 99th percentile, ms.
    pub in_order_owd_p99_ms: Option<Mean>,
    /// Mean delay above propagation and serialisation, ms.
    pub queueing_ms: Option<Mean>,
    /// Time to the last byte, s; none where a repetition was not done.
    pub completion_s: Option<Mean>,
    /// Bytes that the source sent per byte delivered.
    pub source_per_delivered: Option<Mean>,
    /// Jain's index over the flows of the run.
    pub jain: Option<Mean>,
}

/// The rows, one per combination and flow. `results` holds the repetitions of a combination side by side.
pub fn rows(combinations: &[Vec<Change>], results: &[RunResult], seeds: usize) -> Vec<Row> {
    let groups = combinations.iter().zip(results.chunks(seeds.max(1)));
    groups.flat_map(|(changes, runs)| rows_of(changes, runs)).collect()
}

fn rows_of(changes: &[Change], runs: &[RunResult]) -> Vec<Row> {
    let values: Vec<String> = changes.iter().map(|change| change.value.clone()).collect();
    let count = runs.first().map_or(0, |run| run.flows.len());
    let row = |index: usize| {
        let mean = |number: &dyn Fn(&FlowResult) -> f64| {
            Mean::of(&runs.iter().map(|run| number(&run.flows[index])).collect::<Vec<_>>())
        };
        Row {
            values: values.clone(),
            flow: runs[0].flows[index].name.clone(),
            transport: runs[0].flows[index].transport.clone(),
            goodput_mbps: mean(&|flow| flow.goodput_mbps),
            efficiency: mean(&|flow| flow.efficiency),
            in_order_owd_ms: mean(&|flow| flow.in_order_owd_ms.mean),
            in_order_owd_p99_ms: mean(&|flow| flow.in_order_owd_ms.p99),
            queueing_ms: mean(&|flow| flow.queueing_ms.mean),
            completion_s: mean(&|flow| flow.completion_s.unwrap_or(f64::NAN)),
            source_per_delivered: mean(&|flow| flow.source_bytes as f64 / flow.delivered_bytes as f64),
            jain: Mean::of(&runs.iter().map(|run| run.jain).collect::<Vec<_>>()),
        }
    };
    (0..count).map(row).collect()
}

impl Row {
    fn numbers(&self) -> [(&'static str, Option<Mean>); 8] {
        [
            ("goodput_mbps", self.goodput_mbps),
            ("efficiency", self.efficiency),
            ("in_order_owd_ms", self.in_order_owd_ms),
            ("in_order_owd_p99_ms", self.in_order_owd_p99_ms),
            ("queueing_ms", self.queueing_ms),
            ("completion_s", self.completion_s),
            ("source_per_delivered", self.source_per_delivered),
            ("jain", self.jain),
        ]
    }
}

/// The rows as CSV: a column per swept field, and for every number its mean and half its 95 % interval.
///
/// # Errors
/// None that a writer into memory can have.
pub fn csv(axes: &[String], rows: &[Row]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let numbers = rows.first().map(Row::numbers).unwrap_or_default();
    let mut head: Vec<String> = axes.to_vec();
    head.extend(["flow".to_owned(), "transport".to_owned()]);
    head.extend(numbers.iter().flat_map(|(name, _)| [(*name).to_owned(), format!("{name}_ci95")]));
    writer.write_record(&head)?;
    for row in rows {
        let mut record = row.values.clone();
        record.extend([row.flow.clone(), row.transport.clone()]);
        record.extend(row.numbers().into_iter().flat_map(|(_, mean)| match mean {
            Some(mean) => [mean.mean.to_string(), mean.half_width.to_string()],
            None => [String::new(), String::new()],
        }));
        writer.write_record(&record)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The rows as a table for a terminal.
pub fn text(axes: &[String], rows: &[Row]) -> String {
    let mut head: Vec<&str> = axes.iter().map(|axis| axis.rsplit('.').next().unwrap_or(axis)).collect();
    head.extend([
        "flow",
        "transport",
        "goodput",
        "share",
        "in order ms",
        "p99",
        "queue ms",
        "done s",
        "jain",
    ]);
    let cells = |row: &Row| {
        let mut cells = row.values.clone();
        cells.extend([row.flow.clone(), row.transport.clone()]);
        let share =
            row.efficiency.map(|m| Mean { mean: m.mean * 100.0, half_width: m.half_width * 100.0, ..m });
        let numbers = [
            row.goodput_mbps,
            share,
            row.in_order_owd_ms,
            row.in_order_owd_p99_ms,
            row.queueing_ms,
            row.completion_s,
        ];
        cells.extend(numbers.map(cell));
        cells.push(row.jain.map_or_else(|| "-".to_owned(), |jain| format!("{:.4}", jain.mean)));
        cells
    };
    columns(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

fn cell(mean: Option<Mean>) -> String {
    let Some(mean) = mean else { return "-".to_owned() };
    let mut cell = format!("{:.2}", mean.mean);
    if mean.count > 1 {
        let _ = write!(cell, " ±{:.2}", mean.half_width);
    }
    cell
}
