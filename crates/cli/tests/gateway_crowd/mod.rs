//! Many users at once: what a gateway needs for connections that are established and idle, and how fast new ones come.

use super::World;
use super::echo_after_the_end;
use super::gateways::{CLIENT, LAN, SERVER, SITE};
use super::harness::Test;
use super::support::{Running, Site};
use nix::sched::{CloneFlags, unshare};
use socket2::SockRef;
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration as Span, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("a_connection_that_has_become_idle_keeps_no_buffer", idle_connections_keep_no_buffer),
    ("a_check_says_whether_descriptors_suffice", a_check_says_whether_descriptors_suffice),
    ("connections_beyond_all_descriptors_pass_and_none_is_reset", connections_beyond_all_descriptors_pass),
    ("short_connections_at_once_keep_their_bytes", short_connections),
    ("long_short_connections_use_the_path_beside_the_plain_one", many_short_connections),
    ("long_as_many_connections_at_once_as_descriptors_allow", as_many_as_descriptors_allow),
];

/// A path that is not the bottleneck.
const FAST: Hop =
    Hop { rate: Rate::from_mbps(200), delay: Duration::from_millis(5), loss: 0.0, queue: 2_000 };
const PORT: u16 = 9010;
/// Threads of each end.
const WORKERS: usize = 8;
/// The most that an idle connection may take in each gateway.
const MOST_PER_CONNECTION: u64 = 16 << 10;
/// Descriptors of a gateway that are not users' connections, with room to spare.
const OTHER_DESCRIPTORS: u64 = 200;

/// Bytes that each connection carries each way before it is idle.
#[derive(Clone, Copy)]
struct Talk(u32);

/// The resources that a gateway takes now.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    /// Memory that no file is behind.
    pub(super) bytes: u64,
    pub(super) descriptors: usize,
    cpu: Span,
}

impl Needs {
    fn of(running: Option<&Running>) -> Self {
        let id = running.map_or(0, |running| running.process.id());
        let read = |what: &str| std::fs::read_to_string(format!("/proc/{id}/{what}")).expect("it runs");
        let status = read("status");
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells it");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        let descriptors = std::fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count);
        let stat = read("stat");
        let fields = stat.rsplit(')').next().into_iter().flat_map(str::split_whitespace);
        // User's and system's time, fields 14 and 15 of proc(5), in hundredths of a second.
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Self { bytes: kib << 10, descriptors, cpu: Span::from_millis(10 * ticks) }
    }

    pub(super) fn of_both(world: &World) -> [Self; 2] {
        [Self::of(world.hub.as_ref()), Self::of(world.local.as_ref())]
    }
}

/// Gives this thread, and those that it starts, descriptors of their own: their number is limited for each table.
fn own_descriptors() {
    unshare(CloneFlags::CLONE_FILES).expect("a table of one's own");
}

/// Reads as many bytes as the first four say, and answers with as many. Then the connection is idle.
fn answer(socket: &mut TcpStream) -> std::io::Result<()> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    socket.read_exact(&mut bytes)?;
    socket.write_all(&bytes)
}

/// Serves connections, and holds them all.
fn serve(world: &World) {
    let (ready, is_ready) = channel();
    let serving = move || {
        own_descriptors();
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port");
        // The standard library's queue of 128 is shorter than a burst.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096).expect("it fits"))
            .expect("a queue");
        let (accepted, sockets) = channel::<TcpStream>();
        let sockets = Arc::new(Mutex::new(sockets));
        for _ in 0..WORKERS {
            let sockets = sockets.clone();
            std::thread::spawn(move || hold_all(&sockets));
        }
        ready.send(()).expect("somebody waits");
        listener.incoming().map_while(Result::ok).for_each(|socket| _ = accepted.send(socket));
    };
    // The thread ends with the test.
    let _serving = world.site.chain.hosts[SERVER].thread(serving).expect("a thread");
    is_ready.recv().expect("it serves");
}

/// Crowds that have left.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Holds connections of a crowd until the first one of the next crowd.
fn hold_all(sockets: &Mutex<Receiver<TcpStream>>) {
    let (mut held, mut of_crowd) = (Vec::new(), 0);
    loop {
        let next = sockets.lock().expect("no panic").recv();
        let Ok(mut socket) = next else { return };
        let left = LEFT.load(Ordering::SeqCst);
        if std::mem::replace(&mut of_crowd, left) != left {
            held.clear();
        }
        if answer(&mut socket).is_ok() {
            held.push(socket);
        }
    }
}

