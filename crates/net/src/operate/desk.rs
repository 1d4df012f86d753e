//! The desk: a thread beside the role that answers clients' questions about it, so that no client of the operator's
//! can delay a packet.

use super::history::History;
use super::http;
use super::socket;
use super::status::{Passed, Status};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use tokio::sync::{mpsc, oneshot};

/// The addresses at which a node answers questions about itself.
#[derive(Clone, Debug, Default)]
pub struct Doors {
    /// The Unix socket of `starhop status`.
    pub socket: Option<PathBuf>,
    /// The address of the metrics for Prometheus.
    pub metrics: Option<SocketAddr>,
    /// The address of the node's page.
    pub page: Option<SocketAddr>,
}

/// A question to the role.
#[derive(Debug)]
pub struct Inquiry(oneshot::Sender<Status>);

impl Inquiry {
    /// Answers it. If the client has gone, the answer is dropped.
    pub fn answer(self, status: Status) {
        let _ = self.0.send(status);
    }
}

/// The servers' channel to the role, by which they ask it.
#[derive(Clone, Debug)]
pub(super) struct Bell(mpsc::Sender<Inquiry>);

impl Bell {
    /// The state of the node with all of its peers; `None` when it has ended.
    pub(super) async fn whole_status(&self) -> Option<Status> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Inquiry(answer)).await.ok()?;
        answered.await.ok()
    }

    /// The state of the node with its busiest peers and what the kernel knows: their MTU, and the packets that passed.
    pub(super) async fn status(&self) -> Option<Status> {
        let mut status = self.whole_status().await?;
        status.shorten();
        for peer in &mut status.peers {
            peer.mtu = socket::mtu_towards(peer.address);
        }
        // Rules that somebody flushed count nothing until they are set again.
        let passed = status.passes.take().and_then(|watchdog| watchdog.passed().ok()).unwrap_or_default();
        status.passed =
            passed.into_iter().map(|(policy, [packets, bytes])| Passed { policy, packets, bytes }).collect();
        Some(status)
    }
}

/// The role's end: the questions that are waiting.
#[derive(Debug)]
pub struct Desk {
    inquiries: mpsc::Receiver<Inquiry>,
    /// Keeps the channel open where there is no door.
    bell: Bell,
    socket: Option<PathBuf>,
    /// Doors at which nobody answers yet.
    closed: Option<Listeners>,
}

/// The doors, as the thread has them.
#[derive(Debug)]
struct Listeners {
    unix: Option<UnixListener>,
    metrics: Option<TcpListener>,
    page: Option<TcpListener>,
}

impl Desk {
    /// Opens the doors and starts the thread that answers there.
    ///
    /// # Errors
    /// An address or the socket is not available; the error names it.
    pub fn open(doors: &Doors) -> io::Result<Self> {
        let mut desk = Self::prepare(doors)?;
        desk.open_doors()?;
        Ok(desk)
    }

    /// Takes the addresses. Nobody answers there, and there is no thread, before [`Desk::open_doors`].
    ///
    /// # Errors
    /// As [`Desk::open`].
    pub fn prepare(doors: &Doors) -> io::Result<Self> {
        let (sender, inquiries) = mpsc::channel(16);
        let bell = Bell(sender);
        let metrics = doors.metrics.map(|address| listen(address, "metrics")).transpose()?;
        let page = doors.page.map(|address| listen(address, "the page")).transpose()?;
        let unix = doors.socket.as_deref().map(socket::listen).transpose()?;
        let has_doors = unix.is_some() || metrics.is_some() || page.is_some();
        let closed = has_doors.then_some(Listeners { unix, metrics, page });
        Ok(Self { inquiries, bell, socket: doors.socket.clone(), closed })
    }

    /// Starts the thread that answers.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn open_doors(&mut self) -> io::Result<()> {
        if let Some(listeners) = self.closed.take() {
            let bell = self.bell.clone();
            let thread = std::thread::Builder::new().name("starhop-desk".to_owned());
            thread.spawn(move || serve(&bell, listeners))?;
        }
        Ok(())
    }

    /// The next question. Dropping the future loses none.
    pub async fn next(&mut self) -> Inquiry {
        match self.inquiries.recv().await {
            Some(inquiry) => inquiry,
            // The desk holds a sender itself: the channel never closes.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn listen(address: SocketAddr, purpose: &str) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address} (TCP) for {purpose}: {error}"))
    })?;
    listener.set_nonblocking(true)?;
    tracing::info!("{purpose} on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// The thread. It ends with the process.
fn serve(bell: &Bell, Listeners { unix, metrics, page }: Listeners) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!("nobody can be told of this node: {error}"),
    };
    let tasks = tokio::task::LocalSet::new();
    let history = Rc::new(History::default());
    if let Some(listener) = unix {
        tasks.spawn_local(socket::serve(listener, bell.clone()));
    }
    if let Some(listener) = metrics {
        tasks.spawn_local(http::serve(listener, http::Site::Metrics, bell.clone(), history.clone()));
    }
    if let Some(listener) = page {
        tasks.spawn_local(history.clone().follow(bell.clone()));
        tasks.spawn_local(http::serve(listener, http::Site::Page, bell.clone(), history));
    }
    runtime.block_on(tasks);
}
