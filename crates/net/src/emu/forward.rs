//! The thread that carries packets across links.

use super::EmuError;
use super::link::{Link, Verdict};
use super::namespace::Namespace;
use crate::clock;
use crate::sys::schedule;
use hdrhistogram::Histogram;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::SigSet;
use nix::sys::time::{TimeSpec, TimeValLike};
use serde::Serialize;
use starhop_proto::time::Instant;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// The longest packet of a device, with room to spare above its MTU of 1500.
const PACKET: usize = 2048;
/// Packets read from one device before due ones are delivered.
const READS: usize = 32;
/// How long the thread sleeps at most: it also looks whether it should end.
const LONGEST_SLEEP: u64 = 50_000_000;

/// What one direction of a link has carried. Read while it runs.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets that arrived.
    pub packets: AtomicU64,
    /// Bytes that arrived.
    pub bytes: AtomicU64,
    /// Packets lost on the way.
    pub lost: AtomicU64,
    /// Packets that found the queue full.
    pub dropped: AtomicU64,
    /// Bytes that entered, lost and dropped ones included.
    pub offered_bytes: AtomicU64,
}

/// Links before they run.
#[derive(Default)]
pub struct Emulator {
    directions: Vec<Direction>,
}

/// From a device to the device at the far end, which is that of the neighbouring direction: `index ^ 1`.
struct Direction {
    name: String,
    device: File,
    model: Box<dyn Link>,
    counters: Arc<Counters>,
}

impl Emulator {
    /// Joins two namespaces: a device in each, without addresses. `there` carries from `a` to `b`, `back` from
    /// `b` to `a`.
    ///
    /// # Errors
    /// [`EmuError::Tun`] where there are no TUN devices.
    pub fn join(
        &mut self,
        (a, device_a): (&Namespace, &str),
        (b, device_b): (&Namespace, &str),
        there: Box<dyn Link>,
        back: Box<dyn Link>,
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

    /// Starts the thread.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(self) -> io::Result<Running> {
        let stop = Arc::new(AtomicBool::new(false));
        let counters = self.directions.iter().map(|d| (d.name.clone(), d.counters.clone())).collect();
        let theirs = stop.clone();
        let body = move || Forwarder::new(self.directions).run(&theirs);
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn(body)?;
        Ok(Running { stop, counters, thread: Some(thread) })
    }
}

/// Links at work. Dropping it cuts them.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    counters: Vec<(String, Arc<Counters>)>,
    thread: Option<JoinHandle<io::Result<Accuracy>>>,
}

/// How true the links were to their models.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Accuracy {
    /// Packets came out this much later than the model said, in µs: half of them.
    pub late_p50_us: f64,
    /// 99 % of them.
    pub late_p99_us: f64,
    /// All of them.
    pub late_max_us: f64,
    /// Packets counted.
    pub packets: u64,
    /// CPU time of the thread.
    pub cpu_seconds: f64,
    /// The thread ran ahead of ordinary ones.
    pub is_real_time: bool,
}

/// The end of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// One line per direction.
    pub links: Vec<LinkReport>,
    /// How true they were.
    pub accuracy: Accuracy,
}

/// What one direction has carried.
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

    /// Ends the links and says how they were.
    ///
    /// # Errors
    /// When a device failed.
    pub fn stop(mut self) -> io::Result<Report> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(|| io::Error::other("the links ended before"))?;
        let accuracy = thread.join().map_err(|_| io::Error::other("the links' thread panicked"))??;
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

/// A packet on its way, ordered by its arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flying {
    arrival: Instant,
    /// Equal arrivals keep their order.
    number: u64,
    direction: usize,
    packet: Vec<u8>,
}

struct Forwarder {
    directions: Vec<Direction>,
    flying: BinaryHeap<Reverse<Flying>>,
    spares: Vec<Vec<u8>>,
    number: u64,
    /// Nanoseconds.
    lateness: Histogram<u64>,
}

