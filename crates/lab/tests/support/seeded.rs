//! The seeds of random scenarios.

/// The seeds to run: `CHAOS_SEEDS` in place of `usual`, from `CHAOS_FROM` on.
pub(crate) fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number =
        |name, otherwise| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let from = number("CHAOS_FROM", 0);
    from..from + number("CHAOS_SEEDS", usual)
}
