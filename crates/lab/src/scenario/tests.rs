//! Scenario files as users write them, right and wrong.

use super::*;
use starhop_proto::split::{Buffer, Release};
use starhop_sim::run::Transport;

const CHAIN: &str = r#"
title = "A chain"
duration = "10s"
warmup = "1s"

[topology]
kind = "chain"
hops = 3

[topology.link]
rate = "20Mbit"
delay = "10ms"
loss = "1%"
queue = "1000p"

[[topology.override]]
hop = 2
rate = { square = { mean = "10Mbit", amplitude = "1Mbit", period = "2s" } }

[[flow]]
name = "a"
size = "unlimited"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, &|_| Err("no files here".into()))
}

fn error(text: &str) -> ScenarioError {
    match parse(text) {
        Ok(_) => panic!("was accepted:\n{text}"),
        Err(error) => error,
    }
}

fn built(text: &str) -> Built {
    match parse(text) {
        Ok(scenario) => build(&scenario),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_chain_has_its_nodes_links_and_relays() {
    let built = built(CHAIN);
    let names: Vec<&str> = built.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["server-r1", "server-r1", "r1-r2", "r1-r2", "r2-client", "r2-client"]);
    assert_eq!(built.simulation.relays().len(), 2);
    assert_eq!(built.propagation[0], Duration::from_millis(30));
}

#[test]
fn the_ideal_is_the_narrowest_hop_less_loss_and_headers() {
    // 10 Mbit/s · 0.99 · 1350 / 1441: a sealed Data packet has 30 + 33 bytes above UDP's and IP's 28, a plain one 30 + 2.
    for (plain, wire) in [("", 1441.0), ("plain = true", 1410.0)] {
        let ideal = built(&format!("{CHAIN}{plain}\n")).ideal_mbps[0];
        assert!((ideal - 9.9 * 1350.0 / wire).abs() < 1e-6, "{ideal}");
    }
}

#[test]
fn an_unknown_field_is_refused_with_its_name_and_line() {
    let e = error(&CHAIN.replace("loss = \"1%\"", "lost = \"1%\""));
    assert_eq!((e.line, e.field.as_str()), (Some(13), "topology.link.lost"));
    assert!(e.problem.contains("loss_direction"), "{e}");
}

#[test]
fn a_wrong_unit_is_refused_with_its_name_and_line() {
    let e = error(&CHAIN.replace("10ms", "10m"));
    assert_eq!((e.line, e.field.as_str()), (Some(12), "topology.link.delay"));
    let e = error(&CHAIN.replace("period = \"2s\"", "period = 2"));
    assert_eq!((e.line, e.field.as_str()), (Some(18), "topology.override.0.rate"));
}

#[test]
fn impossible_values_are_refused_where_they_stand() {
    let cases = [
        ("hop = 2", "hop = 4", 17, "topology.override.0.hop"),
        ("hops = 3", "hops = 0", 8, "topology.hops"),
        ("amplitude = \"1Mbit\"", "amplitude = \"11Mbit\"", 18, "topology.override.0.rate"),
        ("warmup = \"1s\"", "warmup = \"10s\"", 4, "warmup"),
        ("kind = \"chain\"", "kind = \"ring\"", 7, "topology.kind"),
        ("size = \"unlimited\"", "size = \"unlimited\"\nto = \"r9\"", 20, "flow.0.to"),
        ("size = \"unlimited\"", "transport = \"cubik\"", 20, "flow.0.transport"),
    ];
    for (right, wrong, line, field) in cases {
        let e = error(&CHAIN.replace(right, wrong));
        assert_eq!(e.field, field, "{e}");
        assert!(e.line.is_some_and(|l| l.abs_diff(line) <= 2), "{e}");
    }
}

#[test]
fn a_missing_transport_is_answered_with_those_that_exist() {
    let e = error(&CHAIN.replace("size = \"unlimited\"", "transport = \"cubik\""));
    assert!(e.problem.contains("starhop, leotp, leotp-code, intcp"), "{e}");
    let e = error(&CHAIN.replace("kind = \"chain\"", "kind = \"constellation\""));
    assert_eq!((e.field.as_str(), e.problem.as_str()), ("topology.shell", "is missing"));
}

#[test]
fn loss_in_the_data_direction_spares_requests() {
    let text = CHAIN.replace("loss = \"1%\"", "loss = \"1%\"\nloss_direction = \"data\"");
    let Ok(scenario) = parse(&text) else { panic!("{text}") };
    let link = &scenario.topology.links[0];
    let loss = |config: Result<starhop_sim::link::LinkConfig, _>| config.map(|c| c.loss.mean(1500));
    assert_eq!(loss(link.forward.config(true)), Ok(0.01));
    assert_eq!(loss(link.backward.config(false)), Ok(0.0));
}

#[test]
fn changes_reach_into_tables_and_lists() {
    let changes = ["topology.link.loss=0.5%", "flow.a.options.payload=1000", "flow.0.start=2s", "seed=7"];
    let changes: Vec<Change> = changes.iter().filter_map(|c| c.parse().ok()).collect();
    let scenario = Scenario::parse_changed(CHAIN, &changes, &|_| Err(String::new()));
    let Ok(scenario) = scenario else { panic!("{scenario:?}") };
    assert_eq!((scenario.seed, scenario.flows[0].start), (7, Duration::from_secs(2)));
    assert_eq!(scenario.flows[0].how.payload(), 1000);
    assert_eq!(scenario.topology.links[0].forward.config(true).map(|c| c.loss.mean(1)), Ok(0.005));
    let wrong: Vec<Change> = "topology.link.loss=half".parse().into_iter().collect();
    let e = Scenario::parse_changed(CHAIN, &wrong, &|_| Err(String::new())).err();
    assert!(e.is_some_and(|e| e.field == "topology.link.loss" && e.line.is_none()));
}

#[test]
fn a_queue_of_one_bdp_holds_the_path_of_the_flow() {
    let text = CHAIN.replace("1000p", "1bdp");
    let Ok(scenario) = parse(&text) else { panic!("{text}") };
    // 10 Mbit/s · 60 ms / 8.
    let queues: Vec<_> = link_configs(&scenario).into_iter().map(|config| config.queue).collect();
    assert_eq!(queues, [starhop_sim::link::QueueLimit::Bytes(75_000); 6]);
}

#[test]
fn a_trace_is_read_and_its_mistakes_are_named_with_the_field() {
    let text = CHAIN.replace("rate = \"20Mbit\"", "rate = { trace = \"cell\", format = \"mahimahi\" }");
    let good = Scenario::parse(&text, &|name| Ok(if name == "cell" { "1\n2\n" } else { "" }.to_owned()));
    let mean = good.map(|s| link_configs(&s)[0].rate.at(starhop_proto::time::Instant::ZERO).as_mbps());
    assert_eq!(mean, Ok(12.0));
    let bad = Scenario::parse(&text, &|_| Ok("1\nx\n".to_owned())).err();
    assert!(bad.is_some_and(|e| e.field == "topology.link.rate" && e.problem.contains("line 2")));
}

#[test]
fn a_clock_that_would_begin_before_its_epoch_is_refused() {
    let e = error(&CHAIN.replace("[topology.link]", "[topology.clock]\nr1 = \"-2h\"\n\n[topology.link]"));
    assert_eq!(e.field, "topology.clock");
}

#[test]
fn a_clock_may_gain_or_lose() {
    let with = |drift: &str| {
        CHAIN.replace(
            "[topology.link]",
            &format!("[topology.clock_drift]\nr1 = \"{drift}\"\n\n[topology.link]"),
        )
    };
    let gains = parse(&with("-80ppm")).map(|scenario| scenario.topology.clocks["r1"].gains_ppb);
    assert_eq!(gains.ok(), Some(-80_000));
    assert_eq!(error(&with("5%")).field, "topology.clock_drift");
    assert_eq!(error(&with("2e6ppm")).field, "topology.clock_drift");
}

#[test]
fn a_count_makes_flows_of_one_description() {
    let many = CHAIN.replace("name = \"a\"", "name = \"a\"\ncount = 3");
    let names = parse(&many)
        .map(|scenario| scenario.flows.into_iter().map(|flow| (flow.name, flow.content)).collect::<Vec<_>>());
    let expected = ["a-1", "a-2", "a-3"].map(|name| (name.to_owned(), name.to_owned()));
    assert_eq!(names.as_deref(), Ok(&expected[..]));
    assert_eq!(error(&many.replace("count = 3", "count = 0")).field, "flow.0.count");
    assert_eq!(error(&many.replace("count = 3", "count = 1000001")).field, "flow.0.count");
    let twice = format!("{many}\n[[flow]]\nname = \"a-2\"\nsize = \"unlimited\"\n");
    assert!(error(&twice).problem.contains("\"a-2\""), "{}", error(&twice).problem);
}

/// A chain whose second relay is a gateway that splits by rate.
fn rate_split(options: &str) -> String {
    let flow =
        format!("name = \"a\"\ntransport = \"rate-split\"\nsplit = [\"r2\"]\noptions = {{ {options} }}");
    CHAIN.replace("name = \"a\"", &flow)
}

#[test]
fn a_gateway_that_splits_by_rate_takes_its_options() {
    let scenario = parse(&rate_split(
        "rate = \"3Mbit\", peak_rate = \"900kbit\", receive_window = \"256KiB\", release = \"cumulative\", \
         terrestrial = { control = \"newreno\", initial_window = 2 }",
    ));
    let Ok(scenario) = scenario else { panic!("{scenario:?}") };
    let Transport::Split(split) = &scenario.flows[0].how else { panic!("{:?}", scenario.flows[0].how) };
    let satellite = &split.satellite;
    assert_eq!((satellite.receive_window, satellite.release), (512, Release::Cumulative));
    assert_eq!(satellite.buffer, Buffer::PeakRate(Rate::from_bps(900_000)));
    assert_eq!((split.terrestrial.initial_window, split.terrestrial.mss), (2, 512));
    let built = build(&scenario);
    assert!(built.simulation.flows()[0].gateway.is_some());
    // 512 bytes in packets of 552 over the satellite.
    assert_eq!(scenario.flows[0].how.full_packet(), 552);
}

#[test]
fn a_pair_of_gateways_is_for_whole_tcp_connections_between_two_nodes() {
    let flow = |more: &str| CHAIN.replace("name = \"a\"", &format!("name = \"a\"\n{more}"));
    let pair = "transport = \"cubic\"\ngateway = [\"r1\", \"r2\"]";
    let scenario = parse(&flow(&format!("{pair}\ngateway_options = {{ window = \"8MiB\" }}")));
    let Ok(scenario) = scenario else { panic!("{scenario:?}") };
    let Transport::Gateway(how) = &scenario.flows[0].how else { panic!("{:?}", scenario.flows[0].how) };
    assert_eq!(how.window, 8 << 20);
    for (more, field, problem) in [
        ("gateway = [\"r1\", \"r2\"]", "flow.0.gateway", "is for TCP"),
        ("transport = \"cubic\"\ngateway = [\"r1\", \"r1\"]", "flow.0.gateway", "names two nodes"),
        ("transport = \"cubic\"\ngateway = [\"r1\"]", "flow.0.gateway", "names two nodes"),
        ("transport = \"cubic\"\ngateway = [\"r1\", \"r9\"]", "flow.0.gateway", "is no node"),
        (&format!("{pair}\nsplit = [\"r1\"]"), "flow.0.gateway", "`split`"),
        (&format!("{pair}\noptions = {{ handshake = false }}"), "flow.0.gateway", "handshake"),
        (&format!("{pair}\ngateway_options = {{ windw = \"8MiB\" }}"), "flow.0.gateway_options", "windw"),
        ("gateway_options = { window = \"8MiB\" }", "flow.0.gateway_options", "with `gateway`"),
        (
            &format!("{pair}\ngateway_options = {{ protocol = \"rate-split\" }}"),
            "flow.0.gateway_options.protocol",
            "fixed",
        ),
    ] {
        let error = error(&flow(more));
        assert!(error.field.starts_with(field), "{more}: {error}");
        assert!(error.to_string().contains(problem), "{more}: {error}");
    }
}

#[test]
fn a_gateway_that_cannot_be_is_refused_by_field() {
    let field = |options: &str| error(&rate_split(options)).field;
    assert_eq!(field("mss = 512"), "flow.0.options.rate");
    assert_eq!(field("rate = \"3Mbit\", buffer = \"41kB\", peak_rate = \"1Mbit\""), "flow.0.options.buffer");
    assert_eq!(field("rate = \"3Mbit\", receive_window = \"70000p\""), "flow.0.options.receive_window");
    assert_eq!(
        field("rate = \"3Mbit\", terrestrial = { control = \"none\" }"),
        "flow.0.options.terrestrial.control"
    );
    assert_eq!(
        field("rate = \"3Mbit\", terrestrial = { handshake = false }"),
        "flow.0.options.terrestrial.handshake"
    );
    let whole = rate_split("rate = \"3Mbit\"");
    assert_eq!(error(&whole.replace("split = [\"r2\"]\n", "")).field, "flow.0.split");
    let other = whole.replace("name = \"a\"", "name = \"b\"").replace("3Mbit", "4Mbit");
    let (_, second) = other.split_once("[[flow]]").unwrap_or_default();
    assert_eq!(error(&format!("{whole}\n[[flow]]{second}")).field, "flow.1.options.rate");
}

#[test]
fn a_client_asks_for_one_thing_after_another() {
    let asks =
        |fields: &str| rate_split("rate = \"3Mbit\"").replace("[[flow]]", &format!("[[flow]]\n{fields}"));
    let sized =
        |text: String, size: &str| text.replace("size = \"unlimited\"", &format!("size = \"{size}\""));
    let scenario = parse(&sized(asks("requests = 3\nthink = \"1s\""), "5120B"));
    let Ok(scenario) = scenario else { panic!("{scenario:?}") };
    let flow = &scenario.flows[0];
    let exchange = flow.exchange.map(|e| (e.requests, e.request, e.response, e.think));
    assert_eq!((flow.size, exchange), (Some(15_360), Some((3, 300, 5120, Duration::from_secs(1)))));
    assert_eq!(error(&sized(asks("requests = 3"), "5000B")).field, "flow.0.size");
    assert_eq!(error(&asks("think = \"1s\"")).field, "flow.0.think");
}

#[test]
fn flows_by_count_begin_one_after_the_other() {
    let many = CHAIN.replace("name = \"a\"", "name = \"a\"\ncount = 3\nstagger = \"2s\"");
    let starts =
        parse(&many).map(|scenario| scenario.flows.iter().map(|flow| flow.start).collect::<Vec<_>>());
    assert_eq!(starts, Ok([0, 2, 4].map(Duration::from_secs).to_vec()));
}

#[test]
fn a_link_has_the_router_that_its_file_says() {
    let with = |router: &str| {
        CHAIN.replace("queue = \"1000p\"", &format!("queue = \"1000p\"\nrouter = \"{router}\""))
    };
    let are_xcp = |text: &str| {
        link_configs(&parse(text).unwrap_or_else(|e| panic!("{e}"))).iter().all(|link| link.xcp.is_some())
    };
    assert!(are_xcp(&with("xcp")));
    assert!(!are_xcp(&with("droptail")) && !are_xcp(CHAIN));
    assert!(error(&with("red")).to_string().contains("router"));
}

#[test]
fn a_control_takes_its_own_parameters() {
    let flow = |options: &str| {
        CHAIN.replace("name = \"a\"", &format!("name = \"a\"\ntransport = \"vegas\"\noptions = {options}"))
    };
    let tuning = |text: &str| match &parse(text).unwrap_or_else(|e| panic!("{e}")).flows[0].how {
        Transport::Tcp(config) => config.tuning,
        other => panic!("{other:?} is not TCP"),
    };
    let set = tuning(&flow("{ alpha = 3, beta = 5.5, rtt0 = \"40ms\" }"));
    assert_eq!((set.alpha, set.beta, set.gamma), (Some(3.0), Some(5.5), None));
    assert_eq!(set.rtt0, Some(Duration::from_millis(40)));
    assert!(error(&flow("{ alpha = -1 }")).to_string().contains("alpha"));
}

#[test]
fn tcp_takes_its_options_and_says_what_is_wrong_with_them() {
    let flow = |more: &str| CHAIN.replace("size = \"unlimited\"", more);
    let scenario = parse(&flow(
        "transport = \"cubic\"\nsplit = [\"r2\", \"r1\"]\noptions = { mss = 1000, receive_window = \"40p\", split_buffer = \"64kB\" }",
    ));
    let Ok(scenario) = scenario else { panic!("{scenario:?}") };
    let Transport::Tcp(config) = &scenario.flows[0].how else { panic!("no TCP") };
    assert_eq!((config.mss, config.receive_window, config.split_buffer), (1000, 40_000, Some(64_000)));
    // 1000 bytes in packets of 1052, and two splices between source and client.
    let built = build(&scenario);
    assert!((built.ideal_mbps[0] - 9.9 * 1000.0 / 1052.0).abs() < 1e-6);
    assert_eq!(built.simulation.flows()[0].senders.len(), 3);
    let cases = [
        ("transport = \"cubic\"\noptions = { mss = 10 }", "flow.0.options.mss"),
        ("transport = \"cubic\"\noptions = { buffer_target = \"5p\" }", "flow.0.options.buffer_target"),
        ("transport = \"cubic\"\noptions = { loss_detection = \"eyes\" }", "flow.0.options.loss_detection"),
        ("transport = \"cubic\"\noptions = { preset = \"ns-9\" }", "flow.0.options.preset"),
        ("transport = \"cubic\"\noptions = { initial_ssthresh = \"1p\" }", "flow.0.options.initial_ssthresh"),
        ("transport = \"cubic\"\nsplit = [\"r9\"]", "flow.0.split"),
        ("transport = \"cubic\"\nsplit = \"some\"", "flow.0.split"),
        ("transport = \"starhop\"\nsplit = \"every-hop\"", "flow.0.split"),
    ];
    for (more, field) in cases {
        let e = error(&flow(more));
        assert_eq!(e.field, field, "{e}");
        assert!(e.line.is_some_and(|line| (19..=23).contains(&line)), "{e}");
    }
}
