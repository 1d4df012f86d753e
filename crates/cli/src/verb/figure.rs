//! `starhop figure`: runs the papers' figures and prints the outcomes of their claims.

use crate::progress::Bar;
use anyhow::{Context, anyhow, bail};
use starhop_lab::emulate;
use starhop_lab::figure::results::{self, Build};
use starhop_lab::figure::spec::Engine;
use starhop_lab::figure::{Finished, Library, Planned, finish, index, page, plan};
use starhop_lab::result::RunResult;
use starhop_lab::scenario::Scenario;
use starhop_lab::sweep::{Kind, Options, Progress, Store, run_all};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  starhop figure --list
  starhop figure leotp-fig12
  starhop figure all --out figures-out
  starhop figure leotp-fig4 leotp-fig5 --seeds 10 --threads 4
  starhop figure all --long --results docs/RESULTS.md --resume
  starhop figure --copy mine && starhop figure mine/figures/leotp-fig12.toml

A figure is a file: what is run, what varies, what is plotted, what is claimed. Each run leaves data.csv, plots as
SVG, verdicts.json and index.html in OUT/ID. What was run is kept there: a figure that was cut off goes on where it was.

Exit codes: 0 it ran, and with --check every goal of ours is met; 1 a run failed, a goal is missed (--check) or a file
cannot be written; 2 bad usage or a bad figure.";

