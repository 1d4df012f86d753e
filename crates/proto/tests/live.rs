//! Flows whose bytes come into being while they are asked for.

mod support;

use starhop_proto::config::Config;
use starhop_proto::consumer::{Consumer, ConsumerEvent, Request, Window};
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::node::Node;
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::time::{Duration, Instant};
use starhop_proto::wire::Plain;
use std::net::SocketAddr;
use support::{Checked, FLOW, addr, content, ms};

const START: Instant = Instant::from_nanos(1_000_000_000);
const WINDOW: u64 = 1 << 20;

/// The part of [`FLOW`] that exists by now.
#[derive(Default)]
struct Growing {
    available: u64,
    is_gone: bool,
}

impl Source for Growing {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        if flow != FLOW || self.is_gone {
            return Lookup::Unknown;
        }
        Lookup::Live { available: self.available, is_volatile: false }
    }

    fn read(&mut self, _now: Instant, _flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        assert!(range.end <= self.available, "{range:?} does not exist yet");
        out.extend((range.start..range.end).map(content));
        true
    }
}

/// A producer, a consumer, and a link of a given delay on which all packets within some times are lost.
struct Pair {
    now: Instant,
    delay: Duration,
    producer: Producer<Growing>,
    consumer: Consumer<Checked>,
    flights: Vec<(Instant, bool, Vec<u8>)>,
    events: Vec<ConsumerEvent>,
    is_cut: bool,
}

impl Pair {
    fn new(delay: Duration) -> Self {
        let mut this = Self {
            now: START,
            delay,
            producer: Producer::new(Config::default(), Growing::default(), Plain::new(1), 1),
            consumer: Consumer::new(Config::default(), Plain::new(2), 2),
            flights: Vec::new(),
            events: Vec::new(),
            is_cut: false,
        };
        let request = Request { flow: FLOW, upstream: addr(0), length: None, have: RangeSet::new() };
        assert!(this.consumer.open_live(
            START,
            request,
            Window { first: WINDOW, usual: WINDOW, most: WINDOW },
            Checked::default()
        ));
        this.carry();
        this
    }

    fn grow(&mut self, bytes: u64) {
        self.producer.source_mut().available += bytes;
        let available = self.producer.source().available;
        self.producer.on_available(self.now, FLOW, available);
        self.carry();
    }

    fn carry(&mut self) {
        let mut out = Vec::new();
        let at = self.now + self.delay;
        while self.producer.poll_transmit(self.now, &mut out).is_some() {
            self.flights.push((at, true, std::mem::take(&mut out)));
        }
        while self.consumer.poll_transmit(self.now, &mut out).is_some() {
            self.flights.push((at, false, std::mem::take(&mut out)));
        }
        self.events.extend(std::iter::from_fn(|| self.consumer.poll_event()));
        if self.is_cut {
            self.flights.retain(|(arrival, ..)| *arrival < at);
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += ms(1);
            let now = self.now;
            let (due, rest) = std::mem::take(&mut self.flights).into_iter().partition(|(at, ..)| *at <= now);
            self.flights = rest;
            let due: Vec<(Instant, bool, Vec<u8>)> = due;
            for (_, to_consumer, mut bytes) in due {
                let from: SocketAddr = addr(usize::from(!to_consumer));
                match to_consumer {
                    true => self.consumer.handle_datagram(now, from.into(), &mut bytes),
                    false => self.producer.handle_datagram(now, from.into(), &mut bytes),
                }
            }
            self.producer.handle_timeout(now);
            self.consumer.handle_timeout(now);
            self.carry();
        }
    }

    fn received(&self) -> u64 {
        let flow = self.consumer.flow(FLOW).expect("it is open");
        assert_eq!(flow.sink().wrong, 0);
        flow.in_order_end()
    }
}

#[test]
fn a_request_for_bytes_that_do_not_exist_yet_is_answered_the_moment_they_do() {
    let mut pair = Pair::new(ms(250));
    pair.run(ms(2_000));
    assert_eq!(pair.received(), 0);
    pair.grow(100);
    pair.run(ms(249));
    assert_eq!(pair.received(), 0);
    pair.run(ms(2));
    assert_eq!(pair.received(), 100, "half a round trip, because it was asked for before");
}

#[test]
fn a_flow_that_waits_says_nothing_and_is_not_forgotten() {
    let mut pair = Pair::new(ms(20));
    pair.run(ms(500));
    let before = pair.consumer.stats().flows;
    pair.run(ms(20_000));
    let after = pair.consumer.stats().flows;
    assert_eq!((after.interests_sent, after.timeouts), (before.interests_sent, 0));
    for _ in 0..100 {
        pair.grow(10);
        pair.run(ms(1_000));
    }
    assert_eq!(pair.received(), 1_000, "a trickle keeps it alive");
}

#[test]
fn bytes_lost_in_an_outage_come_when_the_next_ones_do() {
    let mut pair = Pair::new(ms(20));
    pair.grow(5_000);
    pair.run(ms(100));
    pair.is_cut = true;
    pair.grow(50_000);
    pair.run(ms(1_000));
    assert_eq!(pair.received(), 5_000);
    pair.is_cut = false;
    pair.grow(10);
    pair.run(ms(200));
    assert_eq!(pair.received(), 55_010);
}

#[test]
fn a_producer_that_forgot_the_requests_is_told_anew() {
    let mut pair = Pair::new(ms(20));
    pair.grow(5_000);
    pair.run(ms(100));
    // Longer than a producer remembers a silent neighbour.
    pair.is_cut = true;
    pair.run(ms(100_000));
    pair.is_cut = false;
    pair.grow(40_000);
    pair.run(ms(500));
    pair.consumer.urge(pair.now, FLOW);
    pair.run(ms(100));
    pair.consumer.renew(pair.now, FLOW);
    pair.run(ms(500));
    assert_eq!(pair.received(), 45_000);
}

#[test]
fn the_end_is_told_and_so_is_an_abort() {
    let mut pair = Pair::new(ms(20));
    pair.run(ms(100));
    pair.grow(3_000);
    pair.producer.on_end(FLOW);
    pair.run(ms(100));
    assert_eq!(pair.events, [ConsumerEvent::Finished { flow: FLOW, length: 3_000 }]);
    let mut pair = Pair::new(ms(20));
    pair.grow(3_000);
    pair.run(ms(100));
    pair.producer.source_mut().is_gone = true;
    pair.producer.withdraw(FLOW);
    pair.run(ms(100));
    assert_eq!(pair.events, [ConsumerEvent::NoSuchName { flow: FLOW }]);
}
