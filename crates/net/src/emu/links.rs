//! The work of the thread that carries packets across links.

use super::accuracy::{Accuracy, Meter};
use super::capture::{Sight, Tap};
use super::link::{Arrival, Link, Verdict};
use crate::clock;
use crate::sys::schedule;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::SigSet;
use nix::sys::time::{TimeSpec, TimeValLike};
use starhop_proto::time::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The longest packet of a device, with room to spare above its MTU of 1500.
const PACKET: usize = 2048;
/// Packets read from one device before due ones are delivered.
const READS: usize = 32;
/// Longest sleep of the thread, nanoseconds: between sleeps it also checks whether it should end.
const LONGEST_SLEEP: u64 = 50_000_000;
/// A look at the devices that takes longer than this was a sleep.
const ASLEEP: Duration = Duration::from_micros(20);
/// Events that are read at once.
const EVENTS: usize = 64;

/// Counters of one direction of a link. Read while it runs.
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

/// Something done to links by their own thread, between two packets.
pub(super) type Deed<L> = Box<dyn FnOnce(&mut Links<L>) + Send>;

/// A direction from a device to the device at the far end, which is that of the neighbouring direction: `index ^
/// 1`.
pub(super) struct Direction<L> {
    pub(super) name: String,
    pub(super) device: File,
    pub(super) model: L,
    pub(super) counters: Arc<Counters>,
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

/// All links of an emulator at work.
pub struct Links<L> {
    directions: Vec<Direction<L>>,
    /// Pending deeds, latest first.
    agenda: Vec<(Instant, Deed<L>)>,
    ready: Epoll,
    flying: BinaryHeap<Reverse<Flying>>,
    spares: Vec<Vec<u8>>,
    number: u64,
    meter: Meter,
    tap: Option<Tap>,
    /// Time at which the thread last polled the devices for packets.
    looked: Instant,
    /// A packet that is found now entered its device at this instant at the earliest.
    since: Instant,
}

impl<L: Link> Links<L> {
    /// The model of a direction.
    pub fn model(&mut self, direction: usize) -> &mut L {
        &mut self.directions[direction].model
    }

    /// All models, in the order of the directions: those of link `n` are `2 n` and `2 n + 1`.
    pub fn models(&mut self) -> impl Iterator<Item = &mut L> {
        self.directions.iter_mut().map(|direction| &mut direction.model)
    }

    /// Loses the packets under way in a direction.
    pub fn lose(&mut self, direction: usize) {
        let before = self.flying.len();
        self.flying.retain(|Reverse(flying)| flying.direction != direction);
        count(&self.directions[direction].counters.lost, (before - self.flying.len()) as u64);
    }

    pub(super) fn new(
        directions: Vec<Direction<L>>,
        mut agenda: Vec<(Instant, Deed<L>)>,
        tap: Option<Tap>,
    ) -> io::Result<Self> {
        let ready = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for (index, direction) in directions.iter().enumerate() {
            ready.add(&direction.device, EpollEvent::new(EpollFlags::EPOLLIN, index as u64))?;
        }
        // A stable sort: deeds of the same instant keep the given order.
        agenda.sort_by_key(|(at, _)| *at);
        agenda.reverse();
        Ok(Self {
            meter: Meter::new(directions.len()),
            tap,
            directions,
            agenda,
            ready,
            flying: BinaryHeap::new(),
            spares: Vec::new(),
            number: 0,
            looked: clock::now(),
            since: clock::now(),
        })
    }

    pub(super) fn run(mut self, stop: &AtomicBool) -> io::Result<Accuracy> {
        let is_real_time = schedule::real_time().is_ok();
        // By default the kernel may add 50 µs to every sleep of an ordinary thread.
        nix::sys::prctl::set_timerslack(1)?;
        let mut readable = Vec::with_capacity(EVENTS);
        while !stop.load(Ordering::Relaxed) {
            self.sleep(&mut readable)?;
            self.act();
            for direction in readable.drain(..) {
                self.take(direction)?;
                self.deliver();
            }
            self.deliver();
        }
        let cpu = getrusage(UsageWho::RUSAGE_THREAD)?;
        let cpu = (cpu.user_time() + cpu.system_time()).num_microseconds() as f64 / 1e6;
        Ok(self.meter.report(cpu, is_real_time))
    }

