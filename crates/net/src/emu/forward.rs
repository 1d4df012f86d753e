//! The links of an emulator: made, started, read, and stopped.

use super::EmuError;
use super::accuracy::Accuracy;
use super::capture::{self, Writing};
use super::link::Link;
use super::links::{Counters, Deed, Direction, Links};
use super::namespace::Namespace;
use serde::Serialize;
use starhop_proto::time::Instant;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Links before they run.
pub struct Emulator<L> {
    directions: Vec<Direction<L>>,
    agenda: Vec<(Instant, Deed<L>)>,
    captures: Option<PathBuf>,
}

impl<L> Default for Emulator<L> {
    fn default() -> Self {
        Self { directions: Vec::new(), agenda: Vec::new(), captures: None }
    }
}

impl<L: Link + 'static> Emulator<L> {
    /// Joins two namespaces: a device in each, without addresses. `there` carries from `a` to `b`, `back` from
    /// `b` to `a`.
    ///
    /// # Errors
    /// [`EmuError::Tun`] where there are no TUN devices.
    pub fn join(
        &mut self,
        (a, device_a): (&Namespace, &str),
        (b, device_b): (&Namespace, &str),
        there: L,
        back: L,
    ) -> Result<(), EmuError> {
        let mut add = |from: &Namespace, to: &Namespace, device, model| -> Result<(), EmuError> {
            let name = format!("{}-{}", from.name(), to.name());
            let device = from.tun(device)?;
            self.directions.push(Direction { name, device, model, counters: Arc::default() });
            Ok(())
        };
        add(a, b, device_a, there)?;
        add(b, a, device_b, back)
    }

    /// Has something done at `at`, on the machine's monotonic clock.
    pub fn at(&mut self, at: Instant, deed: impl FnOnce(&mut Links<L>) + Send + 'static) {
        self.agenda.push((at, Box::new(deed)));
    }

    /// Has all packets captured: one pcapng file per link, in this directory.
    pub fn capture(&mut self, folder: PathBuf) {
        self.captures = Some(folder);
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be started, or a capture cannot be written.
    pub fn start(self) -> io::Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = self.directions.iter().map(|d| (d.name.clone(), d.counters.clone())).collect();
        let theirs = stop.clone();
        let names: Vec<String> = self.directions.iter().map(|d| d.name.clone()).collect();
        let capture = self.captures.map(|folder| capture::start(&folder, &names)).transpose()?;
        let (tap, writing) = capture.unzip();
        let links = Links::new(self.directions, self.agenda, tap)?;
        let body = move || links.run(&theirs);
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn(body)?;
        Ok(Running { stop, counters, thread: Some(thread), writing })
    }
}

/// Links at work. Dropping it cuts them.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    counters: Vec<(String, Arc<Counters>)>,
    thread: Option<JoinHandle<io::Result<Accuracy>>>,
    writing: Option<Writing>,
}

/// The end of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// One line per direction.
    pub links: Vec<LinkReport>,
    /// Accuracy of the links.
    pub accuracy: Accuracy,
}

/// Counts of one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LinkReport {
    /// `from-to`.
    pub name: String,
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Bytes that entered.
    pub offered_bytes: u64,
}

impl Running {
    /// Counters by direction (`from-to`), live.
    pub fn counters(&self) -> &[(String, Arc<Counters>)] {
        &self.counters
    }

    /// The counters of all directions, now.
    pub fn links(&self) -> Vec<LinkReport> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let line = |(name, counters): &(String, Arc<Counters>)| LinkReport {
            name: name.clone(),
            packets: read(&counters.packets),
            bytes: read(&counters.bytes),
            lost: read(&counters.lost),
            dropped: read(&counters.dropped),
            offered_bytes: read(&counters.offered_bytes),
        };
        self.counters.iter().map(line).collect()
    }

    /// Ends the links and returns their report.
    ///
    /// # Errors
    /// A device failed, or the disk of a capture.
    pub fn stop(mut self) -> io::Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(|| io::Error::other("the links ended before"))?;
        let accuracy = thread.join().map_err(|_| io::Error::other("the links' thread panicked"))??;
        self.writing.take().map_or(Ok(()), Writing::finish)?;
        Ok(Report { links: self.links(), accuracy })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its report is not wanted.
            let _ = thread.join();
        }
    }
}
