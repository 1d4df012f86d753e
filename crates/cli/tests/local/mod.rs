//! Nodes on the loopback interface: the built binary, started with its arguments and listened to.

#![allow(dead_code, reason = "every test binary uses a part of it")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says that a test could not be made here, for `make test` to count. The usual test runner keeps back what a test prints by
/// `println!` and passes.
pub(crate) fn skipped(why: &str) {
    std::io::stdout().write_all(format!("\nskipped 1 tests: {why}\n").as_bytes()).expect("an output");
}

/// Longest time that a node may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory for a test, with a key and a directory to serve.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().expect("a directory") };
        std::fs::create_dir(place.path("served")).expect("a directory to serve");
        let (code, output) = place.run(&["key", "new", "site.key"]);
        assert_eq!(code, 0, "{output}");
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a file");
        path
    }

    /// Makes a file of `len` bytes to serve.
    pub(crate) fn offer(&self, name: &str, len: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        self.write(&format!("served/{name}"), &bytes);
        bytes
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.args(arguments).current_dir(self.directory.path()).env("STARHOP_KEY", "site.key");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs a verb to its end. Returns its exit code, and its text on both outputs.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.command(arguments).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    /// Starts a verb that ends by itself.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Child {
        self.command(arguments).spawn().expect("it starts")
    }

    /// Runs a verb until it is interrupted after `span`. Returns its output.
    pub(crate) fn run_for(&self, span: Duration, arguments: &[&str]) -> String {
        let child = self.command(arguments).spawn().expect("it starts");
        std::thread::sleep(span);
        // Not SIGINT: what runs in the background of a shell ignores it.
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("it runs");
        let output = child.wait_with_output().expect("its end");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn listened(mut command: Command) -> Node {
        let mut child = command.spawn().expect("it starts");
        let (said, lines) = channel();
        listen(child.stdout.take().expect("its output"), said.clone());
        listen(child.stderr.take().expect("its complaints"), said);
        Node { child, lines, heard: Vec::new(), address: String::new() }
    }

    /// Starts a long-lived verb with `--json` and waits until it says `event`.
    pub(crate) fn start(&self, event: &str, arguments: &[&str]) -> Node {
        let mut command = self.command(arguments);
        command.arg("--json");
        let mut node = Self::listened(command);
        let ready = node.expect(|line| line["event"] == event || line["event"] == "ready");
        node.address = ready["listen"].as_str().unwrap_or_default().to_owned();
        if ready["event"] != event {
            node.expect(|line| line["event"] == event);
        }
        node
    }

    /// As [`Place::start`] with its own mounts, which `script` makes before it starts its arguments; says nothing about being
    /// ready. `None` where that is not permitted.
    pub(crate) fn start_in_a_namespace(&self, script: &str, arguments: &[&str]) -> Option<Node> {
        let unshare = |more: &[&str]| {
            let mut command = Command::new("unshare");
            command
                .args(if nix::unistd::geteuid().is_root() { &["-m"][..] } else { &["-rm"][..] })
                .args(more);
            command.current_dir(self.directory.path()).env("STARHOP_KEY", "site.key");
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        if !unshare(&["true"]).status().is_ok_and(|status| status.success()) {
            return None;
        }
        let program = ["sh", "-c", script, env!("CARGO_BIN_EXE_starhop")];
        Some(Self::listened(unshare(&[&program[..], arguments, &["--json"]].concat())))
    }

    /// Starts a server of the directory `served` and waits until its files are available.
    pub(crate) fn serve(&self, more: &[&str]) -> Node {
        self.start("hashed", &[&["serve", "served", "--listen", "127.0.0.1:0"], more].concat())
    }

    /// Starts a relay before `upstream`.
    pub(crate) fn relay(&self, upstream: &str, more: &[&str]) -> Node {
        let arguments = ["relay", "--listen", "127.0.0.1:0", "--upstream", upstream];
        self.start("ready", &[&arguments, more].concat())
    }

    /// Downloads a file and compares it with the served one.
    pub(crate) fn get(&self, name: &str, from: &str) {
        let output = self.path("received");
        let _ = std::fs::remove_file(&output);
        let (code, said) = self.run(&["get", name, "--from", from, "--output", "received", "--json"]);
        assert_eq!(code, 0, "{said}");
        assert!(read(&output) == read(&self.path("served").join(name)), "{name} differs");
    }
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn listen(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        BufReader::new(from).lines().map_while(Result::ok).for_each(|line| drop(to.send(line)));
    });
}

/// A process at work; it is killed when it goes out of scope.
pub(crate) struct Node {
    child: Child,
    lines: Receiver<String>,
    heard: Vec<String>,
    /// The address that it listens on.
    pub(crate) address: String,
}

impl Node {
    /// The next line that is JSON and fits.
    pub(crate) fn expect(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("it never came; heard:\n{}", self.heard.join("\n")));
            let value: Option<Value> = serde_json::from_str(&line).ok();
            self.heard.push(line);
            if let Some(value) = value.filter(|value| fits(value)) {
                return value;
            }
        }
    }

    /// The event of this name, which the node has printed already.
    pub(crate) fn said(&mut self, event: &str) -> Value {
        let told = self.heard().iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        told.into_iter()
            .find(|line| line["event"] == event)
            .unwrap_or_else(|| panic!("it never said {event}"))
    }

    /// Every line until now.
    pub(crate) fn heard(&mut self) -> &[String] {
        self.heard.extend(self.lines.try_iter());
        &self.heard
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Asks it to end; its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.child.wait().expect("its end").code()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
