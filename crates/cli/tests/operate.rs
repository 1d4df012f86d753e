//! What an operator sees of running nodes.

mod local;

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
