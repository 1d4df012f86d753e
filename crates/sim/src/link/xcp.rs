//! XCP's router (Katabi, Handley, Rohrs: Congestion Control for High Bandwidth-Delay Product Networks, SIGCOMM
//! 2002): it writes into every packet the change of the window that its sender may make.
//!
//! Sans-IO, and no part of it knows packets or links: a gateway of real traffic can drive it as the simulator does.

use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;

/// The congestion header that travels with a segment and returns with its acknowledgement.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct XcpHeader {
    /// The sender's window, bytes on the wire.
    pub cwnd_bytes: f64,
    /// The sender's estimate of its round trip; zero while it has none, and then routers grant nothing.
    pub rtt: Duration,
    /// The change of the window that this packet brings, bytes on the wire. It starts as the sender's wish, and the
    /// tightest router on the way reduces it to its own limit.
    pub feedback_bytes: f64,
}

impl XcpHeader {
    /// The header of a packet of `bytes`, one of those that make up a window of `cwnd_bytes`, whose sender wishes
    /// for `demand_bytes` more window over a round trip.
    pub fn wish(cwnd_bytes: f64, rtt: Duration, demand_bytes: f64, bytes: u32) -> Self {
        let feedback_bytes = demand_bytes * f64::from(bytes) / cwnd_bytes.max(f64::from(bytes));
        Self { cwnd_bytes, rtt, feedback_bytes }
    }
}

/// Constants of the two controllers; the paper's are stable for any delay, capacity and number of flows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct XcpOptions {
    /// Share of the spare bandwidth that is handed out per control interval.
    pub alpha: f64,
    /// Share of the standing queue that is taken back per control interval.
    pub beta: f64,
    /// Share of the traffic that is shuffled from flow to flow, so that shares become fair.
    pub gamma: f64,
    /// The first control interval, before packets carry a round trip.
    pub first_interval: Duration,
    /// The packets that count as traffic.
    pub traffic: XcpTraffic,
}

/// The packets that an XCP router takes into account.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XcpTraffic {
    /// All packets. Flows that speak XCP then yield to other flows, which grow into the free capacity until they
    /// lose.
    #[default]
    All,
    /// Packets with XCP's header, as if the rest were not there. Where it takes a share of the link, XCP's windows grow
    /// beyond use, and a sender that takes the smaller of two windows competes by its end-to-end half (SatERN).
    Own,
}

impl Default for XcpOptions {
    fn default() -> Self {
        Self {
            alpha: 0.4,
            beta: 0.226,
            gamma: 0.1,
            first_interval: Duration::from_millis(50),
            traffic: XcpTraffic::All,
        }
    }
}

/// A control interval is at least this long: sums that round to zero must not be divisors.
const LEAST_INTERVAL: Duration = Duration::from_millis(1);
/// A control interval is at most this long: a single sender's header must not put the router to sleep.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);
/// The queue is watched over at least this long before it counts as standing.
const LEAST_QUEUE_WATCH: Duration = Duration::from_millis(2);

/// Sums over the packets of a control interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Sums {
    /// Bytes that arrived.
    bytes: f64,
    /// Bytes of the packets with a header.
    own_bytes: f64,
    /// Σ rtt·s/cwnd, seconds: each flow adds its round trip once per round trip.
    rtt_by_cwnd: f64,
    /// Σ rtt²·s/cwnd, square seconds.
    rtt_square_by_cwnd: f64,
}

impl Sums {
    /// The traffic and the queue as the controllers see them. In a queue that is served in the order of arrival,
    /// each kind of traffic holds the same share as in the arrivals.
    fn counted(mut self, traffic: XcpTraffic, queue_bytes: f64) -> (Self, f64) {
        if traffic == XcpTraffic::All || self.bytes == 0.0 {
            return (self, queue_bytes);
        }
        let share = self.own_bytes / self.bytes;
        self.bytes = self.own_bytes;
        (self, queue_bytes * share)
    }
}

/// Allowances for the time until the next control interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Grants {
    /// ξp, bytes per second and second.
    positive_scale: f64,
    /// ξn, per second.
    negative_scale: f64,
    /// Bytes per second of additions not handed out yet.
    positive_left: f64,
    /// Bytes per second of reductions not handed out yet.
    negative_left: f64,
}

/// The router half of XCP for one output.
///
/// Order of calls: [`Self::on_arrival`] when a packet comes, with the queue that it finds, and
/// [`Self::on_departure`] when it leaves. `now` never goes back. Packets without a header take part as traffic
/// only: they are counted by [`Self::on_arrival`] and nothing else.
#[derive(Clone, Debug)]
pub struct XcpRouter {
    options: XcpOptions,
    interval: Duration,
    interval_began: Option<Instant>,
    sums: Sums,
    grants: Grants,
    queue: StandingQueue,
}

