//! `starhop get`: fetches files.

use super::mechanisms::Mechanisms;
use super::sealing::{SealArgs, warn_insecure};
use super::{address, fix_rate, limit_rate, say};
use crate::progress::Amount;
use crate::quantity;
use anyhow::{Context, bail};
use futures_util::StreamExt;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;
use starhop_net::content::ContentName;
use starhop_net::fetch::{self, Client, Cost, FetchError, Job, Outcome, Output, Progress, Source};
use starhop_net::index::Offer;
use starhop_net::{daemon, index};
use starhop_proto::units::Rate;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const AFTER_HELP: &str = "\
Example:
  starhop get films/holiday.mkv --from 192.0.2.1:4433 --key domain.key
  starhop get 'films/*.mkv' notes/ --from 192.0.2.1:4433 --key domain.key -o here
  starhop get b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262 --from relay:4433 --key domain.key -o empty

While it runs the bytes are in FILE.starhop-part; the same command resumes from there. Of several files the first failure
is the exit code, and the others are fetched nevertheless.

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

/// Fetch files, resume them where they were begun, verify each, and only then give it its name.
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
    /// Files that are fetched side by side, over one hop: on a long path each waits for its own round trips
    #[arg(long, default_value = "8", value_name = "COUNT")]
    at_once: NonZeroUsize,
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

/// A file to fetch.
#[derive(Clone)]
struct Item {
    job: Job,
    /// Its place on the command line.
    number: usize,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.seal.insecure {
        warn_insecure();
    }
    let is_one = args.names.len() == 1 && !index::is_pattern(&args.names[0]);
    if !is_one && args.output.as_ref().is_some_and(|output| output.as_os_str() == "-") {
        bail!("several files cannot go to standard output: name one, or a directory with -o DIR");
    }
    let items = if is_one {
        let name = parse(&args.names[0])?;
        let path = args.output.clone().unwrap_or_else(|| name.file_name().into());
        item(args, 0, name, path)?.into_iter().collect()
    } else {
        match expand(args)? {
            Ok(names) => items(args, &names)?,
            Err(error) => {
                eprintln!("starhop: {error}");
                return Ok(ExitCode::from(error.exit_code()));
            }
        }
    };
    let runtime = daemon::runtime()?;
    runtime.block_on(get(args, items))
}

/// The files of several names, each once.
fn items(args: &Args, names: &[String]) -> anyhow::Result<Vec<Item>> {
    let mut seen = BTreeSet::new();
    let mut items = Vec::new();
    for name in names.iter().filter(|name| seen.insert(name.as_str())) {
        let parsed = parse(name)?;
        let below = if name.starts_with("b3:") { parsed.file_name().into() } else { PathBuf::from(name) };
        let path = args.output.as_ref().map_or(below.clone(), |directory| directory.join(&below));
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|_| !args.discard) {
            let made = std::fs::create_dir_all(directory);
            made.with_context(|| format!("cannot make the directory `{}`", directory.display()))?;
        }
        items.extend(item(args, items.len(), parsed, path)?);
    }
    Ok(items)
}

