//! XCP in this machine's real kernel: senders, the option in their segments, and `starhop xcp-router` on the way.
//! `cargo test --test xcp -- WORD` runs the tests whose names hold the word.

mod harness;
mod kernel;

use harness::timing::{self, unless};
use kernel::{Loader, SERVER, fetch, serve};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use starhop_net::emu::{Chain, Emulator, Hop, Namespace, PlainLink, Process, Running, chain};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration as Span, Instant};

const GROUND: Hop =
    Hop { rate: Rate::from_mbps(100), delay: Duration::from_millis(5), loss: 0.0, queue: 1000 };
/// The bottleneck, behind the gateway. Its queue holds three round trips.
const SATELLITE: Hop =
    Hop { rate: Rate::from_mbps(10), delay: Duration::from_millis(50), loss: 0.0, queue: 300 };

fn main() {
    kernel::run_tests(&[
        ("a_flow_fills_the_link_and_leaves_no_queue", a_flow_fills_the_link_and_leaves_no_queue),
        ("flows_get_equal_shares", flows_get_equal_shares),
        ("without_a_router_a_flow_is_its_end_to_end_half", without_a_router_a_flow_is_its_end_to_end_half),
        ("a_peer_without_the_option_gets_its_bytes", a_peer_without_the_option_gets_its_bytes),
        ("segmentation_offload_and_a_real_queue_are_right", segmentation_offload_and_a_real_queue_are_right),
        ("an_erasure_code_keeps_the_losses_of_the_ground_from_xcp", an_erasure_code_keeps_losses_from_xcp),
    ]);
}

/// A router at the gateway of a chain, and its last report.
struct Router {
    _process: Process,
    told: Arc<Mutex<Value>>,
}

impl Router {
    fn start(chain: &Chain) -> Self {
        Self::start_on(&chain.hosts[1], &["--rate", "10Mbit"])
    }

    fn start_on(gateway: &Namespace, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.args(["xcp-router", "--dev", "down", "--json", "--stats-every", "100ms"]);
        command.args(arguments).stdout(Stdio::piped());
        let mut process = gateway.spawn(command).expect("a process");
        let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        let first = lines.next().expect("it is not ready");
        assert!(first.contains("ready"), "{first}");
        let told = Arc::new(Mutex::new(Value::Null));
        let news = told.clone();
        std::thread::spawn(move || {
            for line in lines {
                let value = serde_json::from_str(&line).expect("JSON");
                *news.lock().unwrap_or_else(PoisonError::into_inner) = value;
            }
        });
        Self { _process: process, told }
    }

