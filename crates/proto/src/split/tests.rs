//! The machines together: a gateway and its clients over a satellite with arbitrary losses.

use super::*;
use crate::name::{ByteRange, RangeSet};
use crate::rng::Rng;
use crate::time::{Duration, Instant};
use crate::units::Rate;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

const MSS: u64 = 512;
/// A full segment of 552 bytes takes 4 ms, whole steps of the rig.
const RATE: Rate = Rate::from_bps(1_104_000);
const ONE_WAY: Duration = Duration::from_millis(250);
const TO_SERVER: Duration = Duration::from_millis(80);

/// A server that fills the gateway's room, a round trip late, and a client.
struct Pair {
    client: Receiver,
    size: u64,
    /// The right edges that the server is told of, and the times.
    edges: VecDeque<(Instant, u64)>,
    given: u64,
    handed: RangeSet,
    released: u64,
    done: Option<Instant>,
}

/// Gateway, satellite and clients.
struct Rig {
    gateway: Gateway,
    pairs: Vec<Pair>,
    down: VecDeque<(Instant, Segment)>,
    up: VecDeque<(Instant, Segment)>,
    rng: Rng,
    /// Of packets for the client, and of those back.
    loss: (f64, f64),
    now: Instant,
    /// Highest number of bytes that the gateway held for a connection.
    most_held: u64,
    /// The clients' applications take nothing.
    keeps: bool,
}

impl Rig {
    fn new(sizes: &[u64], loss: (f64, f64), change: impl Fn(&mut SplitSettings)) -> Self {
        let mut settings = SplitSettings::new(RATE);
        settings.buffer = Buffer::PeakRate(RATE);
        change(&mut settings);
        let Ok(config) = SplitConfig::new(settings) else { unreachable!("the test's settings are possible") };
        let mut gateway = Gateway::new(config.rate, 0);
        let pair = |(index, &size): (usize, &u64)| {
            gateway.listen(ConnectionId(index as u64), &config);
            let mut client = Receiver::new(&config);
            client.open(Instant::ZERO);
            let (edges, handed) = (VecDeque::new(), RangeSet::new());
            Pair { client, size, edges, given: 0, handed, released: 0, done: None }
        };
        let pairs = sizes.iter().enumerate().map(pair).collect();
        let (down, up, rng) = (VecDeque::new(), VecDeque::new(), Rng::new(1));
        Self { gateway, pairs, down, up, rng, loss, now: Instant::ZERO, most_held: 0, keeps: false }
    }

    /// Runs by the millisecond until all clients have everything, for `limit` at most.
    fn run(&mut self, limit: Duration) {
        while self.pairs.iter().any(|pair| pair.done.is_none()) && self.now < Instant::ZERO + limit {
            self.now += Duration::from_millis(1);
            self.deliver();
            self.gateway.on_timeout(self.now, &mut vec![]);
            self.serve();
            self.send();
        }
    }

