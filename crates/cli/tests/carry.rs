//! Gateways that carry users' packets as they are, between real sockets in namespaces of this test: a server, a hub, a
//! site and a client. `cargo test --test carry -- WORD` runs the tests whose names hold the word; those that begin with
//! "long" measure, and print what they measured.

mod gateways;
mod harness;
mod quic;
mod support;

use gateways::{CLIENT, HUB, LAN, SERVER, SITE, World};
use nix::sys::signal::Signal;
use socket2::{Domain, Protocol, Socket, Type};
use starhop_net::clock;
use starhop_net::emu::Hop;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration as Span, Instant};
use support::{Site, content};

const LEO: Hop = Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(25), loss: 0.01, queue: 420 };
const GEO: Hop = Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(270), loss: 0.01, queue: 930 };

const SERVERS: [&str; 2] = ["10.77.0.1", "fd77::1"];

fn main() {
    let tests: [harness::Test; 13] = [
        ("udp_of_both_ip_versions_is_carried_both_ways_byte_for_byte", udp_is_carried_both_ways),
        ("a_ping_is_carried_and_class_and_hop_limit_are_a_routers", a_ping_is_carried),
        ("packets_longer_than_the_tunnel_are_answered_by_icmp", long_packets_are_answered),
        ("what_a_policy_passes_is_not_carried", a_policy_passes),
        ("tcp_that_must_stay_whole_is_carried_byte_for_byte", tcp_is_carried_whole),
        ("quic_is_carried_byte_for_byte_and_faster_than_by_the_plain_path", quic_is_carried),
        ("segments_of_tcp_that_is_carried_fit_the_path", || _ = segments_fit_the_path()),
        ("long_segments_follow_a_path_that_becomes_narrow", segments_follow_the_path),
        ("without_the_peer_or_the_gateway_packets_take_the_plain_path", packets_take_the_plain_path),
        ("an_operator_sees_packets", an_operator_sees_packets),
        ("long_a_stream_of_udp_beside_the_plain_path", long_a_stream_of_udp),
        ("long_quic_beside_the_plain_path", long_quic),
        ("long_tcp_carried_whole_beside_the_plain_path", long_tcp_carried_whole),
    ];
    gateways::run_tests(&tests);
}

impl World {
    /// Gateways around `link`, with `more` lines in the site's configuration.
    fn new(link: Hop, more: &str) -> Self {
        let mut world = Self::plain(link);
        let common = "key = \"site.key\"\ncarry = true\n";
        let hub =
            format!("name = \"hub\"\n{common}[[peer]]\nname = \"site\"\naddress = \"10.77.1.2:4433\"\n");
        let local = format!(
            "name = \"site\"\n{common}intercept = [\"down\"]\n{more}[[peer]]\nname = \"hub\"\naddress = \"10.77.1.1:4433\"\n"
        );
        let (more, peer) =
            local.split_once("[[policy]]").map_or((local.as_str(), String::new()), |(a, b)| {
                // Policies stand behind the keys of the file.
                let (policies, peer) = b.split_once("[[peer]]").unwrap_or((b, ""));
                (a, format!("[[peer]]{peer}[[policy]]{policies}"))
            });
        std::fs::write(world.site.path("hub.toml"), hub).expect("a file");
        std::fs::write(world.site.path("local.toml"), format!("{more}{peer}")).expect("a file");
        world.hub = Some(world.start(HUB, "hub.toml"));
        world.local = Some(world.start(SITE, "local.toml"));
        world.wait_for_peer(true);
        // The peers ask for each other's packets with their trunks; a round trip more, and both know.
        std::thread::sleep(Span::from_millis(1_200));
        world
    }

    /// No gateways.
    fn plain(link: Hop) -> Self {
        Self { site: Site::new(&[LAN, link, LAN]), hub: None, local: None }
    }

    /// A socket of UDP on a host.
    pub(crate) fn udp(&self, host: usize, address: &str) -> UdpSocket {
        let address: SocketAddr = address.parse().expect("an address");
        let socket = self.site.chain.hosts[host].run(move || UdpSocket::bind(address)).expect("a thread");
        let socket = socket.expect("a port");
        socket.set_read_timeout(Some(Span::from_secs(2))).expect("a timeout");
        socket
    }

