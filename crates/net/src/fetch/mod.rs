//! Downloads one object into a file: resumes an unfinished download, verifies the whole, and only then gives it its
//! name.

mod client;
mod error;
mod groups;
mod in_order;
mod memory;
mod pace;
mod route;
mod seen;
mod session;
mod sink;
mod state;
mod stream;
mod target;
mod writer;

pub use client::{Client, with};
pub use error::FetchError;
pub use in_order::Waits;
pub use route::Culprit;
pub use target::{Output, is_partial};

use crate::clock;
use crate::content::{ContentName, MAX_MANIFEST, Manifest, manifest_flow};
use crate::driver::DriverStats;
use crate::index::{self, MAX_INDEX, Offer, index_flow};
use crate::outboard::{MAX_OUTBOARD, Outboard, outboard_flow, outboard_len};
use crate::security::{Security, Sources};
use client::Download;
use groups::GroupSink;
use serde::Serialize;
use session::AnySink;
use sink::FileSink;
use starhop_proto::config::Config;
use starhop_proto::consumer::{FlowStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::units::Rate;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use target::{Place, Target};

/// A neighbour, and how it is asked.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its address.
    pub address: SocketAddr,
    /// The protocol's configuration.
    pub config: Config,
    /// Keys with which packets are sealed.
    pub security: Sources,
}

