//! Congestion controls in this machine's real kernel: `starhop tcp` and sockets of namespaces that this test makes.
//! `cargo test --test tcp -- WORD` runs the tests whose names hold the word.

mod harness;
mod kernel;

use kernel::{
    Loader, Pinned, SERVER, done, eventually, fetch, is_offered, named, run, serve, starhop, status, transfer,
};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use starhop_kernel::{CONTROLS, Control, Lifetime, Options, load};
use starhop_net::emu::{Hop, Namespace, chain};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};

/// Two per cent of the packets are lost, in each direction.
const LOSSY: Hop =
    Hop { rate: Rate::from_mbps(20), delay: Duration::from_millis(20), loss: 0.02, queue: 200 };
const CLEAN: Hop = Hop { loss: 0.0, ..LOSSY };
/// An account without rights.
const NOBODY: u32 = 65_534;

fn main() {
    if let Some(control) = std::env::args().skip_while(|argument| argument != "--choose").nth(1) {
        return choose_as_somebody_else(&control);
    }
    let tests: &[harness::Test] = &[
        ("every_callback_is_short", every_callback_is_short),
        ("every_control_carries_a_file_over_a_lossy_hop", every_control_carries_a_file_over_a_lossy_hop),
        ("sockets_without_rights_choose_a_loaded_control", sockets_without_rights_choose_a_loaded_control),
        ("an_option_changes_what_the_program_does", an_option_changes_what_the_program_does),
        ("a_second_loader_is_told_of_the_first", a_second_loader_is_told_of_the_first),
        ("a_killed_loader_leaves_nothing", a_killed_loader_leaves_nothing),
        ("a_pinned_control_outlives_its_loader", a_pinned_control_outlives_its_loader),
        ("a_control_is_unloaded_under_a_transfer", a_control_is_unloaded_under_a_transfer),
        ("a_default_is_not_unloaded", a_default_is_not_unloaded),
        ("a_thousand_connections_are_counted", a_thousand_connections_are_counted),
        ("what_is_wrong_is_said_with_what_to_do", what_is_wrong_is_said_with_what_to_do),
        (
            "the_programs_of_a_control_take_little_of_a_transfer",
            the_programs_of_a_control_take_little_of_a_transfer,
        ),
        ("long_a_gbit_costs_what_it_costs_with_reno", long_a_gbit_costs_what_it_costs_with_reno),
    ];
    kernel::run_tests(tests);
}

fn every_callback_is_short() {
    for control in CONTROLS {
        let loaded = load(control, &Options::default(), Lifetime::Process).expect("it loads");
        let callbacks = loaded.callbacks().expect("its callbacks");
        let longest = callbacks.iter().max_by_key(|(_, walked)| *walked).expect("a callback");
        println!("     {}: {} callbacks, the longest {longest:?}", control.name, callbacks.len());
        assert!((1..2_000).contains(&longest.1), "{callbacks:?}");
    }
}

fn every_control_carries_a_file_over_a_lossy_hop() {
    let _loaded = Loader::start(&CONTROLS.iter().map(|control| control.name).collect::<Vec<_>>());
    // Each over a chain of its own, at the same time.
    std::thread::scope(|scope| {
        for control in CONTROLS {
            scope.spawn(|| carries_a_file_over_a_lossy_hop(control));
        }
    });
}

fn carries_a_file_over_a_lossy_hop(control: &Control) {
    let chain = chain(&[LOSSY], 3).expect("a chain");
    transfer(&chain, control.kernel_name, 1_200_000);
    let state = status(control.name).expect("it is loaded");
    let reductions = &state["reductions"];
    let all: u64 =
        ["random", "unclear", "congestion"].iter().filter_map(|kind| reductions[kind].as_u64()).sum();
    println!("     {}: {reductions}", control.name);
    // 2 % of 830 segments are lost; all losses of one window cause one reduction.
    assert!(all > 0, "{state}");
    if control.name == "hybla-veno" {
        // The queue of 20 Mbit/s stays nearly empty at this loss.
        assert!(reductions["random"].as_u64() > reductions["congestion"].as_u64(), "{state}");
    }
}

/// The other end of the test below: whether a socket of this process may choose the control.
fn choose_as_somebody_else(control: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let chosen = setsockopt(&listener, sockopt::TcpCongestion, &OsString::from(control));
    println!("{}: {chosen:?}", nix::unistd::geteuid());
}

fn sockets_without_rights_choose_a_loaded_control() {
    // A copy that every user may run, wherever the checkout lies.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("choose");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    for path in [folder.path(), &program] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("a mode");
    }
    let elsewhere = Namespace::new("elsewhere").expect("a namespace");
    let choose = || {
        let mut command = Command::new(&program);
        command.args(["--choose", "sh_veno"]).uid(NOBODY).gid(NOBODY).stdout(Stdio::piped());
        let output = elsewhere.spawn(command).and_then(|process| process.output()).expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(choose(), format!("{NOBODY}: Err(ENOENT)\n"));
    let _loaded = Loader::start(&["veno"]);
    assert_eq!(choose(), format!("{NOBODY}: Ok(())\n"));
}