    /// Has the server send back whatever comes to `port`.
    fn echo(&self, port: u16) {
        let socket = self.udp(SERVER, &format!("[::]:{port}"));
        socket.set_read_timeout(None).expect("no timeout");
        std::thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
    }

    /// A connected socket of the client.
    fn client(&self, server: &str, port: u16) -> UdpSocket {
        let (any, server) = if server.contains(':') {
            ("[::]:0", format!("[{server}]:{port}"))
        } else {
            ("0.0.0.0:0", format!("{server}:{port}"))
        };
        let socket = self.udp(CLIENT, any);
        socket.connect(server).expect("a route");
        socket
    }

    /// Time until the site carries what `socket` asks. Asking does not wait for answers.
    fn carried_again(&self, socket: &UdpSocket) -> Span {
        let (start, before) = (Instant::now(), self.carried().0);
        while self.carried().0 == before {
            assert!(start.elapsed() < Span::from_secs(3), "carried within 3 s");
            socket.send(b"again").expect("to send");
            std::thread::sleep(Span::from_millis(20));
        }
        start.elapsed()
    }

    /// The site's packets there and from there.
    fn carried(&self) -> (u64, u64) {
        let packets = &self.status(SITE, "local.toml")["sites"][0]["packets"];
        (packets["to"].as_u64().expect("a count"), packets["from"].as_u64().expect("a count"))
    }
}

/// Sends `question` and returns what comes back within two seconds. Answers to earlier questions do not count.
fn ask(socket: &UdpSocket, question: &[u8]) -> Option<Vec<u8>> {
    let mut buffer = [0; 65_536];
    socket.set_nonblocking(true).ok()?;
    while socket.recv(&mut buffer).is_ok() {}
    socket.set_nonblocking(false).ok()?;
    socket.send(question).ok()?;
    socket.recv(&mut buffer).ok().map(|len| buffer[..len].to_vec())
}

fn is_answered(socket: &UdpSocket) -> bool {
    (0..3).any(|n| ask(socket, &[n; 40]).is_some())
}

/// Lossy links lose questions: each is asked three times at most.
fn udp_is_carried_both_ways() {
    let world = World::new(LEO, "");
    world.echo(9000);
    for server in SERVERS {
        let before = world.carried();
        let socket = world.client(server, 9000);
        for (n, len) in [1, 100, 1200, 1300, 1400, 1452].into_iter().enumerate() {
            let question = content(len, n as u64);
            let answer = (0..3).find_map(|_| ask(&socket, &question));
            assert!(answer.as_ref() == Some(&question), "{server}: {len} bytes");
        }
        // Longer than the path's MTU: fragments, told by their addresses.
        let question = content(4_000, 9);
        assert!((0..3).find_map(|_| ask(&socket, &question)) == Some(question), "{server}: fragments");
        let after = world.carried();
        assert!(after.0 >= before.0 + 9 && after.1 >= before.1 + 9, "{before:?} {after:?}");
    }
}

/// A raw packet's class and time to live as the server's host sees them, of UDP to `port`.
fn seen_by_server(world: &World, port: u16, send: impl FnOnce()) -> (u8, u8) {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
    let raw = world.site.chain.hosts[SERVER].run(open).expect("a thread").expect("a raw socket");
    raw.set_read_timeout(Some(Span::from_secs(2))).expect("a timeout");
    send();
    let mut buffer = [MaybeUninit::uninit(); 2048];
    loop {
        let len = raw.recv(&mut buffer).expect("it comes");
        let bytes: Vec<u8> = buffer[..len].iter().map(read_byte).collect();
        if bytes[22..24] == port.to_be_bytes() {
            return (bytes[1], bytes[8]);
        }
    }
}

#[allow(unsafe_code, reason = "the kernel has written the byte")]
fn read_byte(byte: &MaybeUninit<u8>) -> u8 {
    // SAFETY: only bytes below the length that `recv` returned are read.
    unsafe { byte.assume_init() }
}

