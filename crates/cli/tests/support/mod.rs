//! A site: a chain of hosts, a directory to serve, a place to download to, and the binary.

#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod attacker;

use nix::sys::signal::Signal;
use serde_json::Value;
use starhop_net::content::{Manifest, manifest_flow};
use starhop_net::emu::{Chain, Hop, Namespace, Process, chain};
use starhop_net::outboard::{TreeHasher, outboard_flow};
use starhop_net::security::{HopSuite, KeyFile, Kind, Sources};
use starhop_net::{Driver, Endpoint, clock, daemon};
use starhop_proto::config::Config;
use starhop_proto::name::{ByteRange, FlowId, RangeSet};
use starhop_proto::producer::{Lookup, Producer, Source};
use starhop_proto::rng::Rng;
use starhop_proto::time::Instant;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant as Instant0};
use tempfile::TempDir;

/// Bytes that differ from seed to seed.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// The key that every process of a site is given.
const KEY: &str = "site.key";

/// A running program that reports events as JSON.
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) ready: Value,
    pub(crate) events: Receiver<Value>,
}

impl Running {
    /// Time for what a program says sooner or later.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Starts `command` on `host` and waits until it is ready.
    pub(crate) fn start(host: &Namespace, command: Command) -> Self {
        let mut process = host.spawn(command).expect("a process");
        let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
        let (told, events) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.filter_map(|line| serde_json::from_str(&line).ok()).for_each(|event| _ = told.send(event));
        });
        let mut running = Self { process, ready: Value::Null, events };
        running.ready = running.event("ready");
        running
    }

    /// Waits for an event that `is_it`.
    pub(crate) fn wait(&self, what: &str, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        let limit = Instant0::now() + Self::PATIENCE;
        while let Some(left) = limit.checked_duration_since(Instant0::now()) {
            match self.events.recv_timeout(left) {
                Ok(event) if is_it(&event) => return event,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        panic!("it never said that {what}");
    }

    pub(crate) fn event(&self, name: &str) -> Value {
        self.wait(&format!("`{name}`"), |event| event["event"] == name)
    }

    /// Ends it. Returns its last event, which is `name`.
    pub(crate) fn end(self, name: &str) -> Value {
        self.process.signal(Signal::SIGTERM).expect("it runs");
        self.event(name)
    }
}

pub(crate) struct Site {
    pub(crate) chain: Chain,
    /// Levels of the log of its processes, in place of the default. Nobody reads their standard error while they run: a
    /// pipe full of lines stops them.
    pub(crate) levels: Option<&'static str>,
    directory: TempDir,
}

impl Site {
    pub(crate) fn new(hops: &[Hop]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("served")).expect("a directory to serve");
        let key = KeyFile::new(Kind::Domain, "site", None, 1_790_000_000).expect("a key");
        key.create(&directory.path().join(KEY)).expect("a key file");
        Self { chain: chain(hops, 1).expect("a chain"), levels: None, directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
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

    /// Address of the server.
    pub(crate) fn server(&self) -> String {
        format!("{}:4433", self.chain.address_from_client(0))
    }

    /// The node on a host, as a client reaches it.
    pub(crate) fn chain_address(&self, host: usize) -> String {
        format!("{}:4433", self.chain.address_from_client(host))
    }

    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = self.plain_command(verb);
        command.arg("--json");
        command
    }

    /// As [`Site::command`], for people.
    pub(crate) fn plain_command(&self, verb: &str) -> Command {
        self.command_of(None, verb)
    }

    /// As [`Site::plain_command`], of another program than the one that is tested.
    pub(crate) fn command_of(&self, program: Option<PathBuf>, verb: &str) -> Command {
        let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_starhop").into()));
        command.arg(verb).current_dir(self.directory.path()).env("STARHOP_KEY", KEY);
        command.envs(self.levels.map(|levels| ("STARHOP_LOG", levels)));
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
        self.relay_with(host, &[])
    }

    /// As [`Site::relay`], with more arguments.
    pub(crate) fn relay_with(&self, host: usize, more: &[&str]) -> Process {
        let mut command = self.command("relay");
        let upstream = format!("{}:4433", self.chain.address_from_client(host - 1));
        command.args(["--upstream", &upstream]).args(more);
        self.start(host, command, "ready")
    }

    /// As [`Site::serve`], with plain packets.
    pub(crate) fn serve_insecure(&self) -> Process {
        let mut command = self.command("serve");
        command.env_remove("STARHOP_KEY").args(["--insecure", "served", "--listen", "[::]:4433"]);
        self.start(0, command, "hashed")
    }

    /// Runs a verb without a key on the first host for a while. Returns its output.
    pub(crate) fn run_for(&self, verb: &str, arguments: &[&str], span: Duration) -> Output {
        let mut command = self.command(verb);
        command.env_remove("STARHOP_KEY").args(["--insecure", "--stats-every", "200ms"]).args(arguments);
        let process = self.chain.hosts[0].spawn(command).expect("a process");
        std::thread::sleep(span);
        process.signal(Signal::SIGTERM).expect("it runs");
        process.output().expect("its end")
    }

    /// As [`Site::relay`], with the events that it reports.
    pub(crate) fn relay_with_events(&self, host: usize) -> Running {
        let mut command = self.command("relay");
        let upstream = format!("{}:4433", self.chain.address_from_client(host - 1));
        command.args(["--upstream", &upstream]);
        Running::start(&self.chain.hosts[host], command)
    }

    /// Makes another key file.
    pub(crate) fn make_key(&self, name: &str) {
        let key = KeyFile::new(Kind::Domain, "other", None, 1_790_000_000).expect("a key");
        key.create(&self.path(name)).expect("a key file");
    }

    pub(crate) fn open_to_others(&self, name: &str) {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(self.path(name), mode).expect("to change the mode");
    }

    /// Runs `starhop key`. Returns its output.
    pub(crate) fn key(&self, arguments: &[&str]) -> String {
        self.key_verb("key", arguments)
    }

    pub(crate) fn key_verb(&self, verb: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.arg(verb).args(arguments).current_dir(self.directory.path());
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Puts a node with all public keys of its file on the roster `r`.
    pub(crate) fn enrol(&self, name: &str, address: Option<&str>) {
        let shown: Value = serde_json::from_str(&self.key(&["show", name, "--json"])).expect("a document");
        let publics = shown["public"].as_array().cloned().unwrap_or_default();
        let mut add = vec!["add", "r", "--name", name];
        publics
            .iter()
            .filter_map(|public| public.as_str())
            .for_each(|public| add.extend(["--public", public]));
        address.iter().for_each(|address| add.extend(["--address", address]));
        self.key_verb("roster", &add);
    }

    /// Starts a server or relay that has a key of its own and the roster `r`. Returns its message if it does not
    /// start.
    pub(crate) fn start_with_keys(&self, host: usize, verb: &str, key: &str) -> Result<Process, String> {
        let mut command = self.command(verb);
        command.env_remove("STARHOP_KEY").args(["--key", key, "--roster", "r"]);
        let upstream = format!("{}:4433", self.chain.address_from_client(host.saturating_sub(1)));
        match verb {
            "serve" => command.args(["served", "--listen", "[::]:4433"]),
            _ => command.args(["--upstream", &upstream]),
        };
        let mut process = self.chain.hosts[host].spawn(command).expect("a process");
        let stdout = process.child().and_then(|child| child.stdout.take()).expect("its output");
        let mut lines = BufReader::new(stdout).lines();
        let event = if verb == "serve" { "\"hashed\"" } else { "\"ready\"" };
        if lines.any(|line| line.is_ok_and(|line| line.contains(event))) {
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(process);
        }
        let output = process.output().expect("its end");
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// As [`Site::get`], without the site's key.
    pub(crate) fn get_without_key(&self, name: &str, from: usize, more: &[&str]) -> (i32, Value) {
        self.start_get_without_key(name, from, more).finish()
    }

    /// As [`Site::start_get`], without the site's key.
    pub(crate) fn start_get_without_key(&self, name: &str, from: usize, more: &[&str]) -> Get {
        let from = format!("{}:4433", self.chain.address_from_client(from));
        let mut command = self.command("get");
        command.env_remove("STARHOP_KEY").args([name, "--force", "--from", &from]);
        if !more.contains(&"--output") {
            command.args(["--output", "received"]);
        }
        command.args(more);
        Get { process: self.chain.hosts.last().expect("a host").spawn(command).expect("a process") }
    }

    /// Sends junk of many kinds to the node on a host, from that host, `per_ms` in each millisecond at most.
    pub(crate) fn flood(&self, host: usize, per_ms: u64, at_most: Duration) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let (sent, told) = channel();
        let theirs = stop.clone();
        let body = move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            let (mut rng, start, mut count) = (Rng::new(3), Instant0::now(), 0u64);
            let mut bytes = [0; 1200];
            while !theirs.load(Ordering::Relaxed) && start.elapsed() < at_most {
                bytes[..32].iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
                // Half of the datagrams look sealed.
                bytes[0] = if rng.chance(0.5) { 0x80 | (bytes[0] & 0x3f) } else { bytes[0] };
                let len = 1 + rng.below(1199) as usize;
                count += u64::from(socket.send_to(&bytes[..len], "127.0.0.1:4433").is_ok());
                if count.is_multiple_of(per_ms) {
                    let due = Duration::from_millis(count / per_ms);
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                }
            }
            let _ = sent.send(count);
        };
        self.chain.hosts[host].thread(body).expect("a thread");
        Flood { stop, sent: told }
    }

    /// Starts a relay on a host of which no node is told, and waits until packets are diverted to it.
    pub(crate) fn transparent_relay(&self, host: usize) -> Diverting {
        self.transparent_relay_with(host, self.command("relay"))
    }

    /// The same by a command of its own.
    pub(crate) fn transparent_relay_with(&self, host: usize, mut command: Command) -> Diverting {
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
        // Reads on: a pipe without a reader would fill up and stop the process.
        std::thread::spawn(move || lines.for_each(drop));
        process
    }

    /// Starts a download on the last host, from another host.
    pub(crate) fn start_get(&self, name: &str, from: usize, more: &[&str]) -> Get {
        self.start_get_from(name, &format!("{}:4433", self.chain.address_from_client(from)), more)
    }

    fn start_get_from(&self, name: &str, from: &str, more: &[&str]) -> Get {
        let mut command = self.command("get");
        command.args([name, "--force", "--from", from]);
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

    /// The downloaded file.
    pub(crate) fn received(&self) -> Option<Vec<u8>> {
        std::fs::read(self.path("received")).ok()
    }

    /// The downloaded file, which is removed.
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

/// Whether the process still runs; a dead process that was not waited for does not.
pub(crate) fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The most memory that a process ever had, in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.expect("the kernel says it") * 1024
}

/// A transparent relay at work.
pub(crate) struct Diverting {
    pub(crate) process: Process,
    end: std::thread::JoinHandle<String>,
}

impl Diverting {
    /// Asks it to end. Returns its counters.
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
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal).expect("it runs");
    }

    /// As [`Get::finish`], with all events that it printed as JSON lines, the result last.
    pub(crate) fn finish_with_events(self) -> (i32, Vec<Value>) {
        let output = self.process.output().expect("its end");
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let events = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
        (output.status.code().unwrap_or(-1), events)
    }

    pub(crate) fn finish(self) -> (i32, Value) {
        let output = self.process.output().expect("its end");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let result = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(error));
        (output.status.code().unwrap_or(-1), result)
    }
}

