//! The limits that a node keeps against neighbours that have a key and misuse it: bounded memory, bounded answers,
//! and no Data in its cache except from a neighbour that it asked.

mod support;

use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::node::Node;
use starhop_proto::producer::Producer;
use starhop_proto::relay::{GROUP, Relay, Scrutiny, Verifier};
use starhop_proto::time::{Duration, Instant, WireTime};
use starhop_proto::units::Rate;
use starhop_proto::wire::{
    DataFlags, DataHeader, Echo, Interest, Limit, News, NotNow, Notice, Packet, Reason, Waited, Way,
};
use std::net::SocketAddr;
use support::{Content, FLOW, addr, content, datagram, ms, packet, plain};

const UPSTREAM: usize = 0;
const START: Instant = Instant::from_nanos(1_000_000_000);

fn config(change: impl FnOnce(&mut Settings)) -> Config {
    let mut settings = Profile::Starhop.settings();
    change(&mut settings);
    Config::new(settings).expect("settings within the rules")
}

fn relay(config: Config) -> Relay {
    Relay::new(config, addr(UPSTREAM), plain(1), 1)
}

fn producer(config: Config) -> Producer<Content> {
    let content = Content { length: None, reads: 0, first_reads: Vec::new() };
    Producer::new(config, content, plain(1), 1)
}

fn flow(n: u16) -> FlowId {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    FlowId(id)
}

fn interest(flow: FlowId, ranges: &[ByteRange]) -> Interest {
    let mut interest = Interest::feedback(flow, WireTime::from_micros(1), Rate::UNLIMITED);
    for &range in ranges {
        assert!(interest.ranges.push(range));
    }
    interest
}

/// Hands a packet over and returns the packets that the node sends at once, with their destinations.
fn give(
    node: &mut impl Node,
    now: Instant,
    from: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    let mut bytes = datagram(bytes, plain(1));
    node.handle_datagram(now, addr(from).into(), &mut bytes);
    take(node, now)
}

fn take(node: &mut impl Node, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut out = Vec::new();
    while let Some(transmit) = node.poll_transmit(now, &mut out) {
        sent.push((transmit.to.remote, packet(&out).to_vec()));
        out.clear();
    }
    sent
}

fn data(from: u64, len: usize, byte: Option<u8>) -> impl FnOnce(&mut Vec<u8>) {
    move |out| {
        let (echo, flags) =
            (Echo { time: WireTime::from_micros(1), way: Way::default() }, DataFlags::default());
        DataHeader { counter: 1, flow: FLOW, offset: from, echo, flags, waited: Waited::default() }.emit(out);
        out.extend((from..from + len as u64).map(|at| byte.unwrap_or_else(|| content(at))));
    }
}

/// Payload in Data for `to`, which must all be true.
fn payload_for(sent: &[(SocketAddr, Vec<u8>)], to: usize) -> u64 {
    let packets = sent.iter().filter(|(at, _)| *at == addr(to)).map(|(_, bytes)| Packet::parse(bytes));
    let mut bytes = 0;
    for packet in packets {
        if let Ok(Packet::Data(header, payload)) = packet {
            let range = header.range(payload.len());
            assert!(
                (range.start..range.end).zip(payload).all(|(at, byte)| content(at) == *byte),
                "{range:?}"
            );
            bytes += range.len();
        }
    }
    bytes
}

/// A node that was not asked knows the requested range, and is faster than the one that was asked.
#[test]
fn data_of_a_stranger_is_neither_kept_nor_passed_on() {
    let mut relay = relay(Config::default());
    let wanted = ByteRange::new(0, 1350);
    let asked = give(&mut relay, START, 1, |out| interest(FLOW, &[wanted]).emit(out));
    assert!(asked.iter().any(|(to, _)| *to == addr(UPSTREAM)), "the relay asks its upstream");
    for stranger in [1, 2] {
        let sent = give(&mut relay, START, stranger, data(0, 1350, Some(0xbb)));
        assert!(sent.is_empty(), "{sent:?}");
    }
    let gone = give(&mut relay, START, 2, |out| {
        let flags = DataFlags { no_such_name: true, ..DataFlags::default() };
        DataHeader {
            counter: 1,
            flow: FLOW,
            offset: 0,
            echo: Echo { time: WireTime::from_micros(1), way: Way::default() },
            flags,
            waited: Waited::default(),
        }
        .emit(out);
    });
    assert!(gone.is_empty(), "a stranger cannot say that the flow is none: {gone:?}");
    assert_eq!((relay.stats().cache_bytes, relay.stats().unasked), (0, 3));
    let sent = give(&mut relay, START + ms(1), UPSTREAM, data(0, 1350, None));
    assert_eq!(payload_for(&sent, 1), 1350);
}

