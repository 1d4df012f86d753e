//! The operator's view of running nodes.

mod local;
mod operate_restart;

use local::Place;
use serde_json::Value;

#[test]
fn every_line_of_a_node_with_json_is_json_with_a_time() {
    let place = Place::new();
    place.offer("file", 300_000);
    let mut server = place.serve(&["--stats-every", "50ms"]);
    place.get("file", &server.address);
    server.expect(|line| line["event"] == "stats");
    server.expect(|line| line["message"] == "transfer ended");
    for line in server.heard() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        let time = line["timestamp"].as_str().unwrap_or_else(|| panic!("no time: {line}"));
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
    }
}

#[test]
fn a_transfer_ends_with_one_line_that_says_why_at_the_server_and_at_the_relay() {
    let place = Place::new();
    place.offer("file", 300_000);
    let mut server = place.serve(&[]);
    let mut relay = place.relay(&server.address, &[]);
    place.get("file", &relay.address);
    for (node, name) in [(&mut server, Some("file")), (&mut relay, None)] {
        let line = node
            .expect(|line| line["message"] == "transfer ended" && line["bytes"].as_u64() >= Some(300_000));
        assert_eq!(line["target"], "starhop::transfer");
        assert_eq!(line["reason"], "complete", "{line}");
        assert_eq!(line["name"].as_str(), name, "{line}");
        assert!(line["mbps"].as_f64() > Some(0.0) && line["to"].is_string(), "{line}");
    }
}

#[test]
fn a_log_of_errors_only_leaves_transfers_out() {
    let place = Place::new();
    place.offer("file", 1000);
    let mut server = place.serve(&["--log-level", "error"]);
    place.get("file", &server.address);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!server.heard().iter().any(|line| line.contains("transfer ended")), "{:?}", server.heard());
    let (code, said) = place.run(&["serve", "served", "--log-level", "loud"]);
    assert!(code != 0 && said.contains("`loud` names no levels"), "{said}");
}

/// Server and relay with every door open, after a download over both.
fn observed(place: &Place) -> (local::Node, local::Node, String) {
    place.offer("file", 2_000_000);
    let server = place.serve(&["--status-socket", "serve.sock"]);
    let doors = ["--status-socket", "relay.sock", "--metrics", "127.0.0.1:0", "--page", "127.0.0.1:0"];
    let relay = place.relay(&server.address, &doors);
    place.get("file", &relay.address);
    place.get("file", &relay.address);
    let address = relay.address.clone();
    (server, relay, address)
}

/// The address of a node's metrics or page, from its log.
fn door(node: &mut local::Node, purpose: &str) -> String {
    let said = node.heard().iter().find_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let address = line["message"].as_str()?.strip_prefix(&format!("{purpose} on http://"))?;
        Some(address.to_owned())
    });
    said.expect("it says where")
}

