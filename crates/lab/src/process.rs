//! The binary's own processes in namespaces, and files for them.

use crate::error::LabError;
use serde_json::Value;
use starhop_net::clock;
use starhop_net::emu::{Namespace, Process};
use starhop_net::security::{KeyError, KeyFile, Kind};
use starhop_net::trace::Trace;
use starhop_proto::name::ByteRange;
use starhop_proto::time::Instant;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longest time until a process reports that it is ready, hashing included.
const READY: Duration = Duration::from_secs(60);
/// Time that a process has to end when it is asked to.
const STOP: Duration = Duration::from_secs(3);

/// The protection of the packets between the processes of one run.
#[derive(Clone, Debug)]
pub(crate) enum Sealing {
    /// Packets are plain.
    Insecure,
    /// They are sealed with this key file.
    Key(PathBuf),
}

impl Sealing {
    /// Packets sealed with a key that is made for this run, in `directory`; plain if so wished.
    ///
    /// # Errors
    /// The key cannot be made or written.
    pub(crate) fn throw_away(insecure: bool, directory: &Path) -> Result<Self, LabError> {
        if insecure {
            return Ok(Self::Insecure);
        }
        let path = directory.join("run.key");
        let made = KeyFile::new(Kind::Domain, "run", None, clock::unix_nanos() / 1_000_000_000)
            .and_then(|key| key.replace(&path));
        let failed =
            |error: KeyError| LabError::Process { what: "the key".into(), problem: error.to_string() };
        made.map(|()| Self::Key(path)).map_err(failed)
    }
}

/// A verb of the binary that speaks Starhop, whose events are JSON lines.
pub(crate) fn command(program: &Path, verb: &str, sealing: &Sealing) -> Command {
    let mut command = bare_command(program, verb);
    match sealing {
        Sealing::Insecure => command.arg("--insecure"),
        Sealing::Key(path) => command.arg("--key").arg(path),
    };
    command
}

/// A verb of the binary that needs no key, whose events are JSON lines.
pub(crate) fn bare_command(program: &Path, verb: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(verb).env_remove("STARHOP_KEY").env_remove("STARHOP_ROSTER");
    command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that prints events until it is asked to end.
#[derive(Debug)]
pub(crate) struct Daemon {
    what: String,
    process: Process,
    events: Receiver<Value>,
    /// The beginning of its log, once that has ended.
    complaints: Option<std::thread::JoinHandle<Vec<u8>>>,
    ready: Value,
}

/// Starts a process and waits for its event `event`.
pub(crate) fn start(what: &str, host: &Namespace, command: Command, event: &str) -> Result<Daemon, LabError> {
    let failed = |problem: String| LabError::Process { what: what.to_owned(), problem };
    let mut process = host.spawn_ahead(command).map_err(|error| failed(error.to_string()))?;
    let stdout = process.child().and_then(|child| child.stdout.take());
    let (told, events) = mpsc::channel();
    // Reads to the end: a pipe without a reader would fill up and stop the process.
    std::thread::spawn(move || {
        let lines = stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok);
        lines.filter_map(|line| serde_json::from_str(&line).ok()).for_each(|event| drop(told.send(event)));
    });
    let complaints = process.child().and_then(|child| child.stderr.take()).map(listen);
    let mut daemon = Daemon { what: what.to_owned(), process, events, complaints, ready: Value::Null };
    daemon.ready = daemon.await_event(event)?;
    Ok(daemon)
}

/// The most that is kept of a process's log.
const LOG_BYTES: u64 = 1 << 16;

/// Reads a log to its end, and keeps its beginning: a node that logs a line for each transfer stops when nobody reads.
fn listen(mut log: ChildStderr) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut beginning = Vec::new();
        let read = log.by_ref().take(LOG_BYTES).read_to_end(&mut beginning);
        let _ = read.and_then(|_| io::copy(&mut log, &mut io::sink()));
        beginning
    })
}

impl Daemon {
    fn wait_for(&self, name: &str) -> Option<Value> {
        loop {
            let event = self.events.recv_timeout(READY).ok()?;
            if event["event"] == name {
                return Some(event);
            }
        }
    }

