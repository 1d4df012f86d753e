//! A world with gateways: a server, a hub, a site and a client in namespaces, and what the gateways say. Tests add the
//! connections or packets of their kind.

use super::harness::{self, Test};
use super::support::{Running, Site};
use serde_json::Value;
use starhop_net::emu::Hop;
use starhop_net::transparent::can_divert;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::process::{Command, Stdio};
use std::time::Duration as Span;

pub(crate) const LAN: Hop =
    Hop { rate: Rate::from_mbps(200), delay: Duration::from_micros(200), loss: 0.0, queue: 1000 };

/// Each host has a loopback interface of its own.
pub(crate) const METRICS: &str = "127.0.0.1:9464";

/// Hosts by their place in the chain.
pub(crate) const SERVER: usize = 0;
pub(crate) const HUB: usize = 1;
pub(crate) const SITE: usize = 2;
pub(crate) const CLIENT: usize = 3;

/// Runs tests where this machine can divert packets to a gateway.
pub(crate) fn run_tests(tests: &[Test]) {
    harness::run(tests, || {
        let probe = Site::new(&[LAN]);
        let can = probe.chain.hosts[0].run(can_divert).and_then(|can| can);
        can.err().map(|error| error.to_string())
    });
}

pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) hub: Option<Running>,
    pub(crate) local: Option<Running>,
}

impl World {
    /// Starts a gateway and waits until it is ready. Its program is `./CONFIG.bin` if there is such a file.
    pub(crate) fn start(&self, host: usize, config: &str) -> Running {
        let mut command = self.command(config);
        command.stderr(Stdio::inherit());
        Running::start(&self.site.chain.hosts[host], command)
    }

    /// The command that starts a gateway.
    pub(crate) fn command(&self, config: &str) -> Command {
        let own = self.site.path(&format!("{config}.bin"));
        let mut command = self.site.command_of(own.exists().then_some(own), "gateway");
        command.arg("--json");
        let socket = format!("{config}.sock");
        command.args(["--config", config, "--status-socket", &socket, "--metrics", METRICS]);
        command
    }

    pub(crate) fn wait_for_peer(&self, is_up: bool) {
        let local = self.local.as_ref().expect("it runs");
        local.wait("its peer changed", |event| event["event"] == "peer" && event["up"] == is_up);
        // The listener opens with the event.
        std::thread::sleep(Span::from_millis(50));
    }

    /// The status of the gateway on `host`.
    pub(crate) fn status(&self, host: usize, config: &str) -> Value {
        let mut command = self.site.plain_command("status");
        command.args([&format!("./{config}.sock"), "--json"]);
        let output = self.site.chain.hosts[host].run(move || command.output());
        let output = output.expect("a thread").expect("it runs");
        let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{said}"))[0].take()
    }

    /// Output of a shell's line on `host`.
    pub(crate) fn run(&self, host: usize, line: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        let output = self.site.chain.hosts[host].run(move || command.output());
        String::from_utf8_lossy(&output.expect("a thread").expect("a program").stdout).into_owned()
    }
}
