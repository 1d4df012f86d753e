//! Expectations of users and operators of a path with gateways, beyond that bytes arrive.

use super::gateway_reload::renew;
use super::gateways::{HUB, LAN, SITE, World};
use super::harness::{Test, timing};
use super::support::{Running, Site, content};
use super::{SATELLITE, ask, echo_after_the_end};
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::{Duration as Span, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("small_writes_wait_for_nothing", small_writes_wait_for_nothing),
    ("what_passes_is_counted_by_policy", what_passes_is_counted),
    ("the_rate_that_an_operator_gives_is_held_and_not_exceeded", the_rate_is_held),
    ("two_gateways_on_one_host_leave_each_other_alone", two_gateways_side_by_side),
    ("connections_beyond_a_limit_take_the_plain_path", connections_beyond_a_limit),
    ("connections_share_the_link_by_the_weights_of_policies", connections_have_weights),
    ("a_hub_without_room_resets_nobody", a_hub_without_room),
    ("a_site_may_get_another_address", a_site_may_get_another_address),
];

/// Answers each byte as it comes.
fn echo_bytes(mut socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    let mut byte = [0];
    while socket.read_exact(&mut byte).and_then(|()| socket.write_all(&byte)).is_ok() {}
}

/// The median time of a byte's way there and back, in milliseconds.
fn byte_ms(world: &World, port: u16) -> f64 {
    let mut socket = world.connect(port);
    socket.set_nodelay(true).expect("a socket option");
    let mut exchange = || {
        let (start, mut byte) = (Instant::now(), [7]);
        socket.write_all(&byte).and_then(|()| socket.read_exact(&mut byte)).expect("a byte");
        start.elapsed().as_secs_f64() * 1e3
    };
    let mut times: Vec<f64> = (0..21).map(|_| exchange()).collect();
    times.sort_by(f64::total_cmp);
    times[10]
}

fn small_writes_wait_for_nothing() {
    const PATH_MS: f64 = 20.0;
    let near = Hop { delay: Duration::from_millis(PATH_MS as u64 / 2), loss: 0.0, ..SATELLITE };
    timing::measure(|| {
        let world = World::over(
            Site::new(&[LAN, near, LAN]),
            "",
            "[[policy]]\naction = \"pass\"\nprotocol = \"tcp\"\nports = [9001]\n",
        );
        world.wait_for_peer(true);
        [9000, 9001].into_iter().for_each(|port| world.serve(port, echo_bytes));
        let (split, plain) = (byte_ms(&world, 9000), byte_ms(&world, 9001));
        println!("     a byte there and back: {split:.2} ms split, {plain:.2} ms plain");
        assert!(plain > PATH_MS, "{plain} ms");
        // A write that waited for an acknowledgement would wait for a delayed one, which is 40 ms.
        timing::unless(split < plain + 5.0, || format!("{split} ms split, {plain} ms plain"))
    });
}

fn what_passes_is_counted() {
    let policies = "[[policy]]\naction = \"split\"\nports = [9000]\n\
                    [[policy]]\naction = \"pass\"\nprotocol = \"udp\"\nports = [500, 4500]\n\
                    [[policy]]\naction = \"pass\"\nprotocol = \"tcp\"\nports = [9006]\n";
    let world = World::with(policies, true);
    [9000, 9006].into_iter().for_each(|port| world.serve(port, echo_after_the_end));
    assert!(ask(world.connect(9006), b"passed").expect("an answer") == b"passed");
    assert!(ask(world.connect(9000), b"split").expect("an answer") == b"split");
    let send = || -> std::io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        (0..10).try_for_each(|_| socket.send_to(&[0; 100], "10.77.0.1:4500").map(drop))
    };
    world.site.chain.hosts[world.client()].run(send).expect("a thread").expect("to send");
    std::thread::sleep(Span::from_millis(100));
    let passed = &world.status(SITE, "local.toml")["passed"];
    let of = |n: usize, field: &str| passed[n][field].as_u64();
    assert_eq!(
        (of(0, "policy"), of(0, "packets"), of(0, "bytes")),
        (Some(1), Some(10), Some(1_280)),
        "{passed}"
    );
    // A connection with a request and an answer has six packets at least from its client.
    assert_eq!(of(1, "policy"), Some(2), "{passed}");
    assert!((4..20).contains(&of(1, "packets").unwrap_or(0)), "{passed}");
    assert_eq!(passed.as_array().map(Vec::len), Some(2), "what is split is not passed: {passed}");
}