#[test]
fn data_that_nobody_asked_for_is_not_kept() {
    let mut relay = relay(Config::default());
    give(&mut relay, START, UPSTREAM, data(0, 1350, Some(0xbb)));
    assert_eq!(relay.stats().cache_bytes, 0, "no flow");
    give(&mut relay, START, 1, |out| interest(FLOW, &[ByteRange::new(0, 1350)]).emit(out));
    give(&mut relay, START, UPSTREAM, data(500_000, 1350, Some(0xbb)));
    assert_eq!(relay.stats().cache_bytes, 0, "another range");
    // The first writer wins.
    give(&mut relay, START, UPSTREAM, data(0, 1350, None));
    give(&mut relay, START, UPSTREAM, data(0, 1350, Some(0xbb)));
    let sent =
        give(&mut relay, START + ms(50), 2, |out| interest(FLOW, &[ByteRange::new(0, 1350)]).emit(out));
    assert_eq!(payload_for(&sent, 2), 1350);
}

/// Knows the true bytes, once it was shown a proof.
struct Knowing {
    shown: bool,
}

const PROOF: FlowId = FlowId([9; 16]);

impl Verifier for Knowing {
    fn proof_flow(&self, _flow: FlowId) -> FlowId {
        PROOF
    }

    fn learn(&mut self, _flow: FlowId, proof: &[u8]) -> bool {
        self.shown = proof == [5; 64];
        self.shown
    }

    fn knows(&self, _flow: FlowId) -> bool {
        self.shown
    }

    fn judge(&self, _flow: FlowId, number: u64, bytes: &[u8]) -> bool {
        (number * GROUP..).zip(bytes).all(|(at, byte)| content(at) == *byte)
    }
}

/// An upstream that was asked lies; its wrong bytes are in the cache when the next neighbour asks.
#[test]
fn a_lie_in_the_cache_is_forgotten_before_it_is_told_again() {
    for scrutiny in [Some(Scrutiny::Full), Some(Scrutiny::Sample), None] {
        let mut relay = relay(Config::default());
        if let Some(scrutiny) = scrutiny {
            relay.set_verifier(Box::new(Knowing { shown: false }), scrutiny, 1);
        }
        // The proof passes first, as every client asks for it first.
        give(&mut relay, START, 1, |out| interest(PROOF, &[ByteRange::new(0, 64)]).emit(out));
        give(&mut relay, START, UPSTREAM, |out| {
            let (echo, flags) = (
                Echo { time: WireTime::from_micros(1), way: Way::default() },
                DataFlags { end: true, ..DataFlags::default() },
            );
            DataHeader { counter: 1, flow: PROOF, offset: 0, echo, flags, waited: Waited::default() }
                .emit(out);
            out.extend([5; 64]);
        });
        let groups = 64u64;
        for number in 0..groups {
            let group = ByteRange::at(number * GROUP, GROUP);
            give(&mut relay, START, 1, |out| interest(FLOW, &[group]).emit(out));
            for at in (group.start..group.end).step_by(1024) {
                give(&mut relay, START, UPSTREAM, data(at, 1024, (number % 2 == 1).then_some(0xbb)));
            }
        }
        let mut disproved = Vec::new();
        for neighbour in [2, 3] {
            for number in 0..groups {
                let group = ByteRange::at(number * GROUP, GROUP);
                let now = START + ms(200 + number);
                give(&mut relay, now, neighbour, |out| interest(FLOW, &[group]).emit(out));
            }
            disproved.push(relay.stats().disproved_groups);
        }
        let all = groups / 2;
        match scrutiny {
            Some(Scrutiny::Full) => assert_eq!(disproved, [all, all]),
            // One in eight is judged until one was wrong; all after that.
            Some(Scrutiny::Sample) => assert!((1..=all).contains(&disproved[0]) && disproved[1] == all),
            None => assert_eq!(disproved, [0, 0], "its clients find out"),
        }
        let stats = relay.stats();
        assert_eq!(stats.last_disproved, scrutiny.map(|_| addr(UPSTREAM)));
        assert!(stats.interests_out > groups + stats.disproved_groups, "all are fetched again: {stats:?}");
    }
}

