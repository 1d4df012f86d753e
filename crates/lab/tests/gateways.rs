//! Users' TCP through a pair of gateways, in virtual time: the very code of the real gateways between models of TCP.

mod support;
#[path = "support/text.rs"]
mod text;

use starhop_lab::result::RunResult;
use starhop_lab::run::simulate;
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

/// Bulk through gateways over a hop of 100 Mbit/s. `hop` has the hop's delay and loss.
fn through_gateways(hop: &str, window: &str) -> RunResult {
    over(&format!("rate = \"100Mbit\"\nqueue = \"2000p\"\n{hop}"), window, 4)
}

/// So many connections with bulk through gateways over this hop.
fn over(hop: &str, window: &str, count: u32) -> RunResult {
    let text = format!(
        "title = \"gateways\"\nduration = \"20s\"\nwarmup = \"10s\"\n\
         [topology]\nkind = \"chain\"\nhops = 3\n[topology.link]\nrate = \"500Mbit\"\ndelay = \"10ms\"\n\
         [[topology.override]]\nhop = 2\n{hop}\n\
         [[flow]]\nname = \"bulk\"\ntransport = \"cubic\"\ncount = {count}\ngateway = [\"r1\", \"r2\"]\n\
         gateway_options = {{ window = \"{window}\" }}\n"
    );
    let result = simulate(&text::parse(&text), |_| ());
    assert!(result.problems.is_empty(), "{:?}", result.problems);
    result
}

fn mbps(result: &RunResult) -> f64 {
    result.flows.iter().map(|flow| flow.goodput_mbps).sum()
}

/// A burst takes ten requests one after the other. Gateways stood still for 0.75 s each time, and had 67 Mbit/s.
#[test]
fn requests_that_are_lost_in_a_burst_stop_no_gateway() {
    let hop = "delay = \"20ms\"\nloss = { gilbert_elliott = { mean = \"1%\", burst = 5 } }";
    let rate = mbps(&through_gateways(hop, "4MiB"));
    println!("{rate:.1} Mbit/s");
    assert!(rate >= 88.0, "{rate} Mbit/s of 92");
}

/// A window of 1 MiB is 15 Mbit/s on this path.
#[test]
fn a_path_that_holds_more_than_the_window_is_filled() {
    let rate = mbps(&through_gateways("delay = \"270ms\"", "1MiB"));
    println!("{rate:.1} Mbit/s");
    assert!(rate >= 88.0, "{rate} Mbit/s of 94");
}

/// A neighbour's counter that begins anew was taken for 130,000 lost packets, and the whole window was asked for again with each packet: two
/// of three packets were dropped.
#[test]
fn gateways_do_not_flood_a_slow_link_with_requests() {
    let hop = "rate = \"2Mbit\"\ndelay = \"20ms\"\nloss = \"1%\"\nqueue = \"20p\"";
    let result = over(hop, "4MiB", 40);
    let link = result.links.iter().find(|link| link.name == "r1-r2" && link.direction == "forward");
    let (link, rate) = (link.expect("a hop"), mbps(&result));
    println!("{rate:.2} Mbit/s, {} of {} dropped", link.dropped, link.packets);
    assert!(rate >= 1.7 && link.dropped * 50 <= link.packets, "{rate} Mbit/s, {} dropped", link.dropped);
}

/// A connection of 40 on 10 Mbit/s stores what leaves in a moment: its bytes waited for 21 s.
#[test]
fn a_slow_connection_stores_little() {
    let result = over("rate = \"10Mbit\"\ndelay = \"60ms\"\nqueue = \"200p\"", "4MiB", 40);
    let longest = result.flows.iter().map(|flow| flow.owd_ms.mean).fold(0.0, f64::max);
    println!("{longest:.0} ms from end to end, {:.2} Mbit/s", mbps(&result));
    assert!(longest <= 1_200.0 && mbps(&result) >= 8.9, "{longest} ms, {} Mbit/s", mbps(&result));
}

/// Sixty clients ask ten times each. A question that crossed in two records left the far gateway in two segments, and the simulator's
/// TCP kept the second one for up to minutes: seven clients had not all their answers after half a minute. Answers that leave packet by
/// packet in turn end together, and the link is idle while all clients think: 10.7 s.
#[test]
fn all_clients_of_a_crowd_have_all_their_answers() {
    let text = "title = \"web\"\nduration = \"20s\"\n[topology]\nkind = \"chain\"\nhops = 4\n[topology.link]\nrate = \"50Mbit\"\n\
        delay = \"10ms\"\n[[topology.override]]\nhop = 2\nrate = \"10Mbit\"\ndelay = \"20ms\"\n[[flow]]\nname = \"web\"\n\
        transport = \"cubic\"\ngateway = [\"r1\", \"r3\"]\ncount = 60\nsize = \"14480B\"\nrequests = 10\n\
        request_size = \"500B\"\nthink = \"300ms\"\n";
    let result = simulate(&text::parse(text), |_| ());
    let slowest =
        result.flows.iter().map(|flow| flow.completion_s.unwrap_or(f64::INFINITY)).fold(0.0, f64::max);
    println!("all answers after {slowest:.1} s");
    assert!(result.problems.is_empty() && slowest <= 8.8, "{slowest} s, {:?}", result.problems);
}