    /// Waits for the event `event`.
    ///
    /// # Errors
    /// It ended, or did not tell the event in time; with the beginning of its log.
    pub(crate) fn await_event(&mut self, event: &str) -> Result<Value, LabError> {
        if let Some(event) = self.wait_for(event) {
            return Ok(event);
        }
        let problem = match self.process.try_wait().ok().flatten() {
            Some(status) => format!("it ended, with {status}, before it told `{event}`"),
            None => format!("it did not tell `{event}` within {READY:?}"),
        };
        self.stop();
        let said = self.complaints.take().and_then(|listening| listening.join().ok()).unwrap_or_default();
        let problem = format!("{problem}. {}", String::from_utf8_lossy(&said).trim());
        Err(LabError::Process { what: self.what.clone(), problem })
    }

    /// Ends it, by force if it takes longer than [`STOP`]. Its log ends with it.
    fn stop(&mut self) {
        let _ = self.process.signal(nix::sys::signal::Signal::SIGTERM);
        let until = std::time::Instant::now() + STOP;
        while std::time::Instant::now() < until && !matches!(self.process.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.signal(nix::sys::signal::Signal::SIGKILL);
    }

    /// CPU time that it has used until now.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        // Behind the name in brackets, user and system time are the 12th and 13th fields, in hundredths of seconds.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
    }

    /// CPU time that it had used when it was ready.
    pub(crate) fn cpu_when_ready(&self) -> f64 {
        self.ready["cpu_seconds"].as_f64().unwrap_or(0.0)
    }

    /// Sends a signal; to a process that is gone, none.
    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let _ = self.process.signal(signal);
    }

    /// Asks it to tell its counters and to end.
    pub(crate) fn end(self) -> Result<Value, LabError> {
        let failed = |problem: String| LabError::Process { what: self.what.clone(), problem };
        self.process.signal(nix::sys::signal::Signal::SIGTERM).map_err(|error| failed(error.to_string()))?;
        let end = self.wait_for("end").ok_or_else(|| failed("it ended without a word".to_owned()))?;
        self.process.output().map_err(LabError::system("a process did not end"))?;
        Ok(end)
    }
}

/// Runs a process to its end and reads the one document that it prints.
pub(crate) fn fetch(what: &str, host: &Namespace, command: Command) -> Result<Value, LabError> {
    let failed = |problem: String| LabError::Process { what: what.to_owned(), problem };
    let output = host.spawn(command).and_then(Process::output).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = if output.stderr.is_empty() { output.stdout } else { output.stderr };
        return Err(failed(String::from_utf8_lossy(&said).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// Bytes that do not compress and that a seed makes again: BLAKE3 of the seed, extended.
pub(crate) fn make_file(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    let mut stream = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut file = io::BufWriter::new(std::fs::File::create(path)?);
    let mut chunk = vec![0; 1 << 16];
    let mut left = size;
    while left > 0 {
        let part = left.min(chunk.len() as u64) as usize;
        stream.fill(&mut chunk[..part]);
        io::Write::write_all(&mut file, &chunk[..part])?;
        left -= part as u64;
    }
    io::Write::flush(&mut file)
}

/// The times at which bytes of a flow passed, as a process noted them; the flow in hexadecimal digits.
pub(crate) fn passings(path: &Path, flow: &str) -> Result<Vec<(Instant, ByteRange)>, LabError> {
    let trace = Trace::read(path).map_err(LabError::system("cannot read a trace"))?;
    Ok(trace.into_iter().filter(|(_, of, _)| of == flow).map(|(at, _, range)| (at, range)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_logs_much_is_not_stopped_and_the_beginning_of_its_log_is_kept() {
        let mut loud = Command::new("sh");
        loud.args(["-c", "echo first >&2; head -c 1000000 /dev/zero >&2"]).stderr(Stdio::piped());
        let mut child = loud.spawn().expect("a shell");
        let listening = listen(child.stderr.take().expect("its log"));
        let mut waited = 0;
        while child.try_wait().expect("its state").is_none() {
            assert!(waited < 1000, "it waits for a reader");
            waited += 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        let said = listening.join().expect("no panic");
        assert!(said.starts_with(b"first") && said.len() as u64 == LOG_BYTES, "{}", said.len());
    }
}
