//! Processes of earlier runs. Namespaces, devices and files of a run end with its processes, however these end.
//! Only a process that a user's own command has started, and that left its parent, can outlive them all.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs;

/// The variable in the environment of every process of a run that names the run's owner.
pub(super) const MARKER: &str = "STARHOP_EMULATE";

/// This process as the value of [`MARKER`]: number and start time, which no other process shares.
pub(super) fn marker() -> OsString {
    let pid = std::process::id();
    format!("{pid}.{}", start_of(pid).unwrap_or(0)).into()
}

/// Start time of a process, in clock ticks since the machine's start.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22; the name before it, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Kills processes of runs whose own process is gone. Returns their number.
pub(crate) fn remove() -> usize {
    kill_where(|owner| {
        let Some((pid, start)) = owner.split_once('.') else { return false };
        let started = pid.parse().ok().and_then(start_of);
        started.is_none_or(|started| started.to_string() != start)
    })
}

/// Kills the remaining processes of this run.
pub(super) fn remove_own() -> usize {
    let own = marker();
    kill_where(|owner| *own == *owner)
}

fn kill_where(is_wanted: impl Fn(&str) -> bool) -> usize {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = pids.filter(|&pid| pid != own && owner_of(pid).is_some_and(|owner| is_wanted(&owner)));
    marked.filter(|&pid| kill(Pid::from_raw(pid as i32), Signal::SIGKILL).is_ok()).count()
}

/// The value of [`MARKER`] in the environment of a process, where it may be read.
fn owner_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variables = environment.split(|&byte| byte == 0);
    let variables = variables.filter_map(|variable| std::str::from_utf8(variable).ok());
    variables
        .filter_map(|variable| variable.split_once('='))
        .find(|(name, _)| *name == MARKER)
        .map(|(_, v)| v.to_owned())
}