impl XcpRouter {
    /// A router that has seen nothing.
    pub fn new(options: XcpOptions) -> Self {
        Self {
            options,
            interval: options.first_interval,
            interval_began: None,
            sums: Sums::default(),
            grants: Grants::default(),
            queue: StandingQueue::default(),
        }
    }

    /// A packet of `bytes` arrives, finds `queue_bytes` waiting for an output of `capacity`, and has `header` if
    /// its sender speaks XCP.
    pub fn on_arrival(
        &mut self,
        now: Instant,
        header: Option<&XcpHeader>,
        bytes: u32,
        queue_bytes: f64,
        capacity: Rate,
    ) {
        let began = *self.interval_began.get_or_insert(now);
        if now.since(began) >= self.interval {
            self.begin_interval(now, now.since(began), capacity);
        }
        self.queue.see(now, queue_bytes, capacity, self.interval);
        self.sums.bytes += f64::from(bytes);
        self.sums.own_bytes += if header.is_some() { f64::from(bytes) } else { 0.0 };
        if let Some(header) = header.filter(|header| has_word(header)) {
            let rtt = header.rtt.as_secs_f64();
            let turn = rtt * f64::from(bytes) / header.cwnd_bytes;
            self.sums.rtt_by_cwnd += turn;
            self.sums.rtt_square_by_cwnd += rtt * turn;
        }
    }

    /// The packet leaves: its feedback is reduced to the limit of this router.
    pub fn on_departure(&mut self, header: &mut XcpHeader, bytes: u32) {
        if !has_word(header) {
            header.feedback_bytes = header.feedback_bytes.min(0.0);
            return;
        }
        let (rtt, bytes) = (header.rtt.as_secs_f64(), f64::from(bytes));
        let positive = self.grants.positive_scale * rtt * rtt * bytes / header.cwnd_bytes;
        let negative = self.grants.negative_scale * rtt * bytes;
        let (allowed, asked) = (positive - negative, header.feedback_bytes);
        if asked > allowed {
            header.feedback_bytes = allowed;
            self.grants.take(positive / rtt, negative / rtt);
        } else {
            // Another router, or the sender itself, allows less: the allowance that it did not take counts as taken
            // back.
            self.grants.take(asked.max(0.0) / rtt, (allowed.max(0.0) - asked) / rtt);
        }
    }

    /// The control interval: the mean round trip of the traffic.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    fn begin_interval(&mut self, now: Instant, lasted: Duration, capacity: Rate) {
        let sums = std::mem::take(&mut self.sums);
        self.interval_began = Some(now);
        if sums.rtt_by_cwnd > 0.0 {
            let mean = Duration::from_secs_f64(sums.rtt_square_by_cwnd / sums.rtt_by_cwnd);
            self.interval = mean.clamp(LEAST_INTERVAL, LONGEST_INTERVAL);
        }
        let (counted, queue) = sums.counted(self.options.traffic, self.queue.standing());
        self.grants = Grants::new(&self.options, &counted, lasted, self.interval, capacity, queue);
    }
}

/// A sender that knows neither window nor round trip gets nothing, and counts as traffic only.
fn has_word(header: &XcpHeader) -> bool {
    header.cwnd_bytes > 0.0 && !header.rtt.is_zero()
}

impl Grants {
    /// The efficiency controller's φ = α·d·S − β·Q (the paper's equation 1), then the fairness controller's shares of it.
    fn new(
        options: &XcpOptions,
        sums: &Sums,
        lasted: Duration,
        interval: Duration,
        capacity: Rate,
        queue_bytes: f64,
    ) -> Self {
        let input = sums.bytes / lasted.as_secs_f64();
        let interval = interval.as_secs_f64();
        let spare = capacity.as_bps() as f64 / 8.0 - input;
        let aggregate = options.alpha * interval * spare - options.beta * queue_bytes;
        let shuffled = (options.gamma * input * interval - aggregate.abs()).max(0.0);
        let positive_left = (shuffled + aggregate.max(0.0)) / interval;
        let negative_left = (shuffled + (-aggregate).max(0.0)) / interval;
        // The sums are those of `lasted`; the allowances are spread over the packets of an equally long interval.
        Self {
            positive_scale: if sums.rtt_by_cwnd > 0.0 { positive_left / sums.rtt_by_cwnd } else { 0.0 },
            negative_scale: if sums.bytes > 0.0 { negative_left / sums.bytes } else { 0.0 },
            positive_left,
            negative_left,
        }
    }