/// A file to fetch; none where one is there and is to stay.
fn item(args: &Args, number: usize, name: ContentName, path: PathBuf) -> anyhow::Result<Option<Item>> {
    if args.no_clobber && path.symlink_metadata().is_ok() {
        eprintln!("starhop: `{}` is there, and stays as it is", path.display());
        return Ok(None);
    }
    let output = match (args.discard, path.as_os_str() == "-") {
        (true, _) => Output::Discard,
        (_, true) => Output::Standard,
        _ => Output::File { path, force: args.force },
    };
    if args.json && output == Output::Standard {
        bail!("the file goes to standard output, and so would the result of --json: leave one of them out");
    }
    Ok(Some(Item { job: job(args, name, output), number }))
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
    let offers = match offers(args)? {
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

/// The list of the first source that has one and answers.
fn offers(args: &Args) -> anyhow::Result<Result<Vec<Offer>, FetchError>> {
    let job = job(args, ContentName::Path("the list of files".to_owned()), Output::Discard);
    let runtime = daemon::runtime()?;
    for (n, source) in sources(args)?.iter().enumerate() {
        let listed = runtime.block_on(fetch::with(source, async |client| client.list(&job).await));
        match listed.and_then(|listed| listed) {
            Err(error) if goes_on(&error) && n + 1 < args.from.len() => tell_next(&error),
            done => return Ok(done),
        }
    }
    bail!("no source is given")
}

/// True if the next source may have what this one did not give.
fn goes_on(error: &FetchError) -> bool {
    matches!(error, FetchError::NoSuchName { .. } | FetchError::Silent { .. })
}

fn tell_next(error: &FetchError) {
    eprintln!("starhop: {error}; the next source is asked");
}

fn sources(args: &Args) -> anyhow::Result<Vec<Source>> {
    let config = args.mechanisms.config(|settings| {
        fix_rate(settings, args.link_rate);
        limit_rate(settings, args.limit_rate);
    })?;
    let security = args.seal.sources()?;
    let source = |address: &SocketAddr| Source {
        address: *address,
        config: config.clone(),
        security: security.clone(),
    };
    Ok(args.from.iter().map(source).collect())
}

fn job(args: &Args, name: ContentName, output: Output) -> Job {
    Job {
        name,
        bypass: args.bypass.clone(),
        output,
        timeout: args.timeout,
        least_rate: args.min_rate,
        trace: args.trace.clone(),
    }
}

/// Fetches files from the first source, and from each next one what those before did not give. The exit code is that of the first
/// file that could not be fetched.
async fn get(args: &Args, mut items: Vec<Item>) -> anyhow::Result<ExitCode> {
    let sources = sources(args)?;
    let display = Display::new(args.json || args.quiet, items.len());
    let mut failures: Vec<(usize, u8)> = Vec::new();
    for (n, source) in sources.iter().enumerate() {
        let batch = Batch { args, display: &display, is_last: n + 1 == sources.len() };
        let asked = std::mem::take(&mut items);
        let work = async |client: &Client| batch.fetch(client, &asked, &mut failures).await;
        items = match fetch::with(source, work).await {
            Ok(left) => left?,
            Err(error) => {
                eprintln!("starhop: {error}");
                asked.iter().for_each(|item| tell_failure(args, &item.job.name, &error, Cost::default()));
                return Ok(ExitCode::from(error.exit_code()));
            }
        };
        if failures.iter().any(|(_, code)| *code == INTERRUPTED) {
            break;
        }
    }
    display.amount.bar().finish_and_clear();
    let interrupted = failures.iter().find(|(_, code)| *code == INTERRUPTED);
    let first = interrupted.or_else(|| failures.iter().min()).map_or(0, |(_, code)| *code);
    Ok(ExitCode::from(first))
}

/// Files that are asked of one source, some of them at once.
struct Batch<'a> {
    args: &'a Args,
    display: &'a Display,
    /// No other source is left.
    is_last: bool,
}

/// A file after it was its turn: what became of it, or nothing where it was not asked for.
type Turn<'a> = (&'a Item, Option<(Result<Outcome, FetchError>, Cost)>);

