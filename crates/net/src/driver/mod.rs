//! Carries datagrams and time between a [`Node`] and an [`Endpoint`].
//!
//! One driver, one socket, one thread: it belongs on a tokio `current_thread` runtime, and a machine with
//! more cores runs more of them. In its steady state it allocates nothing.

mod backlog;
mod batch;
mod receive;
mod timer;

use crate::clock;
use crate::endpoint::Endpoint;
use batch::Batch;
use receive::Receiver;
use starhop_proto::Node;
use starhop_proto::time::{Duration, Instant};
use std::io;
pub(crate) use timer::Timer;

/// Bytes taken from the node before they are sent: four full GSO sends. More would make the first of them
/// wait, less would hide equal neighbours from the coalescing.
const SEND_AHEAD: usize = 256 * 1024;

/// Turns between two visits to the runtime, which has signals and timers to look after.
const TURNS_PER_YIELD: u32 = 16;

/// Shortest time between two timeouts. A paced node would wake for every packet: above some 100 Mbit/s the packets
/// of this span leave in one send instead, which costs a third of the CPU time. The pacer lets a packet be ahead of
/// its time by more than twice this span, so no rate is lost.
const COALESCE: Duration = Duration::from_micros(100);

/// A node whose timeout stays in the past without effect is not called again before this time.
const IDLE_FLOOR: Duration = Duration::from_micros(50);

/// While the socket refuses packets, timeouts are handled at this interval only: their packets could not leave.
const BLOCKED_FLOOR: Duration = Duration::from_millis(1);

/// Counters of a driver since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct DriverStats {
    /// Datagrams received.
    pub rx_datagrams: u64,
    /// Bytes in them.
    pub rx_bytes: u64,
    /// System calls that received something.
    pub rx_calls: u64,
    /// Datagrams handed to the kernel.
    pub tx_datagrams: u64,
    /// Bytes in them.
    pub tx_bytes: u64,
    /// System calls that sent something.
    pub tx_calls: u64,
    /// Sends that had to wait for the socket.
    pub tx_blocked: u64,
    /// Datagrams that the kernel refused (no route, too big, filtered): lost, like any other.
    pub tx_refused: u64,
    /// Messages of the network (ICMP) about datagrams of ours.
    pub rx_errors: u64,
    /// The system's error number of the last refusal or message.
    pub last_errno: Option<i32>,
}

impl DriverStats {
    /// The counts after `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            rx_datagrams: self.rx_datagrams - before.rx_datagrams,
            rx_bytes: self.rx_bytes - before.rx_bytes,
            rx_calls: self.rx_calls - before.rx_calls,
            tx_datagrams: self.tx_datagrams - before.tx_datagrams,
            tx_bytes: self.tx_bytes - before.tx_bytes,
            tx_calls: self.tx_calls - before.tx_calls,
            tx_blocked: self.tx_blocked - before.tx_blocked,
            tx_refused: self.tx_refused - before.tx_refused,
            rx_errors: self.rx_errors - before.rx_errors,
            last_errno: self.last_errno,
        }
    }

    /// Adds what was counted next.
    pub fn add(&mut self, next: Self) {
        self.rx_datagrams += next.rx_datagrams;
        self.rx_bytes += next.rx_bytes;
        self.rx_calls += next.rx_calls;
        self.tx_datagrams += next.tx_datagrams;
        self.tx_bytes += next.tx_bytes;
        self.tx_calls += next.tx_calls;
        self.tx_blocked += next.tx_blocked;
        self.tx_refused += next.tx_refused;
        self.rx_errors += next.rx_errors;
        self.last_errno = next.last_errno;
    }
}

/// Runs one node on one socket. Call [`Driver::turn`] again and again, and take events in between.
#[derive(Debug)]
pub struct Driver<N> {
    node: N,
    endpoint: Endpoint,
    timer: Timer,
    receiver: Receiver,
    batch: Batch,
    stats: DriverStats,
    /// When the runtime asked the kernel last whether datagrams are there.
    informed_at: Instant,
    fired_at: Instant,
    idle_turns: u32,
    turns: u32,
}

