use super::groups::GroupSink;
use super::memory::MemorySink;
use super::route::Route;
use super::seen::seen;
use super::{Cost, Culprit, FetchError, Job, Watched};
use crate::clock;
use crate::daemon::Signals;
use crate::driver::{Driver, DriverStats};
use crate::endpoint::Endpoint;
use crate::operate::paths::{self, Paths};
use crate::security::{Freshness, HopSuite, Security};
use starhop_proto::consumer::{Consumer, ConsumerEvent, FlowStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// Interval at which progress is reported, unfinished chunks go to the disk and silence is checked.
const TICK: Duration = Duration::from_millis(100);

/// Interval at which key files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// One socket and one Consumer for all flows of a download: those that describe the object, and the object.
pub(super) struct Session<'a> {
    job: &'a Job,
    driver: Driver<Consumer<AnySink, HopSuite>>,
    signals: Signals,
    hangup: Signal,
    keys: Freshness,
    paths: Paths,
    tally: FlowStats,
    culprits: Vec<Culprit>,
}

/// Destination of the bytes of a flow.
pub(super) enum AnySink {
    /// A description of the object: manifest, outboard or index.
    Memory(MemorySink),
    /// The object.
    Object(Box<GroupSink>),
}

impl<'a> Session<'a> {
    pub(super) fn new(job: &'a Job) -> Result<Self, FetchError> {
        let signals = Signals::new()?;
        let hangup = signal(SignalKind::hangup())?;
        let keys = Freshness::of(&job.security);
        let endpoint = Endpoint::towards(job.from)?;
        let suite = HopSuite::new(&job.security)?;
        let consumer = Consumer::new(job.config.clone(), suite, clock::seed());
        let driver = Driver::new(consumer, endpoint)?;
        let (tally, culprits) = (FlowStats::default(), Vec::new());
        let paths = Paths::new(job.config.payload);
        Ok(Self { job, driver, signals, hangup, keys, paths, tally, culprits })
    }

    pub(super) fn job(&self) -> &'a Job {
        self.job
    }

    /// Counters of the object's flow, with the repairs and timeouts of those before it.
    pub(super) fn tally(&self) -> FlowStats {
        self.tally
    }

    pub(super) fn socket(&self) -> DriverStats {
        self.driver.stats()
    }

    pub(super) fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    pub(super) fn security(&self) -> Security {
        self.driver.node().suite().security()
    }

    pub(super) fn into_culprits(self) -> Vec<Culprit> {
        self.culprits
    }

    /// Notes that wrong bytes came from `culprit`.
    pub(super) fn blame(&mut self, culprit: Culprit) {
        self.culprits.push(culprit);
    }

    /// `peer` as the socket knows it; `None` where the socket cannot reach it.
    pub(super) fn address_of(&self, peer: SocketAddr) -> Option<SocketAddr> {
        self.driver.endpoint().address_of(peer)
    }

    /// Fetches a small flow of at most `limit` bytes; the inner error says why these are not whole.
    pub(super) async fn read(
        &mut self,
        request: Request,
        limit: u64,
    ) -> Result<Result<Vec<u8>, String>, FetchError> {
        let sink = AnySink::Memory(MemorySink::new(limit));
        let (length, sink) = self.run(request, sink, |_, _, _| {}).await?;
        // Its bytes are no part of the object.
        self.tally.received_bytes = 0;
        match sink {
            AnySink::Memory(sink) => Ok(sink.into_bytes(length)),
            AnySink::Object(_) => Err(lost_sink()),
        }
    }

    /// Fetches one flow into `sink` and returns its length and the sink.
    pub(super) async fn run(
        &mut self,
        request: Request,
        sink: AnySink,
        mut progress: impl FnMut(u64, Option<u64>, Cost),
    ) -> Result<(u64, AnySink), FetchError> {
        let (flow, total) = (request.flow, request.length);
        self.driver.node_mut().open(clock::now(), request, sink);
        let mut route = Route::new(self.job, flow);
        let mut pace = Pace::new(self.job);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let result = loop {
            tokio::select! {
                biased;
                () = self.signals.recv() => break Err(FetchError::interrupted(self.job)),
                _ = self.hangup.recv() => self.reload(),
                _ = look.tick() => {
                    self.follow_keys();
                    self.paths.look(paths::of(self.driver.node().upstreams()));
                }
                _ = tick.tick() => {
                    let stats = self.on_tick(flow);
                    progress(stats.received_bytes, total, Cost::of(stats, self.driver.stats()));
                    if let Some(lately) = pace.too_little(stats.received_bytes) {
                        let seen = seen(self.job.from, self.driver.stats(), self.driver.node().suite());
                        break Err(FetchError::silent(self.job, lately, stats.received_bytes, seen));
                    }
                }
                done = self.driver.turn() => done?,
            }
            if let Err(failure) = self.watch(flow, &mut route) {
                break Err(failure);
            }
            if let Some(done) = self.ended(flow) {
                break done;
            }
        };
        let stats = self.on_tick(flow);
        progress(stats.received_bytes, total, Cost::of(stats, self.driver.stats()));
        self.add(stats);
        self.culprits.extend(route.culprits());
        let sink = self.driver.node_mut().close(flow);
        result.and_then(|length| sink.map(|sink| (length, sink)).ok_or_else(lost_sink))
    }

    /// Downloads get no signal when keys are rotated: the session checks its key files itself.
    fn follow_keys(&mut self) {
        if Freshness::of(&self.job.security) != self.keys {
            self.reload();
        }
        if let Some(news) = self.driver.node_mut().suite_mut().end_of_roster() {
            tracing::warn!("{news}");
        }
    }

    /// Loads changed keys. If they are invalid, the present keys stay until the next change.
    fn reload(&mut self) {
        self.keys = Freshness::of(&self.job.security);
        let _ = self.driver.node_mut().suite_mut().reload();
    }

    /// Lets the sink hand on the bytes that it holds back, and returns the flow's counters.
    fn on_tick(&mut self, flow: FlowId) -> FlowStats {
        let Some(flow) = self.driver.node_mut().flow_mut(flow) else { return FlowStats::default() };
        flow.sink_mut().flush();
        flow.stats()
    }

    /// Looks whether the sink can take no more, and whether wrong bytes came.
    fn watch(&mut self, flow: FlowId, route: &mut Route) -> Result<(), FetchError> {
        let Some(fetched) = self.driver.node_mut().flow_mut(flow) else { return Ok(()) };
        if let Some(failure) = fetched.sink_mut().failure() {
            return Err(failure);
        }
        if let Some(length) = fetched.length() {
            fetched.sink_mut().on_length(length);
        }
        let bad = fetched.sink_mut().take_bad();
        if bad.is_empty() { Ok(()) } else { route.on_bad(&mut self.driver, &bad, self.job) }
    }

    fn ended(&mut self, asked: FlowId) -> Option<Result<u64, FetchError>> {
        while let Some(event) = self.driver.poll_event() {
            match event {
                ConsumerEvent::Finished { flow, length } if flow == asked => return Some(Ok(length)),
                ConsumerEvent::NoSuchName { flow } if flow == asked => {
                    let (name, from) = (self.job.name.to_string(), self.job.from);
                    return Some(Err(FetchError::NoSuchName { name, from }));
                }
                _ => {}
            }
        }
        None
    }

    fn add(&mut self, flow: FlowStats) {
        self.tally.received_bytes += flow.received_bytes;
        self.tally.duplicate_bytes += flow.duplicate_bytes;
        self.tally.repairs += flow.repairs;
        self.tally.timeouts += flow.timeouts;
    }
}