fn a_ping_is_carried() {
    let calm = Hop { loss: 0.0, ..LEO };
    let seen = |world: &World| {
        let socket = world.client(SERVERS[0], 9001);
        socket2::SockRef::from(&socket).set_tos_v4(46 << 2).expect("a class");
        seen_by_server(world, 9001, || _ = socket.send(b"who"))
    };
    let plain = seen(&World::plain(calm));
    let world = World::new(calm, "");
    assert_eq!(seen(&world), plain, "class and time to live are those of the plain path");
    assert_eq!(plain, (46 << 2, 62));
    for (server, domain, protocol, request, reply) in [
        (SERVERS[0], Domain::IPV4, Protocol::ICMPV4, 8, 0),
        (SERVERS[1], Domain::IPV6, Protocol::ICMPV6, 128, 129),
    ] {
        let before = world.carried();
        let open = move || Socket::new(domain, Type::RAW, Some(protocol));
        let raw = world.site.chain.hosts[CLIENT].run(open).expect("a thread").expect("a raw socket");
        raw.set_read_timeout(Some(Span::from_secs(2))).expect("a timeout");
        let ip: std::net::IpAddr = server.parse().expect("an address");
        raw.connect(&SocketAddr::new(ip, 0).into()).expect("a route");
        let mut echo = vec![request, 0, 0, 0, 0x12, 0x34, 0, 1];
        echo.extend_from_slice(b"is there anybody?!");
        if domain == Domain::IPV4 {
            let sum =
                echo.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>();
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            echo[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        raw.send(&echo).expect("to send");
        let mut buffer = [MaybeUninit::uninit(); 2048];
        loop {
            let len = raw.recv(&mut buffer).expect("an answer");
            let bytes: Vec<u8> = buffer[..len].iter().map(read_byte).collect();
            let bytes = if domain == Domain::IPV4 { &bytes[20..] } else { &bytes[..] };
            if bytes[0] == reply && bytes[8..] == echo[8..] {
                break;
            }
        }
        let after = world.carried();
        assert!(after.0 > before.0 && after.1 > before.1, "{server}: {before:?} {after:?}");
    }
}

fn long_packets_are_answered() {
    let world = World::new(Hop { loss: 0.0, ..LEO }, "carry_mtu = 1300\n");
    world.echo(9000);
    for (server, headers) in [(SERVERS[0], 28), (SERVERS[1], 48)] {
        let socket = world.client(server, 9000);
        set_do_not_fragment(&socket);
        let longest = content(1300 - headers, 1);
        assert!(ask(&socket, &longest).as_ref() == Some(&longest), "{server}");
        socket.set_read_timeout(Some(Span::from_millis(300))).expect("a timeout");
        assert!(ask(&socket, &content(1400, 1)).is_none(), "{server}: too long");
        let error = socket.send(&content(1400, 1)).expect_err("the kernel knows the MTU by now");
        assert_eq!(error.raw_os_error(), Some(nix::libc::EMSGSIZE), "{server}");
        assert_eq!(path_mtu(&socket), 1300, "{server}");
    }
}

#[allow(unsafe_code, reason = "socket options without a wrapper")]
fn set_do_not_fragment(socket: &UdpSocket) {
    use std::os::fd::AsRawFd;
    let is_v4 = socket.local_addr().expect("an address").is_ipv4();
    let (level, option) = if is_v4 {
        (nix::libc::IPPROTO_IP, nix::libc::IP_MTU_DISCOVER)
    } else {
        (nix::libc::IPPROTO_IPV6, nix::libc::IPV6_MTU_DISCOVER)
    };
    let value = nix::libc::IP_PMTUDISC_DO;
    // SAFETY: the descriptor is open, and the value is an integer of the length given.
    let done = unsafe {
        nix::libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    assert_eq!(done, 0);
}

#[allow(unsafe_code, reason = "socket options without a wrapper")]
fn path_mtu(socket: &UdpSocket) -> i32 {
    use std::os::fd::AsRawFd;
    let is_v4 = socket.local_addr().expect("an address").is_ipv4();
    let (level, option) = if is_v4 {
        (nix::libc::IPPROTO_IP, nix::libc::IP_MTU)
    } else {
        (nix::libc::IPPROTO_IPV6, nix::libc::IPV6_MTU)
    };
    let (mut value, mut len) = (0, size_of::<i32>() as u32);
    // SAFETY: the descriptor is open, and the kernel writes at most `len` bytes to an integer of that length.
    let done = unsafe {
        nix::libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len)
    };
    assert_eq!(done, 0);
    value
}

fn a_policy_passes() {
    let policy = "[[policy]]\naction = \"pass\"\nprotocol = \"udp\"\nports = [53, 443]\n";
    let world = World::new(Hop { loss: 0.0, ..LEO }, policy);
    [53, 443, 9000].into_iter().for_each(|port| world.echo(port));
    let before = world.carried();
    for port in [53, 443] {
        let question = content(1_200, 3);
        assert!(ask(&world.client(SERVERS[0], port), &question) == Some(question));
    }
    assert_eq!(world.carried(), before, "foreign DNS and QUIC are untouched");
    assert!(is_answered(&world.client(SERVERS[0], 9000)));
    assert!(world.carried().0 > before.0, "the rest is carried");
}

/// Packets of UDP are not kept in order, QUIC's neither.
const AS_THEY_COME: &str = "[[policy]]\naction = \"carry\"\nprotocol = \"udp\"\norder = false\n";
const WHOLE: &str = "[[policy]]\naction = \"carry\"\nprotocol = \"tcp\"\nports = [9100]\n";

/// Sends `len` bytes from the server to the client by plain TCP with `cubic`, and returns how long that took.
fn download(world: &World, len: usize) -> Span {
    let bind = || {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, None)?;
        socket.set_tcp_congestion(b"cubic")?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(([0u16; 8], 9100)).into())?;
        socket.listen(8)?;
        Ok::<TcpListener, std::io::Error>(socket.into())
    };
    let listener = world.site.chain.hosts[SERVER].run(bind).expect("a thread").expect("a port");
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection");
        let _ = socket.write_all(&content(len, 4));
    });
    let start = Instant::now();
    let to = SocketAddr::from(([10, 77, 0, 1], 9100));
    let dial = move || TcpStream::connect_timeout(&to, Span::from_secs(10));
    let mut socket = world.site.chain.hosts[CLIENT].run(dial).expect("a thread").expect("a connection");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("the content");
    let took = start.elapsed();
    assert!(bytes == content(len, 4), "{} bytes", bytes.len());
    serving.join().expect("a thread");
    took
}

