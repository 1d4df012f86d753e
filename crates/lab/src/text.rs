//! Results as text: the table on a terminal, and time series as CSV.

use crate::result::{AccuracyResult, FlowResult, GroupResult, RunResult};
use std::fmt::Write;

/// The results of a run as tables that fit a terminal.
pub fn table(result: &RunResult) -> String {
    let trace = match &result.accuracy {
        Some(_) => "emulated".to_owned(),
        None => format!("trace {}", result.trace_hash),
    };
    let mut out = format!("{}  (seed {}, {trace})\n\n", result.title, result.seed);
    let flows = result.flows.iter().take(MOST_FLOWS).map(flow_row).collect::<Vec<_>>();
    out += &columns(FLOW_HEAD, &flows);
    if result.flows.len() > MOST_FLOWS {
        let _ = writeln!(out, "… and {} more flows", result.flows.len() - MOST_FLOWS);
    }
    if !result.groups.is_empty() {
        out.push('\n');
        out += &columns(GROUP_HEAD, &result.groups.iter().map(group_row).collect::<Vec<_>>());
    }
    for flow in &result.flows {
        let Some(path) = &flow.path else { continue };
        let _ = writeln!(
            out,
            "path of {}: {:.2} hops ({} to {}), {:.2} ms ({:.2} to {:.2}), {} changes, away {:.2} s",
            flow.name,
            path.mean_hops,
            path.min_hops,
            path.max_hops,
            path.mean_propagation_ms,
            path.min_propagation_ms,
            path.max_propagation_ms,
            path.changes,
            path.away_s
        );
    }
    if result.flows.len() > 1 {
        let _ = writeln!(out, "Jain's index {:.4}", result.jain);
    }
    out.push('\n');
    let busy = result.links.iter().filter(|link| link.packets > 0).map(|link| {
        vec![
            link.name.clone(),
            link.direction.clone(),
            link.packets.to_string(),
            link.bytes.to_string(),
            link.lost.to_string(),
            link.dropped.to_string(),
            format!("{:.2}", link.mean_queue_ms),
            format!("{:.1}%", link.utilisation * 100.0),
        ]
    });
    out += &columns(LINK_HEAD, &busy.take(MOST_LINKS).collect::<Vec<_>>());
    out += &match &result.accuracy {
        Some(accuracy) => how_true(result, accuracy),
        None => how_fast(result),
    };
    out
}

fn how_fast(result: &RunResult) -> String {
    let rate = result.link_packets as f64 / result.wall_s.max(1e-9) / 1e6;
    format!(
        "\n{:.1} s of virtual time in {:.3} s: {} events, {} link-packets, {rate:.2} million link-packets/s, {:.1} MB peak\n",
        result.duration_s,
        result.wall_s,
        result.events,
        result.link_packets,
        result.peak_rss_bytes as f64 / 1e6,
    )
}

pub(crate) fn how_true(result: &RunResult, accuracy: &AccuracyResult) -> String {
    let priority = if accuracy.is_real_time { "real-time" } else { "ordinary" };
    let verdict = if accuracy.is_good { "" } else { "  NOT TO BE TRUSTED: the machine was too slow.\n" };
    format!(
        "\n{:.1} s in real time, {} link-packets. The links were true to the scenario within {:.3} ms (half of all \
         packets), {:.3} ms (99 %), {:.3} ms (all),\nrates within {:.2} %; they lost {} packets of their own, took \
         {:.1} s of CPU time and ran at {priority} priority.\n{verdict}",
        result.duration_s,
        result.link_packets,
        accuracy.delay_error_p50_ms,
        accuracy.delay_error_p99_ms,
        accuracy.delay_error_max_ms,
        accuracy.rate_error_p99 * 100.0,
        accuracy.lost_packets,
        accuracy.cpu_s,
    )
}

/// Flows beyond these are in the document only.
const MOST_FLOWS: usize = 24;

/// Links beyond these are in the document only.
const MOST_LINKS: usize = 24;

const FLOW_HEAD: &[&str] = &[
    "flow",
    "transport",
    "done",
    "goodput",
    "ideal",
    "share",
    "owd ms",
    "p99",
    "in order ms",
    "p99",
    "queue ms",
    "recovery ms",
    "source B",
    "return B",
    "repairs",
    "timeouts",
];

const GROUP_HEAD: &[&str] = &[
    "group",
    "flows",
    "done",
    "goodput",
    "share",
    "Jain",
    "p1",
    "p50",
    "p99",
    "done in s",
    "p99",
    "owd ms",
    "p99",
    "repairs",
    "timeouts",
];

