//! The shared parts of tests of the real kernel's TCP: loaders, statuses, and transfers between namespaces.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use super::harness;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use starhop_kernel::{CONTROLS, Control, Lifetime, Options, load, offered};
use starhop_net::emu::{Chain, Namespace};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration as Span, Instant};

/// The server of a chain.
pub(crate) const SERVER: &str = "10.77.0.1";

/// Runs tests, one checkout after the other, where the machine can.
pub(crate) fn run_tests(tests: &[harness::Test]) {
    // The kernel has one list of controls.
    let lock = File::create(std::env::temp_dir().join("starhop-tcp-test.lock")).expect("a lock file");
    let _turn = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error).expect("a turn");
    harness::run_in_turn(tests, || {
        let taken = offered().expect("/proc/sys").into_iter().find(|name| ours(name));
        if let Some(name) = taken {
            return Some(format!("{name} is loaded on this machine already"));
        }
        load(&CONTROLS[0], &Options::default(), Lifetime::Process).err().map(|error| error.to_string())
    });
}

fn ours(name: &str) -> bool {
    CONTROLS.iter().any(|control| control.kernel_name == name)
}

pub(crate) fn named(name: &str) -> &'static Control {
    Control::named(name).expect("a control")
}

pub(crate) fn is_offered(control: &str) -> bool {
    offered().expect("/proc/sys").iter().any(|name| name == named(control).kernel_name)
}

pub(crate) fn starhop(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
    command.arg("tcp").args(arguments);
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    starhop(arguments).output().expect("it runs")
}

#[track_caller]
pub(crate) fn done(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The entry of a control in `starhop tcp status`.
pub(crate) fn status(control: &str) -> Option<Value> {
    let document: Value = serde_json::from_str(&done(&["status", "--json"])).expect("JSON");
    document["controls"].as_array().expect("a list").iter().find(|found| found["name"] == control).cloned()
}

/// A `starhop tcp load` that is ready, killed at the end.
pub(crate) struct Loader(pub(crate) Child);

impl Loader {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = starhop(&[&["load"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        // It says a line about each control when that is loaded.
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        for name in arguments.iter().filter(|argument| Control::named(argument).is_ok()) {
            let line = lines.next().expect("a line").expect("text");
            assert!(line.starts_with("loaded"), "{name}: {line}");
        }
        Self(child)
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Undoes `load --persist`, in a test that fails, too.
pub(crate) struct Pinned(pub(crate) &'static str);

impl Drop for Pinned {
    fn drop(&mut self) {
        run(&["unload", self.0]);
    }
}

/// Sends bytes from the server to the client that connects, by a congestion control. Returns the thread and the
/// port.
pub(crate) fn serve(host: &Namespace, control: &str, bytes: usize) -> (JoinHandle<std::io::Result<()>>, u16) {
    let listener = host.run(|| TcpListener::bind("0.0.0.0:0")).expect("a thread").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let name = OsString::from(control);
    let send = move || {
        let (mut stream, _) = listener.accept()?;
        setsockopt(&stream, sockopt::TcpCongestion, &name)?;
        let block = vec![7; 64 << 10];
        let mut left = bytes;
        while left > 0 {
            left -= stream.write(&block[..left.min(block.len())])?;
        }
        Ok(())
    };
    (std::thread::spawn(send), port)
}

pub(crate) fn fetch(host: &Namespace, port: u16) -> TcpStream {
    let connect = move || TcpStream::connect((SERVER, port));
    let stream = host.run(connect).expect("a thread").expect("a connection");
    stream.set_read_timeout(Some(Span::from_secs(20))).expect("a timeout");
    stream
}

/// Moves bytes from the first host to the last.
pub(crate) fn transfer(chain: &Chain, control: &str, bytes: usize) {
    let (sender, port) = serve(&chain.hosts[0], control, bytes);
    let mut stream = fetch(chain.hosts.last().expect("a client"), port);
    let received = std::io::copy(&mut stream, &mut std::io::sink()).expect("bytes");
    sender.join().expect("a thread").expect("it sends");
    assert_eq!(received, bytes as u64);
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Span::from_secs(10), "{what}");
        std::thread::sleep(Span::from_millis(20));
    }
}
