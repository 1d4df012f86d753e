use super::desk::DeskArgs;
use super::logging::LogArgs;
use super::mechanisms::Mechanisms;
use super::sealing::SealArgs;
use crate::config::ConfigArgs;
use crate::quantity;
use std::time::Duration;

/// Arguments of every node that runs until it is ended.
#[derive(clap::Args)]
pub(super) struct ServiceArgs {
    #[command(flatten)]
    pub(super) seal: SealArgs,
    #[command(flatten)]
    pub(super) mechanisms: Mechanisms,
    #[command(flatten)]
    pub(super) log: LogArgs,
    #[command(flatten)]
    pub(super) desk: DeskArgs,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print events as JSON lines
    #[arg(long)]
    pub(super) json: bool,
    /// Print counters as a JSON line this often
    #[arg(long, value_parser = quantity::period, value_name = "TIME")]
    stats_every: Option<Duration>,
}

impl ServiceArgs {
    /// Whether counters are printed.
    pub(super) fn tells_stats(&self) -> bool {
        self.stats_every.is_some()
    }

    /// Time between two ticks: that of the counters, if they are printed.
    pub(super) fn tick(&self, otherwise: Duration) -> Duration {
        self.stats_every.unwrap_or(otherwise)
    }
}
