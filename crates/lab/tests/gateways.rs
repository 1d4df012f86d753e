//! Users' TCP through a pair of gateways, in virtual time: the very code of the real gateways between models of TCP.

mod support;

use support::run;

const SEEDS: [&str; 3] = ["seed=1", "seed=2", "seed=3"];
/// Plain TCP goes first: its luck with losses does not depend on what the gateways sent before it.
const PLAIN_FIRST: [&str; 4] =
    ["flow.plain.start=3s", "flow.plain.stop=30s", "flow.through.start=30s", "flow.through.stop=60s"];

/// A geostationary link of 20 Mbit/s that loses 1 %. The bytes are compared at the gateway near the client, and a difference is a
/// problem of the run.
#[test]
fn tcp_through_gateways_fills_a_satellite_on_which_plain_tcp_has_a_thirtieth() {
    for seed in SEEDS {
        let result = run("geo-gateway.toml", &[&[seed][..], &PLAIN_FIRST].concat());
        let [through, plain] = &result.flows[..] else { panic!("{:?}", result.flows) };
        println!("{seed}: {:?} s; plain {} Mbit/s", through.completion_s, plain.goodput_mbps);
        assert!(result.problems.is_empty(), "{:?}", result.problems);
        // The link takes 8.5 s for the bytes and their headers, and the first byte 1.1 s.
        assert!(through.completion_s.is_some_and(|s| s <= 11.5), "{seed}: {:?}", through.completion_s);
        assert!(plain.goodput_mbps <= 1.0, "{seed}: {}", plain.goodput_mbps);
    }
}

/// The code of real gateways, with the machines that the simulator's own gateways of that protocol have.
#[test]
fn the_rate_based_protocol_fills_the_satellite_too() {
    let options =
        "flow.through.gateway_options={ protocol = \"rate-split\", controller = { fixed = \"20Mbit\" } }";
    for (loss, limit) in [("0", 9.9), ("1%", 11.5)] {
        let result = run("geo-gateway.toml", &[options, &format!("topology.override.0.loss={loss}")]);
        println!("loss {loss}: {:?} s", result.flows[0].completion_s);
        assert!(result.problems.is_empty(), "{:?}", result.problems);
        assert!(result.flows[0].completion_s.is_some_and(|s| s <= limit), "{:?}", result.flows[0]);
    }
}

#[test]
fn connections_share_a_pair_of_gateways() {
    let result = run(
        "geo-gateway.toml",
        &["flow.through.count=4", "flow.through.size=5MB", "duration=25s", "flow.plain.start=24s"],
    );
    let through: Vec<_> = result.flows.iter().filter_map(|flow| flow.completion_s).collect();
    println!("{through:?} s");
    assert!(through.len() == 4 && through.iter().all(|s| (9.0..11.5).contains(s)), "{through:?}");
}

/// The round trip takes 0.56 s: a question and its answer of ten segments take no second one.
#[test]
fn an_answer_through_gateways_takes_one_round_trip() {
    let changes = ["flow.through.size=14480B", "flow.through.requests=20", "flow.through.think=100ms"];
    let result = run("geo-gateway.toml", &changes);
    let took = result.flows[0].completion_s.unwrap_or(f64::INFINITY);
    println!("20 answers in {took} s");
    assert!(took <= 20.0 * 0.66 + 1.2, "{took}");
}
