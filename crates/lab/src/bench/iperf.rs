//! iperf3 on the same path, as the yardstick.

use super::{Measured, Part};
use crate::error::LabError;
use crate::process::fetch;
use serde_json::Value;
use starhop_net::emu::Namespace;
use std::process::{Command, Stdio};
use std::time::Duration;

/// TCP and UDP, from the server to the client; nothing where iperf3 is not installed.
pub(super) fn run(
    server: &Namespace,
    client: &Namespace,
    address: &str,
    seconds: u64,
) -> Result<Vec<Measured>, LabError> {
    if Command::new("iperf3").arg("--version").output().is_err() {
        return Ok(Vec::new());
    }
    let duration = seconds.to_string();
    let mut all = Vec::new();
    // As fast as it goes, with the payload of our packets.
    for (tool, more) in [("iperf3 TCP", &[][..]), ("iperf3 UDP", &["-u", "-b", "0", "-l", "1350"])] {
        let mut listen = Command::new("iperf3");
        listen.args(["-s", "-1"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let _listening = server.spawn(listen).map_err(LabError::system("cannot start iperf3"))?;
        // It has no way to say that it listens.
        std::thread::sleep(Duration::from_millis(500));
        let mut ask = Command::new("iperf3");
        ask.args(["-c", address, "-R", "-J", "-t", &duration]).args(more);
        ask.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        all.push(measured(tool, &fetch(tool, client, ask)?));
    }
    Ok(all)
}

fn measured(tool: &str, result: &Value) -> Measured {
    let end = &result["end"];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    // UDP has one sum, and it counts lost packets as received.
    let received = if end["sum_received"].is_null() { &end["sum"] } else { &end["sum_received"] };
    let lost = end["sum"]["lost_percent"].as_f64().unwrap_or(0.0);
    let seconds = number(&received["seconds"]);
    let bits = number(&received["bits_per_second"])
        * if end["sum_received"].is_null() { 1.0 - lost / 100.0 } else { 1.0 };
    let packets = end["sum"]["packets"].as_f64().unwrap_or(0.0);
    let cpu = &end["cpu_utilization_percent"];
    let part = |name: &str, percent: &Value| {
        let cpu_seconds = number(percent) / 100.0 * seconds;
        Part {
            name: name.to_owned(),
            cpu_seconds,
            cpu_seconds_per_gbit: cpu_seconds / (bits * seconds * 1e-9),
            packets_per_second: packets / seconds,
            packets_per_call: 1.0,
        }
    };
    Measured {
        tool: tool.to_owned(),
        gbit_per_second: bits * 1e-9,
        rounds: Vec::new(),
        parts: vec![part("server", &cpu["remote_total"]), part("client", &cpu["host_total"])],
        note: if packets > 0.0 { format!("{lost:.1} % lost") } else { String::new() },
    }
}