fn tcp_is_carried_whole() {
    let world = World::new(LEO, WHOLE);
    download(&world, 2_000_000);
    let (to, from) = world.carried();
    assert!(from > 1_000 && to > 100, "its segments were carried: {to} {from}");
    assert_eq!(world.status(SITE, "local.toml")["sites"][0]["user_bytes_to"], 0, "and nothing split");
}

/// A new connection to `server`: its ends at the client and at the server.
fn connection(world: &World, server: &str) -> [TcpStream; 2] {
    let bind = || TcpListener::bind("[::]:9100");
    let listener = world.site.chain.hosts[SERVER].run(bind).expect("a thread").expect("a port");
    let to = SocketAddr::new(server.parse().expect("an address"), 9100);
    let dial = move || TcpStream::connect_timeout(&to, Span::from_secs(10));
    let client = world.site.chain.hosts[CLIENT].run(dial).expect("a thread").expect("a connection");
    let (far, _) = listener.accept().expect("a connection");
    [client, far]
}

/// The segment sizes of a new connection to `server`, at the client and at the server.
fn segments(world: &World, server: &str) -> [u32; 2] {
    connection(world, server).map(|socket| socket2::SockRef::from(&socket).tcp_mss().expect("a size"))
}

fn segments_fit_the_path() -> World {
    let world = World::new(Hop { loss: 0.0, ..LEO }, WHOLE);
    let wide = SERVERS.map(|server| segments(&world, server));
    println!("     segments: {wide:?}");
    // The devices take 1500 bytes: segments of 1460 and 1440, or 12 less with timestamps.
    for ([client, far], most) in wide.into_iter().zip([1_350, 1_330]) {
        assert!((1_200..most).contains(&client) && (1_200..most).contains(&far), "{wide:?}");
    }
    world
}