/// A node's answer to a browser: the head and the body.
fn http(address: &str, request: &str) -> (String, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("to write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

#[test]
fn status_tells_of_peers_flows_and_the_cache() {
    let place = Place::new();
    let (server, _relay, _) = observed(&place);
    let (code, said) = place.run(&["status", "./relay.sock", "--json"]);
    assert_eq!(code, 0, "{said}");
    let documents: Value = serde_json::from_str(&said).expect("JSON");
    let status = &documents[0];
    assert_eq!((&status["role"], &status["packets"]), (&"relay".into(), &"sealed".into()));
    let peers = status["peers"].as_array().expect("peers");
    let upstream = peers.iter().find(|peer| peer["side"] == "upstream").expect("an upstream");
    assert_eq!(upstream["address"].as_str(), Some(server.address.as_str()));
    assert!(
        upstream["rtt_ms"].as_f64() < Some(1000.0) && upstream["rtt_ms"].as_f64() > Some(0.0),
        "{upstream}"
    );
    assert!(upstream["bytes"].as_u64() > Some(2_000_000) && upstream["loss"].is_f64(), "{upstream}");
    assert_eq!(upstream["mtu"], 65_535, "that of the loopback interface");
    assert_eq!(upstream["version"], env!("CARGO_PKG_VERSION"));
    assert!(upstream["clock_ahead_ms"].as_f64().is_some_and(|ahead| ahead.abs() < 500.0), "{upstream}");
    assert!(
        peers.iter().all(|peer| peer["identity"] == status["domain"]),
        "all have the domain's key: {status}"
    );
    let given: u64 =
        peers.iter().filter(|peer| peer["side"] == "downstream").filter_map(|p| p["bytes"].as_u64()).sum();
    assert!(given > 4_000_000, "two downloads: {status}");
    assert!(status["cache"]["hit_bytes"].as_u64() >= Some(1_900_000), "the second from the cache: {status}");
    assert!(status["flow_count"].as_u64() >= Some(1) && status["flows"][0]["flow"].is_string(), "{status}");
    let (code, said) = place.run(&["status", "./serve.sock"]);
    assert_eq!(code, 0, "{said}");
    for word in ["serve on", "sealed in", "downstream", "refused: none", " file "] {
        assert!(said.contains(word), "no `{word}`:\n{said}");
    }
}

#[test]
fn the_log_of_a_running_node_can_be_turned_up_and_down() {
    let place = Place::new();
    place.offer("file", 1000);
    let mut server = place.serve(&["--status-socket", "serve.sock", "--log-level", "error"]);
    let (code, said) = place.run(&["status", "./serve.sock", "--log-level", "info"]);
    assert_eq!(code, 0, "{said}");
    place.get("file", &server.address);
    server.expect(|line| line["message"] == "transfer ended");
    let (code, said) = place.run(&["status", "./serve.sock", "--log-level", "loud"]);
    assert!(code == 1 && said.contains("`loud` names no levels"), "{said}");
}

#[test]
fn a_node_that_is_gone_leaves_no_socket_and_is_said_not_to_answer() {
    let place = Place::new();
    let mut server = place.serve(&["--status-socket", "serve.sock"]);
    assert_eq!(server.end(), Some(0));
    assert!(!place.path("serve.sock").exists());
    let (code, said) = place.run(&["status", "./serve.sock"]);
    assert!(code == 1 && said.contains("`./serve.sock` does not answer"), "{said}");
    let killed = place.serve(&["--status-socket", "serve.sock"]);
    killed.signal(nix::sys::signal::Signal::SIGKILL);
    drop(killed);
    let _next = place.serve(&["--status-socket", "serve.sock"]);
    assert_eq!(
        place.run(&["status", "./serve.sock"]).0,
        0,
        "the next takes the place of one that was killed"
    );
}

#[test]
fn metrics_are_openmetrics_and_agree_with_the_status() {
    let place = Place::new();
    let (_server, mut relay, _) = observed(&place);
    let address = door(&mut relay, "metrics");
    let (head, body) = http(&address, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let value = |start: &str| {
        let line = body.lines().find(|line| line.starts_with(start));
        let line = line.unwrap_or_else(|| panic!("no `{start}` in\n{body}"));
        line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")
    };
    assert!(value("starhop_cache_hit_bytes_total ") >= 1_900_000.0);
    assert!(value("starhop_peer_rtt_seconds{") > 0.0);
    assert!(value("starhop_peer_bytes_total{") > 2_000_000.0);
    assert!(value("starhop_site_saved_bytes_total{") >= 0.0);
    assert!(value("starhop_build_info{role=\"relay\"") == 1.0);
    assert!(value("starhop_cpu_seconds_total ") > 0.0);
    assert!(http(&address, "GET /").0.starts_with("HTTP/1.1 404"));
    assert!(http(&address, "POST /metrics").0.starts_with("HTTP/1.1 405"));
}

#[test]
fn the_page_is_one_file_that_names_no_other_host() {
    let place = Place::new();
    let (_server, mut relay, listen) = observed(&place);
    let address = door(&mut relay, "the page");
    let (head, body) = http(&address, "GET /");
    assert!(head.contains("text/html") && head.contains("default-src 'none'"), "{head}");
    let hosts: Vec<&str> = body.match_indices("http").map(|(at, _)| &body[at..at + 24]).collect();
    assert_eq!(hosts, ["http://www.w3.org/2000/s"], "the name of SVG, which nobody fetches");
    let (_, status) = http(&address, "GET /status.json");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["listen"].as_str(), Some(listen.as_str()));
    let (_, history) = http(&address, "GET /history.json");
    let history: Value = serde_json::from_str(&history).expect("JSON");
    assert!(history[0]["timestamp"].is_string() && history[0]["in_mbps"].is_f64(), "{history}");
}

#[test]
fn a_relay_is_configured_by_a_file_and_takes_its_upstreams_anew_at_sighup() {
    let place = Place::new();
    place.offer("file", 200_000);
    let (first, second) = (place.serve(&[]), place.serve(&[]));
    let file = |upstream: &str, more: &str| {
        let text = format!("[relay]\nlisten = \"127.0.0.1:0\"\nupstream = \"{upstream}\"\n{more}");
        place.write("node.toml", text);
    };
    file(&first.address, "");
    let (code, said) = place.run(&["check", "node.toml"]);
    assert!(code == 0 && said.contains("node.toml: ok (relay)"), "{said}");
    let mut relay = place.start("ready", &["relay", "--config", "node.toml"]);
    place.get("file", &relay.address);
    file(&second.address, "cache = \"1MiB\"\n");
    relay.signal(nix::sys::signal::Signal::SIGHUP);
    let turned = relay.expect(|line| line["message"] == "another upstream is asked");
    assert_eq!(turned["to"].as_str(), Some(second.address.as_str()));
    relay.expect(|line| {
        line["message"].as_str().is_some_and(|m| m.starts_with("a change of cache takes effect"))
    });
    drop(first);
    place.write("served/other", b"known to the second server only by its own scan");
    std::thread::sleep(std::time::Duration::from_secs(3));
    place.get("other", &relay.address);
    file("nowhere", "");
    relay.signal(nix::sys::signal::Signal::SIGHUP);
    let kept = relay.expect(|line| {
        line["level"] == "ERROR" && line["message"].as_str().is_some_and(|m| m.contains("stay"))
    });
    assert!(kept["message"].as_str().is_some_and(|said| said.contains("upstream")), "{kept}");
    place.get("other", &relay.address);
    let (code, said) = place.run(&["check", "node.toml"]);
    assert!(code == 1 && said.contains("node.toml: line 3: `relay.upstream`: "), "{said}");
}

#[test]
fn a_relay_turns_to_its_second_upstream_when_the_first_falls_silent() {
    let place = Place::new();
    place.offer("file", 200_000);
    let (first, second) = (place.serve(&[]), place.serve(&[]));
    let mut relay = place.relay(&first.address, &["--upstream", &second.address]);
    place.get("file", &relay.address);
    let silent = first.address.clone();
    drop(first);
    place.offer("late", 200_000);
    std::thread::sleep(std::time::Duration::from_secs(3));
    place.get("late", &relay.address);
    let turned = relay.expect(|line| line["message"] == "the upstream does not answer; another one is asked");
    assert_eq!((turned["from"].as_str(), turned["to"].as_str()), (Some(&*silent), Some(&*second.address)));
}

#[test]
fn doctor_finds_a_node_that_answers_and_one_that_does_not() {
    let place = Place::new();
    let server = place.serve(&[]);
    let (code, said) = place.run(&["doctor", &server.address, "--json"]);
    assert_eq!(code, 0, "{said}");
    let findings: Value = serde_json::from_str(&said).expect("JSON");
    let found = |check: &str| {
        let finding =
            findings.as_array().and_then(|all| all.iter().find(|finding| finding["check"] == check));
        finding.unwrap_or_else(|| panic!("no `{check}` in {findings:#}")).clone()
    };
    for check in
        [format!("answer of {}", server.address), format!("path to {}", server.address), "keys".to_owned()]
    {
        assert_eq!(found(&check)["verdict"], "ok", "{findings:#}");
    }
    for check in [
        "clock",
        "socket buffers",
        "segmentation offload",
        "file descriptors",
        "congestion controls",
        "firewall",
    ] {
        assert!(found(check)["found"].as_str().is_some_and(|found| !found.is_empty()), "{findings:#}");
    }
    let (address, _) = (server.address.clone(), drop(server));
    let (code, said) = place.run(&["doctor", &address, "--timeout", "500ms"]);
    assert!(code == 1 && said.contains("DOES NOT WORK: none within"), "{said}");
}

#[test]
fn check_and_doctor_name_the_fault_of_a_gateways_file_and_what_it_needs() {
    let place = Place::new();
    let peer = "insecure = true\n[[peer]]\nname = \"hub\"\naddress = \"192.0.2.1:4433\"\n";
    let write = |text: String| std::fs::write(place.path("gateway.toml"), text).expect("a file");
    let doctor = || place.run(&["doctor", "--gateway", "gateway.toml"]);
    write(format!("name = \"site\"\nmax_conections = 9\n{peer}"));
    for (code, said) in [place.run(&["check", "gateway.toml"]), doctor()] {
        assert!(code == 1 && said.contains("line 2") && said.contains("max_conections"), "{said}");
    }
    write(format!("name = \"site\"\nmax_connections = 1000000000\n{peer}"));
    let (code, said) = doctor();
    assert!(code == 0 && said.contains("needs 1000000128 descriptors"), "{said}");
    write(format!("name = \"site\"\nmax_connections = 9\n{peer}"));
    let (code, said) = doctor();
    assert!(code == 0 && said.contains("gateway gateway.toml: ok"), "{said}");
}

#[test]
fn doctor_names_a_peer_with_another_key() {
    let (place, other) = (Place::new(), Place::new());
    let server = other.serve(&[]);
    let (code, said) = place.run(&["doctor", &server.address, "--timeout", "500ms"]);
    assert!(code == 1 && said.contains("`forged` means another key"), "{said}");
    let (code, said) = place.run(&["doctor", &server.address, "--timeout", "500ms", "--insecure", "--json"]);
    assert!(code != 0, "{said}");
}

/// The names of the metrics in a query, and that it is one.
fn metrics_in(query: &str) -> Vec<String> {
    use promql_parser::parser::{Expr, parse};
    let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
    fn walk(expr: &Expr, names: &mut Vec<String>) {
        match expr {
            Expr::Aggregate(inner) => walk(&inner.expr, names),
            Expr::Unary(inner) => walk(&inner.expr, names),
            Expr::Binary(inner) => {
                walk(&inner.lhs, names);
                walk(&inner.rhs, names);
            }
            Expr::Paren(inner) => walk(&inner.expr, names),
            Expr::Subquery(inner) => walk(&inner.expr, names),
            Expr::Call(call) => call.args.args.iter().for_each(|inner| walk(inner, names)),
            Expr::MatrixSelector(inner) => names.extend(inner.vs.name.clone()),
            Expr::VectorSelector(inner) => names.extend(inner.name.clone()),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }
    let parsed = parse(&query).unwrap_or_else(|problem| panic!("{query}: {problem}"));
    let mut names = Vec::new();
    walk(&parsed, &mut names);
    names
}

#[test]
fn every_query_of_the_alerts_and_of_the_board_asks_for_what_a_running_node_tells() {
    let place = Place::new();
    let (_server, mut relay, _) = observed(&place);
    let (_, told) = http(&door(&mut relay, "metrics"), "GET /metrics");
    let tools = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools");
    let read = |name: &str| std::fs::read_to_string(tools.join(name)).expect("a file of tools/");
    let alerts = read("prometheus-alerts.yml");
    let mut queries: Vec<String> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).map(str::to_owned).collect();
    let board: Value = serde_json::from_str(&read("grafana.json")).expect("JSON");
    let targets =
        board["panels"].as_array().expect("panels").iter().filter_map(|panel| panel["targets"].as_array());
    queries.extend(targets.flatten().filter_map(|target| target["expr"].as_str()).map(str::to_owned));
    assert!(queries.len() > 20, "{queries:?}");
    let mut asked = 0;
    for query in &queries {
        for name in metrics_in(query).iter().filter(|name| name.as_str() != "up") {
            asked += 1;
            let (family, kind) =
                name.strip_suffix("_total").map_or((name.as_str(), "gauge"), |name| (name, "counter"));
            assert!(told.contains(&format!("# TYPE {family} {kind}\n")), "{query}: nobody tells {name}");
        }
    }
    assert!(asked > queries.len() / 2, "{asked}");
}

/// A browser without a window, where there is one.
fn browser() -> Option<std::process::Command> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let name = names.iter().find(|name| {
        std::process::Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
    })?;
    let mut command = std::process::Command::new(name);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    ]);
    Some(command)
}