/// A download: the object, and its output.
#[derive(Clone, Debug)]
pub struct Job {
    /// The object.
    pub name: ContentName,
    /// Other sources, in turn, if wrong bytes come from the first.
    pub bypass: Vec<SocketAddr>,
    /// Destination of the bytes.
    pub output: Output,
    /// Longest silence of the source.
    pub timeout: Duration,
    /// A source that sends less than this within the timeout counts as silent.
    pub least_rate: Rate,
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
    /// Bytes of datagrams sent towards the source meanwhile, those of other downloads included.
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
    /// Bytes of datagrams sent towards the source meanwhile, those of other downloads included.
    pub return_bytes: u64,
    /// Bytes of datagrams received, in the same way.
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
    /// Counters of the socket, in the same way.
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

impl Client {
    /// Downloads. A partial file stays when this fails, unless its bytes are known to be wrong.
    ///
    /// # Errors
    /// See [`FetchError`], each of whose kinds calls for another reaction.
    pub async fn fetch(&self, job: &Job, mut progress: impl FnMut(Progress)) -> Result<Outcome, FetchError> {
        let start = Instant::now();
        let place = Place::find(&job.output)?;
        let mut download = Download::new(self, job);
        let (length, hash) = match &job.name {
            ContentName::Hash(hash) => (None, *hash),
            ContentName::Path(path) => {
                let (length, hash) = resolve(&mut download, path).await?;
                (Some(length), hash)
            }
        };
        if place.is_complete(length, hash)? {
            let bytes = job.output.path().and_then(|path| path.metadata().ok()).map_or(0, |meta| meta.len());
            return Ok(of_here(&download, &hash, bytes, start));
        }
        let mut target = Target::open(&place, &job.name, length, hash)?;
        let have = target.as_ref().map(|target| target.have.clone()).unwrap_or_default();
        let resumed_from = have.byte_count();
        let flow = FlowId::of_content(hash.as_bytes());
        let outboard = match &target {
            Some(_) => outboard(&mut download, flow, length, &hash).await?,
            None => None,
        };
        let verified_on_arrival = outboard.is_some();
        if let Some(target) = target.as_mut().filter(|_| verified_on_arrival) {
            target.set_verified();
        }
        let sink = FileSink::new(flow, target, hash, &have, job.trace.as_deref())?;
        let sink = GroupSink::new(sink, outboard, length, have.clone());
        let request = Request { flow, upstream: self.source.address, length, have };
        let mut tell = |bytes, total, cost, is_verifying| {
            progress(Progress { bytes: resumed_from + bytes, total, is_verifying, cost });
        };
        let (length, sink) = if length == Some(resumed_from) {
            (resumed_from, sink)
        } else {
            let tell = |bytes, cost| tell(bytes, length, cost, false);
            let fetched = download.run(request, AnySink::Object(Box::new(sink)), tell).await;
            let (length, sink) = fetched.map_err(|error| changed(error, &job.name))?;
            (length, sink.into_object()?)
        };
        let seconds = start.elapsed().as_secs_f64();
        tell(length - resumed_from, Some(length), Cost::of(download.tally, download.socket), true);
        let sink = sink.into_file();
        let waits = sink.waits();
        let verified = finish(sink, length, &download).await?;
        let received = download.tally.received_bytes;
        Ok(Outcome {
            seconds,
            goodput_mbps: (length - resumed_from) as f64 * 8e-6 / seconds,
            in_order_wait_ms: waits,
            duplicate_bytes: download.tally.duplicate_bytes.max(received.saturating_sub(length)),
            resumed_from,
            verified_on_arrival,
            verified,
            culprits: core::mem::take(&mut download.culprits),
            ..of_here(&download, &hash, length, start)
        })
    }
}

/// The result where nothing need be fetched: `length` bytes are here already.
fn of_here(download: &Download<'_>, hash: &blake3::Hash, length: u64, start: Instant) -> Outcome {
    let Download { client, job, tally, socket, .. } = download;
    Outcome {
        name: job.name.to_string(),
        bytes: length,
        seconds: start.elapsed().as_secs_f64(),
        goodput_mbps: 0.0,
        in_order_wait_ms: Waits::default(),
        repairs: tally.repairs,
        timeouts: tally.timeouts,
        duplicate_bytes: 0,
        return_bytes: socket.tx_bytes,
        forward_bytes: socket.rx_bytes,
        resumed_from: length,
        verified_on_arrival: false,
        culprits: Vec::new(),
        verified: true,
        blake3: hash.to_hex().to_string(),
        path: job.output.path().map(Path::to_owned),
        security: client.security(),
        cpu_seconds: clock::cpu_seconds(),
        socket: *socket,
    }
}

/// The source no longer has the object of a name, so the name stands for another object now.
fn changed(error: FetchError, name: &ContentName) -> FetchError {
    match (error, name) {
        (FetchError::NoSuchName { name, from }, ContentName::Path(_)) => FetchError::Changed { name, from },
        (error, _) => error,
    }
}

impl Client {
    /// Fetches the list of the source's objects. `job` gives the options; its name appears in errors only.
    ///
    /// # Errors
    /// As [`Client::fetch`].
    pub async fn list(&self, job: &Job) -> Result<Vec<Offer>, FetchError> {
        let mut download = Download::new(self, job);
        let upstream = self.source.address;
        let mut problem = String::new();
        // It may change between two packets.
        for _ in 0..3 {
            let request = Request { flow: index_flow(), upstream, length: None, have: RangeSet::new() };
            let bytes = download.read(request, MAX_INDEX).await?;
            match bytes.and_then(|bytes| index::read(&bytes)) {
                Ok(offers) => return Ok(offers),
                Err(error) => problem = error,
            }
        }
        Err(FetchError::Manifest { name: job.name.to_string(), from: upstream, problem })
    }
}

/// Fetches the length and the hash of the object that a human name stands for.
async fn resolve(download: &mut Download<'_>, path: &str) -> Result<(u64, blake3::Hash), FetchError> {
    let from = download.client.source.address;
    let request = Request { flow: manifest_flow(path), upstream: from, length: None, have: RangeSet::new() };
    let bytes = download.read(request, MAX_MANIFEST).await?;
    bytes.and_then(|bytes| Manifest::parse(&bytes)).map_err(|problem| FetchError::Manifest {
        name: path.to_owned(),
        from,
        problem,
    })
}

/// Fetches the outboard, which verifies the object's parts, from each source in turn until one has it. If none has
/// it the download goes on: the whole is verified at the end in any case.
async fn outboard(
    download: &mut Download<'_>,
    flow: FlowId,
    length: Option<u64>,
    hash: &blake3::Hash,
) -> Result<Option<Outboard>, FetchError> {
    let expected = length.map(outboard_len);
    if expected == Some(None) {
        return Ok(None);
    }
    let (flow, length) = (outboard_flow(flow), expected.flatten());
    let job = download.job.clone();
    for from in [download.client.source.address].into_iter().chain(job.bypass.iter().copied()) {
        let Some(upstream) = download.client.address_of(from) else { continue };
        let request = Request { flow, upstream, length, have: RangeSet::new() };
        let bytes = match download.read(request, length.unwrap_or(MAX_OUTBOARD)).await {
            Ok(bytes) => bytes,
            Err(FetchError::NoSuchName { .. }) => continue,
            Err(error) => return Err(error),
        };
        match bytes.ok().and_then(|bytes| Outboard::read(&bytes, hash)) {
            Some(outboard) => return Ok(Some(outboard)),
            None => download.culprits.push(Culprit { address: from, groups: 0, first_offset: 0 }),
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
async fn finish(mut sink: FileSink, length: u64, download: &Download<'_>) -> Result<bool, FetchError> {
    sink.write_trace()?;
    let mut ending = sink.end(length);
    while !ending.is_done() {
        tokio::select! {
            () = download.client.interrupted() => {
                ending.abandon();
                return Err(FetchError::interrupted(&download.job));
            }
            () = tokio::time::sleep(Duration::from_millis(2)) => {}
        }
    }
    ending.result()
}
