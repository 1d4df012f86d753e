use super::desk::DeskArgs;
use super::logging::LogArgs;
use super::say;
use anyhow::Context;
use serde_json::json;
use starhop_net::gateway::{self, FlowEnd, GatewayConfig, Source, Told};
use starhop_net::operate::{Desk, Doors};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

/// Carry users' TCP connections over Starhop, between two gateways
///
/// SIGHUP reads the configuration and keys anew; keys that are options keep these values. SIGUSR2 has the process go on as the
/// program that has its name now: no connection ends. Without a file all keys are options:
///
///   starhop gateway --name site --key domain.key --intercept lan0 --peer hub=203.0.113.7:4433
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    source: SourceArgs,
    /// Events as JSON, one per line
    #[arg(long)]
    json: bool,
    /// Go on with the state of the program before this one; gateways give this to their successors
    #[arg(long, hide = true, value_name = "NUMBER|try")]
    take_over: Option<String>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    desk: DeskArgs,
}

/// The places that the configuration comes from: a file, and an option for each of its keys.
pub(crate) struct SourceArgs {
    file: PathBuf,
    given: Vec<(&'static str, String)>,
}

const FILE: &str = "gateway-file";

impl SourceArgs {
    pub(crate) fn source(&self) -> Source {
        let mut source = Source::from(self.file.as_path());
        self.given.iter().for_each(|(key, value)| source.give(key, value));
        source
    }

    /// The same options, for another process.
    fn arguments(&self) -> anyhow::Result<Vec<String>> {
        let file = self.file.to_str().context("the configuration's name is not UTF-8")?;
        let file = format!("--config={file}");
        let given = self.given.iter().map(|(key, value)| format!("--{key}={value}"));
        Ok(std::iter::once(file).chain(given).collect())
    }
}

impl clap::Args for SourceArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = clap::Arg::new(FILE).long("config").value_name("FILE").default_value("gateway.toml");
        let file = file.value_parser(clap::value_parser!(PathBuf));
        let file = file.help("The configuration: a file of its own form, not of options as for other verbs");
        gateway::KEYS.iter().fold(command.arg(file), |command, (key, help)| {
            let value = if *key == "peer" { "NAME=ADDRESS,…" } else { "VALUE" };
            let option = clap::Arg::new(*key).long(*key).value_name(value).help(*help);
            command.arg(option.help_heading("Keys of the configuration, which take the place of the file's"))
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for SourceArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let file = matches.get_one::<PathBuf>(FILE).cloned().unwrap_or_default();
        let given = gateway::KEYS.iter();
        let given = given.filter_map(|(key, _)| Some((*key, matches.get_one::<String>(key)?.clone())));
        Ok(Self { file, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(clap::Subcommand)]
enum Action {
    /// Check a configuration, and print a fault with its line and field
    Check {
        /// The configuration
        file: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(Action::Check { file }) = &args.action {
        let config = GatewayConfig::load(&file.as_path().into())?;
        say(&format!(
            "`{}` is right. The firewall would have these rules:\n{}",
            file.display(),
            config.rules()
        ));
        let shortage = gateway::shortage(&config, gateway::all_descriptors());
        shortage.iter().for_each(|shortage| eprintln!("starhop: {shortage}"));
        return Ok(ExitCode::SUCCESS);
    }
    if args.take_over.as_deref() == Some(gateway::TRY) {
        let state = gateway::TakeOver::read(&mut std::io::stdin())?;
        gateway::try_take_over(&GatewayConfig::load(&args.source.source())?, &state)?;
        say(gateway::CAN);
        return Ok(ExitCode::SUCCESS);
    }
    let config = gateway::become_user(
        GatewayConfig::load(&args.source.source())?,
        args.desk.usual_directory().as_deref(),
    )?;
    args.log.start(args.json)?;
    if config.sources() == starhop_net::security::Sources::Insecure {
        super::sealing::warn_insecure();
    }
    let program = std::env::current_exe().context("cannot find this program itself")?;
    let arguments = std::iter::once("gateway-watchdog".to_owned()).chain(args.source.arguments()?).collect();
    let take_over = args.take_over.as_deref().map(gateway::TakeOver::from_number).transpose()?;
    let is_json = args.json;
    let (listen, intercepts) = (config.listen(), config.intercepts());
    let tell = move |told: &Told| match (told, is_json) {
        (Told::Ready { taken_over }, true) => {
            say(&json!({"event": "ready", "role": "gateway", "listen": listen, "intercepts": intercepts,
                "taken_over": taken_over})
            .to_string());
        }
        (Told::Ready { taken_over: None }, false) => say(&format!("ready: gateway on {listen} (UDP)")),
        (Told::Ready { taken_over: Some(count) }, false) => {
            say(&format!(
                "ready: gateway on {listen} (UDP), with {count} connections of the program before this one"
            ));
        }
        (Told::NotReplaced { error }, true) => {
            say(&json!({"event": "replace", "error": error}).to_string());
        }
        (Told::NotReplaced { error }, false) => say(&format!("the program in use stays: {error}")),
        (Told::Peer { peer, is_up }, true) => {
            say(&json!({"event": "peer", "peer": peer, "up": is_up}).to_string());
        }
        (Told::Peer { peer, is_up }, false) => {
            say(&format!(
                "peer {peer} {}",
                if *is_up { "answers" } else { "does not answer: new connections pass by" }
            ));
        }
        (Told::Reloaded { error }, true) => {
            say(&json!({"event": "reload", "error": error}).to_string());
        }
        (Told::Reloaded { error: None }, false) => say("the configuration was read again"),
        (Told::Reloaded { error: Some(error) }, false) => {
            say(&format!("the configuration in use stays: {error}"));
        }
        (Told::Flow(flow), true) => {
            let mut line = json!(flow);
            line["event"] = "flow".into();
            say(&line.to_string());
        }
        (Told::Flow(flow), false) => say(&text(flow)),
    };
    let desk = desk(args, &config, take_over.is_some())?;
    let stats = gateway::run_alone(config, (program, arguments), Rc::new(tell), desk, take_over)?;
    if args.json {
        say(&json!({"event": "end", "role": "gateway", "opened": stats.opened, "accepted": stats.accepted,
            "resets": stats.resets, "streams": stats.streams, "sent_bytes": stats.sent_bytes,
            "bad_records": stats.bad_records, "bad_datagrams": stats.bad_datagrams})
        .to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// The doors of a gateway. One that goes on with connections does so without doors that it cannot have: without rights it may not
/// get all that it had.
fn desk(args: &Args, config: &GatewayConfig, goes_on: bool) -> anyhow::Result<Desk> {
    let desk = args.desk.prepare("gateway", config.listen().port(), config.has_user());
    desk.or_else(|error| {
        if !goes_on {
            return Err(error);
        }
        tracing::error!("nobody can ask this gateway: {error}");
        Ok(Desk::prepare(&Doors::default())?)
    })
}

fn text(flow: &FlowEnd) -> String {
    let FlowEnd { from, to, carried, up_bytes, down_bytes, seconds, reason, .. } = flow;
    format!("{from} -> {to}: {carried}, {up_bytes} B up, {down_bytes} B down, {seconds:.3} s, {reason}")
}
