use super::groups::GroupSink;
use super::memory::MemorySink;
use super::pace::Pace;
use super::route::{Culprit, Route};
use super::seen::seen;
use super::{Cost, FetchError, Job, Source, Watched};
use crate::clock;
use crate::daemon::Signals;
use crate::driver::{Driver, DriverStats};
use crate::endpoint::Endpoint;
use crate::operate::paths::{self, Paths};
use crate::security::{Freshness, HopSuite, Security};
use starhop_proto::consumer::{Consumer, ConsumerEvent, FlowStats, Request, Sink};
use starhop_proto::name::{ByteRange, FlowId};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Interval, MissedTickBehavior};

/// Shortest interval at which progress is reported, unfinished chunks go to the disk and silence is checked.
const TICK: Duration = Duration::from_millis(100);

/// The same where nothing comes: packets wake a session up anyway, and a timer of its own costs it two more wake-ups.
const QUIET_TICK: Duration = Duration::from_millis(250);

/// Interval at which the sinks of many flows are asked whether they can take no more and whether wrong bytes came: with each packet,
/// it was a seventh of the work of 300 flows.
const WATCH: Duration = Duration::from_millis(10);

/// Interval at which key files are checked.
const LOOK: Duration = Duration::from_secs(1);

/// One socket and one Consumer for all flows of a client's downloads: those that describe objects, and the objects.
pub(super) struct Session {
    source: Source,
    driver: Driver<Consumer<AnySink, HopSuite>>,
    signals: Signals,
    hangup: Signal,
    keys: Freshness,
    paths: Paths,
    orders: mpsc::UnboundedReceiver<Order>,
    runs: BTreeMap<FlowId, Run>,
    /// Orders of a flow that is being fetched: the same object has two names.
    waiting: Vec<Order>,
    /// True once a signal has ended all downloads.
    interrupted: watch::Sender<bool>,
    /// Protection of the packets by the present keys.
    security: watch::Sender<Security>,
    /// The failure of the socket, which ends all downloads, too.
    failure: Option<io::Error>,
    ticked: Instant,
    watched: Instant,
}

/// The things that a client may know of its session at any time.
pub(super) struct News {
    pub(super) interrupted: watch::Receiver<bool>,
    pub(super) security: watch::Receiver<Security>,
}

/// A flow to fetch.
pub(super) struct Order {
    pub(super) job: Rc<Job>,
    pub(super) request: Request,
    pub(super) sink: AnySink,
    /// Tells the caller how far it is: the bytes that came, and their cost.
    pub(super) told: watch::Sender<(u64, Cost)>,
    pub(super) done: oneshot::Sender<Result<Ended, FetchError>>,
}

/// A flow that has come as a whole.
pub(super) struct Ended {
    pub(super) length: u64,
    pub(super) sink: AnySink,
    pub(super) stats: FlowStats,
    /// Counters of the socket meanwhile, for all flows.
    pub(super) socket: DriverStats,
    pub(super) culprits: Vec<Culprit>,
}

/// A flow that is being fetched.
struct Run {
    job: Rc<Job>,
    route: Route,
    pace: Pace,
    /// The socket's counters when it began.
    before: DriverStats,
    told: watch::Sender<(u64, Cost)>,
    done: oneshot::Sender<Result<Ended, FetchError>>,
}

/// Destination of the bytes of a flow.
pub(super) enum AnySink {
    /// A description of the object: manifest, outboard or index.
    Memory(MemorySink),
    /// The object.
    Object(Box<GroupSink>),
}