fn segments_follow_the_path() {
    let world = segments_fit_the_path();
    let [mut client, mut far] = connection(&world, SERVERS[0]);
    for (host, device) in [(HUB, "down"), (SITE, "up")] {
        world.run(host, &format!("ip link set dev {device} mtu 1280"));
    }
    // Hops find it by packets that do not come.
    println!("     300 kB meanwhile: {:?}", download(&world, 300_000));
    let (limit, mut narrow) = (Instant::now() + Span::from_secs(10), [[u32::MAX; 2]; 2]);
    while narrow.as_flattened().iter().any(|size| *size > 1_180) {
        assert!(Instant::now() < limit, "{narrow:?}");
        std::thread::sleep(Span::from_millis(300));
        narrow = SERVERS.map(|server| segments(&world, server));
    }
    println!("     of a path of 1280 bytes: {narrow:?}");
    download(&world, 300_000);
    // The segments of a connection from before are too long for one packet, and travel in two.
    let writing = std::thread::spawn(move || far.write_all(&content(300_000, 6)));
    client.set_read_timeout(Some(Span::from_secs(20))).expect("a timeout");
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).expect("the content");
    assert!(bytes == content(300_000, 6), "{} bytes over a connection from before", bytes.len());
    writing.join().expect("a thread").expect("to write");
}

fn packets_take_the_plain_path() {
    let calm = Hop { loss: 0.0, ..LEO };
    let mut world = World::new(calm, "");
    world.echo(9000);
    let socket = world.client(SERVERS[0], 9000);
    assert!(is_answered(&socket));
    // The hub dies.
    world.hub = None;
    let start = Instant::now();
    socket.set_read_timeout(Some(Span::from_millis(200))).expect("a timeout");
    while ask(&socket, b"hello").is_none() {
        assert!(start.elapsed() < Span::from_secs(3), "the plain path within 3 s");
    }
    println!("the hub was killed: plain path after {:?}", start.elapsed());
    world.hub = Some(world.start(HUB, "hub.toml"));
    world.wait_for_peer(true);
    println!("the hub is back: carried after {:?}", world.carried_again(&socket));
    // The site hangs, and goes on.
    let local = world.local.as_ref().expect("it runs");
    local.process.signal(Signal::SIGSTOP).expect("it runs");
    let start = Instant::now();
    while ask(&socket, b"hello").is_none() {
        assert!(start.elapsed() < Span::from_secs(3), "the plain path within 3 s");
    }
    println!("the site hung: plain path after {:?}", start.elapsed());
    local.process.signal(Signal::SIGCONT).expect("it runs");
    println!("the site went on: carried after {:?}", world.carried_again(&socket));
    // The site dies: device, rules and routes go with it.
    world.local = None;
    let start = Instant::now();
    while ask(&socket, b"hello").is_none() {
        assert!(start.elapsed() < Span::from_secs(3), "the plain path within 3 s");
    }
    println!("the site was killed: plain path after {:?}", start.elapsed());
    std::thread::sleep(Span::from_millis(1_500));
    let left = world.run(SITE, "ip link; ip rule; nft list tables");
    assert!(!left.contains("starhop") && !left.contains("fwmark"), "{left}");
}

fn an_operator_sees_packets() {
    let world = World::new(Hop { loss: 0.0, ..LEO }, "");
    world.echo(9000);
    let socket = world.client(SERVERS[0], 9000);
    for n in 0..50 {
        assert!(ask(&socket, &content(500, n)).is_some());
    }
    let packets = &world.status(SITE, "local.toml")["sites"][0]["packets"];
    let of = |name: &str| packets[name].as_u64().expect("a count");
    assert!((50..60).contains(&of("to")) && (50..60).contains(&of("from")), "{packets}");
    assert!((50 * 528..60 * 528).contains(&of("bytes_from")) && of("flows") >= 1, "{packets}");
    assert_eq!((of("overdue"), of("late"), of("refused"), of("given_up_bytes")), (0, 0, 0, 0));
    let hub = &world.status(HUB, "hub.toml")["sites"][0]["packets"];
    assert_eq!((&hub["from"], &hub["bytes_from"]), (&packets["to"], &packets["bytes_to"]));
}

