//! New configurations for gateways at work: nobody's connection ends, and what is wrong is told and changes nothing.

use super::gateways::{CLIENT, HUB, SERVER, SITE, World};
use super::harness::Test;
use super::support::{Running, content};
use super::{ask, echo_after_the_end};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("a_connection_of_the_plain_path_goes_on_when_the_peer_is_back", a_plain_connection_goes_on),
    (
        "a_new_configuration_ends_no_connection_and_counts_for_new_ones",
        a_new_configuration_ends_no_connection,
    ),
    ("what_is_wrong_with_a_new_configuration_is_told_and_the_old_one_goes_on", a_wrong_configuration_is_told),
    ("a_policy_that_changes_all_the_time_lets_no_connection_through_a_gap", no_gap_opens_at_a_change),
    ("a_hub_that_reads_its_configuration_anew_still_knows_whose_packets_it_carries", a_hub_knows_its_flows),
];

/// Answers each byte with the same byte.
fn echo(mut socket: TcpStream) {
    let mut buffer = [0; 1000];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        if socket.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn exchange(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(b"ping")?;
    socket.read_exact(&mut [0; 4])
}

fn a_plain_connection_goes_on() {
    let mut world = World::new();
    world.serve(9000, echo_after_the_end);
    world.serve(9007, echo);
    world.hub = None;
    world.wait_for_peer(false);
    let mut plain = world.connect(9007);
    exchange(&mut plain).expect("the plain path");
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split());
    for _ in 0..5 {
        exchange(&mut plain).expect("its connection is not the gateway's");
    }
}

/// Gives a gateway more lines for its configuration. Returns what it says about them.
pub(super) fn renew(
    world: &World,
    running: Option<&Running>,
    file: &str,
    change: impl Fn(String) -> String,
) -> Value {
    let path = world.site.path(file);
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(&path, change(text)).expect("a file");
    let running = running.expect("it runs");
    running.process.signal(Signal::SIGHUP).expect("it runs");
    running.wait("it read its configuration", |event| event["event"] == "reload")
}

const PASS: &str = "[[policy]]\naction = \"pass\"\nports = [9000]\n";

fn a_new_configuration_ends_no_connection() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    world.serve(9007, echo);
    world.serve(9008, |mut socket| _ = socket.write_all(&content(20_000_000, 3)));
    let mut idle = world.connect(9007);
    exchange(&mut idle).expect("an answer");
    let mut busy = world.connect(9008);
    let reading = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        busy.read_to_end(&mut bytes).map(|_| bytes)
    });
    std::thread::sleep(Span::from_millis(500));
    let read = |change: &dyn Fn(String) -> String| renew(&world, world.local.as_ref(), "local.toml", change);
    // Everything that can change does: what ran goes on as it began, and new connections pass.
    let told = read(&|text| {
        let pass_all = PASS.replace("ports = [9000]\n", "protocol = \"tcp\"\n");
        text.replace("\"cubic\"", "\"reno\"").replace("hold_seconds = 4", "hold_seconds = 9\nnat = true")
            + &pass_all
    });
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    let mut passed = world.connect(9007);
    exchange(&mut passed).expect("an answer");
    assert!(!world.is_split(), "the new policy");
    exchange(&mut idle).expect("its connection goes on");
    let told = read(&|text| text.replace("action = \"pass\"", "action = \"split\""));
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(world.is_split(), "the policy after that");
    exchange(&mut passed).expect("what passed goes on, too");
    exchange(&mut idle).expect("its connection goes on");
    let told = read(&|text| text.replace("intercept = [\"down\"]", "intercept = []"));
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(!world.is_split(), "nothing is intercepted any more");
    exchange(&mut idle).expect("its connection goes on");
    let bytes = reading.join().expect("no panic").expect("all of it");
    assert!(bytes == content(20_000_000, 3), "{} bytes", bytes.len());
}

fn a_wrong_configuration_is_told() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let good = std::fs::read_to_string(world.site.path("local.toml")).expect("a file");
    for (wrong, expected) in [
        (good.clone() + "[[policy]]\naction = \"pass\"\ndscp = 77\n", "`policy[0].dscp` must lie"),
        (good.clone() + "[[policy]]\nactoin = \"pass\"\n", "line 10"),
        (good.replace("name = \"site\"", "name = \"other\""), "`name` has changed, which takes a restart"),
        (good.replace(":4433", ":4444"), "`peer` has changed, which takes a restart"),
        (good.replace("cubic", "tricubic"), "`congestion` names a control"),
    ] {
        let told = renew(&world, world.local.as_ref(), "local.toml", |_| wrong.clone() + PASS);
        assert!(told["error"].as_str().is_some_and(|said| said.contains(expected)), "{expected}: {told}");
        assert!(world.is_split(), "the old configuration goes on: {expected}");
    }
    let told = renew(&world, world.local.as_ref(), "local.toml", |_| good.clone() + PASS);
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(!world.is_split());
}

fn no_gap_opens_at_a_change() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    let limit = Instant::now() + Span::from_secs(5);
    let process = &world.local.as_ref().expect("it runs").process;
    let path = world.site.path("local.toml");
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut changes = 0;
            while Instant::now() < limit {
                let text = std::fs::read_to_string(&path).expect("a file");
                let policy = format!("[[policy]]\naction = \"pass\"\nports = [{}]\n", 20_000 + changes);
                let rest = text.split("[[policy]]").next().unwrap_or_default();
                std::fs::write(&path, rest.to_owned() + &policy).expect("a file");
                process.signal(Signal::SIGHUP).expect("it runs");
                changes += 1;
                std::thread::sleep(Span::from_millis(100));
            }
            changes
        });
        let mut connections = 0;
        while Instant::now() < limit {
            assert!(ask(world.connect(9000), b"question").expect("an answer") == b"question");
            assert_eq!(world.flow_end()["carried"], "split", "connection {connections}");
            connections += 1;
        }
        let changes = changing.join().expect("no panic");
        println!("     {connections} connections during {changes} changes");
        assert!(connections > 20 && changes > 20);
    });
}

fn a_hub_knows_its_flows() {
    let world = World::new();
    if !world.run(CLIENT, "ls /dev/net/tun").contains("tun") {
        return println!("skipped 1 tests: no TUN devices here");
    }
    let bind = || UdpSocket::bind("0.0.0.0:5000");
    let socket = world.site.chain.hosts[CLIENT].run(bind).expect("a thread").expect("a port");
    let server = world.site.chain.hosts[SERVER].run(bind).expect("a thread").expect("a port");
    server.set_read_timeout(Some(Span::from_secs(5))).expect("an option");
    socket.send_to(b"question", "10.77.0.1:5000").expect("to send");
    server.recv_from(&mut [0; 100]).expect("a packet");
    let known = || world.run(HUB, "nft list set inet starhop_gateway_4434 flows_ip").contains("5000");
    assert!(known());
    let told = renew(&world, world.hub.as_ref(), "hub.toml", |text| text + PASS);
    assert_eq!(told["error"], Value::Null, "{told}");
    std::thread::sleep(Span::from_millis(300));
    assert!(known(), "the answer goes back through the gateways");
    assert!(world.run(SITE, "nft list tables").contains("starhop_gateway"));
}
