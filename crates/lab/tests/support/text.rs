//! Scenarios that a test writes down itself.

use starhop_lab::scenario::Scenario;

/// The scenario that `text` writes down.
pub(crate) fn parse(text: &str) -> Scenario {
    match Scenario::parse(text, &|_| Err("no files here".into())) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{error}\n{text}"),
    }
}
