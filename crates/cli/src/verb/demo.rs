//! `starhop demo`: shows the main job on emulated lossy hops, beside the kernel's TCPs.

mod gateway;

use super::say;
use crate::quantity;
use anyhow::Context;
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};
use starhop_lab::demo::{Demo, FlowResult, Options, Summary};
use starhop_net::emu::{self, Hop, Privilege};
use starhop_proto::units::Rate;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Fetch a real file over emulated lossy hops, beside the kernel's own TCPs.
///
/// Six processes in six network namespaces: a server, four relays, a client. Needs root, or unprivileged user
/// namespaces; touches nothing of this host's network and leaves nothing behind but the results.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Example:\n  starhop demo\n  starhop demo gateway\n  starhop demo --size 5MB --hops 3 --delay 50ms --loss 2%\n\nExit codes: 0; 1 it could not be shown; 2 the command line is wrong."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Size of the file
    #[arg(long, default_value = "20MB", value_parser = quantity::size)]
    size: u64,
    /// Loss of every hop, in both directions
    #[arg(long, default_value = "1%", value_parser = quantity::share)]
    loss: f64,
    /// Delay of every hop, one way
    #[arg(long, default_value = "10ms", value_parser = quantity::time)]
    delay: Duration,
    /// Rate of every hop
    #[arg(long, default_value = "20Mbit", value_parser = quantity::rate)]
    rate: Rate,
    /// Number of hops; one fewer relays
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=50))]
    hops: u16,
    /// Longest time that each TCP may try
    #[arg(long, default_value = "40s", value_parser = quantity::time)]
    tcp_limit: Duration,
    /// Congestion controls to compare with, separated by commas
    #[arg(long, default_value = "cubic,bbr", value_delimiter = ',')]
    tcp: Vec<String>,
    // Seed 1 loses TCP's first two requests for a connection: three seconds that say more about luck than TCP.
    /// Seed of the losses
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// Leave Starhop's packets plain, instead of sealing them with a key made for this run
    #[arg(long)]
    insecure: bool,
    /// Directory for the results
    #[arg(long, default_value = "results/demo", value_name = "DIR")]
    results: PathBuf,
    /// Print the result document instead of a table
    #[arg(long)]
    json: bool,
}

/// The other demonstration.
#[derive(clap::Subcommand)]
enum Other {
    Gateway(gateway::Args),
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(Other::Gateway(args)) = &args.other {
        return gateway::run(args);
    }
    let program = std::env::current_exe().context("cannot find this program itself")?;
    // Before any thread is started: a process with threads cannot enter a user namespace.
    let privilege = emu::enter()?;
    if privilege == Privilege::UserNamespace && !args.json {
        say("running without root, in a user namespace");
    }
    if args.insecure {
        super::sealing::warn_insecure();
    }
    let hop = Hop {
        rate: args.rate,
        delay: starhop_proto::time::Duration::from_nanos(args.delay.as_nanos() as u64),
        loss: args.loss,
        queue: 1000,
    };
    let demo = Demo::start(Options {
        size: args.size,
        hop,
        hops: usize::from(args.hops),
        tcp_limit: args.tcp_limit,
        controls: args.tcp.clone(),
        seed: args.seed,
        insecure: args.insecure,
        results: args.results.clone(),
        program,
    })?;
    watch(&demo, args);
    let (summary, page) = demo.finish()?;
    if args.json {
        say(&serde_json::to_string(&summary)?);
    } else {
        table(&summary);
        say(&format!("report: {}", page.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows progress until all have ended.
fn watch(demo: &Demo, args: &Args) {
    let bars = MultiProgress::new();
    if args.json {
        bars.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let template = "{prefix:10} {bar:30} {bytes:>10}/{total_bytes} {bytes_per_sec:>12} {elapsed}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let shown: Vec<_> = demo
        .lines()
        .iter()
        .map(|line| {
            let bar = bars.add(ProgressBar::new(args.size).with_style(style.clone()));
            bar.with_prefix(line.transport.clone())
        })
        .collect();
    loop {
        let lines = demo.lines();
        for (bar, line) in shown.iter().zip(&lines) {
            bar.set_position(line.bytes.min(args.size));
            if line.is_done {
                bar.abandon();
            }
        }
        if lines.iter().all(|line| line.is_done) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn table(summary: &Summary) {
    say(&format!("\n{}\n", summary.title));
    say("transport        time     goodput   of ideal   in-order delay: mean      p99   return path   whole");
    for flow in &summary.flows {
        say(&row(flow));
    }
    let propagation = summary.propagation_ms;
    say(&format!(
        "\n≈: stopped at its time limit, and extrapolated. Propagation alone takes {propagation:.0} ms."
    ));
    if let Some(worst) = summary.flows.iter().map(|flow| flow.accuracy.late_p99_us).max_by(f64::total_cmp) {
        say(&format!("The links delivered 99 % of all packets within {worst:.0} µs of their time."));
    }
}

fn row(flow: &FlowResult) -> String {
    format!(
        "{:12} {:>6.1} s {:>6.2} Mbit/s {:>6.0} % {:>19.0} ms {:>5.0} ms {:>13} {:>7}",
        flow.transport,
        flow.extrapolated_seconds,
        flow.goodput_mbps,
        100.0 * flow.goodput_mbps / flow.ideal_mbps,
        flow.in_order_owd_ms.mean,
        flow.in_order_owd_ms.p99,
        HumanBytes(flow.return_bytes).to_string(),
        match (flow.completed, flow.verified) {
            (true, true) => "yes",
            (true, false) => "WRONG",
            (false, _) => "≈ no",
        }
    )
}
