//! `starhop orbit`: the sky on the command line.

mod export;
mod import;
mod path;
mod sky;

use clap::Subcommand;
use std::process::ExitCode;

/// Constellations: paths between stations, exports, imports, a globe.
#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0; 1 it could not be done; 2 the command line is wrong.")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Path(path::Args),
    Export(export::Args),
    Import(import::Args),
    Globe(export::GlobeArgs),
    Shells(sky::ShellsArgs),
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.task {
        Task::Path(args) => path::run(args)?,
        Task::Export(args) => export::run(args)?,
        Task::Import(args) => import::run(args)?,
        Task::Globe(args) => export::run_globe(args)?,
        Task::Shells(args) => sky::run_shells(args)?,
    }
    Ok(ExitCode::SUCCESS)
}