fn the_rate_is_held() {
    const MBPS: f64 = 10.0;
    let wide = Hop { loss: 0.0, ..SATELLITE };
    timing::measure(|| {
        let cap = format!("link_rate_in_bits = {}\n", (MBPS * 1e6) as u64);
        let world = World::over(Site::new(&[LAN, wide, LAN]), &cap, "");
        world.wait_for_peer(true);
        world.serve(9000, |mut socket| while socket.write_all(&[1; 64 << 10]).is_ok() {});
        let mut socket = world.connect(9000);
        let mut read_until = |limit: Span| {
            let (start, mut buffer, mut bytes) = (Instant::now(), vec![0; 64 << 10], 0);
            while start.elapsed() < limit {
                bytes += socket.read(&mut buffer).expect("bytes");
            }
            bytes as f64 * 8e-6 / start.elapsed().as_secs_f64()
        };
        read_until(Span::from_secs(1));
        let rate = read_until(Span::from_secs(3));
        println!("     {rate:.2} of {MBPS} Mbit/s");
        // Of 1,460 bytes on the wire 1,350 are a user's.
        assert!(rate < MBPS, "{rate} Mbit/s");
        timing::unless(rate > 0.88 * MBPS, || format!("{rate} Mbit/s"))
    });
}

fn two_gateways_side_by_side() {
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let other = "name = \"other\"\nkey = \"site.key\"\nlisten = \"[::]:4435\"\nport = 4436\nintercept = [\"up\"]\n\
                 [[peer]]\nname = \"hub\"\naddress = \"10.77.1.1:4433\"\n";
    std::fs::write(world.site.path("other.toml"), other).expect("a file");
    let mut command = world.site.command("gateway");
    command.args(["--config", "other.toml", "--status-socket", "other.sock"]).stderr(Stdio::inherit());
    let other = Running::start(&world.site.chain.hosts[SITE], command);
    let tables = world.run(SITE, "nft list tables");
    assert!(tables.contains("starhop_gateway_4434") && tables.contains("starhop_gateway_4436"), "{tables}");
    assert!(world.is_split(), "beside another gateway");
    other.end("end");
    let tables = world.run(SITE, "nft list tables");
    assert!(tables.contains("starhop_gateway_4434") && !tables.contains("starhop_gateway_4436"), "{tables}");
    assert!(world.is_split(), "after the end of the other");
    assert_eq!(ask(world.connect(9000), b"still").expect("an answer"), b"still");
}

/// Opens `many` connections, of which each has sent a request before the next one begins, and lets them all have their
/// answers. Returns how they were carried.
fn carried(world: &World, many: usize) -> Vec<String> {
    let questions: Vec<Vec<u8>> = (0..many).map(|n| content(20_000, n as u64)).collect();
    let mut sockets = Vec::new();
    for question in &questions {
        let mut socket = world.connect(9000);
        socket.write_all(question).expect("to write");
        std::thread::sleep(Span::from_millis(100));
        sockets.push(socket);
    }
    for (mut socket, question) in sockets.into_iter().zip(&questions) {
        let mut answer = Vec::new();
        socket.shutdown(Shutdown::Write).and_then(|()| socket.read_to_end(&mut answer)).expect("no reset");
        assert!(answer == *question, "{} bytes of {}", answer.len(), question.len());
    }
    (0..many).map(|_| world.flow_end()["carried"].as_str().unwrap_or_default().to_owned()).collect()
}

