//! `starhop emulate`: real processes, real TCP and real packets, in namespaces that it makes itself.
//! `cargo test --test emulate -- WORD` runs the tests whose names hold the word; those that begin with "long" only run
//! when asked for (`make chaos`).

mod harness;
mod scenario;

use harness::timing::{self, unless};
use scenario::Scenario;
use std::time::Instant;

const TESTS: &[harness::Test] = &[
    ("starhop_agrees_with_the_simulator", agreement::starhop),
    ("a_path_over_the_sky_is_that_of_the_simulator", agreement::a_path_over_the_sky),
    ("a_path_of_100_mbit_is_as_fast_as_it_says", agreement::a_path_of_100_mbit),
    ("a_seed_loses_the_packets_that_it_loses_in_the_simulator", agreement::losses_of_a_seed),
    ("a_flow_of_tcp_has_the_receive_window_of_its_scenario", agreement::a_receive_window),
    ("captures_are_decoded_by_the_dissector", tools::captures_are_decoded),
    ("captures_show_seals_only", tools::captures_show_seals_only),
    ("tcp_through_gateways_agrees_with_the_simulator", agreement::tcp_through_gateways),
    ("a_split_connection_outruns_a_whole_one", tools::a_split_connection_outruns_a_whole_one),
    ("ipv6_carries_both_kinds_of_flows", tools::ipv6_carries_both_kinds_of_flows),
    ("a_command_runs_in_a_node", tools::a_command_runs_in_a_node),
    ("without_a_terminal_it_tells_lines", tools::without_a_terminal_it_tells_lines),
    ("an_interrupt_leaves_nothing", tools::an_interrupt_leaves_nothing),
    ("a_killed_run_leaves_nothing", tools::a_killed_run_leaves_nothing),
    ("a_hundred_nodes_and_two_hundred_links", tools::a_hundred_nodes_and_two_hundred_links),
    ("any_relay_may_be_killed_and_restarted", chaos::any_relay_may_be_killed_and_restarted),
    ("any_relay_may_be_taken_away", chaos::any_relay_may_be_taken_away),
    ("a_relay_may_hang_for_five_seconds", chaos::a_relay_may_hang_for_five_seconds),
    ("the_path_may_switch_every_second", chaos::the_path_may_switch_every_second),
    ("the_path_may_be_away", chaos::the_path_may_be_away),
    ("client_address_and_route_may_change", chaos::client_address_and_route_may_change),
    ("packets_may_be_doubled_swapped_and_damaged", chaos::packets_may_be_doubled_swapped_and_damaged),
    ("a_clock_may_jump_by_an_hour", chaos::a_clock_may_jump_by_an_hour),
    ("long_the_path_may_switch_every_second", chaos::long_switching),
    ("long_the_path_may_be_away", chaos::long_outage),
    ("long_all_transports_agree_with_the_simulator", agreement::long_all),
];

fn main() {
    // Nearly all of them measure.
    harness::run_in_turn(TESTS, || None);
}

/// Emulator and simulator, side by side.
mod agreement {
    use super::scenario::Run;
    use super::*;

    pub(super) fn starhop() {
        for (hops, loss) in [(2, "0%"), (5, "1%")] {
            let scenario = Scenario::chain(hops, "20Mbit", "10ms", loss).unlimited("starhop").lasting(8);
            timing::measure(|| {
                let (goodput, delay) = compare("starhop", &scenario, 1);
                let agrees = (0.95..1.05).contains(&goodput) && delay.abs() < 5.0;
                unless(agrees, || format!("goodput {goodput}, delay {delay} ms"))
            });
        }
    }

    /// Real gateways between real sockets take as long as the same code between models of TCP.
    pub(super) fn tcp_through_gateways() {
        let scenario = Scenario::chain(3, "20Mbit", "50ms", "0%")
            .link_field("[[topology.override]]\nhop = 2\nloss = \"1%\"\n")
            .file("cubic", 8_000_000)
            .flow_field("gateway = [\"r1\", \"r2\"]\nstart = \"2s\"")
            .lasting(30);
        timing::measure(|| {
            let took = [1, 2, 3].map(|seed| scenario.simulate(seed).flow("completion_s"));
            let (model, real) = (took.iter().sum::<f64>() / 3.0, scenario.emulate(&[]));
            assert!(real.is_whole(), "{}", real.document);
            let real = real.flow("completion_s");
            println!("{real:.2} s, {model:.2} in the simulator");
            unless((0.85..1.15).contains(&(real / model)), || format!("{real} s, {model} in the simulator"))
        });
    }

