//! Runs the project's own scenarios.

use starhop_lab::result::RunResult;
use starhop_lab::run::{load, simulate};
use starhop_lab::scenario::{Change, Scenario};
use std::path::Path;

/// A file in `scenarios/` with `changes`.
pub(crate) fn scenario(file: &str, changes: &[&str]) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    let changes: Result<Vec<Change>, String> = changes.iter().map(|change| change.parse()).collect();
    load(&path, &changes.expect("well-formed changes")).expect("a valid scenario")
}

/// Its result, which has no problems.
pub(crate) fn run(file: &str, changes: &[&str]) -> RunResult {
    let scenario = scenario(file, changes);
    let result = simulate(&scenario, |_| ());
    assert!(result.problems.is_empty(), "{file}: {:?}", result.problems);
    result
}