#[test]
fn a_browser_shows_the_numbers_of_the_node_also_on_a_telephone() {
    let Some(mut command) = browser() else {
        return local::skipped("there is no chromium here");
    };
    let place = Place::new();
    let (server, mut relay, listen) = observed(&place);
    let url = format!("http://{}/", door(&mut relay, "the page"));
    let profile = format!("--user-data-dir={}", place.path("profile").display());
    let dump =
        command.args([&profile, "--window-size=390,844", "--dump-dom", &url]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&dump.stdout).into_owned();
    assert!(shown.contains("data-state=\"drawn\""), "{shown}\n{}", String::from_utf8_lossy(&dump.stderr));
    let title = format!("relay on {listen}");
    for text in [title.as_str(), &server.address, "packets are sealed", "were answered from it", "65535"] {
        assert!(shown.contains(text), "no `{text}` in {shown}");
    }
    assert_eq!(shown.matches("<figure").count(), 4, "rate, waiting, queueing, loss");
    for (width, name) in [(390, "narrow.png"), (1100, "wide.png")] {
        let mut command = browser().expect("it was here");
        let (picture, size) = (place.path(name), format!("--window-size={width},1200"));
        command.args([&profile, &size, &format!("--screenshot={}", picture.display()), &url]);
        assert!(command.output().expect("it runs").status.success());
        let bytes = std::fs::read(&picture).expect("a picture");
        assert!(bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000, "{name}: {} bytes", bytes.len());
    }
}

