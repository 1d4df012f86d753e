//! Runs the project's own scenarios.

use starhop_lab::result::RunResult;
use starhop_lab::run::{load, simulate};
use starhop_lab::scenario::Change;
use std::path::Path;

/// The result of a file in `scenarios/` with `changes`, which has no problems.
pub(crate) fn run(file: &str, changes: &[&str]) -> RunResult {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(file);
    let changes: Result<Vec<Change>, String> = changes.iter().map(|change| change.parse()).collect();
    let scenario = load(&path, &changes.expect("well-formed changes")).expect("a valid scenario");
    let result = simulate(&scenario, |_| ());
    assert!(result.problems.is_empty(), "{file}: {:?}", result.problems);
    result
}
