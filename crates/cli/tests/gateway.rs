//! Gateways between real sockets: a server, a hub, a site and a client in namespaces of this test, with the kernel's TCP
//! at both ends and a lossy link between the gateways. `cargo test --test gateway -- WORD` runs the tests whose names
//! hold the word.

mod gateway_by_rate;
mod gateway_clients;
mod gateway_confirmed;
mod gateway_crowd;
mod gateway_day;
mod gateway_keys;
mod gateway_life;
mod gateway_reload;
mod gateway_rights;
mod gateway_sites;
mod gateway_upgrade;
mod gateway_users;
mod gateways;
mod harness;
mod support;

use gateways::{HUB, LAN, METRICS, SERVER, SITE, World};
use nix::sys::signal::Signal;
use serde_json::Value;
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration as Span, Instant};
use support::{Site, content};

const SATELLITE: Hop =
    Hop { rate: Rate::from_mbps(50), delay: Duration::from_millis(25), loss: 0.01, queue: 500 };

fn main() {
    let tests: [harness::Test; 13] = [
        ("both_directions_end_by_themselves_over_both_ip_versions", both_directions_end_by_themselves),
        ("the_server_sees_the_clients_address", the_server_sees_the_clients_address),
        ("what_is_refused_over_there_is_refused_here", what_is_refused_over_there_is_refused_here),
        ("a_reset_from_either_side_is_a_reset_on_the_other", a_reset_is_a_reset),
        ("a_reader_that_does_not_read_stops_nobody_else", a_reader_that_does_not_read_stops_nobody_else),
        ("many_connections_at_once_keep_their_bytes", many_connections_at_once_keep_their_bytes),
        ("connections_outlive_an_outage", connections_outlive_an_outage),
        ("a_dead_hub_ends_its_streams_in_resets_and_is_passed_by", a_dead_hub_is_passed_by),
        ("a_dead_site_leaves_no_rules_and_a_hung_one_is_passed_by", a_dead_or_hung_site_is_passed_by),
        ("rules_that_somebody_flushed_are_set_again", rules_that_somebody_flushed_are_set_again),
        ("a_policy_lets_connections_pass", a_policy_lets_connections_pass),
        ("an_operator_sees_sites_connections_and_bytes", an_operator_sees_sites_connections_and_bytes),
        ("the_demo_measures_gateways_beside_plain_tcp", the_demo_measures_gateways),
    ];
    gateways::run_tests(
        &[
            &tests,
            gateway_by_rate::TESTS,
            gateway_clients::TESTS,
            gateway_confirmed::TESTS,
            gateway_crowd::TESTS,
            gateway_day::TESTS,
            gateway_life::TESTS,
            gateway_reload::TESTS,
            gateway_rights::TESTS,
            gateway_sites::TESTS,
            gateway_keys::TESTS,
            gateway_users::TESTS,
            gateway_upgrade::TESTS,
        ]
        .concat(),
    );
}

impl World {
    fn new() -> Self {
        Self::with("", true)
    }

    /// A world with more lines in the site's configuration.
    fn with(more: &str, up: bool) -> Self {
        let world = Self::over(Site::new(&[LAN, SATELLITE, LAN]), "hold_seconds = 4\n", more);
        if up {
            world.wait_for_peer(true);
        }
        world
    }

    /// A world whose gateways wait `hold_seconds` for a silent peer.
    fn patient(hold_seconds: u32) -> Self {
        let hold = format!("hold_seconds = {hold_seconds}\n");
        let world = Self::over(Site::new(&[LAN, SATELLITE, LAN]), &hold, "");
        world.wait_for_peer(true);
        world
    }

    /// A world with more lines in both configurations, and in the site's alone.
    fn over(site: Site, of_both: &str, more: &str) -> Self {
        Self::between(site, ["10.77.1.1", "10.77.1.2"], of_both, more)
    }

    /// As [`World::over`]; the hub and the site have these addresses for each other.
    fn between(site: Site, addresses: [&str; 2], of_both: &str, more: &str) -> Self {
        Self::with_programs(site, addresses, (of_both, more, ""), &[])
    }