    /// Satellites as nodes with transparent relays, and a handover.
    pub(super) fn a_path_over_the_sky() {
        let scenario = Scenario::sky("10Mbit").unlimited("starhop").lasting(14);
        let model = scenario.simulate(1);
        timing::measure(|| {
            let real = scenario.emulate(&["--insecure"]);
            for what in ["/flows/0/path", "/path_changes_s"] {
                assert_eq!(real.document.pointer(what), model.document.pointer(what), "{what}");
            }
            let names = |run: &Run| {
                let links = run.document["links"].as_array().unwrap();
                links.iter().map(|link| (link["name"].clone(), link["direction"].clone())).collect::<Vec<_>>()
            };
            assert_eq!(names(&real), names(&model));
            assert!(real.document["problems"].as_array().is_some_and(Vec::is_empty), "{}", real.document);
            let share = real.flow("goodput_mbps") / model.flow("goodput_mbps");
            let delay = real.in_order_owd_ms() - model.in_order_owd_ms();
            println!("goodput {share:.3} of the simulator's, in-order delay {delay:+.2} ms");
            let after = real.rate(10.0, 14.0) / real.rate(4.0, 8.5);
            let agrees = (0.95..1.05).contains(&share) && delay.abs() < 5.0 && after > 0.9;
            unless(agrees, || format!("{share} of the goodput, {delay} ms, {after} after the change"))
        });
    }

    /// The emulator neither loses nor delays packets of its own; its report says so.
    pub(super) fn a_path_of_100_mbit() {
        let scenario = Scenario::chain(1, "100Mbit", "25ms", "0.1%").unlimited("starhop").lasting(8);
        timing::measure(|| {
            let run = scenario.emulate(&[]);
            let accuracy = &run.document["accuracy"];
            println!("{accuracy}");
            let late_ms = accuracy["delay_error_p99_ms"].as_f64().unwrap_or(f64::NAN);
            let is_true = accuracy["lost_packets"] == 0 && late_ms < 1.0 && accuracy["is_good"] == true;
            let share = run.flow("efficiency");
            unless(is_true && share > 0.9, || format!("{share} of the ideal; {accuracy}"))
        });
    }

    /// In the first second SYN-ACK and a first window enter the link, whatever is lost of them: 11 packets, or SYN-ACK alone.
    pub(super) fn losses_of_a_seed() {
        let scenario = Scenario::chain(1, "20Mbit", "250ms", "30%").file("newreno", 1_000_000).lasting(1);
        timing::measure(|| {
            let lost = |run: Run| run.link("server-client", "forward", "lost");
            let of = |seed: u32| {
                let model = lost(scenario.simulate(seed));
                (model, lost(scenario.emulate(&["--set", &format!("seed={seed}")])))
            };
            let pairs: Vec<(u64, u64)> = (1..=6).map(of).collect();
            let is_same = pairs.iter().all(|(model, real)| model == real);
            assert!(pairs.iter().any(|(model, _)| *model > 0), "{pairs:?}");
            unless(is_same, || format!("lost in the simulator and for real: {pairs:?}"))
        });
    }

    /// 100 kB per round trip of 200 ms, from the first one on. The kernel's own window begins at 64 kB and grows to megabytes.
    pub(super) fn a_receive_window() {
        let scenario = Scenario::chain(2, "50Mbit", "50ms", "0%")
            .unlimited("newreno")
            .flow_field("options = { receive_window = \"100kB\" }")
            .lasting(8);
        let model = scenario.simulate(1).flow("goodput_mbps");
        timing::measure(|| {
            let real = scenario.emulate(&[]).flow("goodput_mbps");
            println!("{real:.3} Mbit/s, {model:.3} in the simulator");
            unless((0.95..1.05).contains(&(real / model)), || {
                format!("{real} Mbit/s, {model} in the simulator")
            })
        });
    }

