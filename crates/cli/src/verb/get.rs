//! `starhop get`: fetches one file.

use super::mechanisms::Mechanisms;
use super::sealing::{SealArgs, warn_insecure};
use super::{address, fix_rate, limit_rate, say};
use crate::progress::Amount;
use crate::quantity;
use anyhow::{Context, bail};
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;
use starhop_net::content::ContentName;
use starhop_net::fetch::{self, Cost, FetchError, Job, Outcome, Output, Progress};
use starhop_net::{daemon, index};
use starhop_proto::units::Rate;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
Example:
  starhop get films/holiday.mkv --from 192.0.2.1:4433 --key domain.key
  starhop get 'films/*.mkv' notes/ --from 192.0.2.1:4433 --key domain.key -o here
  starhop get b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 --from relay:4433 --key domain.key -o empty

While it runs the bytes are in FILE.starhop-part; the same command resumes from there.

Exit codes:
  0    the file is here, whole and verified
  1    the transfer failed for another reason
  2    the command line is wrong
  3    the source has no such name
  4    the source was silent for too long
  5    the bytes are not what the name promised; they were removed
  6    the disk refused: full, not permitted, a directory, a file that is there already
  7    the file changed at its source while it was fetched
  130  interrupted; the partial file is kept";

/// Fetch one file, resume it where it was begun, verify it, and only then give it its name.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Paths below the served directory, or `b3:` and the BLAKE3 hash of a file; `dir/` is all below a directory,
    /// and `*` and `?` stand for parts of names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The server, or the relay next to this host; given several times, the next one if one lacks the name or is
    /// silent
    #[arg(long, value_parser = address, value_name = "ADDR", required = true)]
    from: Vec<SocketAddr>,
    /// The next source if wrong bytes come from there; may be given several times
    #[arg(long, value_parser = address, value_name = "ADDR")]
    bypass: Vec<SocketAddr>,
    /// The file to write, the last part of the name unless given; of several files the directory. `-` is standard output. Devices and pipes are written
    /// through to, in order, and verified first where the source can prove parts
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace a file that is there and holds something else
    #[arg(long)]
    force: bool,
    /// Leave a file that is there as it is, and call that success
    #[arg(long, conflicts_with = "force")]
    no_clobber: bool,
    /// Throw the bytes away, unverified: for measurements
    #[arg(long, conflicts_with = "output")]
    discard: bool,
    /// Longest silence of the source
    #[arg(long, default_value = "30s", value_parser = quantity::time, value_name = "TIME")]
    timeout: Duration,
    /// A source that sends less than this, over the time of --timeout, counts as silent
    #[arg(long, default_value = "1kbit", value_parser = quantity::rate, value_name = "RATE")]
    min_rate: Rate,
    /// Print one JSON object with the result of each file instead of progress
    #[arg(long)]
    json: bool,
    /// No progress, and no line about success
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    seal: SealArgs,
    #[command(flatten)]
    mechanisms: Mechanisms,
    /// The rate of the link towards the source, if it is known; otherwise it is measured
    #[arg(long, value_parser = quantity::rate, value_name = "RATE")]
    link_rate: Option<Rate>,
    /// The highest rate from the source, on the wire, even if its link carries more
    #[arg(long, value_parser = quantity::rate, value_name = "RATE")]
    limit_rate: Option<Rate>,
    /// With --json: also print how far it is, as JSON lines, this often
    #[arg(long, value_parser = quantity::period, value_name = "TIME", requires = "json")]
    tell_every: Option<Duration>,
    /// Write when which bytes arrived to this file
    #[arg(long, value_name = "FILE", hide = true)]
    trace: Option<PathBuf>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.seal.insecure {
        warn_insecure();
    }
    let is_one = args.names.len() == 1 && !index::is_pattern(&args.names[0]);
    if is_one {
        let name = parse(&args.names[0])?;
        let path = args.output.clone().unwrap_or_else(|| name.file_name().into());
        return get(args, name, path);
    }
    if args.output.as_ref().is_some_and(|output| output.as_os_str() == "-") {
        bail!("several files cannot go to standard output: name one, or a directory with -o DIR");
    }
    let names = match expand(args)? {
        Ok(names) => names,
        Err(error) => {
            eprintln!("starhop: {error}");
            return Ok(ExitCode::from(error.exit_code()));
        }
    };
    // The first failure is the exit code; the others are fetched nevertheless.
    let mut code = ExitCode::SUCCESS;
    for name in names {
        let parsed = parse(&name)?;
        let below = if name.starts_with("b3:") { parsed.file_name().into() } else { PathBuf::from(&name) };
        let path = args.output.as_ref().map_or(below.clone(), |directory| directory.join(&below));
        if let Some(directory) =
            path.parent().filter(|directory| !args.discard && !directory.as_os_str().is_empty())
        {
            let made = std::fs::create_dir_all(directory);
            made.with_context(|| format!("cannot make the directory `{}`", directory.display()))?;
        }
        let ended = get(args, parsed, path)?;
        if ended == ExitCode::from(INTERRUPTED) {
            return Ok(ended);
        }
        code = if code == ExitCode::SUCCESS { ended } else { code };
    }
    Ok(code)
}

/// 128 + SIGINT, as shells count.
const INTERRUPTED: u8 = 130;