    /// As [`World::between`], with more lines at the end of the hub's configuration, too; the gateways with these
    /// configurations have programs of their own.
    fn with_programs(
        site: Site,
        [hub, local]: [&str; 2],
        (of_both, more, of_hub): (&str, &str, &str),
        own_programs: &[&str],
    ) -> Self {
        let common = format!("key = \"site.key\"\ncongestion = \"cubic\"\n{of_both}");
        // A hub to which no address is given finds the site.
        let address = if local.is_empty() { String::new() } else { format!("address = \"{local}:4433\"\n") };
        let of_hub = format!("name = \"hub\"\n{common}[[peer]]\nname = \"site\"\n{address}{of_hub}");
        let of_site = format!(
            "name = \"site\"\n{common}intercept = [\"down\"]\n[[peer]]\nname = \"hub\"\naddress = \"{hub}:4433\"\n{more}"
        );
        std::fs::write(site.path("hub.toml"), of_hub).expect("a file");
        std::fs::write(site.path("local.toml"), of_site).expect("a file");
        let mut world = Self { site, hub: None, local: None };
        for program in own_programs {
            world.give_program(program, Path::new(env!("CARGO_BIN_EXE_starhop")));
        }
        world.hub = Some(world.start(HUB, "hub.toml"));
        world.local = Some(world.start(world.client() - 1, "local.toml"));
        world
    }

    /// The last host of the chain; the site is next to it.
    fn client(&self) -> usize {
        self.site.chain.hosts.len() - 1
    }

    /// Serves connections to `port` of the server, each in a thread of its own.
    fn serve(&self, port: u16, serve: fn(TcpStream)) {
        let body = move || TcpListener::bind(("::", port));
        let listener = self.site.chain.hosts[SERVER].run(body).expect("a thread").expect("a port");
        std::thread::spawn(move || {
            listener
                .incoming()
                .map_while(Result::ok)
                .for_each(|socket| _ = std::thread::spawn(move || serve(socket)));
        });
    }

    fn dial(&self, to: &str) -> std::io::Result<TcpStream> {
        let to: SocketAddr = to.parse().expect("an address");
        let socket = self.site.chain.hosts[self.client()]
            .run(move || TcpStream::connect_timeout(&to, Span::from_secs(5)))
            .expect("a thread")?;
        socket.set_read_timeout(Some(Span::from_secs(20)))?;
        Ok(socket)
    }

    fn connect(&self, port: u16) -> TcpStream {
        self.dial(&format!("10.77.0.1:{port}")).expect("a connection")
    }

    /// The last end of a flow that the site reported.
    fn flow_end(&self) -> Value {
        let local = self.local.as_ref().expect("it runs");
        local.wait("a flow ended", |event| event["event"] == "flow")
    }

    fn has_rules(&self) -> bool {
        self.run(SITE, "nft list tables").contains("starhop_gateway")
    }

    /// Number of connections that the site told of as ended and split, since somebody listened.
    fn ended_now(&self) -> usize {
        let local = self.local.as_ref().expect("it was started");
        local.events.try_iter().filter(|event| event["carried"] == "split").count()
    }

