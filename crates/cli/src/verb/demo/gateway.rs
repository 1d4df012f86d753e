//! `starhop demo gateway`: users' TCP through two gateways, beside the kernel's TCP from end to end.

use crate::quantity;
use crate::verb::say;
use anyhow::Context;
use starhop_lab::demo::gateway::{self, Cell, Options, Row, Summary};
use starhop_net::emu;
use std::path::PathBuf;
use std::process::ExitCode;

/// Users' TCP through two gateways over GEO and LEO links, beside the kernel's TCP end to end; needs root and nftables
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Losses of the satellite link, each way, separated by commas
    #[arg(long, default_value = "0%,0.1%,1%", value_delimiter = ',', value_parser = quantity::share)]
    loss: Vec<f64>,
    /// Only parts whose name holds one of these words: GEO, LEO, handover, cold, veth
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Congestion controls to compare with, separated by commas
    #[arg(long, default_value = "cubic,bbr", value_delimiter = ',')]
    tcp: Vec<String>,
    /// Tell the gateways the rates of the link
    #[arg(long)]
    known_rate: bool,
    /// Seed of the losses
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// Directory for the results
    #[arg(long, default_value = "results/gateway", value_name = "DIR")]
    results: PathBuf,
    /// Print the result document instead of a table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program itself")?;
    // Before any thread is started: a process with threads cannot enter a user namespace.
    emu::enter()?;
    let options = Options {
        losses: args.loss.clone(),
        only: args.only.clone(),
        controls: args.tcp.clone(),
        is_rate_known: args.known_rate,
        seed: args.seed,
        results: args.results.clone(),
        program,
    };
    let tell = |part: &str| {
        if !args.json {
            say(&format!("{part} ..."));
        }
    };
    let (summary, page) = gateway::run(&options, &tell)?;
    if args.json {
        say(&serde_json::to_string(&summary)?);
    } else {
        table(&summary);
        say(&format!("report: {}", page.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(summary: &Summary) {
    let mut part = "";
    for row in &summary.rows {
        if row.part != part {
            part = &row.part;
            let names: String = row.cells.iter().map(|cell| format!("{:>11}", cell.transport)).collect();
            say(&format!("\n{part:38}{names}       goal"));
        }
        say(&line(row));
    }
    say("\n≈: time was up; extrapolated at the rate seen. Every byte was compared.");
}

fn line(row: &Row) -> String {
    let cells: String = row.cells.iter().map(text).collect();
    let goal = match (row.goal.is_finite(), row.is_rate) {
        (false, _) => String::new(),
        (true, true) => format!(">= {}", row.goal),
        (true, false) => format!("<= {}", row.goal),
    };
    let verdict = match row.is_reached() {
        Some(false) => "missed",
        _ => "",
    };
    format!("  {:36}{cells} {goal:>10} {verdict}", row.measure)
}

fn text(cell: &Cell) -> String {
    let about = if cell.is_whole { "" } else { "≈ " };
    cell.value.map_or_else(|| format!("{:>11}", "-"), |value| format!("{:>11}", format!("{about}{value:.3}")))
}