/// Share of `count` packets of `len` bytes that arrive when the server sends one to the client every `every`, and the
/// median and 99th percentile of their delay.
fn stream(world: &World, (count, len): (usize, usize), every: Span) -> (f64, f64, f64) {
    let server = world.udp(SERVER, "0.0.0.0:9000");
    let client = world.client(SERVERS[0], 9000);
    // The client speaks first, as one behind a gateway must.
    let mut hello = [0; 8];
    let asker = (0..20).find_map(|_| {
        client.send(b"stream").ok()?;
        server.set_read_timeout(Some(Span::from_millis(1_000))).ok()?;
        server.recv_from(&mut hello).ok().map(|(_, from)| from)
    });
    let asker = asker.expect("the client is heard");
    let sending = std::thread::spawn(move || {
        let start = Instant::now();
        for n in 0..count {
            let due = every * n as u32;
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let mut packet = content(len, 1);
            packet[..8].copy_from_slice(&(n as u64).to_be_bytes());
            packet[8..16].copy_from_slice(&clock::now().as_nanos().to_be_bytes());
            let _ = server.send_to(&packet, asker);
        }
    });
    let (mut delays, mut seen, mut buffer) = (Vec::new(), vec![false; count], [0; 2048]);
    while let Ok(got) = client.recv(&mut buffer) {
        let now = clock::now().as_nanos();
        let field = |at: usize| buffer[at..at + 8].try_into().map(u64::from_be_bytes).expect("eight bytes");
        assert_eq!((got, &buffer[16..got]), (len, &content(len, 1)[16..]));
        if !std::mem::replace(&mut seen[field(0) as usize], true) {
            delays.push((now - field(8)) as f64 / 1e6);
        }
    }
    sending.join().expect("a thread");
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    (delays.len() as f64 / count as f64, at(0.5), at(0.99))
}

/// Half the link's rate, in packets as WireGuard's are at their longest and as a call's are.
fn long_a_stream_of_udp() {
    for (name, link) in [("LEO", LEO), ("GEO", GEO)] {
        for (kind, count, len, every) in [("1400 B", 10_000, 1_400, 1_120), ("200 B", 5_000, 200, 2_000)] {
            let every = Span::from_micros(every);
            let plain = stream(&World::plain(link), (count, len), every);
            let world = World::new(link, "");
            // The first stream finds out the path's rate.
            stream(&world, (count / 5, len), every);
            let carried = stream(&world, (count, len), every);
            let given = &world.status(SITE, "local.toml")["sites"][0]["packets"];
            println!("{name} {kind}: plain {plain:?}, carried {carried:?} (share, p50 ms, p99 ms) {given}");
            assert!(carried.0 > plain.0, "{name} {kind}: less than by the plain path");
        }
    }
}

fn long_tcp_carried_whole() {
    for (name, link, len) in [("LEO", LEO, 20_000_000), ("GEO", GEO, 10_000_000)] {
        let plain = download(&World::plain(link), len);
        let world = World::new(link, WHOLE);
        let first = download(&world, len);
        let carried = download(&world, len);
        println!("{name}: {len} B of TCP whole: plain {plain:?}, carried {first:?}, again {carried:?}");
        assert!(carried < plain, "{name}: slower than by the plain path");
    }
}

/// No policy names QUIC: the gateways know it, and keep its packets in order. Carried as they come it is slower over LEO than
/// by the plain path.
fn quic_is_carried() {
    let calm = Hop { loss: 0.0, ..LEO };
    let world = World::new(calm, "");
    quic::download(&world, SERVERS[0], 300_000);
    quic::download(&world, SERVERS[1], 300_000);
    let (to, from) = world.carried();
    assert!(from > 400 && to > 20, "its packets were carried: {to} {from}");
    let plain = quic::download(&World::plain(LEO), SERVERS[0], 1_000_000);
    let carried = quic::download(&World::new(LEO, ""), SERVERS[0], 1_000_000);
    println!("     1 MB over LEO: plain {plain:?}, carried {carried:?}");
    assert!(carried < plain, "slower than by the plain path");
}

fn long_quic() {
    for (name, link, len) in [("LEO", LEO, 5_000_000), ("GEO", GEO, 1_000_000)] {
        let plain = quic::download(&World::plain(link), SERVERS[0], len);
        let mut carried = Vec::new();
        for policy in [AS_THEY_COME, ""] {
            let world = World::new(link, policy);
            let first = quic::download(&world, SERVERS[0], len);
            carried.push((first, quic::download(&world, SERVERS[0], len)));
        }
        println!(
            "{name}: {len} B of QUIC: plain {plain:?}; as they come, in order (first, again): {carried:?}"
        );
        assert!(carried[1].1 < plain, "{name}: slower than by the plain path");
    }
}
