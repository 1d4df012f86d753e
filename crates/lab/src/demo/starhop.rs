//! The file by Starhop's own processes: a server, a relay on every host between, a client.

use super::delays::{Delays, deliveries, series};
use super::{FlowResult, Live, Options, ideal_mbps, read_links};
use crate::error::LabError;
use crate::process::{Sealing, command, fetch, passings, start};
use starhop_net::emu::Chain;
use starhop_proto::security::{HEADER_LEN, TAG_LEN};
use std::path::Path;
use std::time::Instant;

pub(super) fn run(
    options: &Options,
    mut chain: Chain,
    file: &Path,
    live: &Live,
) -> Result<FlowResult, LabError> {
    let directory = file.parent().unwrap_or(Path::new("/"));
    let (sent, arrived) = (directory.join("sent.csv"), directory.join("arrived.csv"));
    let sealing = Sealing::throw_away(options.insecure, directory)?;
    let mut serve = command(&options.program, "serve", &sealing);
    serve.arg(file).args(["--listen", "0.0.0.0:4433", "--trace"]).arg(&sent);
    let server = start("the server", &chain.hosts[0], serve, "hashed")?;
    let mut relays = Vec::new();
    for index in 1..options.hops {
        let upstream = format!("{}:4433", chain.address_from_client(index - 1));
        let mut relay = command(&options.program, "relay", &sealing);
        relay.args(["--listen", "0.0.0.0:4433", "--upstream", &upstream]);
        relays.push(start(&format!("relay {index}"), &chain.hosts[index], relay, "ready")?);
    }
    let mut get = command(&options.program, "get", &sealing);
    let from = format!("{}:4433", chain.address_from_client(options.hops - 1));
    let output = directory.join("received.bin");
    get.args(["demo.bin", "--from", &from, "--output"]).arg(&output).arg("--trace").arg(&arrived);
    live.begin(&chain);
    let begin = Instant::now();
    let result = fetch("the client", &chain.hosts[options.hops], get)?;
    let elapsed = begin.elapsed();
    drop(relays);
    server.end()?;
    let (source_bytes, return_bytes, accuracy) = read_links(&mut chain)?;
    let flow = flow_of(&result);
    let (sent, arrived) = (passings(&sent, &flow)?, passings(&arrived, &flow)?);
    let delivered = deliveries(&sent, &arrived);
    let first = sent.first().map(|&(at, _)| at).unwrap_or_default();
    let seconds = result["seconds"].as_f64().unwrap_or(elapsed.as_secs_f64());
    let seal = if options.insecure { 0.0 } else { (HEADER_LEN + TAG_LEN) as f64 };
    Ok(FlowResult {
        transport: "starhop".to_owned(),
        completed: true,
        verified: result["verified"].as_bool().unwrap_or(false),
        seconds,
        extrapolated_seconds: seconds,
        delivered_bytes: options.size,
        goodput_mbps: options.size as f64 * 8e-6 / seconds,
        // Payload, our header, the seal, UDP and IP.
        ideal_mbps: ideal_mbps(options.hop, 1350.0, 1350.0 + 28.0 + seal + 28.0),
        in_order_owd_ms: Delays::of(delivered.iter().map(|delivery| delivery.delay_ms).collect()),
        source_bytes,
        return_bytes,
        series: series(first, &delivered),
        accuracy,
    })
}

/// The flow's id in hexadecimal digits: the first 128 bits of the hash.
fn flow_of(result: &serde_json::Value) -> String {
    result["blake3"].as_str().unwrap_or_default().chars().take(32).collect()
}