/// Junk on its way.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    sent: Receiver<u64>,
}

impl Flood {
    /// Ends it; how many datagrams there were.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.sent.recv().unwrap_or(0)
    }
}

/// A source whose manifest promises other bytes than it serves.
pub(crate) struct Lying {
    manifest: (FlowId, Vec<u8>),
    served: (FlowId, Vec<u8>),
    outboard: Option<(FlowId, Vec<u8>)>,
    /// The bytes that are served when a range is read a second time.
    truth: Option<(Vec<u8>, RangeSet)>,
}

impl Lying {
    /// Serves on the first host until the test ends.
    pub(crate) fn serve(site: &Site, name: &str, promised: &[u8], served: Vec<u8>) {
        Self::serve_at(site, 0, name, promised, served, false);
    }

    /// Serves on the first host, and lies only the first time.
    pub(crate) fn serve_once(site: &Site, name: &str, promised: &[u8], served: Vec<u8>) {
        Self::new(name, promised, served, true, true).start(site, 0);
    }

    /// Serves on a host. The outboard makes it look like a relay that changes bytes on their way.
    pub(crate) fn serve_at(
        site: &Site,
        host: usize,
        name: &str,
        promised: &[u8],
        served: Vec<u8>,
        with_outboard: bool,
    ) {
        Self::new(name, promised, served, with_outboard, false).start(site, host);
    }