fn connections_beyond_a_limit() {
    const LIMIT: usize = 3;
    let limit = |many: usize| format!("max_connections = {many}\n");
    let world = World::over(Site::new(&[LAN, SATELLITE, LAN]), &limit(LIMIT), "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    // Twice: who took the plain path leaves no connection that counts.
    for _ in 0..2 {
        let ways = carried(&world, 8);
        let split = ways.iter().filter(|way| *way == "split").count();
        assert_eq!((split, ways.len() - split), (LIMIT, 5), "{ways:?}");
    }
}

/// The hub sends, so its policies count. Other connections do not weigh less by what is on their way already.
fn connections_have_weights() {
    let wide = Hop { loss: 0.0, ..SATELLITE };
    timing::measure(|| {
        let world = World::over(Site::new(&[LAN, wide, LAN]), "", "");
        world.wait_for_peer(true);
        let told = renew(&world, world.hub.as_ref(), "hub.toml", |text| {
            text + "[[policy]]\naction = \"split\"\nports = [9002]\nweight = 4\n"
        });
        assert!(told["error"].is_null(), "{told}");
        let readers = [9001, 9002].map(|port| {
            world.serve(port, |mut socket| while socket.write_all(&[1; 64 << 10]).is_ok() {});
            let mut socket = world.connect(port);
            std::thread::spawn(move || {
                let (start, mut buffer, mut bytes) = (Instant::now(), vec![0; 64 << 10], 0);
                while start.elapsed() < Span::from_secs(4) {
                    let count = socket.read(&mut buffer).expect("bytes");
                    bytes += if start.elapsed() > Span::from_secs(1) { count } else { 0 };
                }
                bytes as f64
            })
        });
        let [one, four] = readers.map(|reader| reader.join().expect("no panic"));
        println!("     {:.1} and {:.1} Mbit/s", one * 8e-6 / 3.0, four * 8e-6 / 3.0);
        timing::unless((3.0..5.0).contains(&(four / one)), || format!("{one} and {four} bytes"))
    });
}

/// The room that a hub tells counts from its next sign of life on; it refuses what it is asked meanwhile, and the site finds another
/// way. Both cases are among these.
fn a_hub_without_room() {
    const LIMIT: usize = 3;
    let world = World::new();
    world.serve(9000, echo_after_the_end);
    let give = |many: usize| {
        let text =
            |text: String| format!("max_connections = {many}\n{}", text.replace("max_connections", "# "));
        let told = renew(&world, world.hub.as_ref(), "hub.toml", text);
        assert!(told["error"].is_null(), "{told}");
    };
    give(LIMIT);
    std::thread::sleep(Span::from_millis(400));
    let ways = carried(&world, 5);
    let split = ways.iter().filter(|way| *way == "split").count();
    assert_eq!((split, ways.len() - split), (LIMIT, 2), "{ways:?}");
    for round in 0..2 {
        give(20_000);
        std::thread::sleep(Span::from_millis(400));
        let question = content(100_000, round);
        give(LIMIT);
        let sockets: Vec<TcpStream> = (0..8).map(|_| world.connect(9000)).collect();
        let askers = sockets.into_iter().map(|socket| {
            let question = question.clone();
            std::thread::spawn(move || ask(socket, &question).is_ok_and(|answer| answer == question))
        });
        let askers: Vec<_> = askers.collect();
        let right = askers.into_iter().filter_map(|asker| asker.join().ok()).filter(|right| *right).count();
        assert_eq!(right, 8, "answers, round {round}");
        let ways = (0..8).map(|_| world.flow_end()["carried"].take());
        let split = ways.filter(|way| way == "split").count();
        println!("     round {round}: {split} of 8 split");
        assert!(split <= LIMIT, "{split} split, where the hub has room for {LIMIT}");
    }
}

fn a_site_may_get_another_address() {
    let path = Site::new(&[LAN, SATELLITE, LAN]);
    let world = World::between(path, ["10.77.1.1", ""], "hold_seconds = 4\n", "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let question = content(8_000_000, 6);
    let socket = world.connect(9000);
    let asking = std::thread::spawn({
        let question = question.clone();
        move || ask(socket, &question)
    });
    std::thread::sleep(Span::from_millis(700));
    // Of another length: the kernel takes an address with the first one of its prefix.
    world.run(SITE, "ip address add 10.77.1.77/25 dev up; ip address delete 10.77.1.2/24 dev up");
    let start = Instant::now();
    let answer = asking.join().expect("no panic");
    let answer = answer.expect("no reset");
    assert!(answer == question, "{} bytes", answer.len());
    println!("     the rest took {:?}", start.elapsed());
    assert!(start.elapsed() < Span::from_secs(8), "{:?}", start.elapsed());
    assert!(world.is_split(), "after the change");
    let address = world.status(HUB, "hub.toml")["sites"][0]["address"].take();
    assert!(address.as_str().is_some_and(|address| address.contains("10.77.1.77")), "{address}");
}
