//! Tests of what real processes reach in real time. A host that runs other machines takes processors away from this
//! one, and counts that time ("steal" in `/proc/stat`).

use super::turn;
use std::cell::RefCell;

/// One try says how fast this code is, unless the machine slowed it down: a rate is no less real for having been
/// reached once.
const TRIES: usize = 3;
/// After so many tries that the machine slowed down it is not expected to be faster.
const MOST_DOUBTS: usize = 2;
/// Of the processor time that this machine asked for, the share that its host may keep. A try whose share is larger
/// says nothing about this code: 100 ms without a relay, of the 6 s of a test that uses a fifth of two processors, are
/// 4 %.
const FAIR_SHARE: f64 = 0.005;

thread_local! {
    /// Why the try that runs is not to be trusted, by what it found out itself.
    static DOUBT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Says that the try that runs measures the machine and not this code.
#[allow(dead_code, reason = "not every test binary has an emulator that judges itself")]
pub(crate) fn doubt(why: String) {
    DOUBT.set(Some(why));
}

/// Measures until a try reaches its goal: once beside the other test that may run, then up to three times alone. Fails
/// if a try missed it on a machine that was left alone. If the machine was slow in the first two of those, nothing was
/// measured: the test counts as skipped.
#[allow(dead_code, reason = "some test binaries gather what failed")]
#[track_caller]
pub(crate) fn measure(attempt: impl FnMut() -> Result<(), String>) {
    if let Err(said) = measured(attempt) {
        panic!("{said}");
    }
}

/// As [`measure`], but returns the problem of the last trusted try instead of failing.
pub(crate) fn measured(mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    if turn::has_company() && attempt().is_ok() {
        return Ok(());
    }
    turn::alone(|| measured_alone(attempt))
}

fn measured_alone(mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let (mut trusted, mut doubts) = (None, Vec::new());
    for _ in 0..TRIES {
        DOUBT.set(None);
        let before = Processors::now();
        let Err(said) = attempt() else { return Ok(()) };
        let kept = Processors::now().kept_since(&before);
        let kept =
            (kept > FAIR_SHARE).then(|| format!("its host kept {:.1} % of the processor time", kept * 100.0));
        println!("again: {}", said.chars().take(100).collect::<String>());
        match kept.or_else(|| DOUBT.take()) {
            Some(doubt) => doubts.push(doubt),
            None => trusted = Some(said),
        }
        if doubts.len() == MOST_DOUBTS && trusted.is_none() {
            break;
        }
    }
    if trusted.is_none() {
        println!("skipped 1 tests: this machine was too slow in every try: {}", doubts.join("; "));
    }
    trusted.map_or(Ok(()), Err)
}

/// The problem of a try, if it missed its goal.
#[allow(dead_code, reason = "some test binaries tell the problem otherwise")]
pub(crate) fn unless(is_reached: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if is_reached { Ok(()) } else { Err(problem()) }
}

/// Processor time since the machine started, in ticks of 10 ms, of all processors together.
struct Processors {
    used: u64,
    kept: u64,
}

impl Processors {
    /// Nothing is known where there is no such file; then every try is trusted.
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = text.lines().next().unwrap_or_default();
        // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal.
        let ticks: Vec<u64> = all.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let of = |columns: &[usize]| columns.iter().filter_map(|&column| ticks.get(column)).sum();
        Self { used: of(&[0, 1, 2, 5, 6]), kept: of(&[7]) }
    }

    /// Share of the processor time asked for since `before` that was not given.
    fn kept_since(&self, before: &Self) -> f64 {
        let kept = self.kept.saturating_sub(before.kept) as f64;
        kept / (kept + self.used.saturating_sub(before.used) as f64).max(1.0)
    }
}