#[test]
fn setup_shows_what_it_changes_does_it_and_takes_it_back() {
    let place = Place::new();
    let arguments =
        ["setup", "relay", "--upstream", "192.0.2.1:4433", "--upstream", "192.0.2.2:4433", "--root", "host"];
    let (code, said) = place.run(&arguments);
    assert!(
        code == 0 && said.contains("Nothing was changed") && said.contains("net.core.rmem_max"),
        "{said}"
    );
    assert!(!place.path("host").exists());
    let (code, said) = place.run(&[&arguments[..], &["--apply"]].concat());
    assert_eq!(code, 0, "{said}");
    let file = place.path("host/etc/starhop/relay.toml");
    let text = std::fs::read_to_string(&file)
        .expect("a file")
        .replace("/etc/starhop/domain.key", "host/etc/starhop/domain.key");
    assert!(text.contains("upstream = [\"192.0.2.1:4433\", \"192.0.2.2:4433\"]"), "{text}");
    std::fs::write(place.path("checked.toml"), text).expect("a file");
    let (code, said) = place.run(&["check", "checked.toml"]);
    assert_eq!(code, 0, "what it writes can be run: {said}");
    let (code, said) = place.run(&["setup", "relay", "--undo", "--root", "host"]);
    assert_eq!(code, 0, "{said}");
    for name in ["etc/starhop/relay.toml", "etc/starhop/domain.key", "etc/sysctl.d/60-starhop.conf"] {
        assert!(!place.path("host").join(name).exists(), "{name} is still there");
    }
}

