//! `starhop orbit export` and `starhop orbit globe`: the sky for other programs and for eyes.

use super::sky::{SkyArgs, SpanArgs, keep_stations, schedule, show, write};
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde_json::json;
use starhop_orbit::network::Network;
use starhop_orbit::route::{Router, Steps};
use starhop_orbit::{czml, globe, hypatia};
use std::fs;
use std::path::{Path, PathBuf};

/// Write changes as CSV, a scene as CZML, or a Hypatia directory
#[derive(clap::Args)]
#[command(
    after_help = "csv: links up and down, delays and routes of the pairs, timed to 10 ms. czml: for Cesium.
hypatia: a directory with the static files and one forwarding state for each step, for all stations named.

Examples:
  starhop orbit export csv Beijing \"New York\" --for 600s --out changes.csv
  starhop orbit export czml Paris Tokyo --out scene.czml
  starhop orbit export hypatia Beijing Paris Lima --step 1s --for 60s --out state/"
)]
pub(super) struct Args {
    /// The format to write
    #[arg(value_enum)]
    format: Format,
    /// Stations; for csv and czml two for each pair
    #[arg(required = true, num_args = 2.., value_name = "STATION")]
    names: Vec<String>,
    /// File to write, or for hypatia the directory
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    #[command(flatten)]
    sky: SkyArgs,
    #[command(flatten)]
    span: SpanArgs,
    /// Print a JSON summary of the written file
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    Csv,
    Czml,
    Hypatia,
}

/// Write a page with a turning globe, the satellites, a path and its changes
#[derive(clap::Args)]
#[command(after_help = "The page is one file that needs no network. Open it in any browser.

Examples:
  starhop orbit globe Beijing \"New York\" --out globe.html
  starhop orbit globe Paris Tokyo Lima Cairo --shell kuiper --for 30min --out globe.html")]
pub(super) struct GlobeArgs {
    /// Stations, two for each pair
    #[arg(required = true, num_args = 2.., value_name = "STATION")]
    names: Vec<String>,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "globe.html")]
    out: PathBuf,
    #[command(flatten)]
    sky: SkyArgs,
    #[command(flatten)]
    span: SpanArgs,
    /// Print a JSON summary of the written files
    #[arg(long)]
    json: bool,
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

pub(super) fn run(args: &Args) -> Result<()> {
    let written = match args.format {
        Format::Hypatia => write_hypatia(args)?,
        Format::Csv | Format::Czml => {
            let (network, schedule) = schedule(&args.sky, &args.span, &refs(&args.names))?;
            let text = match args.format {
                Format::Csv => schedule.to_csv(&network),
                _ => czml::export(&network, &schedule, false)?,
            };
            write(&args.out, &text)?;
            1
        }
    };
    report(&args.out, written, args.json)
}

pub(super) fn run_globe(args: &GlobeArgs) -> Result<()> {
    let (network, schedule) = schedule(&args.sky, &args.span, &refs(&args.names))?;
    write(&args.out, &globe::page(&network, &schedule)?)?;
    report(&args.out, 1, args.json)
}

fn report(out: &Path, files: u64, as_json: bool) -> Result<()> {
    let plural = if files == 1 { "" } else { "s" };
    show(&match as_json {
        true => format!("{}\n", json!({"out": out, "files": files})),
        false => format!("wrote {} ({files} file{plural})\n", out.display()),
    })
}

fn write_hypatia(args: &Args) -> Result<u64> {
    let mut network = args.sky.network()?;
    keep_stations(&mut network, &refs(&args.names), false)?;
    ensure!(args.span.step > 0.0, "--step is 0; give a time such as 1s");
    let states = format!("dynamic_state_{}ms_for_{}s", args.span.step * 1e3, args.span.span);
    let states = args.out.join(states);
    fs::create_dir_all(&states).with_context(|| format!("cannot create {}", states.display()))?;
    let mut files = 0;
    for (name, text) in hypatia::export_static(&network)? {
        write(&args.out.join(name), &text)?;
        files += 1;
    }
    files += write_states(args, &network, &states)?;
    Ok(files)
}

fn write_states(args: &Args, network: &Network, dir: &Path) -> Result<u64> {
    let (mut observer, mut router) = (network.observe(), Router::all_pairs(network, args.sky.relaying()));
    let mut forwarding = hypatia::Forwarding::new(network);
    let steps = Steps { from_s: args.span.start, ..Steps::until(args.span.span, args.span.step) };
    for index in 0..steps.count {
        let snapshot = observer.at(steps.time_s(index))?;
        router.advance(snapshot);
        let (name, text) = forwarding.state(snapshot, &router);
        write(&dir.join(name), &text)?;
    }
    Ok(steps.count)
}
