use super::memory::MemorySink;
use super::session::{AnySink, Ended, News, Order, Session, lost_sink};
use super::{Cost, Culprit, FetchError, Job, Source};
use crate::driver::DriverStats;
use crate::endpoint;
use crate::security::Security;
use starhop_proto::consumer::{FlowStats, Request};
use std::net::SocketAddr;
use std::rc::Rc;
use tokio::sync::{mpsc, oneshot, watch};

/// Asks one neighbour for any number of objects, one after the other or side by side. All of them share a socket and a hop: each begins
/// where the others are, with keys, a rate and a round trip that are known.
pub struct Client {
    pub(super) source: Source,
    orders: mpsc::UnboundedSender<Order>,
    news: News,
    local: SocketAddr,
}

/// Connects to `source` and does `work` with it. SIGINT and SIGTERM end all of its downloads meanwhile.
///
/// # Errors
/// No keys, or no socket.
pub async fn with<T>(source: &Source, work: impl AsyncFnOnce(&Client) -> T) -> Result<T, FetchError> {
    let (orders, taken) = mpsc::unbounded_channel();
    let (mut session, news) = Session::new(source, taken)?;
    let client = Client { source: source.clone(), orders, news, local: session.local() };
    tokio::select! {
        biased;
        done = work(&client) => Ok(done),
        never = session.run() => match never {},
    }
}

impl Client {
    /// True once a signal has ended all downloads: no other begins.
    pub fn is_interrupted(&self) -> bool {
        *self.news.interrupted.borrow()
    }

    /// Waits for such a signal.
    pub(super) async fn interrupted(&self) {
        let mut interrupted = self.news.interrupted.clone();
        if interrupted.wait_for(|is_interrupted| *is_interrupted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(super) fn security(&self) -> Security {
        self.news.security.borrow().clone()
    }

    /// `peer` as the socket knows it; `None` where the socket cannot reach it.
    pub(super) fn address_of(&self, peer: SocketAddr) -> Option<SocketAddr> {
        endpoint::address_from(self.local, peer)
    }
}

/// The flows of one download, one after the other, and what they cost.
pub(super) struct Download<'a> {
    pub(super) client: &'a Client,
    pub(super) job: Rc<Job>,
    /// Counters of the object's flow, with the repairs and timeouts of those before it.
    pub(super) tally: FlowStats,
    /// Counters of the socket meanwhile.
    pub(super) socket: DriverStats,
    pub(super) culprits: Vec<Culprit>,
}

impl<'a> Download<'a> {
    pub(super) fn new(client: &'a Client, job: &Job) -> Self {
        let (tally, socket) = (FlowStats::default(), DriverStats::default());
        Self { client, job: Rc::new(job.clone()), tally, socket, culprits: Vec::new() }
    }

    /// Fetches a small flow of at most `limit` bytes; the inner error says why these are not whole.
    pub(super) async fn read(
        &mut self,
        request: Request,
        limit: u64,
    ) -> Result<Result<Vec<u8>, String>, FetchError> {
        let sink = AnySink::Memory(MemorySink::new(limit));
        let (length, sink) = self.run(request, sink, |_, _| {}).await?;
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
        mut progress: impl FnMut(u64, Cost),
    ) -> Result<(u64, AnySink), FetchError> {
        let (told, mut hears) = watch::channel((0, Cost::default()));
        let (done, mut reply) = oneshot::channel();
        let order = Order { job: self.job.clone(), request, sink, told, done };
        self.client.orders.send(order).map_err(|_| lost_sink())?;
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut reply => break ended.map_err(|_| lost_sink())?,
                Ok(()) = hears.changed() => {
                    let (bytes, cost) = *hears.borrow_and_update();
                    progress(bytes, cost);
                }
            }
        };
        let (bytes, cost) = *hears.borrow();
        progress(bytes, cost);
        let Ended { length, sink, stats, socket, culprits } = ended?;
        self.tally.add(stats);
        self.socket.add(socket);
        self.culprits.extend(culprits);
        Ok((length, sink))
    }
}
