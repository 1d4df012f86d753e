//! Many simulations at once: over all cores, and never twice.

use crate::result::RunResult;
use crate::run::simulate;
use crate::scenario::Scenario;
use crate::sweep::store::{Kind, Store};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Options of a batch.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Simulations at the same time; 0 for as many as there are cores.
    pub threads: usize,
    /// Finished runs, so that a batch that was cut off goes on where it was.
    pub store: Option<Store>,
    /// The results keep no time series: those of a thousand runs fill the memory, and few look at them.
    pub no_series: bool,
}

/// Progress of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Finished runs.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// Finished share of the work, 0 to 1; unfinished runs count by their virtual time.
    pub share: f64,
}

/// The whole of a run's virtual time, in thousandths.
const WHOLE: u32 = 1000;

/// Runs the scenarios. Results come in the order of the scenarios, with any number of threads. All threads call
/// `progress`, often.
///
/// # Errors
/// A store that cannot be written.
pub fn run_all(
    scenarios: &[Scenario],
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<RunResult>, String> {
    let batch = Batch {
        scenarios,
        store: options.store.as_ref(),
        kind: if options.no_series { Kind::WithoutSeries } else { Kind::Simulated },
        next: AtomicUsize::new(0),
        shares: scenarios.iter().map(|_| AtomicU32::new(0)).collect(),
        results: Mutex::new(vec![None; scenarios.len()]),
        problem: Mutex::new(None),
        progress,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if options.threads == 0 { cores } else { options.threads };
    std::thread::scope(|scope| {
        (0..threads.min(scenarios.len())).for_each(|_| {
            scope.spawn(|| batch.work());
        });
    });
    batch.finish()
}

struct Batch<'a> {
    scenarios: &'a [Scenario],
    store: Option<&'a Store>,
    kind: Kind,
    next: AtomicUsize,
    shares: Vec<AtomicU32>,
    results: Mutex<Vec<Option<RunResult>>>,
    problem: Mutex<Option<String>>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

impl Batch<'_> {
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = self.scenarios.get(index) else { return };
            match self.one(index, scenario) {
                Ok(result) => self.note(index, result),
                Err(problem) => {
                    lock(&self.problem).get_or_insert(problem);
                    self.next.store(self.scenarios.len(), Ordering::Relaxed);
                }
            }
        }
    }

    fn one(&self, index: usize, scenario: &Scenario) -> Result<RunResult, String> {
        if let Some(kept) = self.store.and_then(|store| store.kept(self.kind, scenario)) {
            return Ok(kept);
        }
        let mut result = simulate(scenario, |share| {
            let share = (share * f64::from(WHOLE)) as u32;
            if self.shares[index].swap(share, Ordering::Relaxed) != share {
                self.tell();
            }
        });
        if self.kind == Kind::WithoutSeries {
            result.series = None;
        }
        if let Some(store) = self.store {
            store.keep(self.kind, scenario, &result)?;
        }
        Ok(result)
    }

    fn note(&self, index: usize, result: RunResult) {
        self.shares[index].store(WHOLE, Ordering::Relaxed);
        lock(&self.results)[index] = Some(result);
        self.tell();
    }

    fn tell(&self) {
        let shares: Vec<u32> = self.shares.iter().map(|share| share.load(Ordering::Relaxed)).collect();
        let done = lock(&self.results).iter().flatten().count();
        let share = shares.iter().map(|share| f64::from(*share)).sum::<f64>() / f64::from(WHOLE);
        (self.progress)(Progress { done, total: shares.len(), share: share / shares.len() as f64 });
    }

    fn finish(self) -> Result<Vec<RunResult>, String> {
        if let Some(problem) = self.problem.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(problem);
        }
        let results = self.results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(results.into_iter().flatten().collect())
    }
}

/// A thread that panics takes the scope down with it, so nobody sees its half-finished work.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
title = "t"
duration = "200ms"
[topology]
kind = "chain"
hops = 2
[topology.link]
rate = "10Mbit"
delay = "1ms"
loss = "2%"
[[flow]]
name = "a"
"#;

    fn scenarios() -> Vec<Scenario> {
        let of = |seed| {
            let scenario = Scenario::parse(TEXT, &|_| Err(String::new()));
            scenario.map(|scenario| Scenario { seed, ..scenario })
        };
        (1..=5).filter_map(|seed| of(seed).ok()).collect()
    }

    fn hashes(options: &Options) -> Vec<String> {
        let results = run_all(&scenarios(), options, &|_| ()).unwrap_or_default();
        results.into_iter().map(|result| result.trace_hash).collect()
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let one = hashes(&Options { threads: 1, ..Options::default() });
        assert_eq!(one.len(), 5);
        assert_eq!(one, hashes(&Options { threads: 3, ..Options::default() }));
    }

    #[test]
    fn what_was_run_once_is_read_and_what_is_broken_is_run_again() {
        let Ok(folder) = tempfile::tempdir() else { panic!() };
        let store = Store::open(folder.path());
        assert!(store.is_ok(), "{store:?}");
        let options = Options { threads: 2, store: store.ok(), no_series: true };
        let first = run_all(&scenarios(), &options, &|_| ()).unwrap_or_default();
        let again = run_all(&scenarios(), &options, &|_| ()).unwrap_or_default();
        // The time that a run took is measured: equal times say that it was not run again.
        let wall = |results: &[RunResult]| results.iter().map(|r| r.wall_s).collect::<Vec<_>>();
        assert_eq!(wall(&first), wall(&again));
        let files: Vec<_> = std::fs::read_dir(folder.path()).into_iter().flatten().flatten().collect();
        assert_eq!(files.len(), 5);
        for file in files {
            assert!(std::fs::write(file.path(), "{").is_ok());
        }
        assert_ne!(wall(&first), wall(&run_all(&scenarios(), &options, &|_| ()).unwrap_or_default()));
    }
}
