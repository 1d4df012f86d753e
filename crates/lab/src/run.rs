//! Runs a scenario in the simulator.

use crate::result::{RunResult, document};
use crate::scenario::{Change, Scenario, ScenarioError, build};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Why a scenario could not be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("{}: {problem}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        problem: std::io::Error,
    },
    /// The file says something impossible.
    #[error("{}: {error}", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The fault.
        error: ScenarioError,
    },
}

/// Reads a scenario file with changes; traces that it names lie relative to it.
///
/// # Errors
/// [`LoadError`] with the file's name and, where the file is wrong, field and line.
pub fn load(file: &Path, changes: &[Change]) -> Result<Scenario, LoadError> {
    let unreadable = |problem| LoadError::Unreadable { file: file.to_owned(), problem };
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|e| format!("{name}: {e}"));
    Scenario::parse_changed(&text, changes, &read)
        .map_err(|error| LoadError::Wrong { file: file.to_owned(), error })
}

/// Runs a scenario in virtual time. `progress` is called many times with the share that is done.
pub fn simulate(scenario: &Scenario, mut progress: impl FnMut(f64)) -> RunResult {
    let mut built = build(scenario);
    let whole = scenario.duration.as_secs_f64();
    let began = Instant::now();
    built.simulation.run(|now| progress(now.since(starhop_proto::time::Instant::ZERO).as_secs_f64() / whole));
    let wall_s = began.elapsed().as_secs_f64();
    document(scenario, &built, wall_s, peak_rss_bytes())
}

/// The most memory that this process ever held, as Linux counts it; 0 elsewhere.
pub fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