impl Batch<'_> {
    /// Fetches files, and returns those to ask the next source for.
    async fn fetch(
        &self,
        client: &Client,
        items: &[Item],
        failures: &mut Vec<(usize, u8)>,
    ) -> anyhow::Result<Vec<Item>> {
        let is_silent = Cell::new(false);
        let fetching = items.iter().map(|item| self.fetch_one(client, item, &is_silent));
        let mut turns = futures_util::stream::iter(fetching).buffer_unordered(self.args.at_once.get());
        let mut left = Vec::new();
        while let Some((item, ended)) = turns.next().await {
            match ended {
                None => {
                    left.extend(is_silent.get().then(|| item.clone()));
                    continue;
                }
                Some((Ok(outcome), _)) => self.display.aside(|| report(self.args, &outcome))?,
                Some((Err(error), _)) if goes_on(&error) && !self.is_last => {
                    is_silent.set(is_silent.get() | matches!(error, FetchError::Silent { .. }));
                    self.display.aside(|| tell_next(&error));
                    left.push(item.clone());
                    continue;
                }
                Some((Err(error), cost)) => {
                    self.display.aside(|| complain(self.args, &item.job.name, &error, cost));
                    failures.push((item.number, error.exit_code()));
                }
            }
            self.display.ended();
        }
        Ok(left)
    }

    /// Fetches one file. It is not asked for once a signal has ended the work, or where the source did not answer for another and
    /// the next one may.
    async fn fetch_one<'i>(&self, client: &Client, item: &'i Item, is_silent: &Cell<bool>) -> Turn<'i> {
        if client.is_interrupted() || is_silent.get() {
            return (item, None);
        }
        let (mut cost, mut told_at) = (Cost::default(), Instant::now());
        let fetching = client.fetch(&item.job, |progress| {
            cost = progress.cost;
            self.display.show(item.number, progress);
            if self.args.tell_every.is_some_and(|every| told_at.elapsed() >= every) {
                told_at = Instant::now();
                let (name, bytes, total) = (item.job.name.to_string(), progress.bytes, progress.total);
                let told = json!({"event": "progress", "name": name, "bytes": bytes, "total": total});
                say(&told.to_string());
            }
        });
        let result = fetching.await;
        (item, Some((result, cost)))
    }
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
    tell_failure(args, name, error, cost);
}

/// The failure of a file, for a script.
fn tell_failure(args: &Args, name: &ContentName, error: &FetchError, cost: Cost) {
    if args.json {
        let name = name.to_string();
        let (error, code) = (error.to_string(), error.exit_code());
        say(&json!({"name": name, "error": error, "exit_code": code, "cost": cost}).to_string());
    }
}

/// A bar on a terminal, nothing elsewhere: the bytes of one file, or the number of several.
struct Display {
    amount: Amount,
    /// Bytes of each of several files; empty for one.
    files: RefCell<Vec<u64>>,
    /// Files that have ended.
    done: Cell<u64>,
}

impl Display {
    fn new(is_quiet: bool, files: usize) -> Self {
        // Hidden by itself where standard error is no terminal.
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let with_total = match files {
            0 | 1 => "{msg:9} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} ETA {eta}",
            _ => "{bar:30} {pos}/{len} files, {msg}, ETA {eta}",
        };
        let amount = Amount::new(bar, "{spinner} {msg:9} {bytes} {bytes_per_sec}", with_total);
        amount.bar().set_message("asking");
        let files = RefCell::new(if files > 1 { vec![0; files] } else { Vec::new() });
        Self { amount, files, done: Cell::new(0) }
    }

    fn show(&self, number: usize, progress: Progress) {
        let mut files = self.files.borrow_mut();
        if let Some(bytes) = files.get_mut(number) {
            *bytes = progress.bytes;
            self.amount.bar().set_message(HumanBytes(files.iter().sum()).to_string());
            return;
        }
        if progress.bytes > 0 {
            self.amount.bar().set_message(if progress.is_verifying { "verifying" } else { "fetching" });
        }
        self.amount.show(progress.bytes, progress.total);
    }

    /// One of the files has ended.
    fn ended(&self) {
        self.done.set(self.done.get() + 1);
        let files = self.files.borrow().len() as u64;
        if files > 0 {
            self.amount.show(self.done.get(), Some(files));
        }
    }

    /// Says something beside the bar.
    fn aside<T>(&self, say: impl FnOnce() -> T) -> T {
        self.amount.bar().suspend(say)
    }
}
