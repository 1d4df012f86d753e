//! One direction of a link: policer → rate → queue → loss → delay.
//!
//! Sans-IO and without an event queue: [`Link::send`] returns the fate of a packet at once, because no later event
//! changes it. So a simulator needs one event per packet and link, and an emulator can put real packets through the
//! very same model.

mod bursty;
mod delay;
mod disorder;
mod loss;
mod outage;
mod police;
mod queue;
mod rate;
mod xcp;

pub use bursty::Bursty;
pub use delay::DelayModel;
pub use disorder::{Disorder, Fate};
pub use loss::{GilbertElliott, Loss, LossModel};
pub use outage::{Outage, Window};
pub use police::PoliceOptions;
pub use queue::{DropTail, QueueLimit};
pub use rate::{Opportunities, RateSchedule, Service, Transmitter};
pub use xcp::{XcpHeader, XcpOptions, XcpRouter, XcpTraffic};

use police::Policer;
use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// The properties of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Sending rate over time.
    pub rate: RateSchedule,
    /// Limit of the queue.
    pub queue: QueueLimit,
    /// A policer in front of the queue.
    pub police: Option<PoliceOptions>,
    /// Losses on the way.
    pub loss: LossModel,
    /// Propagation delay.
    pub delay: DelayModel,
    /// Times at which the link is away.
    pub outage: Option<Outage>,
    /// Reordering, doubling and damage of packets.
    pub disorder: Disorder,
    /// The router in front of it speaks XCP.
    pub xcp: Option<XcpOptions>,
}

impl LinkConfig {
    /// A faultless link with an unlimited queue.
    pub fn ideal(rate: Rate, delay: Duration) -> Self {
        Self {
            rate: RateSchedule::Constant(rate),
            queue: QueueLimit::Unlimited,
            police: None,
            loss: LossModel::None,
            delay: DelayModel::Fixed(delay),
            outage: None,
            disorder: Disorder::default(),
            xcp: None,
        }
    }

    /// Mean throughput in `[from, to)` for packets of `bytes`, bit/s: mean rate, less losses and outages.
    pub fn mean_bps(&self, from: Instant, to: Instant, bytes: u32) -> f64 {
        let seconds = to.since(from).as_secs_f64();
        let up = 1.0 - self.outage.as_ref().map_or(0.0, |outage| outage.share(from, to));
        let policed = self.police.map_or(f64::INFINITY, |police| police.rate.as_bps() as f64);
        (self.rate.bits_between(from, to) / seconds * up).min(policed) * (1.0 - self.loss.mean(bytes))
    }
}

/// The fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It arrives.
    Arrives(Arrival),
    /// The queue was full, or a policer dropped it.
    Dropped,
    /// It was sent, and lost on the way.
    Lost,
}

/// The arrival of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Arrival of its last bit.
    pub at: Instant,
    /// Not before any packet sent earlier. Out of order otherwise.
    pub in_order: bool,
    /// A second copy arrives with it.
    pub is_doubled: bool,
    /// A bit is wrong.
    pub is_damaged: bool,
}

/// Counters of one direction since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkCounters {
    /// Packets accepted: sent, lost ones included.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Packets that found the queue full, or that a policer dropped.
    pub dropped: u64,
    /// Nanoseconds that accepted packets waited in the queue, together.
    pub waited_ns: u64,
    /// The longest that a packet waited, nanoseconds.
    pub longest_wait_ns: u64,
}

impl LinkCounters {
    /// Counts since `earlier`; the longest wait stays that of the whole run.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            lost: self.lost - earlier.lost,
            dropped: self.dropped - earlier.dropped,
            waited_ns: self.waited_ns - earlier.waited_ns,
            longest_wait_ns: self.longest_wait_ns,
        }
    }
}

impl LinkCounters {
    /// The sum of both counters; the longest wait is the longer of the two.
    pub fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            lost: self.lost + other.lost,
            dropped: self.dropped + other.dropped,
            waited_ns: self.waited_ns + other.waited_ns,
            longest_wait_ns: self.longest_wait_ns.max(other.longest_wait_ns),
        }
    }
}

/// A running link, one direction.
#[derive(Clone, Debug)]
pub struct Link {
    transmitter: Transmitter,
    queue: DropTail,
    policer: Option<Policer>,
    loss: Loss,
    delay: DelayModel,
    outage: Option<Outage>,
    disorder: Option<Disorder>,
    xcp: Option<Box<XcpRouter>>,
    last_arrival: Instant,
    counters: LinkCounters,
}

/// Splits an outage into one for which the transmitter waits, and one that loses the packets sent during it.
fn split_outage(outage: Option<Outage>) -> (Option<Outage>, Option<Outage>) {
    match outage {
        Some(outage) if outage.hold => (Some(outage), None),
        other => (None, other),
    }
}

impl Link {
    /// A link that is idle.
    pub fn new(config: LinkConfig) -> Self {
        let (held, outage) = split_outage(config.outage);
        Self {
            transmitter: Transmitter::new(config.rate, held),
            queue: DropTail::new(config.queue),
            policer: config.police.map(Policer::new),
            loss: Loss::new(config.loss),
            delay: config.delay,
            outage,
            disorder: (!config.disorder.is_none()).then_some(config.disorder),
            xcp: config.xcp.map(|options| Box::new(XcpRouter::new(options))),
            last_arrival: Instant::ZERO,
            counters: LinkCounters::default(),
        }
    }

    /// Whether packets are to be shown to [`Self::route`].
    pub fn is_xcp(&self) -> bool {
        self.xcp.is_some()
    }

