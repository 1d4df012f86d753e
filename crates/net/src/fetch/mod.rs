//! Downloads one object into a file: resumes what was begun, verifies the whole, and only then gives it its name.

mod error;
mod groups;
mod in_order;
mod memory;
mod route;
mod sink;
mod state;
mod target;
mod writer;

pub use error::FetchError;
pub use in_order::Waits;
pub use route::Culprit;
pub use target::is_partial;

use crate::clock;
use crate::content::{ContentName, MAX_MANIFEST, Manifest, manifest_flow};
use crate::daemon::Signals;
use crate::driver::{Driver, DriverStats};
use crate::endpoint::Endpoint;
use crate::outboard::{MAX_OUTBOARD, Outboard, outboard_flow, outboard_len};
use crate::security::{HopSuite, Security, Sources};
use groups::GroupSink;
use memory::MemorySink;
use route::Route;
use serde::Serialize;
use sink::FileSink;
use starhop_proto::config::Config;
use starhop_proto::consumer::{Consumer, ConsumerEvent, ConsumerStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use target::Target;
use tokio::time::MissedTickBehavior;

/// How often progress is told, unfinished chunks go to the disk and silence is looked for.
const TICK: Duration = Duration::from_millis(100);

/// What to fetch, and where to.
#[derive(Clone, Debug)]
pub struct Job {
    /// The object.
    pub name: ContentName,
    /// The neighbour to ask.
    pub from: SocketAddr,
    /// Whom to ask instead when wrong bytes come from there, in turn.
    pub bypass: Vec<SocketAddr>,
    /// The file to write; `None` throws the bytes away, unverified, for measurements.
    pub output: Option<PathBuf>,
    /// How long the source may be silent.
    pub timeout: Duration,
    /// The protocol's configuration.
    pub config: Config,
    /// What packets are sealed with.
    pub security: Sources,
    /// Where to note when which bytes arrived.
    pub trace: Option<PathBuf>,
}

/// How far a download is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that are here, those of an earlier attempt included.
    pub bytes: u64,
    /// Bytes in all, once known.
    pub total: Option<u64>,
    /// All bytes are here and are being verified.
    pub is_verifying: bool,
    /// What it cost so far.
    pub cost: Cost,
}

/// What a download cost, finished or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cost {
    /// Ranges asked for again on the last hop.
    pub repairs: u64,
    /// End-to-end timeouts.
    pub timeouts: u64,
    /// Bytes of datagrams sent towards the source.
    pub return_bytes: u64,
    /// Datagrams sent towards the source.
    pub return_packets: u64,
}

/// What came of a download.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The name asked for.
    pub name: String,
    /// Bytes of the object.
    pub bytes: u64,
    /// From the start to the last byte.
    pub seconds: f64,
    /// Bytes received now, in 10^6 bit/s over `seconds`.
    pub goodput_mbps: f64,
    /// How long bytes that had arrived waited for earlier ones.
    pub in_order_wait_ms: Waits,
    /// Ranges asked for again on the last hop.
    pub repairs: u64,
    /// End-to-end timeouts.
    pub timeouts: u64,
    /// Bytes received more than once.
    pub duplicate_bytes: u64,
    /// Bytes of datagrams sent towards the source.
    pub return_bytes: u64,
    /// Bytes of datagrams received.
    pub forward_bytes: u64,
    /// Bytes that an earlier attempt had left.
    pub resumed_from: u64,
    /// Each group of 16 KiB was verified before it was written.
    pub verified_on_arrival: bool,
    /// From whom wrong bytes came, which were fetched elsewhere then.
    pub culprits: Vec<Culprit>,
    /// The bytes are what the name promised.
    pub verified: bool,
    /// The BLAKE3 hash.
    pub blake3: String,
    /// The file.
    pub path: Option<PathBuf>,
    /// What protected the packets.
    pub security: Security,
    /// User and system time of the process.
    pub cpu_seconds: f64,
    /// Of the socket that fetched the object.
    pub socket: DriverStats,
}