/// A name as the user wrote it; a wrong one is a fault of the command line.
fn parse(name: &str) -> Result<ContentName, clap::Error> {
    ContentName::parse(name)
        .map_err(|error| clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{error}\n")))
}

/// The names of the command line, with patterns replaced by the matching names in the list of the first source that
/// has one.
fn expand(args: &Args) -> anyhow::Result<Result<Vec<String>, FetchError>> {
    if !args.names.iter().any(|name| index::is_pattern(name)) {
        return Ok(Ok(args.names.clone()));
    }
    let job = job(args, ContentName::Path("the list of files".to_owned()), Output::Discard)?;
    let offers = match first_of(args, |from| {
        Ok(daemon::runtime()?.block_on(fetch::list(&Job { from, ..job.clone() })))
    })? {
        Ok(offers) => offers,
        Err(error) => return Ok(Err(error)),
    };
    let mut names = Vec::new();
    for wanted in &args.names {
        let before = names.len();
        match index::is_pattern(wanted) {
            false => names.push(wanted.clone()),
            true => names.extend(
                offers.iter().map(|offer| offer.name.clone()).filter(|name| index::matches(wanted, name)),
            ),
        }
        if names.len() == before {
            return Ok(Err(FetchError::NoSuchName { name: wanted.clone(), from: args.from[0] }));
        }
    }
    Ok(Ok(names))
}

/// Asks one source after the other, until one has the name and answers.
fn first_of<T>(
    args: &Args,
    mut ask: impl FnMut(SocketAddr) -> anyhow::Result<Result<T, FetchError>>,
) -> anyhow::Result<Result<T, FetchError>> {
    let (last, others) = args.from.split_last().context("no source is given")?;
    for &from in others {
        match ask(from)? {
            Err(error @ (FetchError::NoSuchName { .. } | FetchError::Silent { .. })) => {
                eprintln!("starhop: {error}; the next source is asked");
            }
            done => return Ok(done),
        }
    }
    ask(*last)
}

fn job(args: &Args, name: ContentName, output: Output) -> anyhow::Result<Job> {
    Ok(Job {
        name,
        from: args.from[0],
        bypass: args.bypass.clone(),
        output,
        timeout: args.timeout,
        least_rate: args.min_rate,
        config: args.mechanisms.config(|settings| {
            fix_rate(settings, args.link_rate);
            limit_rate(settings, args.limit_rate);
        })?,
        trace: args.trace.clone(),
        security: args.seal.sources()?,
    })
}

/// Fetches one file.
fn get(args: &Args, name: ContentName, path: PathBuf) -> anyhow::Result<ExitCode> {
    if args.no_clobber && path.symlink_metadata().is_ok() {
        eprintln!("starhop: `{}` is there, and stays as it is", path.display());
        return Ok(ExitCode::SUCCESS);
    }
    let output = match (args.discard, path.as_os_str() == "-") {
        (true, _) => Output::Discard,
        (_, true) => Output::Standard,
        _ => Output::File { path, force: args.force },
    };
    if args.json && output == Output::Standard {
        bail!("the file goes to standard output, and so would the result of --json: leave one of them out");
    }
    let job = job(args, name, output)?;
    let display = Display::new(args.json || args.quiet);
    let mut cost = Cost::default();
    let mut told_at = Instant::now();
    let result = first_of(args, |from| {
        let job = Job { from, ..job.clone() };
        let fetching = fetch::fetch(&job, |progress| {
            cost = progress.cost;
            display.show(progress);
            if args.tell_every.is_some_and(|every| told_at.elapsed() >= every) {
                told_at = Instant::now();
                let (bytes, total) = (progress.bytes, progress.total);
                say(&json!({"event": "progress", "bytes": bytes, "total": total}).to_string());
            }
        });
        Ok(daemon::runtime()?.block_on(fetching))
    })?;
    display.0.bar().finish_and_clear();
    Ok(match result {
        Ok(outcome) => {
            report(args, &outcome)?;
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(args, &job.name, &error, cost);
            ExitCode::from(error.exit_code())
        }
    })
}

fn report(args: &Args, outcome: &Outcome) -> anyhow::Result<()> {
    if args.json {
        say(&serde_json::to_string(outcome)?);
        return Ok(());
    }
    for culprit in &outcome.culprits {
        eprintln!(
            "starhop: {} groups of 16 KiB from {} were wrong, the first at byte {}; they were fetched elsewhere",
            culprit.groups, culprit.address, culprit.first_offset
        );
    }
    let place = outcome.path.as_ref().map_or("nowhere".into(), |path| path.display().to_string());
    let resumed = match outcome.resumed_from {
        0 => String::new(),
        bytes => format!(", {} of them from before", HumanBytes(bytes)),
    };
    let line = format!(
        "{place}: {}{resumed} in {:.2} s, {:.2} Mbit/s, {}",
        HumanBytes(outcome.bytes),
        outcome.seconds,
        outcome.goodput_mbps,
        if outcome.verified { "verified" } else { "not verified" }
    );
    if args.quiet {
        return Ok(());
    }
    // Standard output may be where the file went.
    if args.output.as_ref().is_some_and(|output| output.as_os_str() == "-") {
        eprintln!("starhop: {line}");
    } else {
        say(&line);
    }
    Ok(())
}

fn complain(args: &Args, name: &ContentName, error: &FetchError, cost: Cost) {
    eprintln!("starhop: {error}");
    if args.json {
        let name = name.to_string();
        let (error, code) = (error.to_string(), error.exit_code());
        say(&json!({"name": name, "error": error, "exit_code": code, "cost": cost}).to_string());
    }
}

/// A bar on a terminal, nothing elsewhere.
struct Display(Amount);

impl Display {
    fn new(json: bool) -> Self {
        // Hidden by itself where standard error is no terminal.
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let with_total = "{msg:9} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}";
        let amount = Amount::new(bar, "{spinner} {msg:9} {bytes} {bytes_per_sec}", with_total);
        amount.bar().set_message("asking");
        Self(amount)
    }

    fn show(&self, progress: Progress) {
        if progress.bytes > 0 {
            self.0.bar().set_message(if progress.is_verifying { "verifying" } else { "fetching" });
        }
        self.0.show(progress.bytes, progress.total);
    }
}
