//! `starhop sweep`: a scenario with some fields varied, every combination with several seeds.

use crate::progress::Bar;
use anyhow::{Context, anyhow};
use starhop_lab::run::load;
use starhop_lab::scenario::Scenario;
use starhop_lab::sweep::{Options, Store, SweepAxis, combinations, csv, repeated, rows, run_all, text};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop sweep scenarios/five-lossy-hops.toml --set topology.link.loss=0,0.1%,1% --seeds 10
  starhop sweep scenarios/five-lossy-hops.toml --set topology.link.loss=0,1% \\
      --set flow.a.transport=cubic,bbr,starhop --set flow.a.options={} --csv sweep.csv --report sweep.html
  starhop sweep scenarios/five-lossy-hops.toml --set topology.hops=1,2,5,10 --json - -q

Values are separated by commas outside of brackets and quotes; every combination of the --set is run. Numbers are means
over the seeds with their 95 % intervals, and do not depend on the number of threads.

Exit codes: 0 fine; 1 a run failed or a file cannot be written; 2 bad usage or a bad scenario.";

/// Run a scenario with every combination of some values, several times each
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The scenario, a TOML file
    file: PathBuf,
    /// A field and its values; may be given several times
    #[arg(long = "set", value_name = "PATH=VALUE,VALUE,…", required = true)]
    axes: Vec<SweepAxis>,
    /// Repetitions of every combination, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: u64,
    /// Simulations at the same time; by default one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// Write the table as CSV here
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the table as JSON here; - is the standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report of the first repetition of every combination here
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Keep finished runs in this directory, so that a sweep that is cut off goes on where it was
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// No progress and no table
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let combinations = combinations(&args.axes);
    let mut scenarios: Vec<Scenario> = Vec::new();
    for changes in &combinations {
        match load(&args.file, changes) {
            Ok(scenario) => scenarios.extend(repeated(&[scenario], args.seeds)),
            Err(error) => {
                eprintln!("starhop: {error}");
                return Ok(ExitCode::from(2));
            }
        }
    }
    let bar = Bar::new("sweep", args.quiet);
    let store = args.store.as_deref().map(Store::open).transpose().map_err(|problem| anyhow!(problem))?;
    let options = Options { threads: args.threads, store, no_series: args.report.is_none() };
    let results =
        run_all(&scenarios, &options, &|progress| bar.show(progress)).map_err(|problem| anyhow!(problem))?;
    bar.finish();
    let axes: Vec<String> = args.axes.iter().map(SweepAxis::name).collect();
    let rows = rows(&combinations, &results, args.seeds as usize);
    if let Some(file) = &args.csv {
        write(file, &csv(&axes, &rows)?)?;
    }
    if let Some(file) = &args.report {
        let mut firsts: Vec<_> = results.iter().step_by(args.seeds as usize).cloned().collect();
        for (run, changes) in firsts.iter_mut().zip(&combinations) {
            run.title = changes.iter().map(|c| c.value.as_str()).collect::<Vec<_>>().join(" · ");
        }
        write(file, &starhop_lab::report::page(&firsts))?;
    }
    let is_stdout = args.json.as_deref() == Some(Path::new("-"));
    if let Some(file) = &args.json {
        let json = format!("{}\n", serde_json::json!({"axes": axes, "seeds": args.seeds, "rows": rows}));
        if is_stdout { super::print(&json)? } else { write(file, &json)? }
    }
    if !args.quiet && !is_stdout {
        super::print(&text(&axes, &rows))?;
    }
    let problems: Vec<&String> = results.iter().flat_map(|run| &run.problems).collect();
    problems.iter().for_each(|problem| eprintln!("starhop: a run failed: {problem}"));
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(file: &Path, contents: &str) -> anyhow::Result<()> {
    std::fs::write(file, contents).with_context(|| format!("cannot write {}", file.display()))
}