fn an_option_changes_what_the_program_does() {
    // With β = 0 no loss counts as random.
    let chain = chain(&[LOSSY], 4).expect("a chain");
    let _loaded = Loader::start(&["veno", "--option", "beta=0"]);
    transfer(&chain, "sh_veno", 1_000_000);
    let reductions = status("veno").expect("it is loaded")["reductions"].clone();
    assert!(reductions["congestion"].as_u64() > Some(0) && reductions["random"] == 0, "{reductions}");
}

fn a_second_loader_is_told_of_the_first() {
    let first = Loader::start(&["hybla"]);
    let second = run(&["load", "hybla"]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("sh_hybla") && said.contains(&format!("process {}", first.0.id())), "{said}");
    // Another control does not affect it.
    let _other = Loader::start(&["veno"]);
    assert!(is_offered("hybla") && is_offered("veno"));
}

fn a_killed_loader_leaves_nothing() {
    let mut loader = Loader::start(&["westwood"]);
    assert!(is_offered("westwood"));
    loader.0.kill().expect("it runs");
    let _: ExitStatus = loader.0.wait().expect("its end");
    eventually("it is still offered", || !is_offered("westwood"));
    assert!(status("westwood").is_none());
}

fn a_pinned_control_outlives_its_loader() {
    let _pinned = Pinned("westwood");
    done(&["load", "westwood", "--persist"]);
    let state = status("westwood").expect("it is loaded");
    assert_eq!((&state["persistent"], &state["holders"]), (&Value::Bool(true), &Value::Array(Vec::new())));
    let again = run(&["load", "westwood"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("tcp unload westwood"), "{again:?}");
    done(&["unload", "westwood"]);
    assert!(!is_offered("westwood") && status("westwood").is_none());
    let none = run(&["unload", "westwood"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("not loaded"), "{none:?}");
}

fn a_control_is_unloaded_under_a_transfer() {
    let chain = chain(&[CLEAN], 5).expect("a chain");
    let _pinned = Pinned("hybla-veno");
    done(&["load", "hybla-veno", "--persist"]);
    // Three seconds of the link.
    let bytes = 7_500_000;
    let (sender, port) = serve(&chain.hosts[0], "hybla_veno", bytes);
    let mut stream = fetch(&chain.hosts[1], port);
    stream.read_exact(&mut vec![0; 500_000]).expect("the beginning");
    let said = done(&["unload", "hybla-veno"]);
    assert!(said.contains("1 connections go on"), "{said}");
    assert!(!is_offered("hybla-veno"));
    // A new one beside the old one, which is still in use.
    let _second = Loader::start(&["hybla-veno"]);
    let state = status("hybla-veno").expect("it is loaded");
    assert_eq!(
        (state["sockets"].as_u64(), state["sockets_of_earlier"].as_u64()),
        (Some(0), Some(1)),
        "{state}"
    );
    let rest = std::io::copy(&mut stream, &mut std::io::sink()).expect("the rest");
    sender.join().expect("a thread").expect("it sends");
    assert_eq!(rest, bytes as u64 - 500_000);
    drop(stream);
    eventually("the old one is still used", || {
        status("hybla-veno").is_some_and(|state| state["sockets_of_earlier"] == 0)
    });
}

fn a_default_is_not_unloaded() {
    // The default belongs to a namespace; this process' own is not touched.
    let elsewhere = Namespace::new("elsewhere").expect("a namespace");
    let inside = |arguments: &[&str]| {
        let mut command = starhop(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        elsewhere.spawn(command).and_then(|process| process.output()).expect("it runs")
    };
    let _pinned = Pinned("veno");
    done(&["load", "veno", "--persist"]);
    let set = inside(&["default", "veno"]);
    assert!(set.status.success(), "{set:?}");
    let refused = inside(&["unload", "veno"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("choose another first"), "{refused:?}");
    assert!(inside(&["default", "reno"]).status.success());
    assert!(inside(&["unload", "veno"]).status.success());
}

fn a_thousand_connections_are_counted() {
    const MANY: usize = 1_000;
    let _loaded = Loader::start(&["hybla-veno"]);
    let host = Namespace::new("host").expect("a namespace");
    let connect = || -> std::io::Result<Vec<(TcpStream, TcpStream)>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        setsockopt(&listener, sockopt::TcpCongestion, &OsString::from("hybla_veno"))?;
        let pair = |_| {
            let client = TcpStream::connect(listener.local_addr()?)?;
            Ok((client, listener.accept()?.0))
        };
        (0..MANY).map(pair).collect()
    };
    let mut pairs = host.run(connect).expect("a thread").expect("connections");
    // Accepted connections have the control of their listener, connecting ones have the default.
    assert_eq!(status("hybla-veno").expect("it is loaded")["sockets"], MANY);
    for (client, server) in &mut pairs {
        server.write_all(&[7; 20_000]).expect("room");
        client.read_exact(&mut [0; 20_000]).expect("bytes");
    }
    drop(pairs);
    eventually("connections are left", || status("hybla-veno").is_some_and(|state| state["sockets"] == 0));
}

fn what_is_wrong_is_said_with_what_to_do() {
    for (arguments, code, says) in [
        (vec!["load", "vegas"], 1, "known: hybla-veno"),
        (vec!["load", "veno", "--option", "gamma=1"], 1, "known: beta"),
        (vec!["load", "veno", "--option", "beta=many"], 1, "a whole number"),
        (vec!["unload", "veno"], 1, "tcp list"),
        (vec!["default", "nothing"], 1, "it offers"),
        (vec!["load"], 2, "--help"),
    ] {
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(says), "{arguments:?}: {said}");
    }
    let mut unprivileged = starhop(&["load", "veno"]);
    unprivileged.uid(NOBODY).gid(NOBODY);
    // Where the checkout is closed to others there is nothing to see.
    if let Ok(output) = unprivileged.output() {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("CAP_BPF"), "{said}");
    }
}

/// CPU seconds of this process, which has both ends.
fn cpu() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("usage");
    (usage.user_time() + usage.system_time()).num_microseconds() as f64 * 1e-6
}