    /// Random losses of few packets decide the goodput of a TCP: over 40 s at 0.1 % it differs by half from seed to
    /// seed. So the emulated runs are long, and the simulator's number is the mean of this many seeds, which take
    /// no time.
    const SEEDS: u32 = 8;

    /// Goodput as a share of the simulator's mean over `seeds`, and the extra delay of bytes in order, ms.
    fn compare(transport: &str, scenario: &Scenario, seeds: u32) -> (f64, f64) {
        // The simulator's packets have no seal.
        let real = scenario.emulate(&["--insecure"]);
        let models: Vec<Run> = (1..=seeds).map(|seed| scenario.simulate(seed)).collect();
        let mean = |of: fn(&Run) -> f64| models.iter().map(of).sum::<f64>() / f64::from(seeds);
        let (model, model_delay) = (mean(|run| run.flow("goodput_mbps")), mean(Run::in_order_owd_ms));
        let (goodput, delay) = (real.flow("goodput_mbps") / model, real.in_order_owd_ms() - model_delay);
        let range = models.iter().map(|run| run.flow("goodput_mbps"));
        let (least, most) = range.fold((f64::MAX, 0.0_f64), |(a, b), rate| (a.min(rate), b.max(rate)));
        println!(
            "{transport:8} goodput {:7.3} / {model:7.3} ({least:.3} to {most:.3}) Mbit/s = {goodput:.3}   in-order delay {:7.2} - {model_delay:7.2} ms = {delay:+.2}",
            real.flow("goodput_mbps"),
            real.in_order_owd_ms(),
        );
        (goodput, delay)
    }

    /// The whole table; a failing row does not end it.
    pub(super) fn long_all() {
        let mut problems = Vec::new();
        for (loss, seconds) in [("0%", 40), ("0.1%", 120), ("1%", 120)] {
            println!("five hops, {loss} on each");
            for (transport, tolerance) in
                [("starhop", 0.05), ("newreno", 0.15), ("cubic", 0.15), ("bbr", 0.15)]
            {
                let scenario =
                    Scenario::chain(5, "20Mbit", "10ms", loss).unlimited(transport).lasting(seconds);
                let row = timing::measured(|| {
                    let (goodput, delay) = compare(transport, &scenario, SEEDS);
                    let agrees =
                        (goodput - 1.0).abs() <= tolerance && (transport != "starhop" || delay.abs() < 5.0);
                    let said = || format!("{transport} at {loss}: {goodput:.3}, {delay:+.2} ms");
                    if agrees { Ok(()) } else { Err(said()) }
                });
                problems.extend(row.err());
            }
        }
        assert!(problems.is_empty(), "{problems:?}");
    }
}

/// The tools of the command.
mod tools {
    use super::scenario::Run;
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    pub(super) fn captures_are_decoded() {
        let scenario = Scenario::chain(2, "20Mbit", "5ms", "2%").file("starhop", 500_000);
        let run = scenario.emulate(&["--insecure", "--pcap", "captures"]);
        let Some(rows) = decoded(&run, &FIELDS) else { return };
        let of = |kind: &str| rows.iter().filter(|row| row[0] == kind).count();
        assert!(of("0") > 30, "Interests: {}", of("0"));
        let data = rows.iter().filter(|row| row[0] == "1");
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let mut ranges: Vec<_> = data.map(|row| (number(&row[1]), number(&row[2]))).collect();
        // Every byte is seen where it enters the link and where it comes out.
        let bytes: u64 = ranges.iter().map(|(_, len)| len).sum();
        assert!((990_000..1_200_000).contains(&bytes), "{bytes}");
        ranges.sort_unstable();
        let follow = |end: u64, &(offset, len): &(u64, u64)| (offset <= end).then(|| end.max(offset + len));
        assert_eq!(ranges.iter().try_fold(0, follow), Some(500_000), "the file, without a gap");
        let lost = rows.iter().filter(|row| row[3].contains("lost by the link")).count() as u64;
        // The document counts to the end of the last step, the capture to the end of the run.
        let counted = run.link("server-r1", "forward", "lost") + run.link("server-r1", "backward", "lost");
        assert!(
            counted > 0 && (counted..counted + 10).contains(&lost),
            "{lost} in the capture, {counted} counted"
        );
        assert!(rows.iter().all(|row| row[4].is_empty()), "nothing is malformed");
    }