    fn new(name: &str, promised: &[u8], served: Vec<u8>, with_outboard: bool, only_once: bool) -> Self {
        let mut hasher = TreeHasher::default();
        hasher.update(promised);
        let (hash, outboard) = hasher.finish();
        let flow = FlowId::of_content(hash.as_bytes());
        let manifest = Manifest::new(promised.len() as u64, &hash).to_bytes();
        Self {
            manifest: (manifest_flow(name), manifest),
            served: (flow, served),
            outboard: outboard.filter(|_| with_outboard).map(|bytes| (outboard_flow(flow), bytes)),
            truth: only_once.then(|| (promised.to_vec(), RangeSet::new())),
        }
    }

    fn start(self, site: &Site, host: usize) {
        let sources = Sources::Files { key: site.path(KEY), roster: None, cipher: None };
        let body = move || {
            let runtime = daemon::runtime().expect("a runtime");
            runtime.block_on(async {
                let suite = HopSuite::new(&sources).expect("keys");
                let endpoint = Endpoint::bind(([0, 0, 0, 0], 4433).into()).expect("a socket");
                let producer = Producer::new(Config::default(), self, suite, clock::seed());
                let mut driver = Driver::new(producer, endpoint).expect("a driver");
                while driver.turn().await.is_ok() {}
            });
        };
        site.chain.hosts[host].thread(body).expect("a thread");
    }

    fn bytes(&self, flow: FlowId) -> Option<&Vec<u8>> {
        [&self.manifest, &self.served]
            .into_iter()
            .chain(&self.outboard)
            .find(|(id, _)| *id == flow)
            .map(|(_, bytes)| bytes)
    }
}

impl Source for Lying {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        let is_volatile = flow == self.manifest.0;
        self.bytes(flow)
            .map_or(Lookup::Unknown, |bytes| Lookup::Found { length: Some(bytes.len() as u64), is_volatile })
    }

    fn read(&mut self, _now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        if let Some((truth, told)) = self.truth.as_mut().filter(|_| flow == self.served.0) {
            if told.overlaps(range) {
                out.extend_from_slice(&truth[range.start as usize..range.end as usize]);
                return true;
            }
            told.insert(range);
        }
        let part = self.bytes(flow).and_then(|bytes| bytes.get(range.start as usize..range.end as usize));
        out.extend_from_slice(part.unwrap_or_default());
        part.is_some()
    }
}
