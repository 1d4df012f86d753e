//! Downloads one object into a file: resumes an unfinished download, verifies the whole, and only then gives it its
//! name.

mod error;
mod groups;
mod in_order;
mod memory;
mod route;
mod seen;
mod session;
mod sink;
mod state;
mod stream;
mod target;
mod writer;

pub use error::FetchError;
pub use in_order::Waits;
pub use route::Culprit;
pub use target::{Output, is_partial};

use crate::clock;
use crate::content::{ContentName, MAX_MANIFEST, Manifest, manifest_flow};
use crate::daemon::Signals;
use crate::driver::DriverStats;
use crate::index::{self, MAX_INDEX, Offer, index_flow};
use crate::outboard::{MAX_OUTBOARD, Outboard, outboard_flow, outboard_len};
use crate::security::{Security, Sources};
use groups::GroupSink;
use serde::Serialize;
use session::{AnySink, Session};
use sink::FileSink;
use starhop_proto::config::Config;
use starhop_proto::consumer::{FlowStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::units::Rate;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use target::{Place, Target};

/// A download: the object, its source, and its output.
#[derive(Clone, Debug)]
pub struct Job {
    /// The object.
    pub name: ContentName,
    /// The neighbour to ask.
    pub from: SocketAddr,
    /// Other sources, in turn, if wrong bytes come from `from`.
    pub bypass: Vec<SocketAddr>,
    /// Destination of the bytes.
    pub output: Output,
    /// Longest silence of the source.
    pub timeout: Duration,
    /// A source that sends less than this within the timeout counts as silent.
    pub least_rate: Rate,
    /// The protocol's configuration.
    pub config: Config,
    /// Keys with which packets are sealed.
    pub security: Sources,
    /// File into which the arrival times of bytes are noted.
    pub trace: Option<PathBuf>,
}

/// Progress of a download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that are here, those of an earlier attempt included.
    pub bytes: u64,
    /// Bytes in all, once known.
    pub total: Option<u64>,
    /// All bytes are here and are being verified.
    pub is_verifying: bool,
    /// Its cost so far.
    pub cost: Cost,
}

/// The cost of a download, finished or not.
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

/// The result of a download.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The name asked for.
    pub name: String,
    /// Bytes of the object.
    pub bytes: u64,
    /// Time from the start to the last byte.
    pub seconds: f64,
    /// Bytes received now, in 10^6 bit/s over `seconds`.
    pub goodput_mbps: f64,
    /// Waiting times of arrived bytes for earlier ones.
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
    /// Neighbours that sent wrong bytes, which were then fetched elsewhere.
    pub culprits: Vec<Culprit>,
    /// The bytes are those of the object that was promised.
    pub verified: bool,
    /// The BLAKE3 hash.
    pub blake3: String,
    /// The file.
    pub path: Option<PathBuf>,
    /// Protection of the packets.
    pub security: Security,
    /// User and system time of the process.
    pub cpu_seconds: f64,
    /// Counters of the socket.
    pub socket: DriverStats,
}

impl Cost {
    fn of(flows: FlowStats, socket: DriverStats) -> Self {
        Self {
            repairs: flows.repairs,
            timeouts: flows.timeouts,
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
    let place = Place::find(&job.output)?;
    let mut session = Session::new(job)?;
    let (length, hash) = match &job.name {
        ContentName::Hash(hash) => (None, *hash),
        ContentName::Path(path) => {
            let (length, hash) = resolve(&mut session, path).await?;
            (Some(length), hash)
        }
    };
    if place.is_complete(length, hash)? {
        return Ok(already_here(job, &hash, start, &session));
    }
    let mut target = Target::open(&place, &job.name, length, hash)?;
    let have = target.as_ref().map(|target| target.have.clone()).unwrap_or_default();
    let resumed_from = have.byte_count();
    let flow = FlowId::of_content(hash.as_bytes());
    let outboard = match &target {
        Some(_) => outboard(&mut session, flow, length, &hash).await?,
        None => None,
    };
    let verified_on_arrival = outboard.is_some();
    if let Some(target) = target.as_mut().filter(|_| verified_on_arrival) {
        target.set_verified();
    }
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
        let fetched = session.run(request, AnySink::Object(Box::new(sink)), tell).await;
        let (length, sink) = fetched.map_err(|error| changed(error, &job.name))?;
        (length, sink.into_object()?)
    };
    let seconds = start.elapsed().as_secs_f64();
    let (tally, socket) = (session.tally(), session.socket());
    let received = tally.received_bytes;
    tell(length - resumed_from, Some(length), Cost::of(tally, socket), true);
    let sink = sink.into_file();
    let (waits, security) = (sink.waits(), session.security());
    let verified = finish(sink, length, session.signals(), job).await?;
    Ok(Outcome {
        name: job.name.to_string(),
        bytes: length,
        seconds,
        goodput_mbps: (length - resumed_from) as f64 * 8e-6 / seconds,
        in_order_wait_ms: waits,
        repairs: tally.repairs,
        timeouts: tally.timeouts,
        duplicate_bytes: tally.duplicate_bytes.max(received.saturating_sub(length)),
        return_bytes: socket.tx_bytes,
        forward_bytes: socket.rx_bytes,
        resumed_from,
        verified_on_arrival,
        culprits: session.into_culprits(),
        verified,
        blake3: hash.to_hex().to_string(),
        path: job.output.path().map(Path::to_owned),
        security,
        cpu_seconds: clock::cpu_seconds(),
        socket,
    })
}

/// Nothing need be fetched.
fn already_here(job: &Job, hash: &blake3::Hash, start: Instant, session: &Session<'_>) -> Outcome {
    let path = job.output.path().map(Path::to_owned);
    let bytes = path.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |meta| meta.len());
    let (tally, socket) = (session.tally(), session.socket());
    Outcome {
        name: job.name.to_string(),
        bytes,
        seconds: start.elapsed().as_secs_f64(),
        goodput_mbps: 0.0,
        in_order_wait_ms: Waits::default(),
        repairs: tally.repairs,
        timeouts: tally.timeouts,
        duplicate_bytes: 0,
        return_bytes: socket.tx_bytes,
        forward_bytes: socket.rx_bytes,
        resumed_from: bytes,
        verified_on_arrival: false,
        culprits: Vec::new(),
        verified: true,
        blake3: hash.to_hex().to_string(),
        path,
        security: session.security(),
        cpu_seconds: clock::cpu_seconds(),
        socket,
    }
}

