//! The picture of a running emulation: flows on top, links below by use, nodes at the bottom.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Gauge, Paragraph, Row, Table, Wrap};
use starhop_lab::emulate::{FlowNow, LinkNow, NodeNow, Snapshot};
use std::cmp::Ordering;

/// Nodes get this many lines at most.
const NODE_LINES: u16 = 6;

/// Draws everything; `at` seconds of `of` have passed.
pub(super) fn draw(frame: &mut Frame<'_>, title: &str, (at, of): (f64, f64), now: &Snapshot) {
    let flows = now.flows.len() as u16 + 2;
    let nodes = (now.nodes.len() as u16).div_ceil(6).clamp(1, NODE_LINES) + 1;
    let rows = [
        Constraint::Length(1),
        Constraint::Length(flows),
        Constraint::Min(4),
        Constraint::Length(nodes),
        Constraint::Length(1),
    ];
    let [head, flows, links, nodes, foot] = Layout::vertical(rows).areas(frame.area());
    let gauge = Gauge::default().gauge_style(Style::new().fg(Color::Blue));
    let share = if of > 0.0 { (at / of).clamp(0.0, 1.0) } else { 0.0 };
    frame.render_widget(gauge.ratio(share).label(format!("{title}: {at:.1} of {of:.1} s")), head);
    frame.render_widget(flow_table(&now.flows), flows);
    frame.render_widget(link_table(&now.links, links), links);
    frame.render_widget(node_list(&now.nodes), nodes);
    frame.render_widget(Line::from("q ends the run").dim(), foot);
}

fn table<'a>(rows: Vec<Row<'a>>, names: [&'a str; 7]) -> Table<'a> {
    let widths = [
        Constraint::Min(18),
        Constraint::Length(12),
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(12),
        Constraint::Length(11),
        Constraint::Length(11),
    ];
    Table::new(rows, widths).header(Row::new(names).bold().underlined())
}

fn flow_table(flows: &[FlowNow]) -> Table<'static> {
    let row = |flow: &FlowNow| {
        let share = flow.size.map(|size| format!("{:.0} %", flow.bytes as f64 * 100.0 / size.max(1) as f64));
        let row = Row::new([
            flow.name.clone(),
            flow.transport.clone(),
            flow.state.to_owned(),
            format!("{:.2}", flow.mbps),
            flow.delay_ms.map_or_else(|| "no way".to_owned(), |delay| format!("{delay:.1}")),
            format!("{:.1} MB", flow.bytes as f64 * 1e-6),
            share.unwrap_or_default(),
        ]);
        if flow.delay_ms.is_none() { row.fg(Color::Red) } else { row }
    };
    let names = ["flow", "transport", "state", "Mbit/s", "delay ms", "received", "of it"];
    table(flows.iter().map(row).collect(), names)
}

fn link_table(links: &[LinkNow], area: Rect) -> Table<'static> {
    let mut sorted: Vec<&LinkNow> = links.iter().collect();
    // As many links as there is room for: first those that are down, then the busiest.
    let busy = |a: &LinkNow, b: &LinkNow| b.used.partial_cmp(&a.used).unwrap_or(Ordering::Equal);
    let has_all = links.len() + 1 < usize::from(area.height);
    if !has_all {
        sorted.sort_by(|a, b| a.is_up.cmp(&b.is_up).then_with(|| busy(a, b)));
    }
    let row = |link: &&LinkNow| {
        let sent = link.packets.max(1) as f64;
        let row = Row::new([
            link.name.clone(),
            if link.is_up { String::new() } else { "down".to_owned() },
            format!("{:.2}", link.mbps),
            format!("{:.0} %", link.used * 100.0),
            format!("{:.1}", link.queue_ms),
            format!("{:.2} %", link.lost as f64 * 100.0 / sent),
            link.dropped.to_string(),
        ]);
        match () {
            () if !link.is_up => row.fg(Color::Red),
            () if link.used > 0.9 => row.fg(Color::Yellow),
            () => row,
        }
    };
    table(sorted.iter().map(row).collect(), ["link", "", "Mbit/s", "used", "queue ms", "lost", "dropped"])
}

fn node_list(nodes: &[NodeNow]) -> Paragraph<'static> {
    let node = |node: &NodeNow| {
        let text = format!("{} ({}{})  ", node.name, node.role, if node.is_up { "" } else { ", off" });
        let is_well = node.is_up && !node.role.contains("dead");
        if is_well { text.into() } else { text.fg(Color::Red) }
    };
    let line = Line::from(nodes.iter().map(node).collect::<Vec<_>>());
    Paragraph::new(vec![Line::from("nodes").bold().underlined(), line]).wrap(Wrap { trim: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn picture(links: usize, height: u16) -> String {
        let link = |index: usize| LinkNow {
            name: format!("n{index}-n{}", index + 1),
            is_up: index != 3,
            mbps: index as f64,
            used: index as f64 / links as f64,
            queue_ms: 0.5,
            lost: 1,
            dropped: 0,
            packets: 100,
        };
        let flow = FlowNow {
            name: "movie".to_owned(),
            transport: "starhop".to_owned(),
            bytes: 5_000_000,
            size: Some(10_000_000),
            mbps: 19.125,
            delay_ms: Some(61.0),
            state: "running",
        };
        let node = |name: &str, role: &str| NodeNow { name: name.into(), role: role.into(), is_up: true };
        let now = Snapshot {
            flows: vec![flow],
            links: (0..links).map(link).collect(),
            nodes: vec![node("server", "server"), node("r1", "relay, dead")],
        };
        let mut terminal = Terminal::new(TestBackend::new(100, height)).unwrap();
        terminal.draw(|frame| draw(frame, "Five lossy hops", (3.0, 60.0), &now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn flows_links_and_nodes_are_on_it() {
        let picture = picture(6, 24);
        for word in
            ["Five lossy hops", "movie", "19.12", "61.0", "50 %", "n5-n6", "1.00 %", "r1 (relay, dead)"]
        {
            assert!(picture.contains(word), "{word} is missing in\n{picture}");
        }
    }

    #[test]
    fn of_too_many_links_the_broken_and_the_busy_ones_are_shown() {
        let picture = picture(200, 24);
        assert!(picture.contains("n3-n4") && picture.contains("n199-n200"), "{picture}");
        assert!(!picture.contains("n10-n11"), "{picture}");
    }
}
