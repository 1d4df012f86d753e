//! SatERN as its scenarios set it up: no connection is split, and the gateway reads nothing but XCP's header.

mod support;

use starhop_lab::result::{LinkResult, RunResult};
use starhop_lab::sweep::Document;
use support::run;

fn satellite(result: &RunResult) -> &LinkResult {
    let is_it = |link: &&LinkResult| link.name == "gateway-terminal" && link.direction == "forward";
    result.links.iter().find(is_it).expect("the satellite link")
}

const TUNNEL: &str = r#"flow.a.tunnel=["server", "client"]"#;
const CODE: &str = r#"flow.a.fec={ from = "server", to = "gateway" }"#;

#[test]
fn a_gateway_that_sees_ciphertext_and_xcp_only_holds_the_window() {
    // In the first seconds the gateway learns the path.
    let plain = run("satern.toml", &["warmup=20s"]);
    let sealed = run("satern.toml", &["warmup=20s", TUNNEL]);
    // Without XCP at the gateway the very same tunnel fills its queue and loses.
    let droptail = run("satern.toml", &["warmup=20s", TUNNEL, "topology.edge.1.router=droptail"]);
    for (name, result) in [("plain", &plain), ("sealed", &sealed), ("droptail", &droptail)] {
        let link = satellite(result);
        println!("{name}: {:.3} Mbit/s, {:.1} ms", result.flows[0].goodput_mbps, link.mean_queue_ms);
    }
    assert_eq!(satellite(&sealed).dropped, 0);
    assert!(satellite(&sealed).mean_queue_ms < 16.0);
    assert!(satellite(&droptail).dropped > 0 && satellite(&droptail).mean_queue_ms > 50.0);
    // IP packets of 1020 bytes become ones of 1094.
    let cost = sealed.flows[0].goodput_mbps / plain.flows[0].goodput_mbps;
    assert!((cost - 1020.0 / 1094.0).abs() < 0.01, "{cost}");
}

#[test]
fn losses_before_the_gateway_are_repaired_there_under_the_seal() {
    let lossy = "topology.edge.0.loss=2%";
    let clean = run("satern.toml", &[TUNNEL]);
    let bare = run("satern.toml", &[TUNNEL, lossy]);
    let coded = run("satern.toml", &[TUNNEL, CODE, lossy]);
    let goodput = |result: &RunResult| result.flows[0].goodput_mbps;
    println!("{} clean, {} bare, {} coded", goodput(&clean), goodput(&bare), goodput(&coded));
    assert!(goodput(&bare) < 0.4 * goodput(&clean));
    assert!(goodput(&coded) > 0.95 * goodput(&clean));
    // 2 % of some 11,000 packets were lost; the server had to send hardly any of them again. The overflow of slow
    // start in the first second is the same on a clean path.
    let again = |result: &RunResult| result.flows[0].repairs;
    println!("sent again: {} clean, {} bare, {} coded", again(&clean), again(&bare), again(&coded));
    assert!(again(&coded) <= again(&clean) + 10 && again(&bare) > 2 * again(&coded));
}

#[test]
fn the_example_of_the_code_runs_as_it_stands() {
    let result = run("satern-fec.toml", &[]);
    assert!(result.flows[0].goodput_mbps > 0.8, "{}", result.flows[0].goodput_mbps);
}

#[test]
fn the_mode_follows_from_the_minimum_alone() {
    let result = run("satern-moving.toml", &[]);
    let document = Document::of(&result).expect("a document");
    let number = |name: &str| document.number(&name.parse().expect("a metric")).expect("a number");
    let long = |window: &str| number(&format!("flow.long.series.goodput_mbps@{window}"));
    let waits = |link: &str, window: &str| number(&format!("link.{link}.forward.series.queue_ms@{window}"));
    // CUBIC's mode: as fast as the DropTail router lets it, whose queue fills and empties.
    assert!(long("40..100") > 1.6 && waits("router1-router3", "40..100") > 20.0, "{}", long("40..100"));
    // XCP's mode: half of 3 Mbit/s, and no queue anywhere, though its round trip is the longer one.
    let shares = [long("130..200"), number("flow.short.series.goodput_mbps@130..200")];
    assert!(shares.iter().all(|share| (1.3..1.5).contains(share)), "{shares:?}");
    assert!(waits("router1-router3", "130..200") < 2.0 && waits("router3-router4", "130..200") < 20.0);
    // And back.
    assert!(long("240..300") > 1.6, "{}", long("240..300"));
}

#[test]
fn cubic_xcp_holds_its_own_against_cubic_where_the_gateway_counts_its_own_traffic() {
    let changes = ["duration=400s", "flow.xcp.count=3", "flow.cubic.count=3"];
    let level = |router: &str| {
        let router = format!("topology.edge.1.router={router}");
        let result = run("satern-mixed.toml", &[&changes[..], &[&router]].concat());
        let document = Document::of(&result).expect("a document");
        let metric = "flows.xcp.mean.goodput_mbps / flows.mean.goodput_mbps".parse();
        document.number(&metric.expect("a metric")).expect("a number")
    };
    let (own, all) = (level("xcp-own"), level("xcp"));
    println!("{own} {all}");
    assert!((0.85..1.15).contains(&own), "{own}");
    assert!(all < 0.8, "{all}");
}