impl<N: Node> Driver<N> {
    /// A driver for `node` on `endpoint`, within a tokio runtime.
    ///
    /// # Errors
    /// When the kernel has no timer to give.
    pub fn new(node: N, endpoint: Endpoint) -> io::Result<Self> {
        Ok(Self {
            node,
            receiver: Receiver::new(&endpoint),
            endpoint,
            timer: Timer::new()?,
            batch: Batch::default(),
            stats: DriverStats::default(),
            informed_at: Instant::ZERO,
            fired_at: Instant::ZERO,
            idle_turns: 0,
            turns: 0,
        })
    }

    /// The node.
    pub fn node(&self) -> &N {
        &self.node
    }

    /// The node, to call methods of its role.
    pub fn node_mut(&mut self) -> &mut N {
        &mut self.node
    }

    /// Ends the driver; the socket closes.
    pub fn into_node(self) -> N {
        self.node
    }

    /// The socket.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Counters since the start.
    pub fn stats(&self) -> DriverStats {
        self.stats
    }

    /// The next thing that the application should know.
    pub fn poll_event(&mut self) -> Option<N::Event> {
        self.node.poll_event()
    }

    /// Waits for an event and handles it. Dropping the future half-way loses nothing.
    ///
    /// # Errors
    /// The socket itself fails; losses in the network are no errors.
    pub async fn turn(&mut self) -> io::Result<()> {
        self.turns += 1;
        if self.turns.is_multiple_of(TURNS_PER_YIELD) {
            tokio::task::yield_now().await;
        }
        loop {
            let received = self.receive()?;
            let fired = self.fire();
            let sent = self.transmit()?;
            if received || sent {
                self.idle_turns = 0;
                return Ok(());
            }
            self.idle_turns += 1;
            if fired && self.idle_turns < 4 {
                return Ok(());
            }
            self.wait().await?;
        }
    }

    fn receive(&mut self) -> io::Result<bool> {
        let (node, stats) = (&mut self.node, &mut self.stats);
        self.receiver.receive(&self.endpoint, stats, |now, face, datagram| {
            node.handle_datagram(now, face, datagram);
        })
    }

    /// Handles timeouts, in order with the arrivals: an answer that lies in the socket is not overdue.
    fn fire(&mut self) -> bool {
        let now = self.receiver.known_until(self.informed_at);
        let due = self.node.poll_timeout().is_some_and(|deadline| deadline <= now);
        if due {
            self.fired_at = clock::now();
            self.node.handle_timeout(now);
        }
        due
    }

    fn transmit(&mut self) -> io::Result<bool> {
        let mut progress = false;
        loop {
            if !self.batch.flush(&self.endpoint, &mut self.stats)? {
                return Ok(progress);
            }
            if !self.batch.fill(&mut self.node, &self.endpoint, SEND_AHEAD) {
                return Ok(progress);
            }
            progress = true;
        }
    }

    async fn wait(&mut self) -> io::Result<()> {
        let blocked = self.batch.is_waiting();
        let deadline = self.wake_up(blocked);
        self.timer.arm(deadline)?;
        tokio::select! {
            biased;
            ready = self.endpoint.io.readable() => ready,
            ready = self.timer.expired(), if deadline.is_some() => ready,
            ready = self.endpoint.io.writable(), if blocked => ready,
        }?;
        self.informed_at = clock::now();
        Ok(())
    }

    fn wake_up(&self, blocked: bool) -> Option<Instant> {
        let deadline = self.node.poll_timeout()?.max(self.fired_at + COALESCE);
        let floor = match (blocked, self.idle_turns) {
            (true, _) => BLOCKED_FLOOR,
            (false, 4..) => IDLE_FLOOR,
            _ => return Some(deadline),
        };
        Some(deadline.max(clock::now() + floor))
    }
}