    /// Uses up allowances; used allowances are not granted again in this interval (the paper's residue terms).
    fn take(&mut self, positive: f64, negative: f64) {
        self.positive_left -= positive;
        self.negative_left -= negative;
        if self.positive_left <= 0.0 {
            self.positive_scale = 0.0;
        }
        if self.negative_left <= 0.0 {
            self.negative_scale = 0.0;
        }
    }
}

/// The queue that did not drain: the least that arriving packets found within a propagation delay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct StandingQueue {
    standing: f64,
    least: Option<f64>,
    until: Instant,
}

impl StandingQueue {
    fn see(&mut self, now: Instant, bytes: f64, capacity: Rate, interval: Duration) {
        if now >= self.until {
            self.standing = self.least.take().unwrap_or(bytes);
            let wait = capacity.time_for(bytes as u64);
            let watch = interval.saturating_sub(wait).scaled(1, 2).max(LEAST_QUEUE_WATCH);
            self.until = now + watch;
        }
        self.least = Some(self.least.map_or(bytes, |least| least.min(bytes)));
    }

    fn standing(&self) -> f64 {
        self.standing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: Rate = Rate::from_mbps(8);
    const RTT: Duration = Duration::from_millis(100);

    /// Lets `flows` of (window in bytes, round trip) pass for one round trip of `RTT`, and returns the window
    /// change of each flow over its own round trip, bytes. A wish of `wish` bytes per packet.
    fn interval(router: &mut XcpRouter, from: Instant, flows: &[(f64, Duration)], queue: f64) -> Vec<f64> {
        let mut packets = Vec::new();
        for (flow, &(cwnd, rtt)) in flows.iter().enumerate() {
            let per_interval = cwnd / 1000.0 * RTT.as_secs_f64() / rtt.as_secs_f64();
            for index in 0..per_interval as u64 {
                let at = from + RTT.scaled(index, per_interval as u64);
                packets.push((at, flow, XcpHeader { cwnd_bytes: cwnd, rtt, feedback_bytes: 1e9 }));
            }
        }
        packets.sort_by_key(|&(at, flow, _)| (at, flow));
        let mut changes = vec![0.0; flows.len()];
        for (at, flow, mut header) in packets {
            router.on_arrival(at, Some(&header), 1000, queue, CAPACITY);
            router.on_departure(&mut header, 1000);
            let rtt = flows[flow].1;
            changes[flow] += header.feedback_bytes * rtt.as_secs_f64() / RTT.as_secs_f64();
        }
        changes
    }

    fn after_one_interval(flows: &[(f64, Duration)], queue: f64) -> Vec<f64> {
        let mut router = XcpRouter::new(XcpOptions { first_interval: RTT, ..XcpOptions::default() });
        interval(&mut router, Instant::ZERO, flows, queue);
        interval(&mut router, Instant::ZERO + RTT, flows, queue)
    }

    #[test]
    fn one_flow_gets_alpha_of_what_is_spare() {
        // Half of 8 Mbit/s is spare: 0.4 * 0.5 Mbyte/s * 0.1 s.
        let change = after_one_interval(&[(50_000.0, RTT)], 0.0)[0];
        assert!((change - 20_000.0).abs() < 1_000.0, "{change}");
    }

    #[test]
    fn a_standing_queue_is_drained_by_beta() {
        // Fully used, 10 kB waiting: -0.226 * 10 kB.
        let change = after_one_interval(&[(100_000.0, RTT)], 10_000.0)[0];
        assert!((change + 2_260.0).abs() < 150.0, "{change}");
    }

    #[test]
    fn spare_capacity_is_shared_equally_whatever_the_windows() {
        let change = after_one_interval(&[(10_000.0, RTT), (40_000.0, RTT)], 0.0);
        assert!((change[0] / change[1] - 1.0).abs() < 0.1, "{change:?}");
    }

    #[test]
    fn shuffling_takes_from_the_large_and_gives_to_the_small() {
        // Fully used and no queue: 10 % of the traffic moves; each gets half of it and pays by its share.
        let change = after_one_interval(&[(20_000.0, RTT), (80_000.0, RTT)], 0.0);
        assert!((change[0] - (5_000.0 - 2_000.0)).abs() < 400.0, "{change:?}");
        assert!((change[1] - (5_000.0 - 8_000.0)).abs() < 400.0, "{change:?}");
    }

    #[test]
    fn throughput_not_window_grows_equally_where_round_trips_differ() {
        let slow = Duration::from_millis(200);
        let change = after_one_interval(&[(20_000.0, RTT), (40_000.0, slow)], 0.0);
        let rates = [change[0] / RTT.as_secs_f64(), change[1] / slow.as_secs_f64()];
        // Per own round trip: the slow one gets its addition half as often and twice as large a rate.
        assert!((rates[1] / rates[0] - 2.0).abs() < 0.2, "{rates:?}");
    }

    #[test]
    fn what_was_granted_once_is_not_granted_again() {
        let mut router = XcpRouter::new(XcpOptions { first_interval: RTT, ..XcpOptions::default() });
        interval(&mut router, Instant::ZERO, &[(20_000.0, RTT)], 0.0);
        let granted: f64 = (0..1_000)
            .map(|index| {
                // Fifty times the packets that were there when the shares were computed, in one burst.
                let mut header = XcpHeader { cwnd_bytes: 20_000.0, rtt: RTT, feedback_bytes: 1e9 };
                let at = Instant::ZERO + RTT + Duration::from_micros(index);
                router.on_arrival(at, Some(&header), 1000, 0.0, CAPACITY);
                router.on_departure(&mut header, 1000);
                header.feedback_bytes
            })
            .sum();
        // Spare: 0.8 Mbyte/s; 0.4 of it over 0.1 s, and a packet's rounding.
        assert!(granted < 0.4 * 0.8e6 * 0.1 * 1.1, "{granted}");
    }

    /// Half of the traffic has no header. Returns the change of the window of a flow of 40 kB that makes up the
    /// other half.
    fn beside_others(traffic: XcpTraffic, queue: f64) -> f64 {
        let mut router = XcpRouter::new(XcpOptions { first_interval: RTT, traffic, ..XcpOptions::default() });
        let mut change = 0.0;
        for index in 0..80_u64 {
            let at = Instant::ZERO + RTT.scaled(index, 40);
            router.on_arrival(at, None, 1000, queue, CAPACITY);
            let mut header = XcpHeader { cwnd_bytes: 40_000.0, rtt: RTT, feedback_bytes: 1e9 };
            router.on_arrival(at, Some(&header), 1000, queue, CAPACITY);
            router.on_departure(&mut header, 1000);
            change += if index >= 40 { header.feedback_bytes } else { 0.0 };
        }
        change
    }

    #[test]
    fn what_counts_as_traffic_decides_what_is_spare() {
        // 8 Mbit/s are 100 kB per round trip: 20 kB are spare, or 60 kB where only own traffic counts.
        let (all, own) = (beside_others(XcpTraffic::All, 0.0), beside_others(XcpTraffic::Own, 0.0));
        assert!(
            (all - 0.4 * 20_000.0).abs() < 900.0 && (own - 0.4 * 60_000.0).abs() < 1_500.0,
            "{all} {own}"
        );
        // Half of the queue belongs to the other traffic. Where all traffic counts, the rest of the rate is
        // shuffled: 4520 bytes come back to this flow. Everyone pays for shuffling, but the half that packets
        // without a header pay goes to nobody.
        let (all, own) = (beside_others(XcpTraffic::All, 20_000.0), beside_others(XcpTraffic::Own, 20_000.0));
        assert!((all - (8_000.0 - 4_520.0 / 2.0)).abs() < 900.0, "{all}");
        assert!((own - (24_000.0 - 2_260.0)).abs() < 1_500.0, "{own}");
    }

    #[test]
    fn a_tighter_router_before_this_one_is_obeyed() {
        let mut router = XcpRouter::new(XcpOptions { first_interval: RTT, ..XcpOptions::default() });
        interval(&mut router, Instant::ZERO, &[(20_000.0, RTT)], 0.0);
        let mut header = XcpHeader { cwnd_bytes: 20_000.0, rtt: RTT, feedback_bytes: -7.0 };
        router.on_arrival(Instant::ZERO + RTT, Some(&header), 1000, 0.0, CAPACITY);
        router.on_departure(&mut header, 1000);
        assert_eq!(header.feedback_bytes, -7.0);
    }

    #[test]
    fn a_sender_without_a_round_trip_is_granted_nothing() {
        let mut router = XcpRouter::new(XcpOptions::default());
        let mut header = XcpHeader { cwnd_bytes: 10_000.0, rtt: Duration::ZERO, feedback_bytes: 9.0 };
        router.on_arrival(Instant::ZERO, Some(&header), 1000, 0.0, CAPACITY);
        router.on_departure(&mut header, 1000);
        assert_eq!(header.feedback_bytes, 0.0);
    }
}
