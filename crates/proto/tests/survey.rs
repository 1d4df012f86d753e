//! The state of a node for its operator: hops, flows, and transfers that ended.

mod support;

use starhop_proto::Node;
use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::hop::{About, Ending, Transfer, Version};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use support::{FLOW, Path, Rig, addr, ms};

const LENGTH: u64 = 1_000_000;

/// Client, relay and server; each hop carries 20 Mbit/s in 10 ms and loses 1 %.
fn finished() -> Rig {
    let path = Path { delay: ms(10), rate: Rate::from_bps(20_000_000), loss: 0.01, ..Path::default() };
    let mut rig = Rig::chain(2, Config::default(), Some(LENGTH), path);
    rig.start();
    rig.finish(Duration::from_secs(20)).expect("the transfer ends");
    // Repairs that crossed the packets that they repeat leave within a second.
    rig.run(ms(500), |_| false);
    rig
}

fn ended<N: Node<Event = Transfer>>(node: &mut N) -> Vec<Transfer> {
    std::iter::from_fn(|| node.poll_event()).collect()
}

#[test]
fn a_relay_knows_the_round_trip_the_loss_and_the_bytes_of_its_hops() {
    let mut rig = finished();
    let relay = rig.relay(1);
    let up = relay.upstreams().next().expect("an upstream");
    let (rtt, least) = up.rtt.expect("it was measured");
    assert!(least >= ms(20) && least < ms(25) && rtt >= least, "{rtt:?} {least:?}");
    assert!(up.carried.bytes > LENGTH && up.carried.packets > LENGTH / 1500, "{up:?}");
    let loss = up.carried.lost as f64 / (up.carried.lost + up.carried.packets) as f64;
    assert!((0.002..0.03).contains(&loss), "1 % is lost: {loss}");
    assert!(up.last_heard.is_some() && up.last_asked.is_some());
    let down = relay.downstreams().next().expect("a downstream");
    assert!(down.carried.bytes > LENGTH && down.rate > Rate::from_bps(5_000_000), "{down:?}");
    assert_eq!((down.queued, down.awaited, down.flows), (0, 0, 1));
    let flow = relay.flow_views().next().expect("a flow");
    assert_eq!((flow.id, flow.length, flow.upstream), (FLOW, Some(LENGTH), Some(up.addr)));
    assert_eq!((flow.subscribers, flow.expected), (1, 0));
    let served = rig.server().flow_views().next().expect("a flow");
    assert_eq!((served.id, served.length, served.upstream), (FLOW, Some(LENGTH), None));
}

#[test]
fn a_second_client_is_answered_from_the_cache_and_its_hop_says_so() {
    let mut rig = finished();
    let second = rig.add_client(1);
    rig.start();
    rig.run(Duration::from_secs(10), |_| false);
    let down = rig.relay(1).downstreams().find(|down| down.addr == addr(second)).expect("its hop");
    assert!(down.carried.from_cache >= LENGTH * 9 / 10, "{down:?}");
}

#[test]
fn a_transfer_that_reached_its_end_is_told_once_after_a_quiet_second() {
    let mut rig = finished();
    let now = rig.now;
    let server = rig.server();
    server.end_complete(now, Duration::from_secs(1));
    assert_eq!(ended(server), [], "its end was sent just now");
    for round in 0..2 {
        server.end_complete(now + Duration::from_secs(2), Duration::from_secs(1));
        let told = ended(server);
        assert_eq!(told.len(), usize::from(round == 0), "{told:?}");
        for transfer in told {
            assert_eq!((transfer.flow, transfer.ending), (FLOW, Ending::Complete));
            assert!(transfer.bytes >= LENGTH && transfer.bytes < LENGTH * 11 / 10, "{transfer:?}");
            assert!(transfer.repair_bytes > 0 && transfer.last_sent > transfer.began, "{transfer:?}");
        }
    }
}

/// The relay's record of a transfer whose client goes away in the middle, and before it the nodes in `also`.
fn abandoned(also: &[usize]) -> Transfer {
    let path = Path { delay: ms(10), rate: Rate::from_bps(2_000_000), ..Path::default() };
    let mut rig = Rig::chain(2, Config::default(), Some(LENGTH), path);
    rig.start();
    rig.run(Duration::from_secs(1), |_| false);
    also.iter().for_each(|&index| rig.kill(index));
    rig.run(ms(500), |_| false);
    rig.kill(2);
    rig.run(Duration::from_secs(200), |_| false);
    let told = ended(rig.relay(1));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].bytes < LENGTH);
    told[0]
}

#[test]
fn a_client_that_goes_away_stopped_if_it_was_sent_all_that_it_asked_for() {
    assert_eq!(abandoned(&[]).ending, Ending::Stopped);
}

#[test]
fn a_client_that_goes_away_while_bytes_are_missing_fell_silent() {
    assert_eq!(abandoned(&[0]).ending, Ending::Silent);
}

#[test]
fn an_upstream_tells_who_it_is_before_anybody_wants_anything_of_it_and_no_further() {
    let path = Path { delay: ms(10), rate: Rate::from_mbps(20), ..Path::default() };
    let mut rig = Rig::chain(3, Config::default(), Some(LENGTH), path);
    let about = |version| About { version: Version::new(version), epoch: Some(5_000_000) };
    rig.server().set_about(about("server"));
    rig.relay(1).set_about(about("near"));
    rig.relay(2).set_about(About { epoch: Some(2_000_000), ..about("far") });
    rig.relay(1).greet(addr(0));
    rig.relay(2).greet(addr(1));
    [1, 2].into_iter().for_each(|relay| rig.drain(relay));
    rig.run(ms(15), |_| false);
    for (asker, answerer) in [(1, 0), (2, 1)] {
        assert_eq!(rig.relay(asker).upstreams().next().expect("it asked").greeting, None, "{answerer}");
    }
    rig.run(ms(500), |_| false);
    for (asker, answerer, version, ahead) in [(1, 0, "server", 0), (2, 1, "near", 3_000_000)] {
        let up = rig.relay(asker).upstreams().next().expect("it asked");
        let greeting = up.greeting.expect("it was answered");
        assert_eq!((up.addr, greeting.version.as_str()), (addr(answerer), version));
        let clock = greeting.clock_ahead.expect("both know the time of day");
        assert!((clock - ahead).abs() < 2_000, "{clock} µs, for {ahead}");
        let (rtt, least) = up.rtt.expect("it was measured");
        assert!(rtt == least && rtt >= ms(20) && rtt < ms(22), "{rtt:?}");
        assert!(up.last_heard.is_some() && up.carried.packets == 0, "it is no data: {up:?}");
    }
}

#[test]
fn a_limit_of_the_rate_holds_whatever_the_link_carries() {
    let path = Path { delay: ms(10), rate: Rate::from_mbps(20), ..Path::default() };
    let limited = Settings { rate_limit: Rate::from_mbps(4), ..Profile::Starhop.settings() };
    let mut took = Vec::new();
    for settings in [Profile::Starhop.settings(), limited] {
        let mut rig = Rig::chain(1, Config::new(settings).expect("valid"), Some(LENGTH), path);
        rig.start();
        took.push(rig.finish(Duration::from_secs(20)).expect("the transfer ends").as_secs_f64());
    }
    // 8 Mbit at 4 Mbit/s on the wire, of which headers are 4 %.
    assert!(took[0] < 0.6 && (2.0..2.3).contains(&took[1]), "{took:?}");
}