impl Session {
    /// A session with `source`, and its news.
    pub(super) fn new(
        source: &Source,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> Result<(Self, News), FetchError> {
        let endpoint = Endpoint::towards(source.address)?;
        let suite = HopSuite::new(&source.security)?;
        let (security, protection) = watch::channel(suite.security());
        let consumer = Consumer::new(source.config.clone(), suite, clock::seed());
        let (interrupted, interruption) = watch::channel(false);
        let session = Self {
            source: source.clone(),
            driver: Driver::new(consumer, endpoint)?,
            signals: Signals::new()?,
            hangup: signal(SignalKind::hangup())?,
            keys: Freshness::of(&source.security),
            paths: Paths::new(source.config.payload),
            orders,
            runs: BTreeMap::new(),
            waiting: Vec::new(),
            interrupted,
            security,
            failure: None,
            ticked: Instant::now(),
            watched: Instant::now(),
        };
        Ok((session, News { interrupted: interruption, security: protection }))
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.driver.endpoint().local()
    }

    /// Carries packets, and fetches what is ordered.
    pub(super) async fn run(&mut self) -> Infallible {
        let [mut tick, mut look] = [QUIET_TICK, LOOK].map(interval);
        loop {
            let is_interrupted = *self.interrupted.borrow();
            tokio::select! {
                biased;
                () = self.signals.recv(), if !is_interrupted => self.interrupt(),
                _ = self.hangup.recv() => self.reload(),
                Some(order) = self.orders.recv() => self.begin(order),
                _ = look.tick() => self.look(),
                _ = tick.tick() => self.tick(),
                done = self.driver.turn(), if self.failure.is_none() => {
                    if let Err(failure) = done {
                        self.fail(failure);
                    }
                }
            }
            let now = Instant::now();
            if now.duration_since(self.watched) >= WATCH {
                self.watched = now;
                self.watch();
            }
            self.take_events();
            if now.duration_since(self.ticked) >= TICK {
                self.tick();
                tick.reset();
            }
        }
    }

    fn begin(&mut self, order: Order) {
        if let Some(error) = self.refusal(&order.job) {
            return drop(order.done.send(Err(error)));
        }
        let flow = order.request.flow;
        if self.runs.contains_key(&flow) {
            return self.waiting.push(order);
        }
        let run = Run {
            route: Route::new(&order.job, self.source.address, flow),
            pace: Pace::new(&order.job),
            before: self.driver.stats(),
            job: order.job,
            told: order.told,
            done: order.done,
        };
        self.driver.node_mut().open(clock::now(), order.request, order.sink);
        self.runs.insert(flow, run);
    }

    /// The reason why nothing is fetched any more.
    fn refusal(&self, job: &Job) -> Option<FetchError> {
        if *self.interrupted.borrow() {
            return Some(FetchError::interrupted(job));
        }
        self.failure.as_ref().map(|failure| FetchError::Socket(again(failure)))
    }

    fn interrupt(&mut self) {
        self.interrupted.send_replace(true);
        self.end_all();
    }

    fn fail(&mut self, failure: io::Error) {
        self.failure = Some(failure);
        self.end_all();
    }

    /// Ends every download with the reason why nothing is fetched any more.
    fn end_all(&mut self) {
        let running: Vec<FlowId> = self.runs.keys().copied().collect();
        for flow in running {
            if let Some(error) = self.runs.get(&flow).and_then(|run| self.refusal(&run.job)) {
                self.end(flow, Err(error));
            }
        }
    }

    /// Ends the fetching of a flow, and begins with the next order of the same.
    fn end(&mut self, flow: FlowId, result: Result<u64, FetchError>) {
        let Some(run) = self.runs.remove(&flow) else { return };
        let stats = self.flush(flow);
        let socket = self.driver.stats().since(run.before);
        run.told.send_replace((stats.received_bytes, Cost::of(stats, socket)));
        let sink = self.driver.node_mut().close(flow);
        let ended = result.and_then(|length| {
            let sink = sink.ok_or_else(lost_sink)?;
            Ok(Ended { length, sink, stats, socket, culprits: run.route.culprits() })
        });
        // The caller may have given up.
        drop(run.done.send(ended));
        if let Some(next) = self.waiting.iter().position(|order| order.request.flow == flow) {
            let order = self.waiting.remove(next);
            self.begin(order);
        }
    }

    /// Downloads get no signal when keys are rotated: the session checks its key files itself.
    fn look(&mut self) {
        if Freshness::of(&self.source.security) != self.keys {
            self.reload();
        }
        if let Some(news) = self.driver.node_mut().suite_mut().end_of_roster() {
            tracing::warn!("{news}");
        }
        self.paths.look(paths::of(self.driver.node().upstreams()));
    }

    /// Loads changed keys. If they are invalid, the present keys stay until the next change.
    fn reload(&mut self) {
        self.keys = Freshness::of(&self.source.security);
        if let Ok(security) = self.driver.node_mut().suite_mut().reload() {
            self.security.send_replace(security);
        }
    }

    /// Tells how far each download is, and ends those to which too little comes.
    fn tick(&mut self) {
        self.ticked = Instant::now();
        let running: Vec<FlowId> = self.runs.keys().copied().collect();
        for flow in running {
            let (stats, socket) = (self.flush(flow), self.driver.stats());
            let Some(run) = self.runs.get_mut(&flow) else { continue };
            let cost = Cost::of(stats, socket.since(run.before));
            run.told.send_replace((stats.received_bytes, cost));
            if let Some(lately) = run.pace.too_little(stats.received_bytes) {
                let from = self.source.address;
                let seen = seen(from, socket, self.driver.node().suite());
                let error = FetchError::silent(&run.job, from, lately, stats.received_bytes, seen);
                self.end(flow, Err(error));
            }
        }
    }

    /// Lets a flow's sink hand on the bytes that it holds back, and returns the flow's counters.
    fn flush(&mut self, flow: FlowId) -> FlowStats {
        let Some(flow) = self.driver.node_mut().flow_mut(flow) else { return FlowStats::default() };
        flow.sink_mut().flush();
        flow.stats()
    }

    /// Looks whether sinks can take no more, and whether wrong bytes came.
    fn watch(&mut self) {
        let mut failed = Vec::new();
        for (&flow, run) in &mut self.runs {
            if run.done.is_closed() {
                failed.push((flow, FetchError::interrupted(&run.job)));
            } else if let Err(failure) = run.watch(flow, &mut self.driver) {
                failed.push((flow, failure));
            }
        }
        failed.into_iter().for_each(|(flow, failure)| self.end(flow, Err(failure)));
    }

    /// All bytes of a flow are here, unless some of them turn out to be wrong.
    fn finish(&mut self, flow: FlowId, length: u64) {
        match self.runs.get_mut(&flow).map(|run| run.watch(flow, &mut self.driver)) {
            Some(Ok(true)) => {}
            Some(Err(failure)) => self.end(flow, Err(failure)),
            Some(Ok(false)) | None => self.end(flow, Ok(length)),
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.driver.poll_event() {
            match event {
                ConsumerEvent::Finished { flow, length } => self.finish(flow, length),
                ConsumerEvent::NoSuchName { flow } => {
                    let Some(run) = self.runs.get(&flow) else { continue };
                    let (name, from) = (run.job.name.to_string(), self.source.address);
                    self.end(flow, Err(FetchError::NoSuchName { name, from }));
                }
                ConsumerEvent::PutOff { .. } | ConsumerEvent::TimedOut { .. } => {}
            }
        }
    }
}

impl Run {
    /// Looks whether the sink can take no more. True if wrong bytes came, which are asked for elsewhere.
    fn watch(
        &mut self,
        flow: FlowId,
        driver: &mut Driver<Consumer<AnySink, HopSuite>>,
    ) -> Result<bool, FetchError> {
        let Some(fetched) = driver.node_mut().flow_mut(flow) else { return Ok(false) };
        if let Some(failure) = fetched.sink_mut().failure() {
            return Err(failure);
        }
        if let Some(length) = fetched.length() {
            fetched.sink_mut().on_length(length);
        }
        let bad = fetched.sink_mut().take_bad();
        if !bad.is_empty() {
            self.route.on_bad(driver, &bad, &self.job)?;
        }
        Ok(!bad.is_empty())
    }
}

fn interval(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The same failure once more, for the next one who asks.
fn again(failure: &io::Error) -> io::Error {
    failure
        .raw_os_error()
        .map_or_else(|| io::Error::new(failure.kind(), failure.to_string()), io::Error::from_raw_os_error)
}

/// The session or a flow's sink is gone, which no caller can bring about.
pub(super) fn lost_sink() -> FetchError {
    FetchError::Socket(io::Error::other("the sink is gone"))
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
