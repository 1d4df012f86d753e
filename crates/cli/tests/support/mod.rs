//! A site: a chain of hosts, a directory to serve, a place to download to, and the binary.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use nix::sys::signal::Signal;
use serde_json::Value;
use starhop_net::content::{Manifest, manifest_flow};
use starhop_net::emu::{Chain, Hop, Process, chain};
use starhop_net::{Driver, Endpoint, clock, daemon};
use starhop_proto::config::Config;
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::rng::Rng;
use starhop_proto::time::Instant;
use starhop_proto::wire::Plain;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Bytes that differ from seed to seed.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

pub(crate) struct Site {
    pub(crate) chain: Chain,
    directory: TempDir,
}

impl Site {
    pub(crate) fn new(hops: &[Hop]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("served")).expect("a directory to serve");
        Self { chain: chain(hops, 1).expect("a chain"), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a file to serve.
    pub(crate) fn offer(&self, name: &str, len: usize) -> Vec<u8> {
        let path = self.path("served").join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let bytes = content(len, 7);
        std::fs::write(path, &bytes).expect("a file");
        bytes
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.arg(verb).arg("--json").current_dir(self.directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts the server on the first host and waits until everything is hashed.
    pub(crate) fn serve(&self) -> Process {
        let mut command = self.command("serve");
        command.args(["served", "--listen", "[::]:4433"]);
        self.start(0, command, "hashed")
    }

    /// Starts a relay that asks the host before it.
    pub(crate) fn relay(&self, host: usize) -> Process {
        let mut command = self.command("relay");
        let upstream = format!("{}:4433", self.chain.address_from_client(host - 1));
        command.args(["--upstream", &upstream]);
        self.start(host, command, "ready")
    }

    /// Starts a relay on a host that nobody is told of, and waits until packets are diverted to it.
    pub(crate) fn transparent_relay(&self, host: usize) -> Diverting {
        let mut command = self.command("relay");
        command.arg("--transparent");
        let mut process = self.chain.hosts[host].spawn(command).expect("a process");
        let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
        let mut lines = BufReader::new(stdout).lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line.contains("\"event\":\"ready\"")));
        if !is_ready {
            let output = process.output().expect("its end");
            panic!("it never was ready: {}", String::from_utf8_lossy(&output.stderr));
        }
        let end = std::thread::spawn(move || lines.map_while(Result::ok).last().unwrap_or_default());
        Diverting { process, end }
    }

    fn start(&self, host: usize, command: Command, event: &str) -> Process {
        let mut process = self.chain.hosts[host].spawn(command).expect("a process");
        let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
        let mut lines = BufReader::new(stdout).lines();
        let event = format!("\"event\":\"{event}\"");
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains(&event))), "it never said {event}");
        // Reads on: a pipe that nobody empties would stop the process one day.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }

    /// Starts a download on the last host, from another host.
    pub(crate) fn start_get(&self, name: &str, from: usize, more: &[&str]) -> Get {
        self.start_get_from(name, &format!("{}:4433", self.chain.address_from_client(from)), more)
    }

    fn start_get_from(&self, name: &str, from: &str, more: &[&str]) -> Get {
        let mut command = self.command("get");
        command.args([name, "--from", from]);
        if !more.contains(&"--output") {
            command.args(["--output", "received"]);
        }
        command.args(more);
        let process = self.chain.hosts.last().expect("a host").spawn(command).expect("a process");
        Get { process }
    }

    /// Downloads; the exit code and the result document.
    pub(crate) fn get(&self, name: &str, from: usize, more: &[&str]) -> (i32, Value) {
        self.start_get(name, from, more).finish()
    }

    /// Downloads from an address.
    pub(crate) fn get_from(&self, name: &str, from: &str, more: &[&str]) -> (i32, Value) {
        self.start_get_from(name, from, more).finish()
    }

    /// Downloads from the server until the user loses patience.
    pub(crate) fn get_and_interrupt(&self, name: &str, after: Duration) -> (Option<i32>, String) {
        let get = self.start_get(name, 0, &[]);
        std::thread::sleep(after);
        get.process.signal(Signal::SIGINT).expect("it runs still");
        let output = get.process.output().expect("its end");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs a verb that makes its own namespaces, in this one; the exit code and the document.
    pub(crate) fn run(&self, verb: &str, arguments: &[&str]) -> (i32, Value) {
        Get { process: self.start_command(verb, arguments) }.finish()
    }

    pub(crate) fn start_command(&self, verb: &str, arguments: &[&str]) -> Process {
        let mut command = self.command(verb);
        command.args(arguments);
        self.chain.hosts[0].spawn(command).expect("a process")
    }

    pub(crate) fn has_report(&self, directory: &str) -> bool {
        let directory = self.path(directory);
        directory.join("report.html").exists() && directory.join("result.json").exists()
    }

    /// What was downloaded.
    pub(crate) fn received(&self) -> Option<Vec<u8>> {
        std::fs::read(self.path("received")).ok()
    }

    /// What was downloaded, and takes it away.
    pub(crate) fn take_received(&self) -> Option<Vec<u8>> {
        let received = self.received();
        let _ = std::fs::remove_file(self.path("received"));
        received
    }

    pub(crate) fn has_partial(&self) -> bool {
        self.path("received.starhop-part").exists() || self.path("received.starhop-state").exists()
    }

    /// Turns one byte of the partial file over.
    pub(crate) fn damage_partial(&self) {
        let path = self.path("received.starhop-part");
        let mut bytes = std::fs::read(&path).expect("a partial file");
        bytes[1000] ^= 1;
        std::fs::File::create(&path).and_then(|mut file| file.write_all(&bytes)).expect("to write");
    }
}