/// Two hosts that nothing slows down.
struct Wire(Namespace, Namespace);

impl Wire {
    fn new() -> Self {
        let (near, far) =
            (Namespace::new("near").expect("a namespace"), Namespace::new("far").expect("a namespace"));
        near.veth("down", &far, "up").expect("a pair");
        for (host, device, address) in [(&near, "down", SERVER), (&far, "up", "10.77.0.2")] {
            host.address(device, address.parse().expect("an address"), 24).expect("to set it");
            host.up(device).expect("to set it up");
        }
        Self(near, far)
    }

    /// CPU time of 10⁹ bytes by a control of the kernel, seconds.
    fn gigabyte(&self, control: &str) -> f64 {
        let (sender, port) = serve(&self.0, control, 1_000_000_000);
        let mut stream = fetch(&self.1, port);
        let (before, mut buffer) = (cpu(), vec![0; 256 << 10]);
        while stream.read(&mut buffer).expect("bytes") > 0 {}
        sender.join().expect("a thread").expect("it sends");
        cpu() - before
    }
}

/// The kernel's account of the time that BPF programs take, while this lives.
struct Account(String);

impl Account {
    const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn open() -> Self {
        let before = std::fs::read_to_string(Self::SWITCH).expect("a switch");
        std::fs::write(Self::SWITCH, "1").expect("to switch it on");
        Self(before)
    }

    /// Time that the programs of a loader took, seconds (proc_pid_fdinfo(5)).
    fn of(loader: &Loader) -> f64 {
        let files = std::fs::read_dir(format!("/proc/{}/fdinfo", loader.0.id())).expect("its descriptors");
        let texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        let ns = |text: String| {
            text.lines().find_map(|line| line.strip_prefix("run_time_ns:")?.trim().parse::<u64>().ok())
        };
        texts.filter_map(ns).sum::<u64>() as f64 * 1e-9
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // A switch that stays on costs some ns per call.
        let _ = std::fs::write(Self::SWITCH, &self.0);
    }
}

/// By the kernel's own account, to which other load on the machine adds little.
fn the_programs_of_a_control_take_little_of_a_transfer() {
    let wire = Wire::new();
    let reno = (0..3).map(|_| wire.gigabyte("reno")).fold(f64::INFINITY, f64::min);
    for name in ["hybla-veno", "hybla", "veno", "westwood"] {
        let loader = Loader::start(&[name]);
        let _account = Account::open();
        wire.gigabyte(named(name).kernel_name);
        let own = Account::of(&loader);
        println!(
            "     {name}: {:.2} ms of programs, {:.2} % of reno's {reno:.3} s",
            own * 1e3,
            own / reno * 100.0
        );
        assert!(own > 0.0 && own < 0.02 * reno, "{name}: {own} s of {reno}");
    }
}

/// Payload over veth, with its CPU time: both sides of the kernel run in the context of the two ends.
fn long_a_gbit_costs_what_it_costs_with_reno() {
    const ROUNDS: usize = 9;
    let wire = Wire::new();
    let round = |control: &str| wire.gigabyte(control) / 8.0;
    let mut dear = Vec::new();
    for control in CONTROLS {
        // FAST keeps α segments in queues. Over veth, whose round trip is that queue, α is its window; a path of this
        // rate takes more than its default.
        let is_fast = ["fast", "fast-xcp"].contains(&control.name);
        let option: &[&str] = if is_fast { &["--option", "alpha=1000"] } else { &[] };
        let _loaded = Loader::start(&[&[control.name], option].concat());
        let (mut reno, mut own) = (f64::INFINITY, f64::INFINITY);
        // In turns, and the best of each: other load on the machine only ever adds.
        for _ in 0..ROUNDS {
            reno = reno.min(round("reno"));
            own = own.min(round(control.kernel_name));
        }
        let line =
            format!("{}: {own:.4} CPU s per Gbit, reno {reno:.4}, ratio {:.3}", control.name, own / reno);
        println!("     {line}");
        if own > 1.05 * reno {
            dear.push(line);
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}
