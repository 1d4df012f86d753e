//! The main function of tests that need namespaces of their own, one after the other.

pub(crate) mod timing;

use starhop_net::emu::{EmuError, enter};
use std::time::Instant;

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// Runs the tests whose name contains the word of the command line; names that begin with "long" only if the word
/// does. Runs none if namespaces are forbidden, or if `cannot` names something that is missing.
pub(crate) fn run(tests: &[Test], cannot: impl FnOnce() -> Option<String>) {
    let missing = match enter() {
        Ok(_) => cannot(),
        Err(error @ EmuError::Forbidden(_)) => Some(error.to_string()),
        Err(error) => panic!("{error}"),
    };
    if let Some(missing) = missing {
        println!("skipped {} tests: {missing}", tests.len());
        return;
    }
    let word = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let is_wanted =
        |name: &str| name.contains(&word) && (word.starts_with("long") || !name.starts_with("long"));
    for (name, test) in tests.iter().filter(|(name, _)| is_wanted(name)) {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
}
