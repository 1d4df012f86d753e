//! A page that shows the result without any other file.

use super::{Cell, Row, Summary};
use std::fmt::Write;

pub(super) fn html(summary: &Summary) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Starhop gateways</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:860px;margin:2em auto;padding:0 1em;color:#222}\
         table{border-collapse:collapse;width:100%}td,th{padding:.3em .6em;text-align:right;\
         border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}\
         .yes{color:#0b6e4f}.no{color:#c1121f}</style>",
    );
    // Writing to a String cannot fail.
    let _ = write!(
        page,
        "<h1>Starhop gateways</h1><p>{}. Real processes and this kernel's TCP; emulated links. GEO: 20 and 5 Mbit/s, \
         270 ms each way, a queue of 930 packets. LEO: 100 and 20 Mbit/s, 25 ms, 420 packets.</p>",
        summary.title
    );
    let mut part = "";
    for row in &summary.rows {
        if row.part != part {
            page.push_str(if part.is_empty() { "" } else { "</table>" });
            part = &row.part;
            head(&mut page, row);
        }
        line(&mut page, row);
    }
    page.push_str(
        "</table><p>≈: time was up; extrapolated at the rate seen. Times count from before the connection is asked for. \
         Every byte was compared. The machine-readable result stands beside this page in result.json.</p></html>",
    );
    page
}

fn head(page: &mut String, row: &Row) {
    let _ = write!(page, "<h2>{}</h2><table><tr><th>", row.part);
    for cell in &row.cells {
        let _ = write!(page, "<th>{}", cell.transport);
    }
    page.push_str("<th>goal</tr>");
}

fn line(page: &mut String, row: &Row) {
    let _ = write!(page, "<tr><td>{}", row.measure);
    for cell in &row.cells {
        let _ = write!(page, "<td>{}", text(cell));
    }
    let class = if row.is_reached().unwrap_or(false) { "yes" } else { "no" };
    let _ = write!(page, "<td class=\"{class}\">{}</tr>", goal(row));
}

fn text(cell: &Cell) -> String {
    let about = if cell.is_whole { "" } else { "≈ " };
    cell.value.map_or_else(|| "–".to_owned(), |value| format!("{about}{value:.3}"))
}

fn goal(row: &Row) -> String {
    match (row.goal.is_finite(), row.is_rate) {
        (false, _) => "–".to_owned(),
        (true, true) => format!("≥ {}", row.goal),
        (true, false) => format!("≤ {}", row.goal),
    }
}