    fn deliver(&mut self) {
        let now = self.now;
        while self.down.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, segment)) = self.down.pop_front() else { return };
            let Pair { client, handed, .. } = &mut self.pairs[segment.connection.0 as usize];
            client.on_message(now, &segment.message, |range| {
                assert!(!handed.overlaps(range), "handed over twice");
                handed.insert(range);
            });
            client.keep(if self.keeps { client.next() } else { 0 });
        }
        while self.up.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, segment)) = self.up.pop_front() else { return };
            let (id, mut released) = (segment.connection, vec![]);
            if self.gateway.on_segment(now, &segment, &mut released) == Heard::Opened {
                self.gateway.on_server_rtt(id, TO_SERVER);
            }
            let pair = &mut self.pairs[id.0 as usize];
            assert!(released.iter().all(|range| pair.handed.contains(*range)), "released and not there");
            pair.released += released.iter().map(|range| range.len()).sum::<u64>();
        }
    }

    /// The servers fill the windows that were advertised a round trip ago.
    fn serve(&mut self) {
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            let id = ConnectionId(index as u64);
            pair.edges.push_back((self.now + TO_SERVER, pair.given + self.gateway.room(id)));
            while pair.edges.front().is_some_and(|(at, _)| *at <= self.now) {
                let Some((_, edge)) = pair.edges.pop_front() else { return };
                // Whole segments, except for the last.
                let whole = if edge >= pair.size { pair.size } else { edge / MSS * MSS };
                pair.given = pair.given.max(whole);
            }
            self.gateway.give(self.now, id, pair.given, pair.given == pair.size);
            self.most_held = self.most_held.max(self.gateway.backlog(id).held);
        }
    }

    fn send(&mut self) {
        while let Some(segment) = self.gateway.poll(self.now) {
            if !self.rng.chance(self.loss.0) {
                self.down.push_back((self.now + ONE_WAY, segment));
            }
        }
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            while let Some(message) = pair.client.poll(self.now) {
                if !self.rng.chance(self.loss.1) {
                    let segment = Segment { connection: ConnectionId(index as u64), message };
                    self.up.push_back((self.now + ONE_WAY, segment));
                }
            }
            if pair.client.is_complete() {
                pair.done.get_or_insert(self.now);
            }
        }
    }

    fn seconds(&self, pair: usize) -> f64 {
        let done = self.pairs[pair].done;
        done.map_or(f64::INFINITY, |done| done.since(Instant::ZERO).as_secs_f64())
    }
}

/// Seconds that `bytes` take in full segments.
fn least_seconds(bytes: u64) -> f64 {
    bytes as f64 / 512.0 * 4e-3
}

#[test]
fn a_clean_satellite_is_filled_from_the_first_round_trip_on() {
    let mut rig = Rig::new(&[1_000_000], (0.0, 0.0), |_| ());
    rig.run(Duration::from_secs(60));
    let took = rig.seconds(0);
    // Handshake and request take one round trip and a half, the last segment the fourth half.
    assert!(took - least_seconds(1_000_000) < 1.3, "{took}");
    assert_eq!(rig.gateway.stats(ConnectionId(0)).retransmitted, 0);
}

#[test]
fn everything_arrives_once_and_is_released_once_whatever_is_lost() {
    for loss in [(0.02, 0.0), (0.2, 0.0), (0.0, 0.5), (0.1, 0.3), (0.4, 0.4)] {
        let mut rig = Rig::new(&[200_000, 51_201], loss, |_| ());
        rig.run(Duration::from_secs(600));
        for pair in &rig.pairs {
            assert!(pair.client.is_complete(), "{loss:?}");
            assert!(pair.handed.contains(ByteRange::new(0, pair.size)));
            assert!(pair.released <= pair.size);
        }
    }
}

#[test]
fn losses_cost_their_own_repairs_and_little_else() {
    let mut rig = Rig::new(&[2_000_000], (0.05, 0.0), |_| ());
    rig.run(Duration::from_secs(120));
    let took = rig.seconds(0);
    // A buffer of one round trip runs out now and then while a hole is open: that is the price of its size.
    assert!(took * 0.95 / least_seconds(2_000_000) < 1.15, "{took}");
    let stats = rig.gateway.stats(ConnectionId(0));
    let lost = stats.segments as f64 * 0.05;
    assert!((stats.retransmitted as f64) < 1.25 * lost, "{stats:?}");
}

#[test]
fn lost_acknowledgements_alone_repeat_little() {
    let mut rig = Rig::new(&[1_000_000], (0.0, 0.3), |_| ());
    rig.run(Duration::from_secs(60));
    let stats = rig.gateway.stats(ConnectionId(0));
    assert!(rig.seconds(0) - least_seconds(1_000_000) < 1.5, "{} s", rig.seconds(0));
    assert_eq!(stats.retransmitted, 0, "cumulative acknowledgements make up for lost ones");
}

#[test]
fn connections_share_the_satellite_evenly() {
    let mut rig = Rig::new(&[4_000_000; 4], (0.01, 0.0), |_| ());
    rig.run(Duration::from_secs(40));
    let got: Vec<f64> = rig.pairs.iter().map(|pair| pair.client.next() as f64).collect();
    let (sum, squares) = got.iter().fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    assert!(sum * sum / (4.0 * squares) > 0.999, "{got:?}");
}