    /// Performs the deeds that are due.
    fn act(&mut self) {
        let now = clock::now();
        while self.agenda.last().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, deed)) = self.agenda.pop() {
                deed(self);
            }
        }
    }

    /// Waits for a packet to arrive or to enter, and lists the directions that packets entered.
    fn sleep(&mut self, readable: &mut Vec<usize>) -> io::Result<()> {
        let arrival = self.flying.peek().map_or(Instant::NEVER, |Reverse(flying)| flying.arrival);
        let next = self.agenda.last().map_or(arrival, |(at, _)| arrival.min(*at));
        let before = clock::now();
        let nanos = next.since(before).as_nanos().min(LONGEST_SLEEP);
        // The set is polled because epoll itself counts in milliseconds.
        let mut set = [PollFd::new(self.ready.0.as_fd(), PollFlags::POLLIN)];
        let found = ppoll(&mut set, Some(TimeSpec::nanoseconds(nanos as i64)), None::<SigSet>);
        let now = clock::now();
        // A sleeping thread was woken by the packet; a busy one may have kept the packet waiting.
        self.since = if now.since(before) > ASLEEP { now } else { self.looked };
        self.looked = now;
        match found {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => {
                let mut events = [EpollEvent::empty(); EVENTS];
                let found = self.ready.wait(&mut events, EpollTimeout::ZERO)?;
                readable.extend(events[..found].iter().map(|event| event.data() as usize));
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Gives the packets that entered a direction to its model.
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
            let now = clock::now();
            self.meter.on_seen(self.since, now);
            count(&direction.counters.offered_bytes, len as u64);
            let verdict = direction.model.send(now, &packet);
            if let Some(tap) = &self.tap {
                tap.note(index, sight(verdict), now, &packet);
            }
            match verdict {
                Verdict::Arrives(arrival) => {
                    self.launch(index, arrival, packet);
                    continue;
                }
                Verdict::Lost => count(&direction.counters.lost, 1),
                Verdict::Dropped => count(&direction.counters.dropped, 1),
            }
            self.spares.push(packet);
        }
        Ok(())
    }

    fn launch(&mut self, direction: usize, arrival: Arrival, mut packet: Vec<u8>) {
        if arrival.is_damaged {
            damage(&mut packet, self.number);
        }
        let copy = arrival.is_doubled.then(|| packet.clone());
        for packet in std::iter::once(packet).chain(copy) {
            self.number += 1;
            let flying = Flying { arrival: arrival.at, number: self.number, direction, packet };
            self.flying.push(Reverse(flying));
        }
    }

    /// Delivers the packets that are due.
    fn deliver(&mut self) {
        let now = clock::now();
        while self.flying.peek().is_some_and(|Reverse(flying)| flying.arrival <= now) {
            let Some(Reverse(flying)) = self.flying.pop() else { return };
            let out = clock::now();
            self.meter.on_delivered(flying.direction, flying.arrival, out);
            if let Some(tap) = &self.tap {
                tap.note(flying.direction, Sight::Leaves, out, &flying.packet);
            }
            let counters = &self.directions[flying.direction].counters;
            match (&self.directions[flying.direction ^ 1].device).write(&flying.packet) {
                Ok(len) => {
                    count(&counters.packets, 1);
                    count(&counters.bytes, len as u64);
                }
                // The device is down, or out of memory: to the packet it is the same.
                Err(_) => self.meter.failed += 1,
            }
            self.spares.push(flying.packet);
        }
    }
}

fn sight(verdict: Verdict) -> Sight {
    match verdict {
        Verdict::Arrives(_) => Sight::Enters,
        Verdict::Lost => Sight::Lost,
        Verdict::Dropped => Sight::Dropped,
    }
}

/// Flips a bit behind the IP header, where the transport's checksum detects it.
fn damage(packet: &mut [u8], number: u64) {
    let header = match packet.first().map(|first| first >> 4) {
        Some(4) => 20,
        _ => 40,
    };
    if let Some(body) = packet.get_mut(header..).filter(|body| !body.is_empty()) {
        let bit = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % (body.len() * 8);
        body[bit / 8] ^= 1 << (bit % 8);
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
