//! SIGHUP: the options of a configuration file that a running node takes, and those that wait for a restart.

use crate::Cli;
use crate::config::{Reread, expand};
use clap::{CommandFactory, FromArgMatches};

/// The options of a verb as its file has them now, and which of them differ from those in use; `None` where none does.
pub(super) fn again<A: FromArgMatches>(
    reread: &mut Reread,
    verb: &str,
) -> anyhow::Result<Option<(Vec<String>, A)>> {
    let program = Cli::command();
    let arguments = expand(&program, std::env::args_os().collect())?;
    let matches = program.clone().try_get_matches_from(arguments)?;
    let changed = reread.again(&program)?;
    let Some(matches) = matches.subcommand_matches(verb).filter(|_| !changed.is_empty()) else {
        return Ok(None);
    };
    tracing::info!("settings read again: {} changed", changed.join(", "));
    Ok(Some((changed, A::from_arg_matches(matches)?)))
}

/// Notes that the options `applied` are in use as the file has them, and says which of the changed ones are not.
pub(super) fn settle(reread: &mut Reread, changed: &[String], applied: &[&str]) {
    reread.apply(applied);
    let late: Vec<&str> = changed.iter().map(String::as_str).filter(|name| !applied.contains(name)).collect();
    if !late.is_empty() {
        tracing::warn!("a change of {} takes effect when the node is restarted", late.join(", "));
    }
}