impl Forwarder {
    fn new(directions: Vec<Direction>) -> Self {
        let lateness = Histogram::new_with_max(60_000_000_000, 2)
            .unwrap_or_else(|_| unreachable!("the bounds are valid"));
        Self { directions, flying: BinaryHeap::new(), spares: Vec::new(), number: 0, lateness }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<Accuracy> {
        let is_real_time = schedule::real_time().is_ok();
        // Without it the kernel may add 50 µs to every sleep of an ordinary thread.
        nix::sys::prctl::set_timerslack(1)?;
        let mut readable = Vec::with_capacity(self.directions.len());
        while !stop.load(Ordering::Relaxed) {
            self.sleep(&mut readable)?;
            for direction in readable.drain(..) {
                self.take(direction)?;
                self.deliver();
            }
            self.deliver();
        }
        let cpu = getrusage(UsageWho::RUSAGE_THREAD)?;
        let cpu = (cpu.user_time() + cpu.system_time()).num_microseconds() as f64 / 1e6;
        let late = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Accuracy {
            late_p50_us: late(0.5),
            late_p99_us: late(0.99),
            late_max_us: self.lateness.max() as f64 / 1e3,
            packets: self.lateness.len(),
            cpu_seconds: cpu,
            is_real_time,
        })
    }

    /// Waits for a packet to arrive or to enter, and names the directions that something entered.
    fn sleep(&self, readable: &mut Vec<usize>) -> io::Result<()> {
        let next = self.flying.peek().map_or(u64::MAX, |Reverse(flying)| flying.arrival.as_nanos());
        let nanos = next.saturating_sub(clock::now().as_nanos()).min(LONGEST_SLEEP);

        let mut descriptors: Vec<_> = self.directions.iter().map(watch).collect();
        match ppoll(&mut descriptors, Some(TimeSpec::nanoseconds(nanos as i64)), None::<SigSet>) {
            Ok(0) | Err(nix::Error::EINTR) => {}
            Ok(_) => {
                let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
                readable.extend((0..descriptors.len()).filter(|&index| ready(&descriptors[index])));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Gives what entered a direction to its model.
    fn take(&mut self, index: usize) -> io::Result<()> {
        for _ in 0..READS {
            let mut packet = self.spares.pop().unwrap_or_else(|| vec![0; PACKET]);
            packet.resize(PACKET, 0);
            let direction = &mut self.directions[index];
            let len = match (&direction.device).read(&mut packet) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.spares.push(packet);
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            packet.truncate(len);
            let counters = &direction.counters;
            count(&counters.offered_bytes, len as u64);
            match direction.model.send(clock::now(), len) {
                Verdict::Arrives(arrival) => {
                    self.number += 1;
                    let flying = Flying { arrival, number: self.number, direction: index, packet };
                    self.flying.push(Reverse(flying));
                    continue;
                }
                Verdict::Lost => count(&counters.lost, 1),
                Verdict::Dropped => count(&counters.dropped, 1),
            }
            self.spares.push(packet);
        }
        Ok(())
    }

    /// Delivers what is due.
    fn deliver(&mut self) {
        let now = clock::now();
        while self.flying.peek().is_some_and(|Reverse(flying)| flying.arrival <= now) {
            let Some(Reverse(flying)) = self.flying.pop() else { return };
            self.lateness.saturating_record(clock::now().since(flying.arrival).as_nanos());
            let counters = &self.directions[flying.direction].counters;
            match (&self.directions[flying.direction ^ 1].device).write(&flying.packet) {
                Ok(len) => {
                    count(&counters.packets, 1);
                    count(&counters.bytes, len as u64);
                }
                // The device is down, or out of memory: to the packet it is the same.
                Err(_) => count(&counters.dropped, 1),
            }
            self.spares.push(flying.packet);
        }
    }
}

fn watch(direction: &Direction) -> PollFd<'_> {
    PollFd::new(direction.device.as_fd(), PollFlags::POLLIN)
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