    /// Whether a connection made now is carried by the gateways.
    fn is_split(&self) -> bool {
        let mut socket = self.connect(9000);
        socket.write_all(b"x").expect("to write");
        socket.shutdown(Shutdown::Write).expect("to end");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        assert_eq!(answer, b"x");
        let limit = Instant::now() + Span::from_millis(500);
        let local = self.local.as_ref().expect("it was started");
        while let Some(left) = limit.checked_duration_since(Instant::now()) {
            match local.events.recv_timeout(left) {
                Ok(event) if event["event"] == "flow" => return event["carried"] == "split",
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// Reads to the end, and then answers with the same bytes.
fn echo_after_the_end(mut socket: TcpStream) {
    let mut question = Vec::new();
    if socket.read_to_end(&mut question).is_ok() {
        let _ = socket.write_all(&question);
    }
}

/// Answers and ends its direction first, and then confirms how many bytes it got.
fn speak_first(mut socket: TcpStream) {
    let _ = socket.write_all(&content(300_000, 1)).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert!(rest == content(200_000, 2), "{} bytes of another kind", rest.len());
}

fn ask(mut socket: TcpStream, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut writer = socket.try_clone()?;
    let copy = question.to_vec();
    let writing =
        std::thread::spawn(move || writer.write_all(&copy).and_then(|()| writer.shutdown(Shutdown::Write)));
    let mut answer = Vec::new();
    let done = socket.read_to_end(&mut answer);
    // A reset is told to one call only: who reads after it sees an end.
    if let Err(error) = writing.join().expect("no panic")
        && error.kind() == ErrorKind::ConnectionReset
    {
        return Err(error);
    }
    done.map(|_| answer)
}

fn both_directions_end_by_themselves() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    world.serve(9001, speak_first);
    for server in ["10.77.0.1", "[fd77::1]"] {
        let question = content(1_000_000, 5);
        let answer =
            ask(world.dial(&format!("{server}:9000")).expect("a connection"), &question).expect("an answer");
        assert!(answer == question, "{server}: {} bytes of {}", answer.len(), question.len());
        let end = world.flow_end();
        assert_eq!(
            (&end["up_bytes"], &end["down_bytes"], &end["reason"]),
            (&1_000_000.into(), &1_000_000.into(), &"done".into())
        );
        assert_eq!(end["carried"], "split", "{end}");
        let mut socket = world.dial(&format!("{server}:9001")).expect("a connection");
        let mut first = Vec::new();
        socket.read_to_end(&mut first).expect("what the server says first");
        assert!(first == content(300_000, 1));
        socket.write_all(&content(200_000, 2)).expect("the other direction is open");
        drop(socket);
        assert_eq!(world.flow_end()["reason"], "done");
    }
}

fn the_server_sees_the_clients_address() {
    let world = World::new();
    world.serve(9002, |mut socket| {
        let peer = socket.peer_addr().map(|peer| peer.ip().to_canonical().to_string()).unwrap_or_default();
        let _ = socket.write_all(peer.as_bytes());
    });
    for (server, client) in [("10.77.0.1:9002", "10.77.2.2"), ("[fd77::1]:9002", "fd77:0:0:2::2")] {
        let mut seen = String::new();
        world.dial(server).expect("a connection").read_to_string(&mut seen).expect("an address");
        let expected: IpAddr = client.parse().expect("an address");
        assert_eq!(seen.parse::<IpAddr>().ok(), Some(expected));
        assert_eq!(world.flow_end()["carried"], "split");
    }
}

fn what_is_refused_over_there_is_refused_here() {
    let world = World::new();
    let mut socket = world.connect(9999);
    let mut nothing = [0; 10];
    let error = socket.read(&mut nothing).expect_err("nobody listens there");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.flow_end()["reason"], "refused");
}

fn a_reset_is_a_reset() {
    let world = World::new();
    // The server resets in the middle of its answer.
    world.serve(9003, |mut socket| {
        let _ = socket.write_all(&content(100_000, 1));
        std::thread::sleep(Span::from_millis(300));
        let _ = socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO));
    });
    let mut bytes = Vec::new();
    let error = world.connect(9003).read_to_end(&mut bytes).expect_err("a truncated answer is no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(world.flow_end()["reason"], "reset");
    // The client resets; the server tells through a third connection.
    world.serve(9004, |mut socket| {
        let mut bytes = Vec::new();
        let kind = socket.read_to_end(&mut bytes).map_or_else(|error| error.kind(), |_| ErrorKind::Other);
        SEEN.lock().expect("no panic").push(kind);
    });
    let mut socket = world.connect(9004);
    socket.write_all(&content(50_000, 1)).expect("to write");
    std::thread::sleep(Span::from_millis(300));
    socket2::SockRef::from(&socket).set_linger(Some(Span::ZERO)).expect("an option");
    drop(socket);
    std::thread::sleep(Span::from_millis(500));
    assert_eq!(*SEEN.lock().expect("no panic"), [ErrorKind::ConnectionReset]);
}

/// The errors with which the server's connections ended.
static SEEN: std::sync::Mutex<Vec<ErrorKind>> = std::sync::Mutex::new(Vec::new());

fn a_reader_that_does_not_read_stops_nobody_else() {
    let world = World::new();
    world.serve(9005, |mut socket| _ = socket.write_all(&content(30_000_000, 3)));
    world.serve(9000, echo_after_the_end);
    let mut slow = world.connect(9005);
    std::thread::sleep(Span::from_secs(4));
    let start = Instant::now();
    let question = content(200_000, 4);
    assert!(ask(world.connect(9000), &question).expect("an answer") == question);
    assert!(start.elapsed() < Span::from_secs(2), "{:?}", start.elapsed());
    let mut bytes = Vec::new();
    if let Err(error) = slow.read_to_end(&mut bytes) {
        panic!("after {} bytes: {error}, {}, {}", bytes.len(), world.flow_end(), world.flow_end());
    }
    assert!(bytes == content(30_000_000, 3), "{} bytes", bytes.len());
}

fn many_connections_at_once_keep_their_bytes() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let start = Instant::now();
    let sockets: Vec<TcpStream> = (0..300).map(|_| world.connect(9000)).collect();
    let asking: Vec<_> = (sockets.into_iter().enumerate())
        .map(|(n, socket)| {
            std::thread::spawn(move || {
                let question = content(1_000 + 137 * n, n as u64);
                ask(socket, &question).is_ok_and(|answer| answer == question)
            })
        })
        .collect();
    let right =
        asking.into_iter().filter_map(|thread| thread.join().ok()).filter(|is_right| *is_right).count();
    println!("300 connections in {:?}", start.elapsed());
    assert_eq!(right, 300);
}