/// Connections of a client, open until this value goes.
struct Crowd {
    release: Vec<std::sync::mpsc::Sender<()>>,
    clients: Vec<std::thread::JoinHandle<std::io::Result<usize>>>,
}

/// Opens `count` connections as fast as they come; each has said everything and has its answer. Says how long that took.
fn gather(world: &World, count: usize, talk: Talk) -> (Crowd, Span) {
    let (start, mut release, mut clients, mut gathered) = (Instant::now(), vec![], vec![], vec![]);
    for worker in 0..WORKERS {
        let ((told, is_done), (free, is_free)) = (channel(), channel());
        let share = count / WORKERS + usize::from(worker < count % WORKERS);
        let work = move || {
            if worker == 0 || share > 500 {
                own_descriptors();
            }
            let mut sockets = open(share, talk);
            let right = sockets.iter_mut().filter_map(|socket| hear(socket, talk).ok()).count();
            let _ = told.send(right);
            let _ = is_free.recv();
            right
        };
        clients.push(world.site.chain.hosts[CLIENT].thread(work).expect("a thread"));
        release.push(free);
        gathered.push(is_done);
    }
    let right: usize = gathered.iter().map(|done| done.recv().expect("no panic")).sum();
    assert_eq!(right, count, "connections with their answers");
    (Crowd { release, clients }, start.elapsed())
}

fn open(count: usize, Talk(length): Talk) -> Vec<TcpStream> {
    let mut question = length.to_be_bytes().to_vec();
    question.resize(4 + length as usize, 7);
    (0..count)
        .map_while(|_| {
            let mut socket = TcpStream::connect((Ipv4Addr::new(10, 77, 0, 1), PORT)).ok()?;
            socket.set_read_timeout(Some(Span::from_secs(60))).ok()?;
            // Its end is a reset: the server need not end its direction, too.
            SockRef::from(&socket).set_linger(Some(Span::ZERO)).ok()?;
            socket.write_all(&question).ok()?;
            Some(socket)
        })
        .collect()
}

