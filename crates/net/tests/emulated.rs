//! The emulated links, measured through real sockets in real namespaces.

// The runner and the judge of the command's tests in real time.
#[path = "../../cli/tests/harness/mod.rs"]
mod harness;

use harness::timing;
use starhop_net::emu::{Chain, Hop, chain};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

const HOP: Hop = Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(10), loss: 0.0, queue: 1000 };

fn main() {
    let tests: &[harness::Test] = &[
        ("a_round_trip_takes_the_delay_of_every_hop_twice", a_round_trip_takes_the_delay_of_every_hop_twice),
        ("a_burst_comes_out_at_the_rate_of_the_link", a_burst_comes_out_at_the_rate_of_the_link),
        ("losses_are_counted_and_are_as_many_as_asked", losses_are_counted_and_are_as_many_as_asked),
        ("both_ip_versions_reach_the_far_end", both_ip_versions_reach_the_far_end),
        ("a_thread_goes_ahead_of_ordinary_ones", a_thread_goes_ahead_of_ordinary_ones),
    ];
    harness::run_in_turn(tests, || None);
}

/// A socket in each end of the chain.
fn ends(chain: &Chain, address: &str) -> (UdpSocket, UdpSocket, SocketAddr) {
    let at: SocketAddr = address.parse().unwrap();
    let server = chain.hosts[0].run(move || UdpSocket::bind(at)).unwrap().unwrap();
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = chain.hosts.last().unwrap().run(move || UdpSocket::bind(any)).unwrap().unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    }
    (server, client, at)
}

fn round_trip(server: &UdpSocket, client: &UdpSocket, at: SocketAddr) -> std::time::Duration {
    let mut buffer = [0; 2000];
    let start = Instant::now();
    client.send_to(&[1; 100], at).unwrap();
    let (_, from) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&[1; 100], from).unwrap();
    client.recv_from(&mut buffer).unwrap();
    start.elapsed()
}

fn a_round_trip_takes_the_delay_of_every_hop_twice() {
    let chain = chain(&[HOP; 5], 1).unwrap();
    let (server, client, at) = ends(&chain, "10.77.0.1:4433");
    timing::measure(|| {
        let best = (0..10).map(|_| round_trip(&server, &client, at)).min().unwrap().as_secs_f64() * 1e3;
        // 10 × 10 ms, and 10 × 51 µs to send 128 bytes.
        timing::unless((100.4..103.0).contains(&best), || format!("{best} ms"))
    });
}

fn a_burst_comes_out_at_the_rate_of_the_link() {
    timing::measure(|| {
        let mut chain = chain(&[HOP], 1).unwrap();
        let (server, client, at) = ends(&chain, "10.77.0.1:4433");
        for _ in 0..500 {
            client.send_to(&[1; 1472], at).unwrap();
        }
        let mut buffer = [0; 2000];
        server.recv_from(&mut buffer).unwrap();
        let start = Instant::now();
        for _ in 1..500 {
            server.recv_from(&mut buffer).unwrap();
        }
        let rate = 499.0 * 1500.0 * 8.0 / start.elapsed().as_secs_f64() / 1e6;
        let report = chain.take_links().unwrap().stop().unwrap();
        println!("     accuracy: {:?}", report.accuracy);
        let is_right = (19.6..20.4).contains(&rate) && report.accuracy.late_p50_us < 1000.0;
        timing::unless(is_right, || format!("{rate} Mbit/s, {:?}", report.accuracy))
    });
}

fn losses_are_counted_and_are_as_many_as_asked() {
    let hop = Hop { loss: 0.1, rate: Rate::from_mbps(1000), ..HOP };
    let chain = chain(&[hop], 1).unwrap();
    let (_server, client, at) = ends(&chain, "10.77.0.1:4433");
    for i in 0..2000 {
        client.send_to(&[1; 100], at).unwrap();
        if i % 50 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let links = chain.links().unwrap().links();
    let up = links.iter().find(|link| link.name == "client-server").unwrap();
    assert!((120..300).contains(&up.lost), "{up:?}");
    assert_eq!(up.dropped, 0, "{up:?}");
}

fn both_ip_versions_reach_the_far_end() {
    let chain = chain(&[HOP; 3], 1).unwrap();
    for at in ["10.77.0.1:4433", "[fd77::1]:4433"] {
        let (server, client, at) = ends(&chain, at);
        round_trip(&server, &client, at);
    }
}

fn a_thread_goes_ahead_of_ordinary_ones() {
    // The nice value is the 19th field of the file (proc_pid_stat(5)), the 17th after the name.
    let nice = || -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(16).unwrap().parse().unwrap()
    };
    let chain = chain(&[HOP], 1).unwrap();
    let of = |thread: std::io::Result<std::thread::JoinHandle<std::io::Result<i32>>>| {
        thread.unwrap().join().unwrap().unwrap()
    };
    let usual = of(chain.hosts[0].thread(nice));
    let ahead = of(chain.hosts[0].thread_ahead(nice));
    // Without the right to raise a priority it is the usual one.
    let may = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NICE).unwrap().0 >= 40;
    let is_root = nix::unistd::geteuid().is_root();
    assert!(ahead == -20 || (ahead == usual && !may && !is_root), "{usual} and {ahead}");
}