impl Cost {
    fn of<S: Sink>(driver: &Driver<Consumer<S, HopSuite>>) -> Self {
        let (consumer, socket) = (driver.node().stats(), driver.stats());
        Self {
            repairs: consumer.repairs,
            timeouts: consumer.timeouts,
            return_bytes: socket.tx_bytes,
            return_packets: socket.tx_datagrams,
        }
    }
}

/// Downloads. A partial file stays when this fails, unless its bytes are known to be wrong.
///
/// # Errors
/// See [`FetchError`], each of whose kinds calls for another reaction.
pub async fn fetch(job: &Job, mut progress: impl FnMut(Progress)) -> Result<Outcome, FetchError> {
    let start = Instant::now();
    let mut signals = Signals::new()?;
    let mut tally = Tally::default();
    if let Some(output) = &job.output {
        target::check(output)?;
    }
    let (length, hash) = match &job.name {
        ContentName::Hash(hash) => (None, *hash),
        ContentName::Path(path) => {
            let (length, hash) = resolve(job, path, &mut signals, &mut tally).await?;
            (Some(length), hash)
        }
    };
    let target = job.output.as_deref().map(|path| Target::open(path, &job.name, length, hash)).transpose()?;
    let have = target.as_ref().map(|target| target.have.clone()).unwrap_or_default();
    let resumed_from = have.byte_count();
    let flow = FlowId::of_content(hash.as_bytes());
    let outboard = match &job.output {
        Some(_) => outboard(job, flow, length, &hash, &mut signals, &mut tally).await?,
        None => None,
    };
    let verified_on_arrival = outboard.is_some();
    let sink = FileSink::new(flow, target, hash, &have, job.trace.as_deref())?;
    let sink = GroupSink::new(sink, outboard, length, have.clone());
    let request = Request { flow, upstream: job.from, length, have };
    let mut tell = |bytes, total, cost, is_verifying| {
        progress(Progress { bytes: resumed_from + bytes, total, is_verifying, cost });
    };
    let (length, sink) = if length == Some(resumed_from) {
        (resumed_from, sink)
    } else {
        let tell = |bytes, total, cost| tell(bytes, total, cost, false);
        run(job, request, sink, &mut signals, &mut tally, tell).await?
    };
    let seconds = start.elapsed().as_secs_f64();
    let received = tally.consumer.received_bytes;
    tell(length - resumed_from, Some(length), tally.cost(), true);
    let sink = sink.into_file();
    let waits = sink.waits();
    let verified = finish(sink, length, &mut signals, job).await?;
    Ok(Outcome {
        name: job.name.to_string(),
        bytes: length,
        seconds,
        goodput_mbps: (length - resumed_from) as f64 * 8e-6 / seconds,
        in_order_wait_ms: waits,
        repairs: tally.consumer.repairs,
        timeouts: tally.consumer.timeouts,
        duplicate_bytes: tally.consumer.duplicate_bytes.max(received.saturating_sub(length)),
        return_bytes: tally.tx_bytes,
        forward_bytes: tally.rx_bytes,
        resumed_from,
        verified_on_arrival,
        culprits: tally.culprits,
        verified,
        blake3: hash.to_hex().to_string(),
        path: job.output.clone(),
        security: HopSuite::new(&job.security)?.security(),
        cpu_seconds: clock::cpu_seconds(),
        socket: tally.socket,
    })
}

/// Asks what a human name stands for.
async fn resolve(
    job: &Job,
    path: &str,
    signals: &mut Signals,
    tally: &mut Tally,
) -> Result<(u64, blake3::Hash), FetchError> {
    let request =
        Request { flow: manifest_flow(path), upstream: job.from, length: None, have: RangeSet::new() };
    let sink = MemorySink::new(MAX_MANIFEST);
    let (length, sink) = run(job, request, sink, signals, tally, |_, _, _| {}).await?;
    // The manifest's bytes are no part of the object.
    tally.consumer.received_bytes = 0;
    let bytes = sink.into_bytes(length);
    bytes.and_then(|bytes| Manifest::parse(&bytes)).map_err(|problem| FetchError::Manifest {
        name: path.to_owned(),
        from: job.from,
        problem,
    })
}