/// A neighbour falls silent in a flow that others keep alive; the next neighbour in its place inherits neither
/// debts nor bytes.
#[test]
fn a_neighbour_that_fell_silent_leaves_nothing_to_the_next() {
    let mut relay = relay(config(|s| s.state_bytes = 64 * 1024));
    give(&mut relay, START, 1, |out| interest(FLOW, &[ByteRange::at(0, 50_000)]).emit(out));
    let mut now = START;
    for second in 1..=100 {
        now = START + ms(1000 * second);
        let range = ByteRange::at(100_000 * second, 10);
        give(&mut relay, now, 2, |out| interest(FLOW, &[range]).emit(out));
        relay.handle_timeout(now);
        take(&mut relay, now);
    }
    assert_eq!(relay.stats().neighbours, 1, "the silent one is forgotten");
    give(&mut relay, now, 3, |out| interest(FLOW, &[ByteRange::at(60_000_000, 10)]).emit(out));
    let sent = give(&mut relay, now, UPSTREAM, data(0, 1000, None));
    assert_eq!(payload_for(&sent, 3) + payload_for(&take(&mut relay, now + ms(100)), 3), 0);
    let mut turned = interest(FLOW, &[ByteRange::at(60_000_100, 10)]);
    turned.turn = 1;
    give(&mut relay, now, 3, |out| turned.emit(out));
    assert_eq!(relay.stats().neighbours, 2);
}

#[test]
fn credit_is_one_neighbours_over_all_flows() {
    let limit = 1 << 20;
    let mut relay = relay(config(|s| s.credit_per_neighbour = limit));
    let mut asked = 0;
    for n in 0..100 {
        let range = ByteRange::new(0, 64 * 1024);
        let sent = give(&mut relay, START, 1, |out| interest(flow(n), &[range]).emit(out));
        asked += sent.iter().map(|(_, bytes)| requested(bytes)).sum::<u64>();
    }
    assert!(asked <= limit, "{asked} bytes were asked of the upstream for one neighbour");
    assert!(asked > limit / 2 && relay.stats().over_credit > 0);
    let range = ByteRange::new(0, 64 * 1024);
    let sent = give(&mut relay, START, 2, |out| interest(flow(200), &[range]).emit(out));
    assert_eq!(requested(&sent[0].1), range.len(), "another neighbour has its own");
}

fn requested(bytes: &[u8]) -> u64 {
    match Packet::parse(bytes) {
        Ok(Packet::Interest(interest)) => interest.ranges.iter().map(|range| range.len()).sum(),
        _ => 0,
    }
}

/// Bytes that arrive, or are given up, are credit again.
#[test]
fn credit_comes_back() {
    let limit = 64 * 1024;
    let mut relay = relay(config(|s| s.credit_per_neighbour = limit));
    for round in 0..20u64 {
        let (now, from) = (START + ms(40 * round), round * limit);
        let range = ByteRange::at(from, limit);
        let sent = give(&mut relay, now, 1, |out| interest(FLOW, &[range]).emit(out));
        assert!(sent.iter().map(|(_, bytes)| requested(bytes)).sum::<u64>() >= limit, "round {round}");
        let mut received = 0;
        for at in (from..from + limit).step_by(1024) {
            received += payload_for(&give(&mut relay, now, UPSTREAM, data(at, 1024, None)), 1);
        }
        received += payload_for(&take(&mut relay, now + ms(30)), 1);
        assert_eq!(received, limit, "round {round}");
    }
    assert_eq!(relay.stats().over_credit, 0);
}

