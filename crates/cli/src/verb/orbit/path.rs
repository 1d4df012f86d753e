//! `starhop orbit path`: hops, delay and changes of the way between two stations.

use super::sky::{SkyArgs, SpanArgs, schedule, show};
use anyhow::{Result, ensure};
use serde_json::json;
use starhop_orbit::network::Network;
use starhop_orbit::route::{Path, Router};
use starhop_orbit::schedule::Schedule;
use std::fmt::Write;

/// The way between two stations: hops, delay, changes
#[derive(clap::Args)]
#[command(
    after_help = "Hops are the links of the satellite path, both ground links included. Means are over all steps.

Examples:
  starhop orbit path Beijing \"New York\" --shell starlink-550 --for 600s
  starhop orbit path Paris Lagos --shell oneweb --ground-relays --json
  starhop orbit path Lima Tokyo --policy highest --reselect 15s --outage 100ms"
)]
pub(super) struct Args {
    /// First station: a city, or a name from --stations
    from: String,
    /// Second station
    to: String,
    #[command(flatten)]
    sky: SkyArgs,
    #[command(flatten)]
    span: SpanArgs,
    /// Print each route with all its satellites
    #[arg(long)]
    routes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<()> {
    ensure!(
        !args.from.eq_ignore_ascii_case(&args.to),
        "both stations are `{}`; give two different ones",
        args.to
    );
    let names = [args.from.as_str(), args.to.as_str()];
    let (network, schedule) = schedule(&args.sky, &args.span, &names)?;
    let means = Means::measure(&network, &schedule)?;
    let changes = schedule.routes(0).count().saturating_sub(1);
    if args.json {
        show(&format!("{}\n", as_json(args, &network, &schedule, &means, changes)))
    } else {
        show(&as_text(args, &network, &schedule, &means, changes)?)
    }
}

/// Statistics over the steps of a plan.
#[derive(Default)]
struct Means {
    steps: u64,
    connected: u64,
    hops: f64,
    delay_ms: f64,
    least_ms: f64,
    most_ms: f64,
}

impl Means {
    fn measure(network: &Network, schedule: &Schedule) -> Result<Self> {
        let plan = &schedule.plan;
        let (mut observer, mut router) =
            (network.observe(), Router::new(network, &[plan.pairs[0].1], plan.relaying));
        let mut means = Self { least_ms: f64::INFINITY, ..Self::default() };
        let count = ((plan.until_s - plan.from_s) / plan.step_s).ceil() as u64;
        for step in 0..count {
            let snapshot = observer.at(plan.from_s + step as f64 * plan.step_s)?;
            router.advance(snapshot);
            means.add(router.path(snapshot, plan.pairs[0].0, plan.pairs[0].1).as_ref());
        }
        means.hops /= means.connected.max(1) as f64;
        means.delay_ms /= means.connected.max(1) as f64;
        Ok(means)
    }

    fn add(&mut self, path: Option<&Path>) {
        self.steps += 1;
        if let Some(path) = path {
            let ms = path.delay_s() * 1e3;
            self.connected += 1;
            self.hops += path.hops() as f64;
            self.delay_ms += ms;
            self.least_ms = self.least_ms.min(ms);
            self.most_ms = self.most_ms.max(ms);
        }
    }

    fn availability(&self) -> f64 {
        self.connected as f64 / self.steps.max(1) as f64
    }
}

fn names<'a>(network: &'a Network, nodes: &[u32]) -> Vec<&'a str> {
    nodes.iter().map(|&n| network.node_name(n)).collect()
}

fn as_json(
    args: &Args,
    network: &Network,
    schedule: &Schedule,
    means: &Means,
    changes: usize,
) -> serde_json::Value {
    let number = |x: f64| Some(x).filter(|_| means.connected > 0);
    let routes = schedule.routes(0).map(|(at, nodes)| {
        json!({"at_s": at.as_secs_f64(), "hops": nodes.len().saturating_sub(1), "path": names(network, nodes)})
    });
    json!({
        "from": args.from, "to": args.to, "constellation": network.sky.name, "satellites": network.satellite_count(),
        "epoch": network.sky.epoch.to_string(), "from_s": schedule.plan.from_s, "until_s": schedule.plan.until_s,
        "availability": means.availability(), "mean_hops": number(means.hops),
        "mean_delay_ms": number(means.delay_ms), "mean_rtt_ms": number(2.0 * means.delay_ms),
        "min_delay_ms": number(means.least_ms), "max_delay_ms": number(means.most_ms),
        "changes": changes, "routes": routes.collect::<Vec<_>>()
    })
}

fn as_text(
    args: &Args,
    network: &Network,
    schedule: &Schedule,
    means: &Means,
    changes: usize,
) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "{} to {} over {} ({} satellites), {} s from {}",
        args.from,
        args.to,
        network.sky.name,
        network.satellite_count(),
        args.span.span,
        network.sky.epoch.after(args.span.start)
    )?;
    if means.connected == 0 {
        writeln!(
            text,
            "no way at any step; try a lower --min-elevation, --ground-relays, or another constellation"
        )?;
        return Ok(text);
    }
    writeln!(text, "hops       mean {:.3}", means.hops)?;
    writeln!(
        text,
        "delay      mean {:.3} ms one way ({:.3} ms there and back), {:.3} to {:.3} ms",
        means.delay_ms,
        2.0 * means.delay_ms,
        means.least_ms,
        means.most_ms
    )?;
    writeln!(text, "connected  {:.2} % of the steps", 100.0 * means.availability())?;
    writeln!(text, "changes    {changes}")?;
    for (at, nodes) in schedule.routes(0) {
        let what = match nodes {
            [] => "no way".to_owned(),
            _ if args.routes => format!("{:>2} hops  {}", nodes.len() - 1, names(network, nodes).join(" > ")),
            _ => {
                let ends = [nodes[1], nodes[nodes.len() - 2]].map(|n| network.node_name(n));
                format!("{:>2} hops  via {} … {}", nodes.len() - 1, ends[0], ends[1])
            }
        };
        writeln!(text, "{:>11.2} s  {what}", at.as_secs_f64())?;
    }
    Ok(text)
}