/// Run figures of the papers: data, plots, and a verdict on every claim
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Ids, or files of your own; `all` is every figure that takes seconds to minutes
    #[arg(value_name = "ID|FILE|all", required_unless_present_any = ["list", "copy", "results"])]
    figures: Vec<String>,
    /// Say which figures there are
    #[arg(long)]
    list: bool,
    /// Write the figures and their scenarios into this directory, to change them
    #[arg(long, value_name = "DIR")]
    copy: Option<PathBuf>,
    /// Directory of data, plots and verdicts
    #[arg(long, value_name = "DIR", default_value = "figures-out")]
    out: PathBuf,
    /// Repetitions, in place of the figure's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Simulations at the same time; by default one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,
    /// With `all`: also the figures that take hours
    #[arg(long)]
    long: bool,
    /// Write the verdicts into this document after every figure; figures that were not run keep their verdicts
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// With --results: leave out figures that the document has from this very build
    #[arg(long, requires = "results")]
    resume: bool,
    /// Fail where a goal of ours is missed
    #[arg(long)]
    check: bool,
    /// Write the verdicts to the standard output as JSON, in place of text
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &args.copy {
        copy(folder)?;
    }
    if args.list {
        list()?;
    }
    if args.figures.is_empty() {
        record(args, &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut planned = match planned(args) {
        Ok(planned) => planned,
        Err(problem) => {
            eprintln!("starhop: {problem}");
            return Ok(ExitCode::from(2));
        }
    };
    let is_real = |figure: &Planned| figure.engines.contains(&Engine::Emulate);
    if planned.iter().any(is_real) {
        // Before any thread is started: a process with threads cannot enter a user namespace.
        starhop_net::emu::enter()?;
    }
    if let Some(file) = args.results.as_deref().filter(|_| args.resume) {
        let document = recorded(file)?;
        planned.retain(|figure| !build().has_measured(&document, &figure.id, &figure.figure));
    }
    let several = planned.len() > 1;
    let mut finished = Vec::new();
    for figure in planned {
        finished.push(one(args, figure)?);
        record(args, &finished)?;
    }
    if several {
        write(&args.out.join("index.html"), &page(&finished, "Figures"))?;
    }
    report(args, &finished)
}

fn build() -> Build {
    Build::of_commit(env!("STARHOP_COMMIT"))
}

fn recorded(file: &Path) -> anyhow::Result<String> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Puts the finished figures into the document of results; its other figures stay.
fn record(args: &Args, finished: &[Finished]) -> anyhow::Result<()> {
    let Some(file) = &args.results else { return Ok(()) };
    // A run that went wrong is no result.
    let whole: Vec<&Finished> = finished.iter().filter(|figure| figure.problems().next().is_none()).collect();
    let document = results::document(&recorded(file)?, &whole, &build()).map_err(|e| anyhow!(e))?;
    write(file, &document)
}

fn planned(args: &Args) -> Result<Vec<Planned>, String> {
    let mut all = Vec::new();
    for name in &args.figures {
        let is_file = name.ends_with(".toml");
        let known = |name: &str| Library::ids().any(|id| id == name);
        if name == "all" {
            for id in Library::ids() {
                let figure = built_in(id, args)?;
                if args.long || !figure.figure.is_long {
                    all.push(figure);
                }
            }
        } else if is_file {
            all.push(plan(Library::Disk, Path::new(name), args.seeds)?);
        } else if known(name) {
            all.push(built_in(name, args)?);
        } else {
            return Err(format!("there is no figure {name}; `starhop figure --list` names them all"));
        }
    }
    Ok(all)
}

fn built_in(id: &str, args: &Args) -> Result<Planned, String> {
    plan(Library::BuiltIn, Path::new(&format!("figures/{id}.toml")), args.seeds)
}

fn one(args: &Args, figure: Planned) -> anyhow::Result<Finished> {
    let folder = args.out.join(&figure.id);
    let no_series = !figure.figure.needs_series();
    let store = Store::open(&folder.join("runs")).map_err(|e| anyhow!(e))?;
    let options = Options { threads: args.threads, store: Some(store.clone()), no_series };
    let bar = Bar::new(&figure.id, args.quiet);
    let of = |engine: Engine| {
        let pairs = figure.scenarios.iter().zip(&figure.engines).filter(move |(_, its)| **its == engine);
        pairs.map(|(scenario, _)| scenario.clone()).collect::<Vec<Scenario>>()
    };
    let simulated = run_all(&of(Engine::Sim), &options, &|progress| bar.show(progress));
    let mut simulated = simulated.map_err(|e| anyhow!(e))?.into_iter();
    let mut emulated = emulate_all(&of(Engine::Emulate), &store, &bar)?.into_iter();
    let results: Vec<RunResult> = (figure.engines.iter())
        .filter_map(|engine| match engine {
            Engine::Sim => simulated.next(),
            Engine::Emulate => emulated.next(),
        })
        .collect();
    bar.finish();
    let finished = finish(figure, &results).map_err(|e| anyhow!(e))?;
    save(&folder, &finished)?;
    Ok(finished)
}

/// Runs scenarios with real processes, which must not compete with each other.
fn emulate_all(scenarios: &[Scenario], store: &Store, bar: &Bar) -> anyhow::Result<Vec<RunResult>> {
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let options = emulate::Options::new(program);
    let total = scenarios.len();
    let mut results = Vec::new();
    for scenario in scenarios {
        let done = results.len();
        if let Some(kept) = store.kept(Kind::Emulated, scenario) {
            results.push(kept);
            continue;
        }
        let result = emulate::emulate(scenario, &options, |now| {
            let part = now.at.as_secs_f64() / now.of.as_secs_f64();
            bar.show(Progress { done, total, share: (done as f64 + part) / total as f64 });
            true
        })?;
        store.keep(Kind::Emulated, scenario, &result).map_err(|e| anyhow!(e))?;
        results.push(result);
    }
    Ok(results)
}

fn save(folder: &Path, figure: &Finished) -> anyhow::Result<()> {
    for (number, panel) in figure.panels.iter().enumerate() {
        let name = match panel.name.as_str() {
            "" if number == 0 => String::new(),
            "" => format!("-{}", number + 1),
            name => format!("-{name}"),
        };
        write(&folder.join(format!("data{name}.csv")), &panel.csv)?;
        for (number, plot) in panel.plots.iter().enumerate() {
            write(&folder.join(format!("plot{name}-{}.svg", number + 1)), &plot.to_file())?;
        }
    }
    let verdicts: Vec<_> = figure.verdicts().collect();
    write(&folder.join("verdicts.json"), &serde_json::to_string_pretty(&verdicts)?)?;
    write(&folder.join("index.html"), &page(std::slice::from_ref(figure), &figure.id))
}

fn report(args: &Args, finished: &[Finished]) -> anyhow::Result<ExitCode> {
    if args.json {
        let of = |figure: &Finished| serde_json::json!({"id": figure.id, "verdicts": figure.verdicts().collect::<Vec<_>>()});
        super::print(&format!("{}\n", serde_json::to_string(&finished.iter().map(of).collect::<Vec<_>>())?))?;
    } else {
        super::print(&index(finished))?;
        super::print(&format!("plots and data: {}\n", args.out.display()))?;
    }
    let mut problems = finished.iter().flat_map(Finished::problems).peekable();
    if problems.peek().is_some() {
        bail!("runs failed: {}", problems.cloned().collect::<Vec<_>>().join("; "));
    }
    let is_missed = finished
        .iter()
        .flat_map(Finished::verdicts)
        .any(|verdict| verdict.by == starhop_lab::figure::spec::By::Ours && !verdict.holds);
    Ok(if args.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn list() -> anyhow::Result<()> {
    for id in Library::ids() {
        let figure = plan(Library::BuiltIn, Path::new(&format!("figures/{id}.toml")), None);
        let figure = figure.map_err(|e| anyhow!(e))?.figure;
        let long = if figure.is_long { " (long)" } else { "" };
        super::print(&format!("{id:<20} {}{long} · {}\n", figure.title, figure.source))?;
    }
    Ok(())
}

fn copy(folder: &Path) -> anyhow::Result<()> {
    for (name, text) in Library::files() {
        let file = folder.join(name);
        if file.exists() {
            bail!("{} is there already; nothing that you have is written over", file.display());
        }
        write(&file, text)?;
    }
    super::print(&format!("{}\n", folder.display()))
}

fn write(file: &Path, contents: &str) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, contents))
        .with_context(|| format!("cannot write {}", file.display()))
}
