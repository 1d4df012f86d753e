//! `starhop orbit import`: reads other programs' files.

use super::sky::{read, read_hypatia, seconds, show, write};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::{Value, json};
use starhop_orbit::mahimahi::Trace;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Read a Hypatia directory or a mahimahi trace, check it, and print its contents
#[derive(clap::Args)]
#[command(
    after_help = "A Hypatia directory that reads well can be used by every other command with --hypatia DIR.
A mahimahi trace becomes a table of rates: --out writes it as CSV (at_s,rate_bit_s).

Examples:
  starhop orbit import hypatia state/ --json
  starhop orbit import mahimahi starlink.down --window 100ms --out rates.csv"
)]
pub(super) struct Args {
    /// The format to read
    #[arg(value_enum)]
    format: Format,
    /// The directory or the file
    path: PathBuf,
    /// mahimahi: rates are averaged over this
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = seconds)]
    window: f64,
    /// mahimahi: write the rates as CSV
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Hypatia,
    Mahimahi,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let summary = match args.format {
        Format::Hypatia => {
            ensure!(
                args.out.is_none(),
                "--out is for mahimahi traces; use `starhop orbit export --hypatia DIR`"
            );
            hypatia(args)?
        }
        Format::Mahimahi => mahimahi(args)?,
    };
    let mut text = String::new();
    if args.json {
        writeln!(text, "{summary}")?;
    } else {
        for (key, value) in summary.as_object().into_iter().flatten() {
            writeln!(
                text,
                "{:<18} {}",
                key,
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            )?;
        }
    }
    show(&text)
}

fn hypatia(args: &Args) -> Result<Value> {
    let network = read_hypatia(&args.path)?;
    network.observe().at(0.0).with_context(|| args.path.display().to_string())?;
    Ok(json!({
        "epoch": network.sky.epoch.to_string(), "satellites": network.satellite_count(),
        "isls": network.sky.isls.len(), "stations": network.stations.len(),
        "max_gsl_length_m": network.ground_rule.max_range_m, "max_isl_length_m": network.isl_rule.max_length_m,
    }))
}

fn mahimahi(args: &Args) -> Result<Value> {
    let window_ms = (args.window * 1e3).round() as u64;
    ensure!(window_ms > 0, "--window is below 1 ms; mahimahi counts in whole milliseconds");
    let trace = Trace::parse(&read(&args.path)?).with_context(|| args.path.display().to_string())?;
    let windows = trace.windows(window_ms);
    if let Some(out) = &args.out {
        let mut text = "at_s,rate_bit_s\n".to_owned();
        for (at, rate) in &windows {
            writeln!(text, "{at:.3},{rate:.0}")?;
        }
        write(out, &text)?;
    }
    let rates = || windows.iter().map(|w| w.1);
    Ok(json!({
        "length_s": trace.length_s(), "mean_mbit_s": trace.mean_bit_s() / 1e6, "windows": windows.len(),
        "min_mbit_s": rates().fold(f64::INFINITY, f64::min) / 1e6, "max_mbit_s": rates().fold(0.0, f64::max) / 1e6,
    }))
}
