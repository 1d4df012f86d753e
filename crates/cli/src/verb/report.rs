//! `starhop report`: one page from several result documents.

use anyhow::Context;
use starhop_lab::result::RunResult;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop sim scenarios/five-lossy-hops.toml --json ours.json
  starhop sim scenarios/five-lossy-hops.toml --set flow.a.transport=leotp --json leotp.json
  starhop report ours.json leotp.json -o compared.html

Exit codes: 0 fine; 1 a file cannot be read or written; 2 bad usage.";

/// Make one report from result documents, to compare runs
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Result documents, as `starhop sim --json` writes them
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The page to write; it needs no network
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    output: PathBuf,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let results: Vec<RunResult> = args.results.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    std::fs::write(&args.output, starhop_lab::report::page(&results))
        .with_context(|| format!("cannot write {}", args.output.display()))?;
    println!("{}", args.output.display());
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> anyhow::Result<RunResult> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no result document", file.display()))
}