    /// Lets an XCP router see a packet that is about to be sent, and write into its header if it has one.
    ///
    /// The router acts when a packet arrives, not when it leaves the queue. Its feedback is therefore older by the
    /// queueing delay, and a link under XCP has almost no queue.
    pub fn route(&mut self, now: Instant, bytes: u32, header: Option<&mut XcpHeader>) {
        let Some(router) = &mut self.xcp else { return };
        let capacity = self.transmitter.schedule().at(now);
        let queue = capacity.bytes_in(self.transmitter.free_at().since(now)) as f64;
        router.on_arrival(now, header.as_deref(), bytes, queue, capacity);
        if let Some(header) = header {
            router.on_departure(header, bytes);
        }
    }

    /// Takes a packet of `bytes` on the wire. `now` never goes back.
    pub fn send(&mut self, now: Instant, bytes: u32, rng: &mut Rng) -> Verdict {
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(now, bytes)) {
            self.counters.dropped += 1;
            return Verdict::Dropped;
        }
        let must_wait = self.transmitter.free_at() > now;
        if must_wait && !self.queue.has_room(now, bytes) {
            self.counters.dropped += 1;
            return Verdict::Dropped;
        }
        let service = self.transmitter.transmit(now, bytes);
        if must_wait {
            self.queue.push(service.starts, bytes);
        }
        self.count(service.starts.since(now), bytes);
        if self.is_away(service) || self.loss.loses(bytes, rng) {
            self.counters.lost += 1;
            return Verdict::Lost;
        }
        Verdict::Arrives(self.arrival(service.ends, rng))
    }

    fn count(&mut self, waited: Duration, bytes: u32) {
        self.counters.packets += 1;
        self.counters.bytes += u64::from(bytes);
        self.counters.waited_ns = self.counters.waited_ns.saturating_add(waited.as_nanos());
        self.counters.longest_wait_ns = self.counters.longest_wait_ns.max(waited.as_nanos());
    }

    fn is_away(&self, service: Service) -> bool {
        if service.ends.as_nanos() == u64::MAX {
            return true;
        }
        let Some(outage) = &self.outage else { return false };
        let window = outage.window(service.starts);
        window.down_until.is_some() || window.next_down <= service.ends
    }

    fn arrival(&mut self, sent: Instant, rng: &mut Rng) -> Arrival {
        let at = sent + self.delay.sample(sent, rng);
        let fate = self.disorder.map_or(Fate::default(), |disorder| disorder.draw(rng));
        if let Some(held) = fate.held {
            let (is_doubled, is_damaged) = (fate.is_doubled, fate.is_damaged);
            return Arrival { at: at + held, in_order: false, is_doubled, is_damaged };
        }
        if !self.delay.keeps_order() {
            let (is_doubled, is_damaged) = (fate.is_doubled, fate.is_damaged);
            return Arrival { at, in_order: false, is_doubled, is_damaged };
        }
        // A signal does not overtake another, even where the delay falls.
        self.last_arrival = self.last_arrival.max(at);
        Arrival {
            at: self.last_arrival,
            in_order: true,
            is_doubled: fate.is_doubled,
            is_damaged: fate.is_damaged,
        }
    }

    /// The signal is under way for `delay` from now on. Packets keep their order where it falls.
    pub fn set_delay(&mut self, delay: Duration) {
        self.delay = DelayModel::Fixed(delay);
    }

    /// Loses by another model from now on.
    pub fn set_loss(&mut self, loss: LossModel) {
        if *self.loss.model() != loss {
            self.loss = Loss::new(loss);
        }
    }

    /// Sends at another rate and with other outages from now on. Packets accepted before keep their times.
    pub fn set_rate(&mut self, rate: RateSchedule, outage: Option<Outage>) {
        let (held, outage) = split_outage(outage);
        self.transmitter.set_schedule(rate, held);
        self.outage = outage;
    }

    /// Bits that get through in `[from, to)` for packets of `bytes`: the integral of the rate, less losses and
    /// outages.
    pub fn carried_bits(&self, from: Instant, to: Instant, bytes: u32) -> f64 {
        let up = 1.0 - self.outage.as_ref().map_or(0.0, |outage| outage.share(from, to));
        let policed = self.policer.map_or(f64::INFINITY, |policer| policer.bits_in(to.since(from)));
        (self.transmitter.bits_between(from, to) * up).min(policed) * (1.0 - self.loss.model().mean(bytes))
    }

    /// Forgets the packets that wait or are under way: the caller lost them.
    pub fn reset(&mut self, now: Instant) {
        self.transmitter.reset(now);
        self.queue.clear();
        self.last_arrival = now;
    }

    /// Time until all that was accepted is sent.
    pub fn backlog(&self, now: Instant) -> Duration {
        self.transmitter.free_at().since(now)
    }

    /// Bits that left the transmitter until `now`.
    pub fn bits_sent(&self, now: Instant) -> f64 {
        let ahead = self.transmitter.free_at();
        let waiting = if ahead > now { self.schedule().bits_between(now, ahead) } else { 0.0 };
        (self.counters.bytes as f64 * 8.0 - waiting).max(0.0)
    }

    /// The schedule of its rate.
    pub fn schedule(&self) -> &RateSchedule {
        self.transmitter.schedule()
    }

    /// The propagation delay at `at`.
    pub fn propagation(&self, at: Instant) -> Duration {
        self.delay.at(at)
    }

    /// Counters since the start.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