#[test]
fn setup_makes_a_gateway_whose_configuration_is_right() {
    let place = Place::new();
    for (role, option) in [("gateway", "--name <NAME>"), ("relay", "--upstream <ADDR>")] {
        let missing = place.run(&["setup", role, "--root", "host"]);
        assert!(missing.0 == 2 && missing.1.contains(option), "{missing:?}");
    }
    let wrong =
        place.run(&["setup", "gateway", "--name", "site", "--peer", "192.0.2.1:4433", "--root", "host"]);
    assert!(wrong.0 == 2 && wrong.1.contains("hub=192.0.2.1:4433"), "{wrong:?}");
    let arguments = [
        "setup",
        "gateway",
        "--name",
        "site",
        "--peer",
        "hub=192.0.2.1:4433",
        "--intercept",
        "lo",
        "--root",
        "host",
    ];
    let (code, said) = place.run(&[&arguments[..], &["--apply"]].concat());
    assert_eq!(code, 0, "{said}");
    let settings = std::fs::read_to_string(place.path("host/etc/sysctl.d/60-starhop.conf")).expect("a file");
    assert!(settings.contains("net.ipv4.ip_forward = 1") && settings.contains("rp_filter = 2"), "{settings}");
    let text = std::fs::read_to_string(place.path("host/etc/starhop/gateway.toml")).expect("a file");
    let text = text.replace("/etc/starhop/domain.key", "host/etc/starhop/domain.key");
    std::fs::write(place.path("checked.toml"), text).expect("a file");
    let (code, said) = place.run(&["gateway", "check", "checked.toml"]);
    assert!(code == 0 && said.contains("lo"), "it can be run as it is: {said}");
    let (code, said) = place.run(&["check", "checked.toml"]);
    assert!(code == 0 && said.contains("checked.toml: ok (gateway)"), "one check for all roles: {said}");
    let (code, said) = place.run(&["setup", "gateway", "--undo", "--root", "host"]);
    assert_eq!(code, 0, "{said}");
    assert!(!place.path("host/etc/starhop/gateway.toml").exists());
}