    fn told(&self) -> Value {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A flow from the server to the client, which reads for ever; it counts the bytes that came.
struct Flow(Arc<AtomicU64>);

impl Flow {
    fn start(chain: &Chain, control: &str) -> Self {
        let (_, port) = serve(&chain.hosts[0], control, usize::MAX);
        Self::read(fetch(chain.hosts.last().expect("a client"), port))
    }

    fn read(mut stream: TcpStream) -> Self {
        let bytes = Arc::new(AtomicU64::new(0));
        let counter = bytes.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                counter.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
        Self(bytes)
    }

    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Payload of each flow over a while, Mbit/s.
fn rates(flows: &[Flow], over: Span) -> Vec<f64> {
    let start = Instant::now();
    let before: Vec<u64> = flows.iter().map(Flow::bytes).collect();
    std::thread::sleep(over);
    let seconds = start.elapsed().as_secs_f64();
    flows.iter().zip(before).map(|(flow, before)| (flow.bytes() - before) as f64 * 8e-6 / seconds).collect()
}

/// Round trip of a small packet from the router to the client and back, beyond the propagation, ms: the median of
/// five, because a host that runs other programs holds a single one up for longer than the queue does.
fn waiting(chain: &Chain) -> f64 {
    let probe = || -> std::io::Result<f64> {
        let start = Instant::now();
        // The client refuses, because no program listens on the port. The refusal ends the round trip as an answer
        // would.
        let _ = TcpStream::connect(("10.77.1.2", 9));
        Ok(start.elapsed().as_secs_f64() * 1e3 - 100.0)
    };
    let five = move || (0..5).map(|_| probe()).collect::<std::io::Result<Vec<f64>>>();
    let mut waits = chain.hosts[1].run(five).expect("a thread").expect("round trips");
    waits.sort_by(f64::total_cmp);
    waits[2]
}

fn a_flow_fills_the_link_and_leaves_no_queue() {
    let controls = [("xcp", "xcp"), ("cubic-xcp", "cubic_xcp"), ("fast-xcp", "fast_xcp")];
    let _loaded = Loader::start(&controls.map(|(control, _)| control));
    // Each over a chain of its own, at the same time.
    timing::measure(|| {
        std::thread::scope(|scope| {
            let flows = controls.map(|(_, kernel_name)| scope.spawn(move || fills_the_link(kernel_name)));
            flows.into_iter().try_for_each(|flow| flow.join().expect("a measurement"))
        })
    });
}

fn fills_the_link(control: &str) -> Result<(), String> {
    let chain = chain(&[GROUND, SATELLITE], 1).expect("a chain");
    let router = Router::start(&chain);
    let flow = Flow::start(&chain, control);
    std::thread::sleep(Span::from_secs(4));
    let rate = rates(&[flow], Span::from_secs(5))[0];
    let (queue, told) = (waiting(&chain), router.told());
    println!("     {control}: {rate:.2} Mbit/s, {queue:.0} ms wait; {told}");
    assert!(told["with_header"].as_u64() > Some(1_000), "{told}");
    // The queue holds 360 ms.
    unless(rate > 9.0 && queue < 25.0, || format!("{control}: {rate} Mbit/s, {queue} ms"))
}

fn flows_get_equal_shares() {
    let _loaded = Loader::start(&["cubic-xcp"]);
    timing::measure(|| {
        let chain = chain(&[GROUND, SATELLITE], 2).expect("a chain");
        let router = Router::start(&chain);
        let mut flows = Vec::new();
        for _ in 0..4 {
            flows.push(Flow::start(&chain, "cubic_xcp"));
            std::thread::sleep(Span::from_secs(2));
        }
        let shares = rates(&flows, Span::from_secs(8));
        let total: f64 = shares.iter().sum();
        let jain = total * total / (4.0 * shares.iter().map(|share| share * share).sum::<f64>());
        println!(
            "     {shares:.2?} Mbit/s, Jain {jain:.4}, {:.0} ms wait; {}",
            waiting(&chain),
            router.told()
        );
        unless(jain > 0.97 && total > 8.8, || format!("{shares:?}"))
    });
}

fn without_a_router_a_flow_is_its_end_to_end_half() {
    let _loaded = Loader::start(&["cubic-xcp"]);
    let alone = |control: &'static str| {
        let chain = chain(&[GROUND, SATELLITE], 3).expect("a chain");
        let flow = Flow::start(&chain, control);
        std::thread::sleep(Span::from_secs(4));
        let rate = rates(&[flow], Span::from_secs(5))[0];
        (rate, waiting(&chain))
    };
    timing::measure(|| {
        let found = std::thread::scope(|scope| {
            let flows = ["cubic", "cubic_xcp"].map(|control| scope.spawn(move || alone(control)));
            flows.map(|flow| flow.join().expect("a measurement"))
        });
        println!("     (Mbit/s, ms wait) cubic {:.1?}, cubic-xcp {:.1?}", found[0], found[1]);
        // Both fill the queue, which XCP never does.
        unless(found.iter().all(|&(rate, wait)| rate > 9.0 && wait > 60.0), || format!("{found:?}"))
    });
}

fn a_peer_without_the_option_gets_its_bytes() {
    timing::measure(|| {
        let chain = chain(&[GROUND, SATELLITE], 4).expect("a chain");
        let listener =
            chain.hosts[0].run(|| TcpListener::bind("0.0.0.0:0")).expect("a thread").expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let client = fetch(&chain.hosts[2], port);
        let (mut server, _) = listener.accept().expect("a connection");
        // The option's program was not there when they met: the client's socket does not look for it.
        let _loaded = Loader::start(&["cubic-xcp"]);
        let _router = Router::start(&chain);
        setsockopt(&server, sockopt::TcpCongestion, &OsString::from("cubic_xcp")).expect("to choose it");
        std::thread::spawn(move || while server.write_all(&[7; 64 << 10]).is_ok() {});
        let flow = Flow::read(client);
        std::thread::sleep(Span::from_secs(8));
        let rate = rates(&[flow], Span::from_secs(5))[0];
        println!("     {rate:.2} Mbit/s from {SERVER}");
        // CUBIC after its first overflow.
        unless(rate > 8.0, || format!("{rate} Mbit/s"))
    });
}

/// A server behind Ethernet with every offload, and a gateway with a real queue of 1 MB at 50 Mbit/s before 20 ms.
struct Offloaded {
    hosts: [Namespace; 3],
    _link: Running,
}

impl Offloaded {
    fn new() -> Self {
        let hosts = ["server", "gateway", "client"].map(|name| Namespace::new(name).expect("a namespace"));
        hosts[0].veth("down", &hosts[1], "up").expect("a pair");
        hosts[0].up("down").expect("to set it up");
        hosts[1].up("up").expect("to set it up");
        let link = |seed| PlainLink::new(Rate::from_mbps(200), Duration::from_millis(20), 0.0, 2_000, seed);
        let mut emulator = Emulator::default();
        emulator.join((&hosts[1], "down"), (&hosts[2], "up"), link(1), link(2)).expect("a link");
        for (host, device, address) in
            [(0, "down", [0, 1]), (1, "up", [0, 2]), (1, "down", [1, 1]), (2, "up", [1, 2])]
        {
            let address = [10, 77, address[0], address[1]].into();
            hosts[host].address(device, address, 24).expect("to set it");
        }
        hosts[0].route([10, 77, 1, 0].into(), 24, [10, 77, 0, 2].into()).expect("a route");
        hosts[2].route([10, 77, 0, 0].into(), 24, [10, 77, 1, 1].into()).expect("a route");
        hosts[1].forward().expect("to forward");
        let mut tc = Command::new("tc");
        tc.args("qdisc add dev down root tbf rate 50mbit burst 128kb limit 1mb".split(' '));
        let done = hosts[1].run(move || tc.status()).expect("a thread").expect("tc of iproute2");
        assert!(done.success());
        Self { hosts, _link: emulator.start().expect("links") }
    }

    /// Bytes that wait at the gateway, by its own queue.
    fn backlog(&self) -> u64 {
        let mut tc = Command::new("tc");
        tc.args(["-s", "-j", "qdisc", "show", "dev", "down"]);
        let output = self.hosts[1].run(move || tc.output()).expect("a thread").expect("tc of iproute2");
        let queues: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        queues[0]["backlog"].as_u64().expect("a number")
    }
}

fn segmentation_offload_and_a_real_queue_are_right() {
    timing::measure(|| {
        let found = [offloaded("cubic"), offloaded("cubic_xcp")];
        let (cubic, xcp) = (found[0], found[1]);
        // Packets of several segments pass the router, and their headers count for each.
        assert!(xcp.2 > 2_000, "{found:?}");
        unless(cubic.0 > 44.0 && xcp.0 > 44.0 && xcp.1 * 4 < cubic.1, || format!("{found:?}"))
    });
}

/// Rate in Mbit/s, the median of the bytes that wait, and the payload of a packet at the router.
fn offloaded(control: &str) -> (f64, u64, u64) {
    let path = Offloaded::new();
    let _loaded = Loader::start(&["cubic-xcp"]);
    let router = Router::start_on(&path.hosts[1], &["--rate", "50Mbit"]);
    let (_, port) = serve(&path.hosts[0], control, usize::MAX);
    let flow = [Flow::read(fetch(&path.hosts[2], port))];
    std::thread::sleep(Span::from_secs(4));
    let (before, start) = (router.told()["packets"].as_u64(), flow[0].bytes());
    let mut waiting: Vec<u64> = Vec::new();
    let rate = std::thread::scope(|scope| {
        let rate = scope.spawn(|| rates(&flow, Span::from_secs(3))[0]);
        while !rate.is_finished() {
            waiting.push(path.backlog());
            std::thread::sleep(Span::from_millis(30));
        }
        rate.join().expect("a thread")
    });
    let (after, end) = (router.told()["packets"].as_u64(), flow[0].bytes());
    let size = (end - start) / (after.unwrap_or(0) - before.unwrap_or(0)).max(1);
    waiting.sort_unstable();
    let median = waiting[waiting.len() / 2];
    println!(
        "     {control}: {rate:.1} Mbit/s, {median} bytes wait, {size} bytes of payload per packet at the router"
    );
    (rate, median, size)
}

/// One end of `starhop fec`, when it is ready.
fn code(host: &Namespace, key: &std::path::Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
    command.arg("fec").args(arguments).arg("--key").arg(key).stdout(Stdio::piped());
    let mut process = host.spawn(command).expect("a process");
    let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    assert!(line.contains("ready"), "{line}");
    process
}

/// SatERN's figure 1b: the code over the terrestrial part, which loses packets, and the router at the gateway.
fn an_erasure_code_keeps_losses_from_xcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("domain.key");
    let made = Command::new(env!("CARGO_BIN_EXE_starhop")).args(["key", "new"]).arg(&key).output();
    assert!(made.expect("it runs").status.success());
    // Rate, wait, and the router's last words. A flow goes on until its chain goes.
    let measured = |is_coded: bool| {
        let chain = chain(&[Hop { loss: 0.02, ..GROUND }, SATELLITE], 5).expect("a chain");
        let router = Router::start(&chain);
        let _ends = is_coded.then(|| {
            let gateway = ["--peer", "10.77.0.1:4434", "--route", "10.77.0.1", "--by", "up"];
            [
                code(&chain.hosts[0], &key, &["--peer", "10.77.0.2:4434", "--route", "10.77.1.2"]),
                code(&chain.hosts[1], &key, &gateway),
            ]
        });
        // The ends meet.
        std::thread::sleep(Span::from_secs(1));
        let flow = Flow::start(&chain, "cubic_xcp");
        std::thread::sleep(Span::from_secs(5));
        let rate = rates(&[flow], Span::from_secs(6))[0];
        (rate, waiting(&chain), router.told())
    };
    let _loaded = Loader::start(&["cubic-xcp"]);
    timing::measure(|| {
        let ((plain, ..), (coded, queue, told)) = std::thread::scope(|scope| {
            let plain = scope.spawn(|| measured(false));
            let coded = measured(true);
            (plain.join().expect("a measurement"), coded)
        });
        println!("     {plain:.2} Mbit/s, with the code {coded:.2}; {queue:.0} ms wait; {told}");
        unless(coded > 8.5 && plain < 3.0 && queue < 40.0, || {
            format!("{plain} Mbit/s plain, {coded} with the code, {queue} ms")
        })
    });
}