/// The source no longer has the object of a name, so the name stands for another object now.
fn changed(error: FetchError, name: &ContentName) -> FetchError {
    match (error, name) {
        (FetchError::NoSuchName { name, from }, ContentName::Path(_)) => FetchError::Changed { name, from },
        (error, _) => error,
    }
}

/// Fetches the list of a source's objects. `job` gives the source and the options; its name appears in errors only.
///
/// # Errors
/// As [`fetch`].
pub async fn list(job: &Job) -> Result<Vec<Offer>, FetchError> {
    let mut session = Session::new(job)?;
    let upstream = job.from;
    let mut problem = String::new();
    // It may change between two packets.
    for _ in 0..3 {
        let request = Request { flow: index_flow(), upstream, length: None, have: RangeSet::new() };
        let bytes = session.read(request, MAX_INDEX).await?;
        match bytes.and_then(|bytes| index::read(&bytes)) {
            Ok(offers) => return Ok(offers),
            Err(error) => problem = error,
        }
    }
    Err(FetchError::Manifest { name: job.name.to_string(), from: upstream, problem })
}

/// Fetches the length and the hash of the object that a human name stands for.
async fn resolve(session: &mut Session<'_>, path: &str) -> Result<(u64, blake3::Hash), FetchError> {
    let from = session.job().from;
    let request = Request { flow: manifest_flow(path), upstream: from, length: None, have: RangeSet::new() };
    let bytes = session.read(request, MAX_MANIFEST).await?;
    bytes.and_then(|bytes| Manifest::parse(&bytes)).map_err(|problem| FetchError::Manifest {
        name: path.to_owned(),
        from,
        problem,
    })
}

/// Fetches the outboard, which verifies the object's parts, from each source in turn until one has it. If none has
/// it the download goes on: the whole is verified at the end in any case.
async fn outboard(
    session: &mut Session<'_>,
    flow: FlowId,
    length: Option<u64>,
    hash: &blake3::Hash,
) -> Result<Option<Outboard>, FetchError> {
    let expected = length.map(outboard_len);
    if expected == Some(None) {
        return Ok(None);
    }
    let (flow, length) = (outboard_flow(flow), expected.flatten());
    let job = session.job();
    for from in [job.from].into_iter().chain(job.bypass.iter().copied()) {
        let Some(upstream) = session.address_of(from) else { continue };
        let request = Request { flow, upstream, length, have: RangeSet::new() };
        let bytes = match session.read(request, length.unwrap_or(MAX_OUTBOARD)).await {
            Ok(bytes) => bytes,
            Err(FetchError::NoSuchName { .. }) => continue,
            Err(error) => return Err(error),
        };
        match bytes.ok().and_then(|bytes| Outboard::read(&bytes, hash)) {
            Some(outboard) => return Ok(Some(outboard)),
            None => session.blame(Culprit { address: from, groups: 0, first_offset: 0 }),
        }
    }
    Ok(None)
}

/// The interface of a sink to the loop that runs it.
trait Watched: Sink {
    /// Hands on the bytes that it holds back.
    fn flush(&mut self) {}
    /// Whether it can take no more.
    fn failure(&mut self) -> Option<FetchError>;
    /// The flow ends at `length`.
    fn on_length(&mut self, length: u64) {
        let _ = length;
    }
    /// Ranges whose bytes are wrong, since the last call.
    fn take_bad(&mut self) -> Vec<ByteRange> {
        Vec::new()
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
