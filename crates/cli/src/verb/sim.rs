//! `starhop sim`: runs a scenario in virtual time.

use anyhow::Context;
use starhop_lab::result::RunResult;
use starhop_lab::run::{load, simulate};
use starhop_lab::scenario::{Change, Scenario};
use starhop_lab::text;
use starhop_proto::time::Duration;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop sim scenarios/five-lossy-hops.toml
  starhop sim scenarios/five-lossy-hops.toml --set flow.a.transport=leotp --set topology.link.loss=0.5%
  starhop sim scenarios/dumbbell.toml --json result.json --series series --report report.html
  starhop sim scenarios/small-object.toml --seed 7 --json - -q

Exit codes: 0 fine; 1 the run failed (wrong bytes arrived, for one) or its results cannot be written;
2 bad usage or a bad scenario. docs/guide/scenarios.md describes the file.";

/// Run a scenario in virtual time and print the results
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    /// Run nothing; print the throughput, share against queue, of a sender that knows the links' capacity this time
    /// late
    #[arg(long, value_name = "LAG", value_parser = crate::quantity::time)]
    lagged_bound: Option<std::time::Duration>,
}

/// The scenario to run, and the outputs of its results: the same for `sim` and `emulate`.
#[derive(clap::Args)]
pub(crate) struct What {
    /// The scenario, a TOML file
    file: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
    /// Use this seed in place of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Change a field of the scenario; may be given several times
    #[arg(long = "set", value_name = "PATH=VALUE")]
    changes: Vec<Change>,
}

impl What {
    /// The scenario to run. On a fault it prints the fault and returns the exit code of the program.
    pub(super) fn load(&self) -> Result<Scenario, ExitCode> {
        let scenario = load(&self.file, &self.changes).map_err(|error| {
            eprintln!("starhop: {error}");
            ExitCode::from(2)
        })?;
        Ok(Scenario { seed: self.seed.unwrap_or(scenario.seed), ..scenario })
    }
}

/// The outputs of the results.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Write the result document here; - is the standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the time series into this directory, one CSV file per flow and one for the links
    #[arg(long, value_name = "DIR")]
    series: Option<PathBuf>,
    /// Write a report with plots here, one HTML file that needs no network
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// No progress and no table
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let scenario = match args.what.load() {
        Ok(scenario) => scenario,
        Err(code) => return Ok(code),
    };
    if let Some(lag) = args.lagged_bound {
        super::print(&starhop_lab::bound::table(&scenario, Duration::from_secs_f64(lag.as_secs_f64())))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut progress =
        Progress { is_shown: !args.what.output.quiet && std::io::stderr().is_terminal(), percent: 0 };
    let result = simulate(&scenario, |share| progress.show(share));
    progress.clear();
    args.what.output.write(&result)?;
    Ok(say_problems(&result))
}

/// Prints the problems of a run, and returns the exit code that follows.
pub(super) fn say_problems(result: &RunResult) -> ExitCode {
    for problem in &result.problems {
        eprintln!("starhop: the run failed: {problem}");
    }
    if result.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

impl Output {
    /// Writes and prints the outputs that the user asked for.
    pub(super) fn write(&self, result: &RunResult) -> anyhow::Result<()> {
        let is_stdout = self.json.as_deref() == Some(Path::new("-"));
        if let Some(file) = &self.json {
            let json = serde_json::to_string(result)?;
            if is_stdout { super::print(&format!("{json}\n"))? } else { write(file, &json)? }
        }
        if let Some(folder) = &self.series {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            for (name, csv) in text::series_csv(result) {
                write(&folder.join(name), &csv)?;
            }
        }
        if let Some(file) = &self.report {
            write(file, &starhop_lab::report::page(std::slice::from_ref(result)))?;
        }
        if self.quiet || is_stdout { Ok(()) } else { super::print(&text::table(result)) }
    }
}

fn write(file: &Path, contents: &str) -> anyhow::Result<()> {
    std::fs::write(file, contents).with_context(|| format!("cannot write {}", file.display()))
}

struct Progress {
    is_shown: bool,
    percent: u32,
}

impl Progress {
    fn show(&mut self, share: f64) {
        let percent = (share * 100.0) as u32;
        if self.is_shown && percent > self.percent {
            self.percent = percent;
            eprint!("\r{percent:3} % of virtual time");
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r{:25}\r", "");
        }
    }
}
