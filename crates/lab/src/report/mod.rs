//! Reports: one self-contained HTML page from one or more result documents.

mod curve;
mod figures;
pub mod plot;
mod traces;

use crate::result::{FlowResult, LinkResult, RelayResult, RunResult};
use crate::text::how_true;
pub(crate) use curve::over_time;
use plot::escape;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The page. Needs no network; light or dark as its reader likes.
pub fn page(results: &[RunResult]) -> String {
    let mut titles: Vec<&str> = results.iter().map(|result| result.title.as_str()).collect();
    titles.dedup();
    let name = titles.join(" · ");
    let title = escape(&name);
    let mut html = format!("<h1>{title}</h1>");
    let mut introductions: Vec<String> = results.iter().map(introduction).collect();
    introductions.dedup();
    html += &introductions.concat();
    if let [run] = results
        && let [flow] = run.flows.as_slice()
    {
        html += &facts(flow);
    }
    html += "<h2>Flows</h2>";
    html += &flows(results);
    let plots: String = figures::figures(results).iter().map(plot::Plot::to_html).collect();
    let _ = write!(html, "<h2>Plots</h2><div class=\"plots\">{plots}</div>");
    results.iter().for_each(|run| html += &network(run, results.len() > 1));
    document(&name, &html)
}

/// A page around its contents. Needs no network; light or dark as its reader likes.
pub(crate) fn document(title: &str, contents: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>{contents}</main></body></html>\n"
    )
}

fn introduction(run: &RunResult) -> String {
    let engine = if run.engine == "sim" { "simulated" } else { "emulated" };
    let mut html = format!(
        "<p>{:.1} s {engine}, the first {:.1} s left out of rates and delays; seed {}.</p>",
        run.duration_s, run.warmup_s, run.seed
    );
    for problem in &run.problems {
        let _ = write!(html, "<p class=\"bad\">This run failed: {}</p>", escape(problem));
    }
    if let Some(accuracy) = &run.accuracy {
        let class = if accuracy.is_good { "" } else { " class=\"bad\"" };
        let _ = write!(html, "<p{class}>{}</p>", escape(how_true(run, accuracy).trim()));
    }
    html
}

fn facts(flow: &FlowResult) -> String {
    let mut facts = vec![
        (
            format!("{:.2} Mbit/s", flow.goodput_mbps),
            format!("goodput, {:.1} % of the ideal", flow.efficiency * 100.0),
        ),
        (format!("{:.1} ms", flow.in_order_owd_ms.mean), "in-order delay, mean".to_owned()),
        (format!("{:.1} ms", flow.in_order_owd_ms.p99), "in-order delay, 99th percentile".to_owned()),
        (format!("{:.1} ms", flow.queueing_ms.mean), "above propagation and serialisation".to_owned()),
        (format!("{:.1} ms", flow.recovery_ms.mean), "to recover a loss, mean".to_owned()),
    ];
    if let Some(seconds) = flow.completion_s {
        facts.insert(0, (format!("{seconds:.3} s"), "to the last byte".to_owned()));
    }
    let cards: String =
        facts.iter().map(|(value, name)| format!("<div><b>{value}</b><span>{name}</span></div>")).collect();
    format!("<div class=\"facts\">{cards}</div>")
}

fn flows(results: &[RunResult]) -> String {
    let head = [
        "flow",
        "transport",
        "done, s",
        "goodput, Mbit/s",
        "of ideal",
        "delay, ms",
        "p99",
        "in order, ms",
        "p99",
        "queueing, ms",
        "recovery, ms",
        "jitter, ms",
        "source, MB",
        "return, kB",
        "repairs",
        "timeouts",
    ];
    let rows = results.iter().flat_map(|run| &run.flows).map(flow_row).collect::<Vec<_>>();
    let mut html = table(&head, &rows);
    for run in results.iter().filter(|run| run.flows.len() > 1) {
        let _ = write!(html, "<p>Jain's index of {}: {:.4}</p>", escape(&run.title), run.jain);
    }
    html
}