const LINK_HEAD: &[&str] = &["link", "direction", "packets", "bytes", "lost", "dropped", "queue ms", "used"];

fn group_row(group: &GroupResult) -> Vec<String> {
    let mbps = |value: f64| format!("{value:.3}");
    vec![
        group.name.clone(),
        group.count.to_string(),
        group.completed.to_string(),
        mbps(group.goodput_mbps.sum),
        format!("{:.2}%", group.efficiency * 100.0),
        mbps(group.jain),
        mbps(group.goodput_mbps.p1),
        mbps(group.goodput_mbps.p50),
        mbps(group.goodput_mbps.p99),
        mbps(group.completion_s.p50),
        mbps(group.completion_s.p99),
        format!("{:.2}", group.owd_ms.mean),
        format!("{:.1}", group.owd_ms.p99),
        group.repairs.to_string(),
        group.timeouts.to_string(),
    ]
}

fn flow_row(flow: &FlowResult) -> Vec<String> {
    vec![
        flow.name.clone(),
        flow.transport.clone(),
        flow.completion_s.map_or_else(|| "-".to_owned(), |s| format!("{s:.3} s")),
        format!("{:.3}", flow.goodput_mbps),
        format!("{:.3}", flow.ideal_mbps),
        format!("{:.2}%", flow.efficiency * 100.0),
        format!("{:.2}", flow.owd_ms.mean),
        format!("{:.1}", flow.owd_ms.p99),
        format!("{:.2}", flow.in_order_owd_ms.mean),
        format!("{:.1}", flow.in_order_owd_ms.p99),
        format!("{:.2}", flow.queueing_ms.mean),
        format!("{:.1}", flow.recovery_ms.mean),
        flow.source_bytes.to_string(),
        flow.return_bytes.to_string(),
        flow.repairs.to_string(),
        flow.timeouts.to_string(),
    ]
}

/// Columns as wide as their widest cell; the first to the left, numbers to the right.
pub(crate) fn columns(head: &[&str], rows: &[Vec<String>]) -> String {
    let wide = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = head.iter().enumerate().map(|(i, name)| name.len().max(wide(i))).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut head.iter().copied());
    rows.iter().for_each(|row| out += &line(&mut row.iter().map(String::as_str)));
    out
}

/// The time series as CSV files: name and contents.
pub fn series_csv(result: &RunResult) -> Vec<(String, String)> {
    let Some(series) = &result.series else { return Vec::new() };
    let time = |i: usize| format!("{:.3}", (i + 1) as f64 * series.step_s);
    let cell = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
    let mut files = Vec::new();
    for (flow, samples) in result.flows.iter().zip(&series.flows) {
        let has_window = !samples.cwnd.is_empty();
        let more = if has_window { ",cwnd_segments,ssthresh_segments,srtt_ms" } else { "" };
        let sky = if samples.hops.is_empty() { "" } else { ",hops,propagation_ms" };
        let mut csv = format!("time_s,goodput_mbps,owd_ms,in_order_owd_ms{more}{sky}\n");
        for (i, goodput) in samples.goodput_mbps.iter().enumerate() {
            let (owd, in_order) = (cell(samples.owd_ms[i]), cell(samples.in_order_owd_ms[i]));
            let _ = write!(csv, "{},{},{owd},{in_order}", time(i), cell(*goodput));
            if has_window {
                let window = [&samples.cwnd, &samples.ssthresh, &samples.srtt_ms];
                let cells = window.map(|column| format!(",{}", cell(column[i])));
                csv += &cells.concat();
            }
            if let (Some(hops), Some(propagation)) = (samples.hops.get(i), samples.propagation_ms.get(i)) {
                let _ = write!(csv, ",{hops},{}", cell(*propagation));
            }
            csv.push('\n');
        }
        files.push((format!("flow-{}.csv", file_name(&flow.name)), csv));
    }
    let mut csv = "time_s,link,direction,queue_ms,sent_mbps,capacity_mbps\n".to_owned();
    for (link, samples) in result.links.iter().zip(&series.links) {
        for (i, queue) in samples.queue_ms.iter().enumerate() {
            let (sent, capacity) = (cell(samples.sent_mbps[i]), cell(samples.capacity_mbps[i]));
            let _ = writeln!(
                csv,
                "{},{},{},{},{sent},{capacity}",
                time(i),
                link.name,
                link.direction,
                cell(*queue)
            );
        }
    }
    files.push(("links.csv".to_owned(), csv));
    files
}

/// A flow's name as part of a file name.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}
