//! Standard programs over gateways: nothing that was written for them.

use super::gateways::{CLIENT, SERVER, World};
use super::harness::{Test, timing};
use starhop_net::emu::Process;
use std::process::{Command, Stdio};
use std::time::Duration as Span;

pub(super) const TESTS: &[Test] = &[
    ("curl_gets_what_nginx_has", curl_gets_what_nginx_has),
    ("a_browser_shows_a_page_of_nginx_with_all_that_it_asks_for", a_browser_shows_a_page),
    ("iperf3_measures_both_directions", iperf3_measures_both_directions),
];

/// Whether `host` has all of these programs; says so if it does not.
fn has(world: &World, host: usize, programs: &[&str]) -> bool {
    let missing =
        programs.iter().find(|program| world.run(host, &format!("command -v {program}")).is_empty());
    if let Some(missing) = missing {
        println!("skipped 1 tests: there is no {missing} here");
    }
    missing.is_none()
}

/// Has nginx serve what the server has to offer.
fn nginx(world: &World) -> Process {
    let root = world.site.path("served");
    world.site.open_to_others("served");
    let config = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/log; user root;\nevents {{}}\nhttp {{ access_log off; server {{ \
         listen 80; root {0}; default_type text/html; }} }}\n",
        root.display()
    );
    std::fs::write(world.site.path("nginx.conf"), config).expect("a file");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(world.site.path("nginx.conf")).stderr(Stdio::null());
    let process = world.site.chain.hosts[SERVER].spawn(command).expect("a process");
    std::thread::sleep(Span::from_millis(500));
    process
}

fn curl_gets_what_nginx_has() {
    let world = World::new();
    if !has(&world, SERVER, &["nginx"]) || !has(&world, CLIENT, &["curl"]) {
        return;
    }
    let bytes = world.site.offer("page", 3_000_000);
    let _nginx = nginx(&world);
    let got = world.site.path("got");
    world.run(CLIENT, &format!("curl -sS --max-time 20 -o {} http://10.77.0.1/page", got.display()));
    assert!(std::fs::read(got).is_ok_and(|got| got == bytes), "the page arrived whole");
    let end = world.flow_end();
    assert_eq!(end["carried"], "split", "{end}");
}

/// The page asks for twelve files and shows the number of their bytes.
const PAGE: &str = "<!doctype html><title>page</title><p id=sum>none</p><script>\
    (async () => { let sum = 0; await Promise.all([...Array(12).keys()].map(async (n) => { \
    const answer = await fetch('/file' + n), bytes = await answer.arrayBuffer(); sum += bytes.byteLength; })); \
    document.getElementById('sum').textContent = 'bytes: ' + sum; })()</script>";

fn a_browser_shows_a_page() {
    let world = World::new();
    if !has(&world, SERVER, &["nginx"]) || !has(&world, CLIENT, &["chromium"]) {
        return;
    }
    (0..12).for_each(|n| drop(world.site.offer(&format!("file{n}"), 20_000 + n)));
    std::fs::write(world.site.path("served/page"), PAGE).expect("a file");
    let _nginx = nginx(&world);
    let flags = "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync \
                 --disable-background-networking --disable-component-update --virtual-time-budget=20000";
    let profile = world.site.path("profile");
    let shown = world.run(
        CLIENT,
        &format!("chromium {flags} --user-data-dir={} --dump-dom http://10.77.0.1/page", profile.display()),
    );
    assert!(shown.contains("bytes: 240066"), "{shown}");
    let ended = world.ended_now();
    assert!(ended >= 1, "the browser's connections were split");
}

fn iperf3_measures_both_directions() {
    timing::measure(|| {
        let world = World::new();
        if !has(&world, SERVER, &["iperf3"]) {
            return Ok(());
        }
        let mut rates = Vec::new();
        for direction in ["", "-R"] {
            let mut server = Command::new("iperf3");
            server.args(["-s", "-1"]).stdout(Stdio::null());
            let _server = world.site.chain.hosts[SERVER].spawn(server).expect("a process");
            std::thread::sleep(Span::from_millis(300));
            let said = world.run(CLIENT, &format!("iperf3 -J -c 10.77.0.1 -t 3 -P 3 {direction}"));
            let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
            rates.push(told["end"]["sum_received"]["bits_per_second"].as_f64().expect("a rate") * 1e-6);
            // Three connections, and the one by which the two programs talk.
            for _ in 0..4 {
                assert_eq!(world.flow_end()["carried"], "split");
            }
        }
        println!("     {:.1} and {:.1} of 50 Mbit/s, of which 1 % is lost", rates[0], rates[1]);
        // Cubic alone has 2 Mbit/s there by the formula of Mathis et al.
        timing::unless(rates.iter().all(|rate| *rate > 25.0), || format!("{rates:?} Mbit/s"))
    });
}