#[test]
fn flows_and_neighbours_are_bounded_in_a_relay_and_in_a_producer() {
    let limit = 256 * 1024;
    let small = || config(|s| s.state_bytes = limit);
    let mut relay = relay(small());
    for n in 0..1000u16 {
        let from = 1 + usize::from(n % 20);
        give(&mut relay, START, from, |out| interest(flow(n), &[ByteRange::new(0, 10)]).emit(out));
    }
    let stats = relay.stats();
    assert!(stats.state_bytes <= limit && stats.flows * 4096 <= limit, "{stats:?}");
    assert!(stats.neighbours == 20 && stats.over_limit >= 900, "{stats:?}");
    let mut alone = self::relay(small());
    for n in 0..1000 {
        give(&mut alone, START, 1, |out| interest(flow(n), &[ByteRange::new(0, 10)]).emit(out));
    }
    assert!((28..=32).contains(&alone.stats().flows), "one neighbour gets half: {:?}", alone.stats());
    let newcomer = give(&mut alone, START, 2, |out| interest(flow(2000), &[ByteRange::new(0, 10)]).emit(out));
    assert_eq!(requested(&newcomer[0].1), 10, "and the next one is served");
    // The same flows, asked for by ten neighbours.
    let mut crowded = self::relay(small());
    for n in 0..1000u16 {
        let from = 1 + usize::from(n / 100);
        give(&mut crowded, START, from, |out| interest(flow(n % 100), &[ByteRange::new(0, 10)]).emit(out));
    }
    assert!(crowded.stats().state_bytes <= limit, "{:?}", crowded.stats());
    let mut producer = producer(small());
    for from in 1..200 {
        give(&mut producer, START, from, |out| interest(FLOW, &[ByteRange::new(0, 10)]).emit(out));
    }
    let stats = producer.stats();
    assert!(stats.state_bytes <= limit && stats.neighbours < 100 && stats.over_limit > 100, "{stats:?}");
}

/// A range costs memory however short it is.
#[test]
fn scattered_requests_are_bounded() {
    let limit = 100;
    let mut relay = relay(config(|s| s.max_ranges_per_flow = limit));
    let mut asked = 0;
    for n in 0..1000u64 {
        let ranges: Vec<ByteRange> = (0..8).map(|i| ByteRange::at((n * 8 + i) * 10, 1)).collect();
        let sent = give(&mut relay, START, 1, |out| interest(FLOW, &ranges).emit(out));
        asked += sent.iter().map(|(_, bytes)| requested(bytes)).sum::<u64>();
    }
    assert_eq!(asked, limit as u64);
    let mut producer = producer(config(|s| s.max_ranges_per_flow = limit));
    for n in 0..1000u64 {
        let ranges: Vec<ByteRange> = (0..8).map(|i| ByteRange::at((n * 8 + i) * 10, 1)).collect();
        let mut frozen = interest(FLOW, &ranges);
        frozen.link_rate = Rate::ZERO;
        give(&mut producer, START, 1, |out| frozen.emit(out));
    }
    assert_eq!(producer.stats().over_credit, 8000 - limit as u64);
}

/// Feedback of 0 and of infinity: neither makes a node send more than its operator allows, and neither harms other
/// flows.
#[test]
fn a_granted_rate_is_clamped_and_is_only_the_granters() {
    let most = Rate::from_mbps(20);
    let mut producer = producer(config(|s| s.max_rate = most));
    // Neighbour 1 grants everything, neighbour 2 nothing.
    for (neighbour, rate) in [(1, Rate::UNLIMITED), (2, Rate::ZERO)] {
        for n in 0..40 {
            let mut greedy = interest(FLOW, &[ByteRange::at(n * 65_536, 65_536)]);
            greedy.link_rate = rate;
            give(&mut producer, START, neighbour, |out| greedy.emit(out));
        }
    }
    let mut sent = [0, 0];
    for step in 0..10_000 {
        let packets = take(&mut producer, START + Duration::from_micros(100 * step));
        sent[0] += payload_for(&packets, 1);
        sent[1] += payload_for(&packets, 2);
    }
    let allowed = most.bytes_in(Duration::from_secs(1));
    assert!(sent[0] <= allowed && sent[0] * 10 > allowed * 9, "{sent:?} of {allowed}");
    assert_eq!(sent[1], 0);
}

#[test]
fn a_request_travels_no_further_than_the_protocol_allows_whatever_it_says() {
    let mut relay = relay(Config::default());
    let mut endless = interest(FLOW, &[ByteRange::new(0, 10)]);
    endless.hop_limit = Interest::MAX_HOP_LIMIT;
    let sent = give(&mut relay, START, 1, |out| endless.emit(out));
    let Ok(Packet::Interest(passed)) = Packet::parse(&sent[0].1) else { panic!("an Interest") };
    assert_eq!(passed.hop_limit, Interest::DEFAULT_HOP_LIMIT - 1);
}

