//! XCP's router, packet by packet, in the real kernel: plain, over IPv6, and inside IP-in-IP.
#![cfg(feature = "loader")]

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{Object, ObjectBuilder, Program, ProgramInput};
use starhop_kernel::{Lifetime, Options};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// 8 Mbit/s, the paper's constants in Q16, all traffic, no bound of the queue, no overhead.
const SETTINGS: [u64; 7] = [1_000_000, 26_214, 14_811, 6_554, 0, 0, 0];
const PAYLOAD: usize = 1_000;
const KIND: u8 = 253;
const EXID: u16 = 0x5848;
/// A wish of three bytes of window per byte, Q16.
const WISH: i32 = 3 << 16;
const TCP: u8 = 6;

/// The router's program, or the reason why it is not available here.
fn load() -> Result<Object, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("objects/xcp_router.o");
    let mut open = ObjectBuilder::default().open_file(path).map_err(|error| error.to_string())?;
    for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.options") {
        let bytes = map.initial_value_mut().expect("it has values");
        for (slot, value) in bytes.chunks_exact_mut(8).zip(SETTINGS) {
            slot.copy_from_slice(&value.to_ne_bytes());
        }
    }
    // Where this machine takes no program at all there is nothing to test; where it takes another's, it takes ours.
    let control = starhop_kernel::CONTROLS.iter().find(|control| control.name == "xcp").expect("a control");
    let another = starhop_kernel::load(control, &Options::default(), Lifetime::Process);
    another.map_err(|error| error.to_string())?;
    Ok(open.load().expect("the verifier takes it"))
}

/// The Internet checksum's sum, not yet complemented.
fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Addresses, protocol and length, which TCP's checksum covers, too.
fn pseudo(ip: &[u8], tcp: &[u8]) -> Vec<u8> {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    [addresses, &[0, TCP], &(tcp.len() as u16).to_be_bytes()].concat()
}

fn ipv4(protocol: u8, payload: usize) -> Vec<u8> {
    let length = (20 + payload as u16).to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    let check = !(sum(&header) as u16);
    header[10..12].copy_from_slice(&check.to_be_bytes());
    header
}