/// Asks for what verifies the object's parts, of each source in turn until one has it. That none has is no failure:
/// the whole is verified at the end in any case.
async fn outboard(
    job: &Job,
    flow: FlowId,
    length: Option<u64>,
    hash: &blake3::Hash,
    signals: &mut Signals,
    tally: &mut Tally,
) -> Result<Option<Outboard>, FetchError> {
    let expected = length.map(outboard_len);
    if expected == Some(None) {
        return Ok(None);
    }
    let (flow, length) = (outboard_flow(flow), expected.flatten());
    for from in [job.from].into_iter().chain(job.bypass.iter().copied()) {
        let job = Job { from, ..job.clone() };
        let request = Request { flow, upstream: from, length, have: RangeSet::new() };
        let sink = MemorySink::new(length.unwrap_or(MAX_OUTBOARD));
        let fetched = run(&job, request, sink, signals, tally, |_, _, _| {}).await;
        // Its bytes are no part of the object.
        tally.consumer.received_bytes = 0;
        let bytes = match fetched {
            Ok((length, sink)) => sink.into_bytes(length),
            Err(FetchError::NoSuchName { .. }) => continue,
            Err(error) => return Err(error),
        };
        match bytes.ok().and_then(|bytes| Outboard::read(&bytes, hash)) {
            Some(outboard) => return Ok(Some(outboard)),
            None => tally.culprits.push(Culprit { address: from, groups: 0, first_offset: 0 }),
        }
    }
    Ok(None)
}

/// What a sink can tell the loop that runs it.
trait Watched: Sink {
    /// Hands on what it holds back.
    fn flush(&mut self) {}
    /// Whether it can take no more.
    fn failure(&mut self) -> Option<FetchError>;
    /// The flow ends at `length`.
    fn on_length(&mut self, length: u64) {
        let _ = length;
    }
    /// Ranges that are not what they should be, since the last call.
    fn take_bad(&mut self) -> Vec<ByteRange> {
        Vec::new()
    }
}

/// Sums over the flows of one download.
#[derive(Debug, Default)]
struct Tally {
    consumer: ConsumerStats,
    tx_bytes: u64,
    rx_bytes: u64,
    culprits: Vec<Culprit>,
    /// Of the last flow.
    socket: DriverStats,
}

impl Tally {
    fn cost(&self) -> Cost {
        Cost {
            repairs: self.consumer.repairs,
            timeouts: self.consumer.timeouts,
            return_bytes: self.tx_bytes,
            return_packets: self.socket.tx_datagrams,
        }
    }

    fn add(&mut self, consumer: ConsumerStats, driver: DriverStats) {
        self.socket = driver;
        let sum = &mut self.consumer;
        sum.received_bytes += consumer.received_bytes;
        sum.duplicate_bytes += consumer.duplicate_bytes;
        sum.repairs += consumer.repairs;
        sum.timeouts += consumer.timeouts;
        self.tx_bytes += driver.tx_bytes;
        self.rx_bytes += driver.rx_bytes;
    }
}

