//! A link between two sides in virtual time.

use super::pair::{Pair, START};
use starhop_proto::gateway::Gateway;
use starhop_proto::node::Node;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// When a datagram arrives, its number, the side that it arrives at, and its bytes.
type Flight = Reverse<(Instant, u64, usize, Vec<u8>)>;

pub(crate) struct Line {
    flights: BinaryHeap<Flight>,
    count: u64,
    delay: Duration,
    rate: Rate,
    pub(crate) loss: f64,
    /// The largest delay of packets, each by itself: they overtake each other.
    pub(crate) jitter: Duration,
    /// Time until which the packets of each side take its direction.
    pub(crate) busy: [Instant; 2],
    pub(crate) is_cut: bool,
    pub(crate) rng: Rng,
}

impl Line {
    pub(crate) fn new((delay, rate, loss): (Duration, Rate, f64), seed: u64) -> Self {
        Self {
            flights: BinaryHeap::new(),
            count: 0,
            delay,
            rate,
            loss,
            jitter: Duration::ZERO,
            busy: [START; 2],
            is_cut: false,
            rng: Rng::new(seed),
        }
    }

    /// A side sends a datagram, which takes its time and is lost where nobody `is_there`.
    pub(crate) fn send(&mut self, now: Instant, side: usize, datagram: Vec<u8>, is_there: bool) {
        let busy = self.busy[side].max(now) + self.rate.time_for(datagram.len() as u64 + 28);
        self.busy[side] = busy;
        if is_there && !self.is_cut && !self.rng.chance(self.loss) {
            self.count += 1;
            let late = Duration::from_nanos(self.rng.next_u64() % (self.jitter.as_nanos() + 1));
            self.flights.push(Reverse((busy + self.delay + late, self.count, 1 - side, datagram)));
        }
    }

    /// The next time from `now` on, and until `end`, at which something arrives or one of the gateways is due.
    pub(crate) fn next(&self, gateways: &[Gateway<Pair>; 2], now: Instant, end: Instant) -> Option<Instant> {
        let arrival = self.flights.peek().map(|Reverse(flight)| flight.0);
        let timers = gateways.iter().filter_map(Node::poll_timeout).map(|at| at.max(now));
        timers.chain(arrival).min().filter(|next| *next <= end)
    }

    /// A datagram that has arrived by `now`, and the side that it arrives at.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(usize, Vec<u8>)> {
        self.flights.peek().filter(|Reverse(flight)| flight.0 <= now)?;
        self.flights.pop().map(|Reverse((_, _, to, datagram))| (to, datagram))
    }
}