fn ipv6(protocol: u8, payload: usize) -> Vec<u8> {
    let length = (payload as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
    header.extend([0xfd; 32]);
    header
}

/// A segment with timestamps and XCP's option, of a sender with a window of 40 kB and a round trip of 100 ms.
fn segment(exid: u16) -> Vec<u8> {
    let mut tcp = vec![0; 20];
    tcp[12] = ((20 + 12 + 16) / 4) << 4;
    tcp.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    tcp.extend([KIND, 16]);
    tcp.extend(exid.to_be_bytes());
    for field in [100_000, 40_000, WISH] {
        tcp.extend(field.to_be_bytes());
    }
    tcp.extend(vec![7; PAYLOAD]);
    tcp
}

/// An Ethernet frame, and where its inner IP and TCP headers begin.
struct Frame {
    bytes: Vec<u8>,
    ip: usize,
    tcp: usize,
}

impl Frame {
    fn new(ether_type: u16, outer: Option<Vec<u8>>, ip: Vec<u8>, mut tcp: Vec<u8>) -> Self {
        let check = !(sum(&[pseudo(&ip, &tcp), tcp.clone()].concat()) as u16);
        tcp[16..18].copy_from_slice(&check.to_be_bytes());
        let outer = outer.unwrap_or_default();
        let (ip_at, tcp_at) = (14 + outer.len(), 14 + outer.len() + ip.len());
        let ethernet = [&[2; 12][..], &ether_type.to_be_bytes()].concat();
        Self { bytes: [ethernet, outer, ip, tcp].concat(), ip: ip_at, tcp: tcp_at }
    }

    fn kinds() -> [(&'static str, Self); 3] {
        let tcp = segment(EXID);
        let inner = ipv4(TCP, tcp.len());
        [
            ("IPv4", Self::new(0x0800, None, inner.clone(), tcp.clone())),
            ("IPv6", Self::new(0x86dd, None, ipv6(TCP, tcp.len()), tcp.clone())),
            ("IP in IP", Self::new(0x0800, Some(ipv4(4, inner.len() + tcp.len())), inner, tcp)),
        ]
    }

    /// The packet as it leaves the router.
    fn through(&self, router: &Object) -> Self {
        let mut out = vec![0; 2_000];
        let program = router.progs_mut().find(|program| program.name() == "xcp_router").expect("the program");
        let input =
            ProgramInput { data_in: Some(&self.bytes), data_out: Some(&mut out), ..ProgramInput::default() };
        let length = program.test_run(input).expect("it runs").data.expect("a packet").len();
        out.truncate(length);
        Self { bytes: out, ..*self }
    }

    fn feedback(&self) -> i32 {
        let at = self.tcp + 20 + 12 + 12;
        i32::from_be_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn is_whole(&self) -> bool {
        let (ip, tcp) = (&self.bytes[self.ip..self.tcp], &self.bytes[self.tcp..]);
        sum(&[pseudo(ip, tcp), tcp.to_vec()].concat()) == 0xffff
    }
}

/// Says that a test could not be made here, for `make test` to count. The usual test runner keeps back what a test prints by
/// `println!` and passes.
fn skipped(why: &str) {
    let said = format!("\nskipped 1 tests: {}\n", why.lines().next().unwrap_or_default());
    std::io::Write::write_all(&mut std::io::stdout(), said.as_bytes()).expect("an output");
}

#[test]
fn the_verifier_walks_through_few_instructions() {
    let router = match load() {
        Ok(router) => router,
        Err(why) => return skipped(&why),
    };
    let program = router.progs().find(|program| program.name() == "xcp_router").expect("the program");
    let id = Program::id_from_fd(program.as_fd()).expect("its number");
    let walked =
        ProgInfoIter::default().find(|info| info.id == id).expect("what the kernel knows").verified_insns;
    println!("     {walked} instructions");
    assert!((1..2_000).contains(&walked), "{walked}");
}

#[test]
fn a_wish_is_lowered_to_what_is_spare_and_the_checksum_stays_right() {
    for (kind, frame) in Frame::kinds() {
        let router = match load() {
            Ok(router) => router,
            Err(why) => return skipped(&why),
        };
        // In the first interval nothing is known, and nothing granted.
        let first = frame.through(&router);
        assert!(
            frame.is_whole() && first.is_whole() && first.feedback() == 0,
            "{kind}: {}",
            first.feedback()
        );
        // The first interval takes 50 ms, from then on the traffic's 100 ms: 20 packets in each.
        let mut granted = 0;
        for _ in 0..60 {
            std::thread::sleep(Duration::from_millis(5));
            let out = frame.through(&router);
            assert!(out.is_whole(), "{kind}");
            assert!(out.feedback() <= WISH);
            granted = out.feedback();
        }
        // 20 kB of 100 kB per interval are used: α grants 32 kB to 20 packets, 1.6 bytes per byte; the clock of a
        // busy machine makes it less traffic and more for each, up to the wish.
        println!("     {kind}: {:.2} bytes per byte", f64::from(granted) / 65_536.0);
        assert!((WISH / 3..=WISH).contains(&granted), "{kind}: {granted}");
    }
}

#[test]
fn another_experiment_of_the_same_kind_is_left_alone() {
    let router = match load() {
        Ok(router) => router,
        Err(why) => return skipped(&why),
    };
    let tcp = segment(0x1234);
    let frame = Frame::new(0x0800, None, ipv4(TCP, tcp.len()), tcp);
    assert_eq!(frame.through(&router).bytes, frame.bytes);
    // A truncated header, cut short in the middle of the option, is not changed either.
    let mut cut = frame;
    cut.bytes.truncate(cut.tcp + 34);
    assert_eq!(cut.through(&router).bytes, cut.bytes);
}

#[test]
fn a_fragment_is_left_alone() {
    let router = match load() {
        Ok(router) => router,
        Err(why) => return skipped(&why),
    };
    let mut fragment = Frame::kinds().into_iter().next().expect("IPv4").1;
    // A later fragment: no TCP header follows its IP header.
    fragment.bytes[14 + 6..14 + 8].copy_from_slice(&[0, 0x10]);
    assert_eq!(fragment.through(&router).bytes, fragment.bytes);
}