/// Per authenticated byte in, no more bytes out than were asked for; the memory behind it is within the operator's
/// limit.
#[test]
fn one_interest_never_makes_a_node_send_more_than_it_names_and_the_limit_allows() {
    let mut producer = producer(Config::default());
    let all = ByteRange::new(0, 1 << 40);
    let mut greedy = interest(FLOW, &[all]);
    greedy.reason = Reason::Lost;
    let mut sent = payload_for(&give(&mut producer, START, 1, |out| greedy.emit(out)), 1);
    for step in 1..1000 {
        sent += payload_for(&take(&mut producer, START + ms(step)), 1);
    }
    assert_eq!(sent, 64 * 1024);
}

/// The refusals that a node sent, by destination.
fn told(sent: &[(SocketAddr, Vec<u8>)]) -> Vec<(SocketAddr, NotNow)> {
    let not_now = |bytes: &[u8]| match Packet::parse(bytes) {
        Ok(Packet::Notice(Notice { news: News::NotNow(not_now), .. })) => Some(not_now),
        _ => None,
    };
    sent.iter().filter_map(|(to, bytes)| Some((*to, not_now(bytes)?))).collect()
}

/// The neighbour is told of every limit that keeps a node from taking its request, with no more bytes than it sent.
#[test]
fn no_limit_is_met_with_silence() {
    let limits = [
        (config(|s| s.state_bytes = 64 * 1024), Limit::Flows),
        (config(|s| s.missed_names_per_second = 1), Limit::Names),
        (config(|s| s.credit_per_neighbour = 1 << 20), Limit::Bytes),
        (config(|s| s.max_ranges_per_flow = 1), Limit::Bytes),
    ];
    for (config, limit) in limits {
        let mut relay = relay(config);
        let mut refusals = 0;
        for n in 0..1000 {
            let ranges = [ByteRange::new(0, 30_000), ByteRange::new(31_000, 62_000)];
            let ask = interest(flow(n), &ranges);
            let mut asked = Vec::new();
            ask.emit(&mut asked);
            let sent = give(&mut relay, START, 1, |out| ask.emit(out));
            let told = told(&sent);
            refusals += told.iter().filter(|(_, told)| told.limit == limit).count();
            let requested: u64 = sent.iter().map(|(_, bytes)| requested(bytes)).sum();
            assert!(requested == 61_000 || told.len() == 1, "{limit:?}, request {n}: {requested} bytes");
            let expected = [limit, Limit::Names];
            let is_for_us = |(to, told): &(_, NotNow)| *to == addr(1) && expected.contains(&told.limit);
            assert!(told.iter().all(is_for_us), "{told:?}");
            let answered: usize =
                sent.iter().filter(|(to, _)| *to == addr(1)).map(|(_, bytes)| bytes.len()).sum();
            assert!(answered <= asked.len(), "{answered} bytes for {}", asked.len());
        }
        assert!(refusals > 200, "{limit:?}: {refusals}");
    }
}

/// There is no hop on which it could be told, and yet it is.
#[test]
fn a_neighbour_for_which_there_is_no_room_is_told() {
    let mut producer = producer(config(|s| s.state_bytes = 64 * 1024));
    let mut refusals = 0;
    for from in 1..200 {
        let sent = give(&mut producer, START, from, |out| interest(FLOW, &[ByteRange::new(0, 10)]).emit(out));
        let told = told(&sent);
        let is_served =
            payload_for(&sent, from) + payload_for(&take(&mut producer, START + ms(10)), from) > 0;
        assert!(is_served || !told.is_empty(), "neighbour {from}");
        refusals += told.iter().filter(|(_, not_now)| not_now.limit == Limit::Neighbours).count();
    }
    assert!(refusals > 100, "{refusals}");
}

/// A refused request may be repeated, and is then taken.
#[test]
fn who_comes_back_at_the_time_it_was_told_is_served() {
    let limit = 64 * 1024;
    let mut relay = relay(config(|s| s.credit_per_neighbour = limit));
    let [first, second] = [ByteRange::new(0, limit), ByteRange::new(limit, limit + 1024)];
    give(&mut relay, START, 1, |out| interest(FLOW, &[first]).emit(out));
    let sent = give(&mut relay, START, 1, |out| interest(FLOW, &[second]).emit(out));
    let [(_, not_now)] = told(&sent)[..] else { panic!("{sent:?}") };
    for at in (0..limit).step_by(1024) {
        give(&mut relay, START + ms(1), UPSTREAM, data(at, 1024, None));
    }
    let now = START + ms(1) + not_now.after;
    take(&mut relay, now);
    let sent = give(&mut relay, now, 1, |out| interest(FLOW, &[second]).emit(out));
    assert_eq!((requested(&sent[0].1), told(&sent).len()), (1024, 0));
}

