//! Arguments of every long-lived verb about its log.

use starhop_net::operate::log::{self, DEFAULT_LEVELS};

/// The log of a long-lived role, on standard error.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// Form of the log; with --json it is json unless this says otherwise
    #[arg(long = "log", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Levels to log: error, warn, info, debug, trace or off; or by target, as warn,starhop::transfer=info
    #[arg(long = "log-level", env = "STARHOP_LOG", default_value = DEFAULT_LEVELS, value_name = "LEVELS")]
    levels: String,
}

/// The values of `--log`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON object per line, with its time
    Json,
}

impl LogArgs {
    /// Starts the log; `is_json` says whether events are JSON.
    pub(crate) fn start(&self, is_json: bool) -> anyhow::Result<()> {
        let is_json = self.format.map_or(is_json, |format| format == Format::Json);
        let format = if is_json { log::Format::Json } else { log::Format::Text };
        Ok(log::start(format, &self.levels)?)
    }

    /// Changes the levels of the running log to these, if they are among the options that `changed`. What `starhop status`
    /// has set stays otherwise.
    pub(crate) fn reload(&self, changed: &[String]) -> anyhow::Result<()> {
        let is_changed = changed.iter().any(|option| option == "log-level");
        if is_changed {
            log::set_levels(&self.levels)?;
        }
        Ok(())
    }
}