/// Fetches one flow into `sink` and returns its length and the sink.
async fn run<S: Watched>(
    job: &Job,
    request: Request,
    sink: S,
    signals: &mut Signals,
    tally: &mut Tally,
    mut progress: impl FnMut(u64, Option<u64>, Cost),
) -> Result<(u64, S), FetchError> {
    let total = request.length;
    // A socket of its own for each flow: its port tells the neighbour that this is a new requester.
    let endpoint = Endpoint::towards(job.from)?;
    let sink = Lent(Some(sink));
    let suite = HopSuite::new(&job.security)?;
    let mut consumer = Consumer::new(job.config.clone(), request, sink, suite, clock::seed());
    consumer.start(clock::now());
    let mut driver = Driver::new(consumer, endpoint)?;
    let mut route = Route::new(job);
    let mut silence = Silence::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let result = loop {
        tokio::select! {
            biased;
            () = signals.recv() => break Err(FetchError::interrupted(job)),
            _ = tick.tick() => {
                let received = driver.node().stats().received_bytes;
                driver.node_mut().sink_mut().flush();
                progress(received, total, Cost::of(&driver));
                if silence.lasts(received) > job.timeout {
                    break Err(FetchError::silent(job, received, driver.node().suite()));
                }
            }
            done = driver.turn() => done?,
        }
        if let Some(failure) = driver.node_mut().sink_mut().failure() {
            break Err(failure);
        }
        if let Some(length) = driver.node().length() {
            driver.node_mut().sink_mut().on_length(length);
        }
        let bad = driver.node_mut().sink_mut().take_bad();
        if !bad.is_empty()
            && let Err(poisoned) = route.on_bad(&mut driver, &bad, job)
        {
            break Err(poisoned);
        }
        if let Some(done) = ended(&mut driver, job) {
            break done;
        }
    };
    progress(driver.node().stats().received_bytes, total, Cost::of(&driver));
    tally.add(driver.node().stats(), driver.stats());
    tally.culprits.extend(route.culprits());
    driver.node_mut().sink_mut().flush();
    let sink = driver.node_mut().sink_mut().0.take();
    let gone = || FetchError::Socket(std::io::Error::other("the sink is gone"));
    result.and_then(|length| sink.map(|sink| (length, sink)).ok_or_else(gone))
}

/// A sink that can be had back from its Consumer.
struct Lent<S>(Option<S>);

impl<S: Sink> Sink for Lent<S> {
    fn write(&mut self, now: starhop_proto::time::Instant, range: ByteRange, bytes: &[u8]) {
        if let Some(sink) = &mut self.0 {
            sink.write(now, range, bytes);
        }
    }
}

impl<S: Watched> Watched for Lent<S> {
    fn flush(&mut self) {
        if let Some(sink) = &mut self.0 {
            sink.flush();
        }
    }

    fn failure(&mut self) -> Option<FetchError> {
        self.0.as_mut().and_then(Watched::failure)
    }

    fn on_length(&mut self, length: u64) {
        if let Some(sink) = &mut self.0 {
            sink.on_length(length);
        }
    }

    fn take_bad(&mut self) -> Vec<ByteRange> {
        self.0.as_mut().map(Watched::take_bad).unwrap_or_default()
    }
}

fn ended<S: Sink>(driver: &mut Driver<Consumer<S, HopSuite>>, job: &Job) -> Option<Result<u64, FetchError>> {
    while let Some(event) = driver.poll_event() {
        match event {
            ConsumerEvent::Finished { length } => return Some(Ok(length)),
            ConsumerEvent::NoSuchName => {
                return Some(Err(FetchError::NoSuchName { name: job.name.to_string(), from: job.from }));
            }
            ConsumerEvent::TimedOut { .. } => {}
        }
    }
    None
}

/// How long nothing new came.
struct Silence {
    received: u64,
    since: Instant,
}

impl Silence {
    fn new() -> Self {
        Self { received: 0, since: Instant::now() }
    }

    fn lasts(&mut self, received: u64) -> Duration {
        if received != self.received {
            *self = Self { received, since: Instant::now() };
        }
        self.since.elapsed()
    }
}

/// Waits until the bytes are on the disk, verified and renamed; true when verified.
async fn finish(
    mut sink: FileSink,
    length: u64,
    signals: &mut Signals,
    job: &Job,
) -> Result<bool, FetchError> {
    sink.write_trace()?;
    let mut ending = sink.end(length);
    while !ending.is_done() {
        tokio::select! {
            () = signals.recv() => {
                ending.abandon();
                return Err(FetchError::interrupted(job));
            }
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
    }
    ending.result()
}