/// The processes that `parent` started.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| stat(pid).and_then(|(_, of)| of.parse().ok()) == Some(parent)).collect()
}

/// State and parent of a process.
fn stat(pid: u32) -> Option<(String, String)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything, parentheses included.
    let mut fields = text.rsplit(") ").next()?.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
}

/// Whether it runs still; a dead one that nobody has waited for does not.
pub(crate) fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// A transparent relay at work.
pub(crate) struct Diverting {
    pub(crate) process: Process,
    end: std::thread::JoinHandle<String>,
}

impl Diverting {
    /// Asks it to end; what it counted.
    pub(crate) fn end(self) -> Value {
        self.process.end().expect("its end");
        serde_json::from_str(&self.end.join().expect("its last words")).expect("a document")
    }
}

/// A download at work.
pub(crate) struct Get {
    process: Process,
}

impl Get {
    pub(crate) fn finish(self) -> (i32, Value) {
        let output = self.process.output().expect("its end");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(error));
        (output.status.code().unwrap_or(-1), result)
    }
}

/// A source whose manifest promises other bytes than it serves.
pub(crate) struct Lying {
    manifest: (FlowId, Vec<u8>),
    served: (FlowId, Vec<u8>),
}

impl Lying {
    /// Serves on the first host until the test ends.
    pub(crate) fn serve(site: &Site, name: &str, promised: &[u8], served: Vec<u8>) {
        let hash = blake3::hash(promised);
        let manifest = Manifest::new(promised.len() as u64, &hash).to_bytes();
        let source = Self {
            manifest: (manifest_flow(name), manifest),
            served: (FlowId::of_content(hash.as_bytes()), served),
        };
        let body = move || {
            let runtime = daemon::runtime().expect("a runtime");
            runtime.block_on(async {
                let endpoint = Endpoint::bind(([0, 0, 0, 0], 4433).into()).expect("a socket");
                let producer = Producer::new(Config::default(), source, Plain, clock::seed());
                let mut driver = Driver::new(producer, endpoint).expect("a driver");
                while driver.turn().await.is_ok() {}
            });
        };
        site.chain.hosts[0].thread(body).expect("a thread");
    }

    fn bytes(&self, flow: FlowId) -> Option<&Vec<u8>> {
        [&self.manifest, &self.served].into_iter().find(|(id, _)| *id == flow).map(|(_, bytes)| bytes)
    }
}

impl Source for Lying {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        let is_volatile = flow == self.manifest.0;
        self.bytes(flow)
            .map_or(Lookup::Unknown, |bytes| Lookup::Found { length: Some(bytes.len() as u64), is_volatile })
    }

    fn read(&mut self, _now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let part = self.bytes(flow).and_then(|bytes| bytes.get(range.start as usize..range.end as usize));
        out.extend_from_slice(part.unwrap_or_default());
        part.is_some()
    }
}