#[test]
fn a_bundle_for_support_holds_nodes_and_findings_and_no_key() {
    let place = Place::new();
    let key = std::fs::read_to_string(place.path("site.key")).expect("a key");
    let (code, said) = place.run(&["support", "-o", "bundle.json"]);
    assert_eq!(code, 0, "{said}");
    let text = std::fs::read_to_string(place.path("bundle.json")).expect("a bundle");
    let bundle: Value = serde_json::from_str(&text).expect("JSON");
    assert!(bundle["kernel"].as_str().is_some_and(|kernel| kernel.starts_with("Linux")), "{bundle}");
    assert!(
        bundle["doctor"].as_array().is_some_and(|all| all.len() >= 5) && bundle["nodes"].is_array(),
        "{bundle}"
    );
    assert!(bundle["program"].as_str().is_some_and(|program| program.contains("commit: ")), "{bundle}");
    let secrets = key.split('"').filter(|part| part.len() >= 32);
    assert!(secrets.clone().count() > 0 && secrets.into_iter().all(|secret| !text.contains(secret)));
    assert_eq!(place.run(&["support", "-o", "bundle.json"]).0, 1, "what exists is not overwritten");
}

#[test]
fn a_relay_is_ready_when_its_upstream_was_reached_or_says_that_it_was_not_yet() {
    let place = Place::new();
    let server = place.serve(&[]);
    let upstream = server.address.clone();
    let mut relay = place.relay(&upstream, &[]);
    let ready = relay.said("ready");
    assert_eq!(ready["reached"], true, "{ready}");
    assert!(ready["upstream_rtt_ms"].as_f64().is_some_and(|ms| ms > 0.0 && ms < 1000.0), "{ready}");
    drop(server);
    let mut early = place.relay(&upstream, &[]);
    assert_eq!(early.said("ready")["reached"], false);
    early.expect(|line| {
        line["message"].as_str().is_some_and(|said| said.starts_with("the upstream does not answer"))
    });
    let _server = place.start("hashed", &["serve", "served", "--listen", &upstream]);
    early.expect(|line| line["message"] == "the upstream answers again");
}

