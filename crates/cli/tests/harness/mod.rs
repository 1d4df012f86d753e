//! The main function of tests that need namespaces of their own. Each test of a run is a process. Two run side by
//! side, for most of a test is waiting; a measurement that fails so is made again alone ([`turn`]).

pub(crate) mod timing;
mod turn;

use starhop_net::emu::{EmuError, enter};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// A test and its name.
pub(crate) type Test = (&'static str, fn());

/// The argument before the name of the one test that this process runs, and the directory of [`turn`].
const ONE: &str = "--one";
const AT_ONCE: usize = 2;

/// Runs the tests whose name contains the word of the command line; names that begin with "long" only if the word
/// does. Runs none if namespaces are forbidden, or if `cannot` names something that is missing.
#[allow(dead_code, reason = "tests of the one list of the kernel run one after the other")]
pub(crate) fn run(tests: &[Test], cannot: impl FnOnce() -> Option<String>) {
    run_beside(AT_ONCE, tests, cannot);
}

/// As [`run`], one test after the other in this process.
#[allow(dead_code, reason = "most tests may run side by side")]
pub(crate) fn run_in_turn(tests: &[Test], cannot: impl FnOnce() -> Option<String>) {
    run_beside(1, tests, cannot);
}

fn run_beside(at_once: usize, tests: &[Test], cannot: impl FnOnce() -> Option<String>) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let entered = enter();
    if let [option, name, turns] = &arguments[..]
        && option == ONE
    {
        entered.expect("namespaces, as the parent has");
        turn::take_part(Path::new(turns));
        return tests.iter().filter(|(test, _)| test == name).for_each(run_here);
    }
    let missing = match entered {
        Ok(_) => cannot(),
        Err(error @ EmuError::Forbidden(_)) => Some(error.to_string()),
        Err(error) => panic!("{error}"),
    };
    if let Some(missing) = missing {
        println!("skipped {} tests: {missing}", tests.len());
        return;
    }
    let word = arguments.iter().find(|argument| !argument.starts_with('-')).map_or("", String::as_str);
    let is_wanted =
        |name: &str| name.contains(word) && (word.starts_with("long") || !name.starts_with("long"));
    let wanted: Vec<&Test> = tests.iter().filter(|(name, _)| is_wanted(name)).collect();
    if at_once == 1 || wanted.len() == 1 {
        wanted.into_iter().for_each(run_here);
    } else {
        run_processes(at_once, &wanted);
    }
}

fn run_here((name, test): &Test) {
    let start = Instant::now();
    test();
    println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
}

/// Runs each test in a process, `at_once` of them side by side. A test that fails beside another is run once more
/// when all others have ended: what it said may have been about the other.
fn run_processes(at_once: usize, tests: &[&Test]) {
    let turns = tempfile::tempdir().expect("a directory for turns");
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, _)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !is_passed(name, turns.path()) {
                failed.lock().expect("no panic in between").push(*name);
            }
        }
    };
    std::thread::scope(|scope| (0..at_once).for_each(|_| _ = scope.spawn(work)));
    let mut failed = failed.into_inner().expect("no panic in between");
    failed.retain(|name| {
        println!("once more, alone: {name}");
        !is_passed(name, turns.path())
    });
    assert!(failed.is_empty(), "failed: {}", failed.join(", "));
}

/// Runs one test in a process and prints its output in one piece.
fn is_passed(name: &str, turns: &Path) -> bool {
    let binary = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(binary);
    command.args([ONE, name]).arg(turns).stdin(Stdio::null());
    let output = command.output().expect("a process");
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    print!("{text}");
    if !output.status.success() {
        println!("test {name} ... FAILED ({})", output.status);
    }
    output.status.success()
}
