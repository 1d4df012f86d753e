//! A page that shows the result without any other file.

use super::{FlowResult, Summary};
use std::fmt::Write;

const COLOURS: [&str; 5] = ["#0b6e4f", "#c1121f", "#3a5a9b", "#a06000", "#6a4c93"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 280.0;

pub(super) fn html(summary: &Summary) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Starhop demo</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222}\
         table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:right;\
         border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
         svg text{font:12px system-ui,sans-serif;fill:#444}</style>",
    );
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<h1>Starhop demo</h1><p>{}. Real processes and real kernels, emulated links.</p>",
        summary.title
    );
    table(&mut page, summary);
    page.push_str("<h2>Bytes delivered in order</h2>");
    curves(&mut page, summary);
    page.push_str(
        "<h2>In-order one-way delay</h2><p>From the first transmission of a byte to its delivery in \
                   order: median, and a line up to the 99th percentile.</p>",
    );
    delays(&mut page, summary);
    page.push_str("<p>A TCP that did not finish was stopped at its time limit; its time is extrapolated from its \
                   goodput until then. The machine-readable result stands beside this page in result.json.</p></html>");
    page
}

fn table(page: &mut String, summary: &Summary) {
    page.push_str("<table><tr><th>transport<th>time<th>goodput<th>of ideal<th>in-order delay mean<th>p99<th>return bytes</tr>");
    for flow in &summary.flows {
        let about = if flow.completed { "" } else { "≈ " };
        let delay = &flow.in_order_owd_ms;
        let _ = write!(
            page,
            "<tr><td>{}<td>{about}{:.1} s<td>{:.2} Mbit/s<td>{:.0} %<td>{:.0} ms<td>{:.0} ms<td>{:.2} %</tr>",
            flow.transport,
            flow.extrapolated_seconds,
            flow.goodput_mbps,
            100.0 * flow.goodput_mbps / flow.ideal_mbps,
            delay.mean,
            delay.p99,
            return_share(flow)
        );
    }
    page.push_str("</table>");
}

/// Bytes on the way back, as a percentage of the bytes delivered.
pub(super) fn return_share(flow: &FlowResult) -> f64 {
    100.0 * flow.return_bytes as f64 / flow.delivered_bytes.max(1) as f64
}

fn curves(page: &mut String, summary: &Summary) {
    let longest = summary.flows.iter().map(|flow| flow.series.len()).max().unwrap_or(1).max(2) as f64;
    let _ = write!(page, "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", HEIGHT + 40.0);
    for (index, flow) in summary.flows.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let point = |(slot, bytes): (usize, &u64)| {
            let x = slot as f64 / (longest - 1.0) * WIDTH;
            let y = HEIGHT * (1.0 - *bytes as f64 / summary.size.max(1) as f64);
            format!("{x:.1},{y:.1}")
        };
        let points: Vec<_> = flow.series.iter().enumerate().map(point).collect();
        let line = points.join(" ");
        let _ = write!(
            page,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{line}\"/>"
        );
        legend(page, index, colour, &flow.transport);
    }
    let _ = write!(
        page,
        "<path d=\"M0 0V{HEIGHT}H{WIDTH}\" fill=\"none\" stroke=\"#888\"/><text x=\"0\" y=\"{}\">0 s</text>\
         <text x=\"{WIDTH}\" y=\"{}\" text-anchor=\"end\">{:.1} s</text></svg>",
        HEIGHT + 16.0,
        HEIGHT + 16.0,
        (longest - 1.0) / 10.0
    );
}

fn legend(page: &mut String, index: usize, colour: &str, name: &str) {
    let x = 80.0 + 110.0 * index as f64;
    let y = HEIGHT + 32.0;
    let _ = write!(
        page,
        "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
        y - 10.0,
        x + 18.0
    );
}

fn delays(page: &mut String, summary: &Summary) {
    let worst = summary.flows.iter().map(|flow| flow.in_order_owd_ms.p99).fold(1.0, f64::max);
    let height = 34.0 * summary.flows.len() as f64;
    let _ = write!(page, "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (index, flow) in summary.flows.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let y = 34.0 * index as f64 + 17.0;
        let scale = |ms: f64| 80.0 + ms / worst * (WIDTH - 180.0);
        let (median, p99) = (flow.in_order_owd_ms.p50, flow.in_order_owd_ms.p99);
        let _ = write!(
            page,
            "<text x=\"0\" y=\"{}\">{}</text><rect x=\"80\" y=\"{}\" width=\"{:.1}\" height=\"16\" fill=\"{colour}\"/>\
             <path d=\"M{:.1} {y}H{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>\
             <text x=\"{:.1}\" y=\"{}\">{median:.0} … {p99:.0} ms</text>",
            y + 4.0,
            flow.transport,
            y - 8.0,
            scale(median) - 80.0,
            scale(median),
            scale(p99),
            scale(p99) + 6.0,
            y + 4.0
        );
    }
    page.push_str("</svg>");
}
