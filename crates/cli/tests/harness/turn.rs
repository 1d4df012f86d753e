//! Turns between the tests that run side by side. A test shares the machine; while it measures it has it for itself.
//!
//! Two files hold the locks. Who shares holds the floor with others, who measures holds it alone. Both pass the gate
//! before they take the floor; who measures stays in the gate until the floor is free, so that tests which start
//! meanwhile do not keep it waiting.

use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The part of this process in a run of tests; none where a test runs by itself.
static PART: Mutex<Option<Part>> = Mutex::new(None);

struct Part {
    turns: PathBuf,
    shared: Option<Flock<File>>,
}

impl Part {
    fn lock(&self, name: &str, how: FlockArg) -> Flock<File> {
        let file = File::create(self.turns.join(name)).expect("a lock file");
        Flock::lock(file, how).map_err(|(_, error)| error).expect("a turn")
    }

    fn share(&mut self) {
        let _gate = self.lock("gate", FlockArg::LockExclusive);
        self.shared = Some(self.lock("floor", FlockArg::LockShared));
    }
}

/// Makes this process one of a run whose locks are in the directory `turns`. It ends with the process that started it.
pub(super) fn take_part(turns: &Path) {
    set_pdeathsig(Signal::SIGKILL).expect("a signal");
    let mut part = Part { turns: turns.into(), shared: None };
    part.share();
    *PART.lock().unwrap_or_else(PoisonError::into_inner) = Some(part);
}

/// Another test may run beside this one.
pub(super) fn has_company() -> bool {
    PART.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Runs `measure` while no other test of the run does anything.
pub(super) fn alone<T>(measure: impl FnOnce() -> T) -> T {
    let mut part = PART.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(part) = &mut *part else { return measure() };
    // Two that measure would wait for each other if they kept their shares.
    part.shared = None;
    let gate = part.lock("gate", FlockArg::LockExclusive);
    let floor = part.lock("floor", FlockArg::LockExclusive);
    let said = measure();
    drop((floor, gate));
    part.share();
    said
}
