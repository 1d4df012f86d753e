//! Several sites of one hub, and several hubs of one site.

use super::gateway_reload::renew;
use super::gateways::{HUB, LAN, SITE, World};
use super::harness::{Test, timing};
use super::support::{Running, Site};
use super::{SATELLITE, ask, echo_after_the_end};
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as Span, Instant};

pub(super) const TESTS: &[Test] = &[
    ("sites_share_a_link_by_their_weights", sites_share_a_link),
    ("users_have_the_nearest_hub_wherever_it_stands_in_the_file", users_have_the_nearest_hub),
];

/// The rate of the shared link, in Mbit/s. The emulated link carries more.
const SHARED_MBPS: f64 = 16.0;

/// A connection that loads as fast as it can.
struct Load {
    bytes: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn begin(world: &World, port: u16) -> Self {
        let (bytes, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut socket = world.connect(port);
        let (count, end) = (bytes.clone(), is_over.clone());
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while !end.load(Ordering::Relaxed)
                && let Ok(read @ 1..) = socket.read(&mut buffer)
            {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
        });
        Self { bytes, is_over }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The rates of loads in Mbit/s, over three seconds after two.
fn rates<const N: usize>(loads: [&Load; N]) -> [f64; N] {
    std::thread::sleep(Span::from_secs(2));
    let read = || loads.map(|load| load.bytes.load(Ordering::Relaxed));
    let (start, before) = (Instant::now(), read());
    std::thread::sleep(Span::from_secs(3));
    let (span, after) = (start.elapsed().as_secs_f64(), read());
    std::array::from_fn(|n| (after[n] - before[n]) as f64 * 8e-6 / span)
}

/// A world with another site on the host of the first one. The first takes the connections to port 9001, the other those to
/// 9002. At the hub, both share a link.
fn two_sites() -> (World, Running) {
    let wide = Hop { loss: 0.0, ..SATELLITE };
    let only = |port: u16| {
        format!("[[policy]]\naction = \"split\"\nports = [{port}]\n[[policy]]\naction = \"pass\"\n")
    };
    let mut world = World::over(Site::new(&[LAN, wide, LAN]), "", &only(9001));
    world.hub = None;
    let other = "name = \"other\"\nkey = \"site.key\"\nlisten = \"[::]:4435\"\nport = 4436\nintercept = [\"down\"]\n\
                 [[peer]]\nname = \"hub\"\naddress = \"10.77.1.1:4433\"\n";
    std::fs::write(world.site.path("other.toml"), other.to_owned() + &only(9002)).expect("a file");
    let hub = world.site.path("hub.toml");
    let text = std::fs::read_to_string(&hub).expect("a file");
    let shared = format!(
        "shared_link = \"satellite\"\nweight = 1\n\
         [[peer]]\nname = \"other\"\naddress = \"10.77.1.2:4435\"\nshared_link = \"satellite\"\nweight = 3\n\
         [[shared_link]]\nname = \"satellite\"\nrate_out_bits = {}\n",
        (SHARED_MBPS * 1e6) as u64
    );
    std::fs::write(hub, text + &shared).expect("a file");
    world.hub = Some(world.start(HUB, "hub.toml"));
    let mut command = world.site.command("gateway");
    command.args(["--config", "other.toml", "--status-socket", "other.sock"]).stderr(Stdio::inherit());
    let other = Running::start(&world.site.chain.hosts[SITE], command);
    for site in [world.local.as_ref().expect("it runs"), &other] {
        site.wait("the hub answers", |event| event["event"] == "peer" && event["up"] == true);
    }
    std::thread::sleep(Span::from_millis(100));
    (world, other)
}

fn sites_share_a_link() {
    timing::measure(|| {
        let (world, _other) = two_sites();
        for port in [9001, 9002] {
            world.serve(port, |mut socket| while socket.write_all(&[1; 64 << 10]).is_ok() {});
        }
        let (one, three) = (Load::begin(&world, 9001), Load::begin(&world, 9002));
        let weighted = rates([&one, &three]);
        let told =
            renew(&world, world.hub.as_ref(), "hub.toml", |text| text.replace("weight = 3", "weight = 1"));
        assert!(told["error"].is_null(), "{told}");
        let equal = rates([&one, &three]);
        drop(three);
        let alone = rates([&one])[0];
        println!(
            "     weights 1:3 {weighted:.2?}, 1:1 {equal:.2?}, alone {alone:.2} of {SHARED_MBPS} Mbit/s"
        );
        // Of 1,460 bytes on the wire some 1,320 are a user's.
        let is_all = |rate: f64| rate > 0.85 * SHARED_MBPS;
        for all in [weighted.iter().sum(), equal.iter().sum(), alone] {
            assert!(all < SHARED_MBPS, "{all} Mbit/s");
            timing::unless(is_all(all), || format!("{all} Mbit/s together"))?;
        }
        let ratios = [weighted[1] / weighted[0] / 3.0, equal[1] / equal[0]];
        timing::unless(ratios.iter().all(|ratio| (0.9..1.1).contains(ratio)), || format!("{ratios:?}"))
    });
}

/// Connections that ended at a hub since somebody asked.
fn ended_at(hub: Option<&Running>) -> usize {
    std::thread::sleep(Span::from_millis(300));
    hub.expect("it runs").events.try_iter().filter(|event| event["event"] == "flow").count()
}

/// The hub that the file names first is 20 ms further away than the other, each way.
fn users_have_the_nearest_hub() {
    let near = Hop { loss: 0.0, ..SATELLITE };
    let path = Site::new(&[LAN, Hop { delay: Duration::from_millis(20), ..near }, near, LAN]);
    let second =
        "name = \"near\"\nkey = \"site.key\"\n[[peer]]\nname = \"site\"\naddress = \"10.77.2.2:4433\"\n";
    std::fs::write(path.path("near.toml"), second).expect("a file");
    let mut command = path.command("gateway");
    command.args(["--config", "near.toml", "--status-socket", "near.sock"]).stderr(Stdio::inherit());
    let near = Running::start(&path.chain.hosts[2], command);
    let peer = "[[peer]]\nname = \"near\"\naddress = \"10.77.2.1:4433\"\n";
    let world = World::between(path, ["10.77.1.1", "10.77.2.2"], "prefer = \"nearest\"\n", peer);
    (0..2).for_each(|_| world.wait_for_peer(true));
    world.serve(9000, echo_after_the_end);
    // Round trips are known by then, and so is the choice, which is made four times a second.
    std::thread::sleep(Span::from_secs(3));
    let ask_all = |count: usize| {
        (0..count).for_each(|_| assert_eq!(ask(world.connect(9000), b"which").expect("an answer"), b"which"));
        (0..count).for_each(|_| assert_eq!(world.flow_end()["carried"], "split"));
        [world.hub.as_ref(), Some(&near)].map(ended_at)
    };
    assert_eq!(ask_all(4), [0, 4], "the nearest");
    let prefer = |from: &str, to: &str| {
        let told = renew(&world, world.local.as_ref(), "local.toml", |text| text.replace(from, to));
        assert!(told["error"].is_null(), "{told}");
        std::thread::sleep(Span::from_millis(600));
    };
    prefer("\"nearest\"", "\"first\"");
    assert_eq!(ask_all(4), [4, 0], "the first of the file");
    prefer("\"first\"", "\"nearest\"");
    assert_eq!(ask_all(4), [0, 4], "the nearest again");
    near.process.signal(nix::sys::signal::Signal::SIGSTOP).expect("it runs");
    world.wait_for_peer(false);
    assert_eq!(ask(world.connect(9000), b"which").expect("an answer"), b"which");
    assert_eq!(ended_at(world.hub.as_ref()), 1, "the nearest of those that answer");
}
