//! XCP's controllers are written twice: in floats for the simulator, in integers for the kernel. Here both are shown the
//! same packets.

use starhop_proto::rng::Rng;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::link::{XcpHeader, XcpOptions, XcpRouter, XcpTraffic};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const CAPACITY: Rate = Rate::from_mbps(20);
/// Bytes of every packet.
const SIZE: u32 = 1_500;

/// Reads "now has_header rtt cwnd feedback" per line, and answers the feedback that leaves.
const MAIN: &str = r#"
#include "xcp_controller.h"
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **arguments)
{
    struct xcp_settings set = {2500000, 26214, 14811, 6554, atoi(arguments[1]), 0, 0};
    struct xcp_state state = {0};
    unsigned long long now, has_header, rtt, cwnd;
    long long feedback;
    while (scanf("%llu %llu %llu %llu %lld", &now, &has_header, &rtt, &cwnd, &feedback) == 5) {
        struct xcp_header header = {rtt, cwnd, feedback};
        on_arrival(&state, &set, now, has_header ? &header : 0, 1500, 0);
        if (has_header)
            on_departure(&state, &header, 1500);
        printf("%lld\n", has_header ? (long long)header.feedback : 0);
    }
    return count != 2;
}
"#;

/// A packet that comes to the router.
struct Packet {
    at_us: u64,
    /// Round trip in µs and window in bytes of its sender, where that speaks XCP.
    sender: Option<(u64, u64)>,
}

/// Two seconds of three senders with different round trips, a third of the traffic without a header, in which the load
/// goes from half of the capacity to a quarter more than all of it.
fn packets() -> Vec<Packet> {
    let mut rng = Rng::new(11);
    let senders = [(50_000, 30_000), (120_000, 90_000), (600_000, 700_000)];
    let (mut packets, mut at_us) = (Vec::new(), 1_000_000);
    while at_us < 3_000_000 {
        // A packet takes 600 µs.
        let load = 0.5 + 0.75 * (at_us - 1_000_000) as f64 / 2e6;
        at_us += (600.0 / load) as u64 + rng.next_u64() % 40;
        let sender = senders.get((rng.next_u64() % 4) as usize).copied();
        packets.push(Packet { at_us, sender });
    }
    packets
}

/// The wish of every sender: four bytes per byte.
const WISH: f64 = 4.0;

/// Feedback per packet by the kernel's program, bytes per byte.
fn by_integers(packets: &[Packet], own: bool) -> Vec<f64> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join(format!("xcp{own}.c")), folder.join(format!("xcp{own}")));
    std::fs::write(&source, MAIN).expect("a source");
    let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/bpf");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-I"]).arg(headers).arg(&source);
    let done = cc.arg("-o").arg(&program).output().expect("a C compiler, as the build needs one");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut lines = String::new();
    for packet in packets {
        let (rtt, cwnd) = packet.sender.unwrap_or_default();
        let wish = (WISH * 65_536.0) as i64;
        writeln!(lines, "{} {} {rtt} {cwnd} {wish}", packet.at_us, u8::from(packet.sender.is_some()))
            .expect("memory");
    }
    let mut child = Command::new(&program);
    let mut child = child
        .arg(u8::from(own).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("its input");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("its answers");
    writer.join().expect("a thread").expect("it reads");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answers = String::from_utf8_lossy(&output.stdout);
    answers.lines().map(|line| line.parse::<f64>().expect("a number") / 65_536.0).collect()
}

/// The same by the simulator's router, with the queue of a link that carries exactly its capacity.
fn by_floats(packets: &[Packet], own: bool) -> Vec<f64> {
    let traffic = if own { XcpTraffic::Own } else { XcpTraffic::All };
    let mut router = XcpRouter::new(XcpOptions { traffic, ..XcpOptions::default() });
    let (mut queue, mut last) = (0.0_f64, packets[0].at_us);
    let mut feedback = Vec::new();
    for packet in packets {
        let carried = (packet.at_us - last) as f64 * 2.5;
        (queue, last) = ((queue - carried).max(0.0), packet.at_us);
        let mut header = packet.sender.map(|(rtt, cwnd)| XcpHeader {
            cwnd_bytes: cwnd as f64,
            rtt: Duration::from_micros(rtt),
            feedback_bytes: WISH * f64::from(SIZE),
        });
        let now = Instant::ZERO + Duration::from_micros(packet.at_us);
        router.on_arrival(now, header.as_ref(), SIZE, queue, CAPACITY);
        queue += f64::from(SIZE);
        if let Some(header) = &mut header {
            router.on_departure(header, SIZE);
        }
        feedback.push(header.map_or(0.0, |header| header.feedback_bytes / f64::from(SIZE)));
    }
    feedback
}

#[test]
fn the_kernels_router_grants_what_the_simulators_grants() {
    let packets = packets();
    for own in [false, true] {
        let (integers, floats) = (by_integers(&packets, own), by_floats(&packets, own));
        assert_eq!(integers.len(), packets.len());
        // An allowance is used up in the middle of an interval, at one packet or the next: a few differ wholly.
        let differ = |(one, other): &(&f64, &f64)| (*one - *other).abs() > 0.01 * other.abs() + 0.002;
        let different = integers.iter().zip(&floats).filter(differ).count();
        let (sum, other): (f64, f64) = (integers.iter().sum(), floats.iter().sum());
        println!("own {own}: {different} of {} packets differ, sums {sum:.2} and {other:.2}", packets.len());
        assert!(different * 100 < packets.len(), "{different} of {}", packets.len());
        assert!((sum - other).abs() < 0.01 * floats.iter().map(|feedback| feedback.abs()).sum::<f64>());
    }
}
