//! The file by Starhop's own processes: a server, a relay on every host between, a client.

use super::delays::{Delays, Passings, deliveries, series};
use super::{DemoError, FlowResult, Live, Options, ideal_mbps, read_links};
use starhop_net::emu::{Chain, Namespace, Process};
use starhop_net::trace::Trace;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a process may take to say that it is ready, hashing included.
const READY: Duration = Duration::from_secs(30);

pub(super) fn run(
    options: &Options,
    mut chain: Chain,
    file: &Path,
    live: &Live,
) -> Result<FlowResult, DemoError> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let (sent, arrived) = (directory.join("sent.csv"), directory.join("arrived.csv"));
    let mut serve = command(options, "serve");
    serve.arg(file).args(["--listen", "0.0.0.0:4433", "--trace"]).arg(&sent);
    let server = start("the server", &chain.hosts[0], serve, "hashed")?;
    let mut relays = Vec::new();
    for index in 1..options.hops {
        let upstream = format!("{}:4433", chain.address_from_client(index - 1));
        let mut relay = command(options, "relay");
        relay.args(["--listen", "0.0.0.0:4433", "--upstream", &upstream]);
        relays.push(start(&format!("relay {index}"), &chain.hosts[index], relay, "ready")?);
    }
    let mut get = command(options, "get");
    let from = format!("{}:4433", chain.address_from_client(options.hops - 1));
    let output = directory.join("received.bin");
    get.args(["demo.bin", "--from", &from, "--output"]).arg(&output).arg("--trace").arg(&arrived);
    live.begin(&chain);
    let begin = Instant::now();
    let result = fetch(&chain.hosts[options.hops], get)?;
    let elapsed = begin.elapsed();
    drop(relays);
    server.end().map_err(DemoError::system("the server did not end"))?;
    let (source_bytes, return_bytes, accuracy) = read_links(&mut chain)?;
    let flow = flow_of(&result);
    let (sent, arrived) = (passings(&sent, &flow)?, passings(&arrived, &flow)?);
    let delivered = deliveries(&sent, &arrived);
    let first = sent.first().map(|&(at, _)| at).unwrap_or_default();
    let seconds = result["seconds"].as_f64().unwrap_or(elapsed.as_secs_f64());
    Ok(FlowResult {
        transport: "starhop".to_owned(),
        completed: true,
        verified: result["verified"].as_bool().unwrap_or(false),
        seconds,
        extrapolated_seconds: seconds,
        delivered_bytes: options.size,
        goodput_mbps: options.size as f64 * 8e-6 / seconds,
        // Payload, our header, UDP and IP.
        ideal_mbps: ideal_mbps(options.hop, 1350.0, 1350.0 + 28.0 + 28.0),
        in_order_owd_ms: Delays::of(delivered.iter().map(|delivery| delivery.delay_ms).collect()),
        source_bytes,
        return_bytes,
        series: series(first, &delivered),
        accuracy,
    })
}

fn command(options: &Options, verb: &str) -> Command {
    let mut command = Command::new(&options.program);
    command.arg(verb).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts a process and waits until it has said `event`.
fn start(what: &str, host: &Namespace, command: Command, event: &str) -> Result<Process, DemoError> {
    let failed = |problem: String| DemoError::Process { what: what.to_owned(), problem };
    let mut process = host.spawn(command).map_err(|error| failed(error.to_string()))?;
    let stdout = process.child().and_then(|child| child.stdout.take());
    let (said, hears) = mpsc::channel();
    let wanted = format!("\"event\":\"{event}\"");
    // Reads on after the event: a pipe that nobody empties would stop the process one day.
    std::thread::spawn(move || {
        for line in stdout.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            if line.contains(&wanted) {
                let _ = said.send(());
            }
        }
    });
    if hears.recv_timeout(READY).is_ok() {
        return Ok(process);
    }
    let output = process.end().map_err(|error| failed(error.to_string()))?;
    Err(failed(format!("not ready in time. {}", String::from_utf8_lossy(&output.stderr).trim())))
}

fn fetch(client: &Namespace, command: Command) -> Result<serde_json::Value, DemoError> {
    let failed = |problem: String| DemoError::Process { what: "the client".to_owned(), problem };
    let output =
        client.spawn(command).and_then(Process::output).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
}

/// The flow's id in hexadecimal digits: the first 128 bits of the hash.
fn flow_of(result: &serde_json::Value) -> String {
    result["blake3"].as_str().unwrap_or_default().chars().take(32).collect()
}

fn passings(path: &Path, flow: &str) -> Result<Passings, DemoError> {
    let trace = Trace::read(path).map_err(DemoError::system("cannot read a trace"))?;
    Ok(trace.into_iter().filter(|(_, of, _)| of == flow).map(|(at, _, range)| (at, range)).collect())
}