#[test]
fn the_buffer_holds_what_it_is_sized_to_and_no_more() {
    for release in [Release::Selective, Release::Cumulative] {
        let mut rig = Rig::new(&[1_000_000], (0.05, 0.05), |s| {
            (s.buffer, s.release) = (Buffer::Bytes(60_000), release);
        });
        rig.run(Duration::from_secs(120));
        assert!(rig.pairs[0].client.is_complete());
        assert!((50_000..=60_000).contains(&rig.most_held), "{}", rig.most_held);
    }
}

#[test]
fn releasing_what_is_selectively_acknowledged_is_faster() {
    let took = [Release::Selective, Release::Cumulative].map(|release| {
        let mut rig = Rig::new(&[2_000_000], (0.02, 0.0), |s| s.release = release);
        rig.run(Duration::from_secs(120));
        rig.seconds(0)
    });
    assert!(took[0] < 0.9 * took[1], "{took:?}");
}

#[test]
fn a_buffer_settles_where_the_closed_form_says() {
    let payload_rate = Rate::from_bps(1_024_000);
    for bytes in [30_000, 45_000, 90_000] {
        let mut rig = Rig::new(&[4_000_000], (0.0, 0.0), |s| s.buffer = Buffer::Bytes(bytes));
        rig.run(Duration::from_secs(20));
        let (before, since) = (rig.pairs[0].client.next(), rig.now);
        rig.run(Duration::from_secs(30));
        let took = rig.now.since(since).as_secs_f64();
        let measured = (rig.pairs[0].client.next() - before) as f64 * 8.0 / took;
        // An acknowledgement waits for a second segment, and pacing spreads the bytes that it frees.
        let to_client = Duration::from_millis(500) + Duration::from_millis(4 + 4);
        let expected = steady_state(bytes, payload_rate, to_client, TO_SERVER);
        let share = measured / expected.throughput.as_bps() as f64;
        assert!((0.97..1.01).contains(&share), "{bytes}: {measured} {expected:?}");
        let backlog = rig.gateway.backlog(ConnectionId(0)).unsent;
        assert!(
            backlog.abs_diff(expected.backlog) < 2_500,
            "{bytes}: {backlog} {expected:?} {:?}",
            rig.gateway.backlog(ConnectionId(0))
        );
    }
}

#[test]
fn a_question_reaches_the_gateway_once_its_copies_are_taken_off() {
    let mut rig = Rig::new(&[51_200], (0.3, 0.3), |_| ());
    rig.pairs[0].client.request(Instant::ZERO, 300);
    rig.run(Duration::from_secs(60));
    assert_eq!(rig.gateway.asked(ConnectionId(0)), 300);
}

#[test]
fn a_client_without_room_is_asked_until_it_has_some() {
    let mut rig = Rig::new(&[100_000], (0.0, 0.0), |s| s.receive_window = 16);
    rig.keeps = true;
    rig.run(Duration::from_secs(5));
    assert_eq!(rig.pairs[0].client.next(), 16 * MSS);
    // The acknowledgement that tells of the room is lost, and so are those after it for a while.
    (rig.keeps, rig.loss.1) = (false, 1.0);
    rig.pairs[0].client.keep(0);
    rig.run(Duration::from_secs(8));
    assert_eq!(rig.pairs[0].client.next(), 16 * MSS);
    rig.loss.1 = 0.0;
    rig.run(Duration::from_secs(20));
    assert!(rig.pairs[0].client.is_complete());
}

#[test]
fn a_closed_connection_sends_nothing_more() {
    let mut rig = Rig::new(&[1_000_000], (0.0, 0.0), |_| ());
    rig.run(Duration::from_secs(3));
    rig.gateway.close(ConnectionId(0));
    assert_eq!((rig.gateway.poll(rig.now), rig.gateway.poll_timeout()), (None, None));
    assert_eq!(rig.gateway.room(ConnectionId(0)), 0);
}