/// A request is taken as far as there is room, in whole packets: if the front of a request waited while its end was served, the end would make
/// it look lost.
#[test]
fn a_request_that_is_too_large_is_taken_as_far_as_there_is_room() {
    let (limit, payload) = (64 * 1024, Config::default().payload as u64);
    let (whole, beyond) = (ByteRange::new(0, limit + 10_000), ByteRange::at(limit + 10_000, 5_000));
    let room = ByteRange::new(0, limit - limit % payload);
    let bounded = || {
        config(|s| (s.credit_per_neighbour, s.request_limit, s.receive_window) = (limit, 2 * limit, 1 << 20))
    };
    let mut relay = relay(bounded());
    let sent = give(&mut relay, START, 1, |out| interest(FLOW, &[whole]).emit(out));
    let is_refused = |sent: &[(SocketAddr, Vec<u8>)]| told(sent).len() == 1;
    assert_eq!((requested(&sent[0].1), is_refused(&sent)), (room.len(), true), "{sent:?}");
    let sent = give(&mut relay, START, 1, |out| interest(FLOW, &[beyond]).emit(out));
    assert!(is_refused(&sent) && sent.len() == 1, "nothing behind it overtakes the rest: {sent:?}");
    let mut producer = producer(bounded());
    let sent = give(&mut producer, START, 1, |out| interest(FLOW, &[whole]).emit(out));
    assert!(is_refused(&sent) && producer.stats().over_credit == whole.len() - room.len(), "{sent:?}");
}

/// A relay that is put off as a whole has no room either: it tells the neighbours that asked, and keeps nothing.
#[test]
fn a_relay_passes_on_that_its_upstream_has_no_room() {
    let mut relay = relay(config(|_| {}));
    for from in [1, 2] {
        give(&mut relay, START, from, |out| interest(FLOW, &[ByteRange::new(0, 5000)]).emit(out));
    }
    let after = Duration::from_millis(300);
    let notice = |limit| {
        let news = News::NotNow(NotNow::new(limit, after));
        move |out: &mut Vec<u8>| {
            Notice {
                counter: 0,
                flow: FLOW,
                echo: Echo { time: WireTime::from_micros(1), way: Way::default() },
                news,
            }
            .emit(out);
        }
    };
    let sent = give(&mut relay, START + ms(5), UPSTREAM, notice(Limit::Bytes));
    assert_eq!(told(&sent).len(), 2);
    assert_eq!(relay.stats().flows, 1, "part of it was taken");
    let later = START + ms(5) + after.scaled(3, 2);
    relay.handle_timeout(later);
    let again = take(&mut relay, later);
    assert_eq!(
        again.iter().map(|(_, bytes)| requested(bytes)).sum::<u64>(),
        5000,
        "the relay comes back itself"
    );
    let sent = give(&mut relay, START + ms(900), UPSTREAM, notice(Limit::Flows));
    let expected = NotNow::new(Limit::Flows, after);
    assert_eq!(told(&sent), [1, 2].map(|from| (addr(from), expected)));
    assert_eq!(relay.stats().flows, 0);
}

/// Flows that no client waits for any more make room for others, long before they are forgotten as idle.
#[test]
fn flows_that_are_done_with_make_room_for_others() {
    let mut relay = relay(config(|s| s.state_bytes = 1 << 20));
    let (mut now, mut refused) = (START, 0);
    for n in 0..2000 {
        now += ms(30);
        relay.handle_timeout(now);
        let sent = give(&mut relay, now, 1, |out| interest(flow(n), &[ByteRange::new(0, 10)]).emit(out));
        refused += told(&sent).len();
        give(&mut relay, now, UPSTREAM, |out| {
            let (echo, flags) = (
                Echo { time: WireTime::from_micros(1), way: Way::default() },
                DataFlags { end: true, ..DataFlags::default() },
            );
            let waited = Waited::default();
            DataHeader { counter: 1, flow: flow(n), offset: 0, echo, flags, waited }.emit(out);
            out.extend((0..10).map(content));
        });
        take(&mut relay, now + ms(5));
    }
    // 33 flows begin per second, and 128 have room at once.
    assert_eq!(refused, 0, "{:?}", relay.stats());
    assert!(relay.stats().flows < 200, "{:?}", relay.stats());
}