fn connections_outlive_an_outage() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let socket = world.connect(9000);
    let question = content(5_000_000, 8);
    let asked = question.clone();
    let asking = std::thread::spawn(move || ask(socket, &asked));
    std::thread::sleep(Span::from_millis(300));
    let cut = "nft add table inet cut; nft add chain inet cut in '{ type filter hook input priority 0; }'; \
               nft add rule inet cut in udp dport 4433 drop";
    world.run(HUB, cut);
    std::thread::sleep(Span::from_secs(2));
    world.run(HUB, "nft delete table inet cut");
    let answer = asking.join().expect("a thread").expect("an answer");
    assert!(answer == question, "{} bytes", answer.len());
    assert_eq!(world.flow_end()["carried"], "split");
}

fn a_dead_hub_is_passed_by() {
    let mut world = World::new();
    world.serve(9000, echo_after_the_end);
    let mut socket = world.connect(9000);
    socket.write_all(&content(100_000, 1)).expect("to write");
    std::thread::sleep(Span::from_millis(300));
    // Dropping it sends SIGKILL.
    world.hub = None;
    world.wait_for_peer(false);
    assert!(!world.is_split(), "new connections take the plain path");
    let error = socket.read(&mut [0; 10]).expect_err("no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split(), "back when the peer answers");
}

fn a_dead_or_hung_site_is_passed_by() {
    let mut world = World::new();
    world.serve(9000, echo_after_the_end);
    assert!(world.is_split());
    let local = world.local.as_ref().expect("it runs");
    local.process.signal(Signal::SIGSTOP).expect("it runs");
    std::thread::sleep(Span::from_secs(2));
    assert!(!world.has_rules(), "the watchdog let go");
    assert!(!world.is_split(), "a hung gateway is passed by");
    let local = world.local.as_ref().expect("it runs");
    local.process.signal(Signal::SIGCONT).expect("it runs");
    std::thread::sleep(Span::from_secs(2));
    assert!(world.is_split(), "and takes connections again");
    let mut socket = world.connect(9000);
    socket.write_all(b"hello").expect("to write");
    std::thread::sleep(Span::from_millis(300));
    world.local = None;
    let error = socket.read(&mut [0; 10]).expect_err("no clean end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    std::thread::sleep(Span::from_millis(1500));
    assert!(!world.has_rules());
    assert!(ask(world.connect(9000), b"plain").expect("an answer") == b"plain");
    assert_eq!(world.run(SITE, "ip rule | grep fwmark"), "");
    // Started again, it takes connections again.
    world.local = Some(world.start(SITE, "local.toml"));
    world.wait_for_peer(true);
    assert!(world.is_split());
}

fn rules_that_somebody_flushed_are_set_again() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    world.run(SITE, "nft flush ruleset");
    std::thread::sleep(Span::from_secs(2));
    assert!(world.has_rules() && world.is_split());
}

fn a_policy_lets_connections_pass() {
    let world = World::with("[[policy]]\naction = \"pass\"\nto = [\"10.77.0.0/24\"]\nports = [9006]\n", true);
    world.serve(9000, echo_after_the_end);
    world.serve(9006, echo_after_the_end);
    assert!(ask(world.connect(9006), b"passed").expect("an answer") == b"passed");
    assert!(world.is_split(), "the first flow that the gateway tells of is the other one");
}

fn an_operator_sees_sites_connections_and_bytes() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let question = content(300_000, 1);
    let mut open = world.connect(9000);
    open.write_all(&question).expect("to write");
    std::thread::sleep(Span::from_secs(1));
    let local = world.status(SITE, "local.toml");
    let site = &local["sites"][0];
    assert_eq!(
        (&local["role"], &site["name"], &site["is_up"]),
        (&"gateway".into(), &"hub".into(), &true.into())
    );
    assert_eq!((&site["connections"], &site["user_bytes_to"]), (&1.into(), &300_000.into()), "{local}");
    assert!(site["rtt_ms"].as_f64().is_some_and(|ms| (50.0..500.0).contains(&ms)), "{site}");
    let connection = &local["connections"][0];
    assert!(connection["to"].as_str().is_some_and(|to| to.ends_with(":9000")), "{connection}");
    let over = local["peers"].as_array().expect("peers").iter().find(|peer| peer["side"] == "downstream");
    let over = over.and_then(|peer| peer["bytes"].as_u64()).expect("the hop to the hub");
    assert!((300_000..400_000).contains(&over), "{over} bytes over the satellite");
    open.shutdown(Shutdown::Write).expect("to end");
    let mut answer = Vec::new();
    open.read_to_end(&mut answer).expect("an answer");
    world.flow_end();
    let hub = world.status(HUB, "hub.toml");
    assert_eq!(hub["sites"][0]["name"], "site");
    assert_eq!(hub["sites"][0]["user_bytes_to"], 300_000, "{hub}");
    let scrape = || -> std::io::Result<String> {
        let (mut socket, mut told) = (TcpStream::connect(METRICS)?, String::new());
        socket.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")?;
        socket.read_to_string(&mut told).map(|_| told)
    };
    let told = world.site.chain.hosts[SITE].run(scrape).expect("a thread").expect("metrics");
    for line in [
        "starhop_gateway_user_bytes_total{site=\"hub\",direction=\"to\"} 300000",
        "starhop_gateway_user_bytes_total{site=\"hub\",direction=\"from\"} 300000",
        "starhop_gateway_up{site=\"hub\"} 1",
        "starhop_transfers_total{reason=\"done\"} 1",
    ] {
        assert!(told.contains(line), "no `{line}` in {told}");
    }
}

fn the_demo_measures_gateways() {
    let site = Site::new(&[LAN]);
    let mut command = site.plain_command("demo");
    command.args(["gateway", "--json", "--only", "veth", "--tcp", "cubic", "--results", "shown"]);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let rows = summary["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 3);
    for row in rows {
        let cells = row["cells"].as_array().expect("cells");
        let names: Vec<&str> = cells.iter().filter_map(|cell| cell["transport"].as_str()).collect();
        assert_eq!(names, ["gateway", "cubic"]);
        assert!(cells.iter().all(|cell| cell["is_whole"] == true), "{row}");
    }
    let page = std::fs::read_to_string(site.path("shown/report.html")).expect("a page");
    assert!(page.contains("200 MB, s") && page.contains("<td class=\""));
}