#[test]
fn a_server_takes_its_key_anew_at_sighup_and_no_transfer_ends() {
    let place = Place::new();
    place.offer("file", 3_000_000);
    let server = place.serve(&[]);
    let slow =
        ["get", "file", "--from", &server.address, "--json", "--limit-rate", "8Mbit", "--output", "slow"];
    let running = place.begin(&slow);
    std::thread::sleep(std::time::Duration::from_millis(700));
    for _ in 0..2 {
        let (code, said) = place.run(&["key", "rotate", "site.key"]);
        assert_eq!(code, 0, "{said}");
        server.signal(nix::sys::signal::Signal::SIGHUP);
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    let output = running.wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(std::fs::read(place.path("slow")).ok() == std::fs::read(place.path("served/file")).ok());
    place.get("file", &server.address);
}

#[test]
fn a_shell_completes_the_names_that_a_server_offers() {
    let place = Place::new();
    for name in ["holiday one.mkv", "holiday-two.mkv", "it's", "pay $5.txt", "work.txt"] {
        place.offer(name, 1000);
    }
    let server = place.serve(&[]);
    let (code, said) = place.run(&["generate", "generated"]);
    assert_eq!(code, 0, "{said}");
    let complete = |line: &str| {
        let line = line.replace("FROM", &server.address);
        let script = "source generated/starhop.bash; COMP_LINE=$1; COMP_POINT=${#1}; read -ra COMP_WORDS <<<\"$1\"; \
                      COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _starhop_or_names \"${COMP_WORDS[0]}\" \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; \
                      printf '%s\\n' \"${COMPREPLY[@]}\"";
        let line = line.replacen("starhop", env!("CARGO_BIN_EXE_starhop"), 1);
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", script, "bash", &line]).current_dir(place.path(""));
        let output = bash.env("STARHOP_KEY", "site.key").output().expect("bash");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("starhop get --from FROM holi"), [r"holiday\ one.mkv", "holiday-two.mkv"]);
    assert_eq!(complete("starhop ls work --from=FROM w"), ["work.txt"]);
    // The shell closes the mark that is open.
    assert_eq!(complete("starhop get --from FROM \"holiday o"), ["holiday one.mkv"]);
    assert_eq!(complete("starhop get --from FROM 'holiday o"), ["holiday one.mkv"]);
    assert_eq!(complete(r"starhop get --from FROM holiday\ o"), [r"holiday\ one.mkv"]);
    assert_eq!(complete("starhop get --from FROM \"pay $"), [r"pay \$5.txt"]);
    assert_eq!(complete("starhop get --from 'FROM' \"work.txt\" it"), [r"it\'s"]);
    assert_eq!(complete("starhop get --from FROM 'it"), [r"it'\''s"]);
    assert!(complete("starhop get --from FROM --no-cl").contains(&"--no-clobber".to_owned()));
    for (script, asks) in
        [("_starhop", "_call_program names starhop names"), ("starhop.fish", "starhop names (commandline")]
    {
        let text = std::fs::read_to_string(place.path("generated").join(script)).expect("a script");
        assert!(text.contains(asks), "{script}");
        assert!(script != "_starhop" || text.matches(":_starhop_names'").count() == 2);
    }
}

#[test]
fn a_relay_whose_second_upstream_is_dead_too_turns_to_the_third() {
    let place = Place::new();
    place.offer("file", 200_000);
    let [first, second, third] = [place.serve(&[]), place.serve(&[]), place.serve(&[])];
    let more = ["--upstream", &second.address, "--upstream", &third.address];
    let mut relay = place.relay(&first.address, &more);
    // Both fall silent; no request goes to the second, and the relay notices all the same.
    drop(second);
    std::thread::sleep(std::time::Duration::from_secs(14));
    drop(first);
    let turned = relay.expect(|line| line["message"] == "the upstream does not answer; another one is asked");
    assert_eq!(turned["to"].as_str(), Some(&*third.address), "{turned}");
    place.get("file", &relay.address);
}

#[test]
fn nodes_of_a_roster_are_called_by_their_names() {
    let place = Place::new();
    place.offer("file", 200_000);
    let ports = ["44931", "44932"];
    let run = |arguments: &[&str]| {
        let (code, said) = place.run(arguments);
        assert_eq!(code, 0, "{said}");
        said
    };
    run(&["roster", "init", "r", "--authority", "a", "--domain", "d"]);
    for (name, port) in [("source", Some(ports[0])), ("middle", Some(ports[1])), ("reader", None)] {
        run(&["key", "new", name, "--node", "--authority", "a", "--domain", "d"]);
        let shown: Value = serde_json::from_str(&run(&["key", "show", name, "--json"])).expect("JSON");
        let public = shown["public"][0].as_str().expect("a key");
        let address = port.map(|port| format!("127.0.0.1:{port}"));
        let mut add = vec!["roster", "add", "r", "--name", name, "--public", public];
        add.extend(address.iter().flat_map(|address| ["--address", address]));
        run(&add);
    }
    run(&["roster", "sign", "r", "--authority", "a"]);
    let [source, middle] = ports.map(|port| format!("127.0.0.1:{port}"));
    let _server =
        place.start("hashed", &["serve", "served", "--listen", &source, "--key", "source", "--roster", "r"]);
    let relay = ["relay", "--listen", &middle, "--upstream", &source, "--key", "middle", "--roster", "r"];
    let _relay = place.start("ready", &[&relay[..], &["--status-socket", "relay.sock"]].concat());
    run(&["get", "file", "--from", &middle, "--key", "reader", "--roster", "r", "--discard"]);
    let status: Value = serde_json::from_str(&run(&["status", "./relay.sock", "--json"])).expect("JSON");
    let called = |side: &str| {
        let peers = status[0]["peers"].as_array().expect("peers");
        peers.iter().find(|peer| peer["side"] == side).map(|peer| peer["identity"].clone())
    };
    assert_eq!(
        (called("upstream"), called("downstream")),
        (Some("source".into()), Some("reader".into())),
        "{status}"
    );
}

#[test]
fn a_download_leaves_to_others_what_is_above_its_limit() {
    let place = Place::new();
    place.offer("file", 1_000_000);
    let server = place.serve(&[]);
    let limited = ["get", "file", "--from", &server.address, "--json", "--limit-rate", "4Mbit"];
    let (code, said) = place.run(&limited);
    assert_eq!(code, 0, "{said}");
    let told: Value = serde_json::from_str(&said).expect("JSON");
    let rate = told["goodput_mbps"].as_f64().expect("a rate");
    assert!((2.5..4.0).contains(&rate), "{rate} Mbit/s");
    let (code, said) = place.run(&["get", "file", "--from", &server.address, "--limit-rate", "0bit"]);
    assert!(code != 0 && said.contains("a rate of 0 carries nothing"), "{said}");
}

#[test]
fn a_status_that_is_watched_is_shown_again_and_again() {
    let place = Place::new();
    let _server = place.serve(&["--status-socket", "serve.sock"]);
    let shown = place.run_for(std::time::Duration::from_millis(2600), &["status", "./serve.sock", "--watch"]);
    assert!(shown.matches("serve on").count() >= 2, "{shown}");
}

#[test]
fn a_live_node_is_captured_with_payload_for_who_has_its_key_and_without_for_others() {
    let (place, other) = (Place::new(), Place::new());
    let bytes = place.offer("file", 300_000);
    let server = place.serve(&["--status-socket", "serve.sock"]);
    let has_payload = |file: &std::path::Path| {
        let captured = std::fs::read(file).expect("a capture");
        assert!(captured.starts_with(&0x0a0d_0d0a_u32.to_ne_bytes()), "no pcapng");
        captured.windows(64).any(|window| window == &bytes[100_000..100_064])
    };
    let socket = place.path("serve.sock");
    let foreign = other.path("site.key");
    for (name, key, expected) in
        [("with", Some("site.key"), true), ("without", None, false), ("foreign", foreign.to_str(), false)]
    {
        let file = format!("{name}.pcapng");
        let key = ["--key", key.unwrap_or("")];
        let arguments = ["capture", socket.to_str().expect("UTF-8"), "--for", "2s", "-o", &file];
        let capture = place.begin(&[&arguments[..], &key].concat());
        std::thread::sleep(std::time::Duration::from_millis(500));
        place.get("file", &server.address);
        let (code, said) = place.run(&["capture", "./serve.sock", "-o", "second.pcapng", "--key", ""]);
        assert!(code == 1 && said.contains("another capture"), "{said}");
        std::fs::remove_file(place.path("second.pcapng")).expect("what was begun");
        let output = capture.wait_with_output().expect("its end");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let packets: u64 = said.split(' ').nth(1).and_then(|count| count.parse().ok()).unwrap_or_default();
        assert!(
            output.status.success() && packets > 222,
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(has_payload(&place.path(&file)), expected, "{name}");
    }
    let none = ["capture", "./serve.sock", "--flow", "ffffffffffff", "--for", "300ms", "-o", "none.pcapng"];
    let (code, said) = place.run(&none);
    assert!(code == 0 && said.contains(" 0 packets"), "{said}");
    let (code, said) = place.run(&["capture", "./serve.sock", "--flow", "xyz", "-o", "wrong.pcapng"]);
    assert!(code == 2 && said.contains("hexadecimal"), "{said}");
}

#[test]
fn flows_are_spread_over_upstreams_and_go_on_without_one_that_dies() {
    let place = Place::new();
    let names: Vec<String> = (0..12).map(|number| format!("file{number}")).collect();
    // Files of different lengths: equal files have one name, and the cache would have all but the first.
    names.iter().zip(200_000..).for_each(|(name, len)| drop(place.offer(name, len)));
    let (first, second) = (place.serve(&[]), place.serve(&[]));
    let more = ["--upstream", &second.address, "--balance", "--status-socket", "relay.sock"];
    let relay = place.relay(&first.address, &more);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    names[..8].iter().for_each(|name| place.get(name, &relay.address));
    let (_, said) = place.run(&["status", "./relay.sock", "--json"]);
    let status: Value = serde_json::from_str(&said).expect("JSON");
    let peers = status[0]["peers"].as_array().expect("peers").iter();
    let carried: Vec<u64> =
        peers.filter(|peer| peer["side"] == "upstream").filter_map(|peer| peer["bytes"].as_u64()).collect();
    assert!(carried.len() == 2 && carried.iter().all(|&bytes| bytes > 1000), "{carried:?}");
    assert!(carried.iter().sum::<u64>() > 1_600_000, "{carried:?}");
    drop(first);
    names[8..].iter().for_each(|name| place.get(name, &relay.address));
}