fn flow_row(flow: &FlowResult) -> Vec<String> {
    vec![
        flow.name.clone(),
        flow.transport.clone(),
        flow.completion_s.map_or_else(|| "–".to_owned(), |s| format!("{s:.3}")),
        format!("{:.3}", flow.goodput_mbps),
        format!("{:.2} %", flow.efficiency * 100.0),
        format!("{:.2}", flow.owd_ms.mean),
        format!("{:.1}", flow.owd_ms.p99),
        format!("{:.2}", flow.in_order_owd_ms.mean),
        format!("{:.1}", flow.in_order_owd_ms.p99),
        format!("{:.2}", flow.queueing_ms.mean),
        format!("{:.1}", flow.recovery_ms.mean),
        format!("{:.2}", flow.jitter_ms.mean),
        format!("{:.3}", flow.source_bytes as f64 / 1e6),
        format!("{:.1}", flow.return_bytes as f64 / 1e3),
        flow.repairs.to_string(),
        flow.timeouts.to_string(),
    ]
}

/// Longer tables are in the document only.
const MOST_ROWS: usize = 60;

fn network(run: &RunResult, has_title: bool) -> String {
    let title = if has_title { format!(" · {}", escape(&run.title)) } else { String::new() };
    let links: Vec<_> = run.links.iter().filter(|l| l.packets > 0).take(MOST_ROWS).map(link_row).collect();
    let relays: Vec<_> =
        run.relays.iter().filter(|r| r.interests_in > 0).take(MOST_ROWS).map(relay_row).collect();
    let mut html = String::new();
    if !links.is_empty() {
        let head = ["link", "direction", "packets", "MB", "lost", "dropped", "queue, ms", "used"];
        let _ = write!(html, "<h2>Links{title}</h2>{}", table(&head, &links));
    }
    if !relays.is_empty() {
        let head =
            ["relay", "Interests in", "out", "from cache, kB", "in cache, kB", "aggregated, kB", "repairs"];
        let _ = write!(html, "<h2>Relays{title}</h2>{}", table(&head, &relays));
    }
    let rate = run.link_packets as f64 / run.wall_s.max(1e-9) / 1e6;
    let _ = write!(
        html,
        "<footer>{} events and {} link-packets in {:.3} s, {rate:.2} million link-packets per second; peak memory \
         {:.1} MB; trace {}.</footer>",
        run.events,
        run.link_packets,
        run.wall_s,
        run.peak_rss_bytes as f64 / 1e6,
        escape(&run.trace_hash),
    );
    html
}

fn link_row(link: &LinkResult) -> Vec<String> {
    vec![
        link.name.clone(),
        link.direction.clone(),
        link.packets.to_string(),
        format!("{:.2}", link.bytes as f64 / 1e6),
        link.lost.to_string(),
        link.dropped.to_string(),
        format!("{:.2}", link.mean_queue_ms),
        format!("{:.1} %", link.utilisation * 100.0),
    ]
}

fn relay_row(relay: &RelayResult) -> Vec<String> {
    let kilo = |bytes: u64| format!("{:.1}", bytes as f64 / 1e3);
    vec![
        relay.name.clone(),
        relay.interests_in.to_string(),
        relay.interests_out.to_string(),
        kilo(relay.cache_hits),
        kilo(relay.cache_bytes),
        kilo(relay.aggregated),
        relay.repairs.to_string(),
    ]
}

pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: String = head.iter().map(|name| format!("<th>{name}</th>")).collect();
    let row = |row: &Vec<String>| {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        format!("<tr>{cells}</tr>")
    };
    let rows: String = rows.iter().map(row).collect();
    format!("<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::simulate;
    use crate::scenario::Scenario;

    const TEXT: &str = r#"
title = "A <test> & more"
duration = "1s"
[topology]
kind = "chain"
hops = 1
[topology.link]
rate = "1Mbit"
delay = "1ms"
[[flow]]
name = "a"
transport = "cbr"
options = { rate = "500kbit" }
"#;

    #[test]
    fn a_page_needs_nothing_but_itself_and_survives_a_document_on_disk() {
        let Ok(scenario) = Scenario::parse(TEXT, &|_| Err(String::new())) else { panic!("{TEXT}") };
        let run = simulate(&scenario, |_| ());
        let again = serde_json::to_string(&run).and_then(|json| serde_json::from_str::<RunResult>(&json));
        let Ok(again) = again else { panic!("{again:?}") };
        let html = page(&[run.clone(), again.clone()]);
        assert!(html.contains("A &lt;test&gt; &amp; more") && !html.contains("<test>"));
        assert!(!html.contains("http://") && !html.contains("https://") && !html.contains("src="));
        assert_eq!(page(&[run]), page(&[again]));
    }
}
