//! The main job on real input: one file over lossy hops, by Starhop's processes and by the kernel's TCPs.

mod delays;
pub mod gateway;
mod page;
mod starhop;
mod tcp;

pub use delays::Delays;

use crate::error::LabError;
use crate::process::make_file;
use serde::Serialize;
use starhop_net::emu::{self, Accuracy, Chain, Counters, Hop, Running, chain};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Options of the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of the file.
    pub size: u64,
    /// Every hop.
    pub hop: Hop,
    /// Number of hops.
    pub hops: usize,
    /// Longest time that a TCP may take.
    pub tcp_limit: Duration,
    /// Congestion controls to compare with.
    pub controls: Vec<String>,
    /// Seed of the losses.
    pub seed: u64,
    /// Starhop's packets are plain.
    pub insecure: bool,
    /// Directory of the results.
    pub results: PathBuf,
    /// The `starhop` binary.
    pub program: PathBuf,
}

/// The result of one transport.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FlowResult {
    /// Name of the transport.
    pub transport: String,
    /// The whole file arrived.
    pub completed: bool,
    /// The whole file arrived and its hash is right.
    pub verified: bool,
    /// Time until the file was complete, or until the transfer was given up.
    pub seconds: f64,
    /// Time to completion at the measured rate; equals `seconds` if the file was complete.
    pub extrapolated_seconds: f64,
    /// Bytes of the file that arrived in order.
    pub delivered_bytes: u64,
    /// 10^6 bit/s of them.
    pub goodput_mbps: f64,
    /// Goodput of a perfect transport on this path.
    pub ideal_mbps: f64,
    /// Delay from the first transmission to the delivery in order.
    pub in_order_owd_ms: Delays,
    /// Bytes of IP packets that left the source's host.
    pub source_bytes: u64,
    /// Bytes of IP packets that left the client's host.
    pub return_bytes: u64,
    /// Bytes delivered by each tenth of a second.
    pub series: Vec<u64>,
    /// Accuracy of the emulated links.
    pub accuracy: Accuracy,
}

/// The results of all transports.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Version of this document.
    pub version: u32,
    /// Its title.
    pub title: String,
    /// Real processes on emulated links.
    pub engine: &'static str,
    /// Seed of the losses.
    pub seed: u64,
    /// Bytes of the file.
    pub size: u64,
    /// Sum of the hops' delays.
    pub propagation_ms: f64,
    /// Results by transport.
    pub flows: Vec<FlowResult>,
}

/// Progress of one transport.
#[derive(Debug, Default)]
struct Live {
    /// Bytes of packets that reached the client.
    chain: Mutex<Option<Arc<Counters>>>,
    start: Mutex<Option<Instant>>,
    is_done: AtomicBool,
}

impl Live {
    fn begin(&self, chain: &Chain) {
        let last = chain.links().and_then(|links| links.counters().iter().rev().nth(1));
        let counters = last.map(|(_, counters)| counters.clone());
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        *self.start.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

/// Progress of one transport, for a live view.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Name of the transport.
    pub transport: String,
    /// About how many bytes reached the client's host.
    pub bytes: u64,
    /// Time since its beginning.
    pub elapsed: Duration,
    /// It has ended.
    pub is_done: bool,
}

type Run = JoinHandle<Result<FlowResult, LabError>>;

/// Carries the file over a chain.
type Work = Box<dyn FnOnce(Chain, &Live) -> Result<FlowResult, LabError> + Send>;

/// A demonstration at work.
pub struct Demo {
    options: Options,
    runs: Vec<(String, Arc<Live>, Run)>,
}

impl Demo {
    /// Makes the file and starts all transports, each on a chain of its own. The process must have
    /// [entered](emu::enter) namespaces.
    ///
    /// # Errors
    /// See [`LabError`].
    pub fn start(options: Options) -> Result<Self, LabError> {
        // The file, its copy on the client's side, and traces of 60 bytes per packet at both ends.
        let scratch = emu::scratch(options.size * 3 + (64 << 20))?;
        let file = scratch.join("demo.bin");
        make_file(&file, options.size, options.seed)
            .map_err(LabError::system(format!("cannot make a file of {} bytes", options.size)))?;
        let mut runs = Vec::new();
        let mut add = |name: String, work: Work| {
            let chain = chain(&vec![options.hop; options.hops], options.seed)?;
            let live = Arc::new(Live::default());
            let theirs = live.clone();
            let body = move || {
                let result = work(chain, &theirs);
                theirs.is_done.store(true, Ordering::Relaxed);
                result
            };
            let run = std::thread::Builder::new().name(name.clone()).spawn(body);
            runs.push((name, live, run.map_err(LabError::system("cannot start a thread"))?));
            Ok::<(), LabError>(())
        };
        let (ours, path) = (options.clone(), file.clone());
        add("starhop".to_owned(), Box::new(move |chain, live| starhop::run(&ours, chain, &path, live)))?;
        for control in &options.controls {
            let (theirs, path, control) = (options.clone(), file.clone(), control.clone());
            add(
                control.clone(),
                Box::new(move |chain, live| tcp::run(&theirs, chain, &path, &control, live)),
            )?;
        }
        Ok(Self { options, runs })
    }