fn hear(socket: &mut TcpStream, Talk(length): Talk) -> std::io::Result<()> {
    let mut bytes = vec![0; length as usize];
    socket.read_exact(&mut bytes)?;
    if bytes.iter().all(|byte| *byte == 7) { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

impl Crowd {
    /// All connections break off at once.
    fn leave(self) {
        drop(self.release);
        self.clients.into_iter().for_each(|client| _ = client.join());
        LEFT.fetch_add(1, Ordering::SeqCst);
    }
}

/// The memory that `count` idle connections take: prints it, and returns the bytes for each in the hub and the site.
fn cost(before: [Needs; 2], after: [Needs; 2], count: usize) -> [u64; 2] {
    let mut each = [0; 2];
    for (index, name) in ["hub", "site"].into_iter().enumerate() {
        let (before, after) = (before[index], after[index]);
        each[index] = after.bytes.saturating_sub(before.bytes) / count as u64;
        println!(
            "     {name}: {count} idle: {:.1} KiB each ({} MiB in all), {} descriptors; {:.2} ms of CPU for each that came",
            each[index] as f64 / 1024.0,
            after.bytes >> 20,
            after.descriptors,
            (after.cpu - before.cpu).as_secs_f64() * 1e3 / count as f64,
        );
    }
    each
}

fn world() -> World {
    let world = World::over(Site::new(&[LAN, FAST, LAN]), "", "");
    world.wait_for_peer(true);
    serve(&world);
    // The first connections make what all of them share: the bytes under way between the gateways.
    gather(&world, WORKERS, Talk(500_000)).0.leave();
    std::thread::sleep(Span::from_millis(500));
    world
}

fn idle_connections_keep_no_buffer() {
    const COUNT: usize = 300;
    let world = world();
    let before = Needs::of_both(&world);
    let (crowd, took) = gather(&world, COUNT, Talk(20_000));
    println!("     {COUNT} connections of 20 kB each way in {took:?}");
    // Two heartbeats of a gateway, and a busy machine.
    std::thread::sleep(Span::from_millis(800));
    let each = cost(before, Needs::of_both(&world), COUNT);
    assert!(each.iter().all(|bytes| *bytes <= MOST_PER_CONNECTION), "{each:?}");
    crowd.leave();
}

fn a_check_says_whether_descriptors_suffice() {
    let check = |limit: u32| {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/gateway.toml");
        let line =
            format!("ulimit -n {limit}; exec {} gateway check {file} 2>&1", env!("CARGO_BIN_EXE_starhop"));
        let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = check(1_000);
    assert!(said.contains("needs 20128 descriptors, and this process may open 1000"), "{said}");
    assert!(said.contains("LimitNOFILE=20128"), "{said}");
}

fn connections_beyond_all_descriptors_pass() {
    const MANY: usize = 50;
    const ROOM: usize = 30;
    let world = World::over(Site::new(&[LAN, FAST, LAN]), "", "");
    world.wait_for_peer(true);
    world.serve(9000, echo_after_the_end);
    let id = world.local.as_ref().map_or(0, |local| local.process.id());
    let limit = Needs::of(world.local.as_ref()).descriptors + ROOM;
    world.run(SITE, &format!("prlimit --pid {id} --nofile={limit}:{limit}"));
    let mut sockets: Vec<TcpStream> = (0..MANY)
        .map(|nth| {
            let mut socket = world.connect(9000);
            socket.write_all(&[nth as u8; 100]).expect("to write");
            // Connections that are made before the gateway has seen the shortage wait in its queue, and are split later.
            std::thread::sleep(Span::from_millis(20));
            socket
        })
        .collect();
    for (nth, socket) in sockets.iter_mut().enumerate() {
        socket.set_read_timeout(Some(Span::from_secs(5))).expect("a socket option");
        let mut answer = Vec::new();
        let done = socket.shutdown(Shutdown::Write).and_then(|()| socket.read_to_end(&mut answer));
        assert!(done.is_ok() && answer == [nth as u8; 100], "connection {nth}: {done:?}");
    }
    drop(sockets);
    // Until handshakes that had begun are over, and two looks for room.
    std::thread::sleep(Span::from_millis(1_800));
    let split = world.ended_now();
    println!("     {split} of {MANY} connections are split with {limit} descriptors");
    assert!((5..ROOM).contains(&split), "{split} of {MANY}");
    assert!(world.is_split(), "with room again");
}

fn as_many_as_descriptors_allow() {
    use nix::sys::resource::{Resource, getrlimit};
    let (_, limit) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let most = limit.saturating_sub(OTHER_DESCRIPTORS).min(20_000) as usize;
    println!("     {limit} descriptors may be open: {most} connections of the goal of 20000");
    let world = world();
    world.run(CLIENT, "sysctl -qw net.ipv4.ip_local_port_range='10000 60999'");
    for (count, talk) in [(1_000, 20_000), (5_000, 20_000), (most, 100), (most, 2_000)] {
        let before = Needs::of_both(&world);
        let (crowd, took) = gather(&world, count, Talk(talk));
        println!(
            "     {count} new connections of {talk} bytes each way in {took:.1?}: {:.0} a second",
            count as f64 / took.as_secs_f64()
        );
        std::thread::sleep(Span::from_secs(1));
        let settled = Needs::of_both(&world);
        let each = cost(before, settled, count);
        std::thread::sleep(Span::from_secs(5));
        let idle = Needs::of_both(&world);
        for (index, name) in ["hub", "site"].into_iter().enumerate() {
            let cpu = (idle[index].cpu - settled[index].cpu).as_secs_f64() / 5.0;
            println!("     {name}: {:.1} % of a core while idle", 100.0 * cpu);
        }
        assert!(each.iter().all(|bytes| *bytes <= MOST_PER_CONNECTION), "{each:?}");
        crowd.leave();
        std::thread::sleep(Span::from_secs(3));
    }
}

/// Networks of users and of servers that are wider than the path between.
const WIDE: Hop =
    Hop { rate: Rate::from_mbps(1_000), delay: Duration::from_micros(200), loss: 0.0, queue: 5_000 };
/// A port whose connections a policy leaves on the plain path.
const PLAIN_PORT: u16 = 9011;
/// Bytes of an answer.
const ANSWER: usize = 20_000;
/// Answers of the second server, at once.
const CLERKS: usize = 256;

/// Starts a thread with a small stack: there are hundreds.
fn small_thread(work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().stack_size(128 << 10).spawn(work).expect("a thread")
}

/// Lets all others have the processor before this thread and those that it starts. Users and servers have their own machines; here
/// hundreds of threads would keep gateways and links waiting.
fn give_way() {
    let id = nix::unistd::gettid().to_string();
    let done =
        Command::new("renice").args(["-n", "19", "-p", &id]).stdout(std::process::Stdio::null()).status();
    assert!(done.is_ok_and(|done| done.success()), "renice");
}

/// Answers each request with [`ANSWER`] bytes, on both ports.
fn serve_answers(world: &World) {
    let (ready, is_ready) = channel();
    let serving = move || {
        own_descriptors();
        give_way();
        for port in [PORT, PLAIN_PORT] {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).expect("a port");
            nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(4096).expect("it fits"))
                .expect("a queue");
            let listener = Arc::new(listener);
            for _ in 0..CLERKS {
                let listener = listener.clone();
                // It ends with the test.
                let _clerk = small_thread(move || {
                    while let Ok((mut socket, _)) = listener.accept() {
                        let mut question = [0; 64];
                        while socket.read(&mut question).is_ok_and(|count| count > 0) {}
                        let _ = socket.write_all(&[7; ANSWER]);
                    }
                });
            }
        }
        ready.send(()).expect("somebody waits");
    };
    let _serving = world.site.chain.hosts[SERVER].thread(serving).expect("a thread");
    is_ready.recv().expect("it serves");
}

/// One request and its answer. Returns how long it took.
fn fetch(port: u16) -> std::io::Result<Span> {
    let start = Instant::now();
    let mut socket = TcpStream::connect((Ipv4Addr::new(10, 77, 0, 1), port))?;
    socket.set_read_timeout(Some(Span::from_secs(30)))?;
    socket.write_all(b"GET / HTTP/1.1")?;
    socket.shutdown(Shutdown::Write)?;
    let mut answer = Vec::with_capacity(ANSWER);
    socket.read_to_end(&mut answer)?;
    if answer == [7; ANSWER] { Ok(start.elapsed()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
}

/// Makes `count` requests to `port`, each with a connection of its own, `at_once` at any time. Prints and returns the rate of the
/// answers, Mbit/s.
fn rate_of_requests(world: &World, port: u16, count: usize, at_once: usize) -> f64 {
    let requesting = move || {
        own_descriptors();
        give_way();
        let (next, took) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let shared = Arc::new((next, took));
        let start = Instant::now();
        let clients: Vec<_> = (0..at_once)
            .map(|_| {
                let shared = shared.clone();
                small_thread(move || {
                    while shared.0.fetch_add(1, Ordering::Relaxed) < count {
                        let done = fetch(port);
                        shared.1.lock().expect("no panic").push(done);
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        (start.elapsed(), std::mem::take(&mut *shared.1.lock().expect("no panic")))
    };
    let (gateways, began) = (Needs::of_both(world), Instant::now());
    let work = world.site.chain.hosts[CLIENT].thread(requesting).expect("a thread");
    let (took, done) = work.join().expect("no panic").expect("a thread");
    let cpu = |n: usize| {
        (Needs::of_both(world)[n].cpu - gateways[n].cpu).as_secs_f64() / began.elapsed().as_secs_f64()
    };
    let failed = done.iter().filter(|one| one.is_err()).count();
    let mut spans: Vec<Span> = done.into_iter().filter_map(Result::ok).collect();
    spans.sort_unstable();
    assert_eq!((spans.len(), failed), (count, 0), "answers, and failures");
    let rate = (count * ANSWER * 8) as f64 / 1e6 / took.as_secs_f64();
    println!(
        "     port {port}: {count} answers of {ANSWER} bytes, {at_once} at once: {took:.2?}, {rate:.1} Mbit/s, {:.0} a second; \
         half within {:.0?}, 99 of 100 within {:.0?}; hub {:.0} %, site {:.0} % of a core",
        count as f64 / took.as_secs_f64(),
        spans[count / 2],
        spans[count * 99 / 100],
        100.0 * cpu(0),
        100.0 * cpu(1),
    );
    rate
}

/// A world with a port that passes, whose links are long, too.
fn world_with_a_plain_port() -> World {
    let long = Hop { delay: Duration::from_millis(10), ..FAST };
    let pass = format!("[[policy]]\naction = \"pass\"\nports = [{PLAIN_PORT}]\n");
    let world = World::over(Site::new(&[WIDE, long, WIDE]), "", &pass);
    world.wait_for_peer(true);
    serve_answers(&world);
    world
}

fn short_connections() {
    let world = world_with_a_plain_port();
    for port in [PORT, PLAIN_PORT] {
        rate_of_requests(&world, port, 300, 50);
    }
}

fn many_short_connections() {
    let world = world_with_a_plain_port();
    for _ in 0..2 {
        let [split, plain] = [PORT, PLAIN_PORT].map(|port| rate_of_requests(&world, port, 4_000, 500));
        println!("     {:.2} of the plain path", split / plain);
    }
}