    /// By default a capture shows the view of an eavesdropper: seals, and not their contents.
    pub(super) fn captures_show_seals_only() {
        let scenario = Scenario::chain(2, "20Mbit", "5ms", "2%").file("starhop", 500_000);
        let run = scenario.emulate(&["--pcap", "captures"]);
        assert!(run.is_whole(), "{}", run.document);
        let Some(rows) = decoded(&run, &SEAL_FIELDS) else { return };
        let sealed = rows.iter().filter(|row| !row[1].is_empty()).count();
        assert!(sealed > 2 * 350, "{sealed} sealed packets at both ends, of {}", rows.len());
        assert!(rows.iter().all(|row| row[0].is_empty() && row[2].is_empty()), "plain or malformed");
    }

    const FIELDS: [&str; 5] =
        ["starhop.kind", "starhop.offset", "starhop.payload_length", "frame.comment", "starhop.malformed"];
    const SEAL_FIELDS: [&str; 3] = ["starhop.kind", "starhop.seal.counter", "starhop.malformed"];

    /// The dissector's view of the first link's packets; nothing if there is no tshark.
    fn decoded(run: &Run, fields: &[&str]) -> Option<Vec<Vec<String>>> {
        let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/starhop.lua");
        let mut tshark = Command::new("tshark");
        tshark.args(["-X", script, "-r"]).arg(run.path("captures/server-r1.pcapng"));
        tshark.args(["-T", "fields"]).args(fields.iter().flat_map(|field| ["-e", field]));
        // Wireshark ends its own privileges where it is started by root, and warns of that.
        let output = match tshark.output() {
            Ok(output) => output,
            Err(error) => {
                println!(
                    "skipped 1 tests: tshark: {error}; install it with your packages (Debian: apt install tshark)"
                );
                return None;
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("Lua"), "{said}");
        Some(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    pub(super) fn a_split_connection_outruns_a_whole_one() {
        let whole = Scenario::chain(4, "20Mbit", "10ms", "0.5%").unlimited("cubic").lasting(6);
        let split = whole.clone().flow_field("split = \"every-hop\"");
        timing::measure(|| {
            let [before, after] = [&whole, &split].map(|scenario| scenario.emulate(&[]).flow("goodput_mbps"));
            unless(after > 1.5 * before, || format!("{before} Mbit/s whole, {after} split"))
        });
    }

    pub(super) fn ipv6_carries_both_kinds_of_flows() {
        for transport in ["starhop", "cubic"] {
            let scenario = Scenario::chain(3, "20Mbit", "5ms", "0%").file(transport, 2_000_000);
            let run = scenario.emulate(&["--ipv6", "--pcap", "captures"]);
            assert!(run.is_whole(), "{transport}: {}", run.document);
            let bytes = std::fs::read(run.path("captures/server-r1.pcapng")).unwrap();
            // Addresses of IPv6 that the emulator gives, in the packets themselves.
            assert!(bytes.windows(4).any(|window| window == [0xfd, 0x77, 0, 0]), "{transport}");
        }
    }

    pub(super) fn a_command_runs_in_a_node() {
        let scenario = Scenario::chain(3, "20Mbit", "10ms", "0%").unlimited("starhop").lasting(20);
        let mut command = scenario.command("emulate", &["-q", "--exec", "client", "--"]);
        command.args(["sh", "-c", "grep server /etc/hosts; echo $STARHOP_NODE; exit 7"]);
        let start = Instant::now();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("10.77.0.1 server") && said.contains("\nclient\n"), "{said}");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(problem.contains("code 7") && output.status.code() == Some(1), "{problem}");
        assert!(start.elapsed() < Duration::from_secs(10), "it ends with the command");
    }

    pub(super) fn without_a_terminal_it_tells_lines() {
        let scenario = Scenario::chain(2, "10Mbit", "5ms", "0%").unlimited("starhop").lasting(4);
        let output = scenario.command("emulate", &[]).output().unwrap();
        let lines = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = lines.lines().filter(|line| line.contains("Mbit/s") && line.contains("flow")).count();
        assert!((2..=4).contains(&told), "{lines}");
        assert!(!lines.contains('\u{1b}'), "no escape sequences: {lines}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("The links were true to the scenario"));
    }

    /// Processes below `parent`, and below those.
    fn family(parent: u32) -> Vec<u32> {
        let own = scenario::children(parent);
        own.iter().flat_map(|&child| std::iter::once(child).chain(family(child))).collect()
    }

    fn started(scenario: &Scenario) -> (std::process::Child, Vec<u32>) {
        let child = scenario.command("emulate", &["-q"]).spawn().unwrap();
        let start = Instant::now();
        // A server, two relays with their watchdogs, a client.
        while family(child.id()).len() < 6 {
            assert!(start.elapsed() < Duration::from_secs(20), "it never started");
            std::thread::sleep(Duration::from_millis(20));
        }
        let family = family(child.id());
        (child, family)
    }

    fn assert_gone(family: &[u32]) {
        let start = Instant::now();
        while family.iter().any(|&pid| scenario::is_running(pid)) {
            assert!(start.elapsed() < Duration::from_secs(3), "processes are left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn an_interrupt_leaves_nothing() {
        let scenario = Scenario::chain(3, "20Mbit", "10ms", "0%").unlimited("starhop").lasting(60);
        let (mut child, family) = started(&scenario);
        scenario::signal(child.id(), nix::sys::signal::Signal::SIGINT);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_gone(&family);
    }

    pub(super) fn a_killed_run_leaves_nothing() {
        let scenario = Scenario::chain(3, "20Mbit", "10ms", "0%").unlimited("starhop").lasting(60);
        let (mut child, family) = started(&scenario);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_gone(&family);
        // And the next one is not in its way.
        let next = Scenario::chain(3, "20Mbit", "10ms", "0%").file("starhop", 500_000).emulate(&[]);
        assert!(next.is_whole(), "{}", next.document);
    }

    /// Ten rows of ten nodes, joined to the right, downwards, and some across.
    pub(super) fn a_hundred_nodes_and_two_hundred_links() {
        let name = |row: usize, column: usize| format!("n{row}{column}");
        let mut links = Vec::new();
        for row in 0..10 {
            for column in 0..10 {
                let mut to = |r: usize, c: usize| links.push((name(row, column), name(r % 10, c % 10)));
                to(row, column + 1);
                to(row + 1, column);
            }
        }
        let scenario = Scenario::graph(&links, "n00", "n55").file("starhop", 3_000_000);
        let run = scenario.emulate(&[]);
        assert!(run.is_whole(), "{}", run.document["problems"]);
        assert_eq!(run.document["links"].as_array().map(Vec::len), Some(400));
    }
}

/// Relays, paths and packets that misbehave. After each the bytes are whole, and come as fast as before.
mod chaos {
    use super::*;
    use nix::sys::signal::Signal;
    use std::time::Duration;

    /// Two relays; the events of the tests happen while 16 Mbit/s flow.
    fn base(bytes: u64) -> Scenario {
        Scenario::chain(3, "16Mbit", "10ms", "0.5%").file("starhop", bytes)
    }

    pub(super) fn any_relay_may_be_killed_and_restarted() {
        for relay in ["r1", "r2"] {
            let scenario = base(13_000_000)
                .event(&format!("at = \"2s\"\ncrash = \"{relay}\""))
                .event(&format!("at = \"4s\"\nrestart = \"{relay}\""));
            timing::measure(|| {
                let run = scenario.emulate(&[]);
                run.back(2.0, (1.0, 2.0), (3.0, 4.0))?;
                run.back(4.0, (1.0, 2.0), (5.0, 6.0))
            });
        }
    }

    pub(super) fn any_relay_may_be_taken_away() {
        for relay in [0, 1] {
            let scenario = base(11_000_000);
            timing::measure(|| {
                let run = scenario.emulate_and(Duration::from_secs(2), |relays| {
                    scenario::signal(relays[relay], Signal::SIGTERM);
                });
                run.back(2.0, (1.0, 1.8), (3.2, 4.2))
            });
        }
    }

    pub(super) fn a_relay_may_hang_for_five_seconds() {
        let scenario = base(22_000_000);
        timing::measure(|| {
            let run = scenario.emulate_and(Duration::from_secs(2), |relays| {
                scenario::signal(relays[0], Signal::SIGSTOP);
                std::thread::sleep(Duration::from_secs(5));
                scenario::signal(relays[0], Signal::SIGCONT);
            });
            // The watchdog opens the way two seconds after the relay fell silent at the latest; then there is a path.
            run.back(4.0, (1.0, 1.8), (5.2, 6.2))?;
            run.back(7.0, (1.0, 1.8), (8.4, 9.4))
        });
    }

    /// Every switch loses the packets under way, and the ends are not told; from three round trips after it on, the
    /// rate is that of before.
    fn switching(seconds: u32) {
        let scenario = Scenario::parallel("16Mbit", ["20ms", "22.5ms"], "1s");
        let scenario = scenario.file("starhop", u64::from(seconds) * 1_250_000);
        timing::measure(|| {
            let run = scenario.emulate(&[]);
            assert!(run.is_whole(), "{}", run.document);
            let last = (run.flow("completion_s") - 0.1) as u32;
            assert!(last >= seconds / 2, "it ended after {last} s");
            let rests = (1..last).map(|second| run.rate(f64::from(second) + 0.3, f64::from(second) + 1.0));
            let (mean, whole) = (rests.sum::<f64>() / f64::from(last - 1), run.rate(0.5, 1.0));
            println!("{last} switches: {mean:.2} Mbit/s from 0.3 s after each, {whole:.2} before");
            unless(mean > 0.9 * whole, || format!("{mean} of {whole}: {:?}", run.series))
        });
    }

    pub(super) fn the_path_may_switch_every_second() {
        switching(8);
    }

    pub(super) fn long_switching() {
        switching(60);
    }

    fn outage(seconds: u32) {
        let scenario = base(9_000_000)
            .lasting(u64::from(seconds) + 30)
            .event("at = \"2s\"\nlink_down = \"r1-r2\"")
            .event(&format!("at = \"{}s\"\nlink_up = \"r1-r2\"", 2 + seconds));
        let back = f64::from(2 + seconds);
        timing::measure(|| scenario.emulate(&[]).back(back, (1.0, 2.0), (back + 1.0, back + 1.8)));
    }

    pub(super) fn the_path_may_be_away() {
        outage(3);
    }

    pub(super) fn long_outage() {
        outage(60);
    }

    pub(super) fn client_address_and_route_may_change() {
        let scenario = Scenario::parallel("16Mbit", ["20ms", "22.5ms"], "600s")
            .file("starhop", 10_000_000)
            .event("at = \"2s\"\npath = 2")
            .event("at = \"2s\"\nreaddress = \"client\"");
        timing::measure(|| scenario.emulate(&[]).back(2.0, (1.0, 2.0), (3.0, 4.0)));
    }

    pub(super) fn packets_may_be_doubled_swapped_and_damaged() {
        let scenario = Scenario::chain(3, "16Mbit", "10ms", "0%")
            .link_field("duplicate = \"5%\"\nreorder = \"5%\"\nreorder_by = \"5ms\"\ncorrupt = \"1%\"")
            .file("starhop", 8_000_000);
        timing::measure(|| {
            let run = scenario.emulate(&[]);
            assert!(run.is_whole(), "{}", run.document);
            // One in twenty packets is a copy, one in a hundred is damaged on each hop and is sent again.
            let (goodput, ideal) = (run.flow("goodput_mbps"), run.flow("ideal_mbps"));
            unless(goodput > 0.75 * ideal, || format!("{goodput} of {ideal} Mbit/s"))
        });
    }

    pub(super) fn a_clock_may_jump_by_an_hour() {
        for by in ["3600s", "-3600s"] {
            let scenario = base(10_000_000)
                .event(&format!("at = \"2s\"\nclock_step = {{ node = \"r1\", by = \"{by}\" }}"));
            // Its seals are refused once it has looked at the clock, within a second; from then on the relay is as
            // good as gone.
            timing::measure(|| scenario.emulate(&[]).back(3.0, (1.0, 2.0), (4.2, 5.2)));
        }
    }
}