    /// Progress of every transport.
    pub fn lines(&self) -> Vec<Line> {
        let line = |(transport, live, run): &(String, Arc<Live>, Run)| {
            let counters = live.chain.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let start = *live.start.lock().unwrap_or_else(PoisonError::into_inner);
            Line {
                transport: transport.clone(),
                bytes: counters.map_or(0, |counters| counters.bytes.load(Ordering::Relaxed)),
                elapsed: start.map_or(Duration::ZERO, |start| start.elapsed()),
                is_done: run.is_finished() || live.is_done.load(Ordering::Relaxed),
            }
        };
        self.runs.iter().map(line).collect()
    }

    /// Waits for the end, writes the results and says where they are.
    ///
    /// # Errors
    /// The error of the first run that failed.
    pub fn finish(self) -> Result<(Summary, PathBuf), LabError> {
        let mut flows = Vec::new();
        for (transport, _, run) in self.runs {
            flows.push(ended(run.join(), &transport)?);
        }
        let options = &self.options;
        let hop = options.hop;
        let summary = Summary {
            version: 1,
            title: format!(
                "{:.0} MB over {} hops of {} Mbit/s, {} ms, {} % loss in both directions",
                options.size as f64 / 1e6,
                options.hops,
                hop.rate.as_mbps(),
                hop.delay.as_millis_f64(),
                hop.loss * 100.0
            ),
            engine: "emulate",
            seed: options.seed,
            size: options.size,
            propagation_ms: hop.delay.as_millis_f64() * options.hops as f64,
            flows,
        };
        let page = write_results(&summary, &page::html(&summary), &options.results)?;
        Ok((summary, page))
    }
}

/// Keeps a summary as a document for scripts, and its page for people; the page's path.
fn write_results(summary: &impl Serialize, page: &str, directory: &Path) -> Result<PathBuf, LabError> {
    let write = || -> io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("result.json"), serde_json::to_vec_pretty(summary)?)?;
        let path = directory.join("report.html");
        std::fs::write(&path, page)?;
        Ok(path)
    };
    write().map_err(LabError::system(format!("cannot write results into `{}`", directory.display())))
}

/// The result of a thread that carried `transport`.
fn ended<T>(joined: std::thread::Result<Result<T, LabError>>, transport: &str) -> Result<T, LabError> {
    joined.map_err(|_| LabError::Process {
        what: transport.to_owned(),
        problem: "its thread panicked".to_owned(),
    })?
}

/// Payload per full packet of 1500 bytes or less, times the share that is not lost.
fn ideal_mbps(hop: Hop, payload: f64, packet: f64) -> f64 {
    hop.rate.as_mbps() * (1.0 - hop.loss) * payload / packet
}

/// Ends the links and reads their counters.
fn read_links(chain: &mut Chain) -> Result<(u64, u64, Accuracy), LabError> {
    let links = chain.take_links().ok_or_else(|| io::Error::other("they ended before"));
    let report = links.and_then(Running::stop).map_err(LabError::system("the links failed"))?;
    let offered = |index: Option<usize>| {
        index.and_then(|index| report.links.get(index)).map_or(0, |link| link.offered_bytes)
    };
    // Hop by hop from the server, each forward and back.
    Ok((offered(Some(0)), offered(report.links.len().checked_sub(1)), report.accuracy))
}