fn lost_sink() -> FetchError {
    FetchError::Socket(std::io::Error::other("the sink is gone"))
}

impl AnySink {
    pub(super) fn into_object(self) -> Result<GroupSink, FetchError> {
        match self {
            Self::Object(sink) => Ok(*sink),
            Self::Memory(_) => Err(lost_sink()),
        }
    }
}

impl Sink for AnySink {
    fn write(&mut self, now: starhop_proto::time::Instant, range: ByteRange, bytes: &[u8]) {
        match self {
            Self::Memory(sink) => sink.write(now, range, bytes),
            Self::Object(sink) => sink.write(now, range, bytes),
        }
    }
}

impl Watched for AnySink {
    fn flush(&mut self) {
        if let Self::Object(sink) = self {
            sink.flush();
        }
    }

    fn failure(&mut self) -> Option<FetchError> {
        match self {
            Self::Memory(sink) => sink.failure(),
            Self::Object(sink) => sink.failure(),
        }
    }

    fn on_length(&mut self, length: u64) {
        if let Self::Object(sink) = self {
            sink.on_length(length);
        }
    }

    fn take_bad(&mut self) -> Vec<ByteRange> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Object(sink) => sink.take_bad(),
        }
    }
}

/// Watches the rate of arrivals: a source that sends a byte now and then would hold a download for ever.
struct Pace {
    timeout: Duration,
    /// Bytes that must come within the timeout.
    least: u64,
    received: u64,
    since: Instant,
}

impl Pace {
    fn new(job: &Job) -> Self {
        let least = job.least_rate.as_bps() as f64 / 8.0 * job.timeout.as_secs_f64();
        Self { timeout: job.timeout, least: (least as u64).max(1), received: 0, since: Instant::now() }
    }

    /// The bytes that came within the timeout, if they are too few.
    fn too_little(&mut self, received: u64) -> Option<u64> {
        let lately = received - self.received;
        if lately >= self.least {
            (self.received, self.since) = (received, Instant::now());
        }
        (self.since.elapsed() > self.timeout).then_some(lately)
    }
}
