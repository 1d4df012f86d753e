//! Whether something keeps the time of day.

/// Whether the kernel's clock is synchronised (adjtimex(2)); `None` when it does not say.
#[allow(unsafe_code, reason = "nix has no adjtimex")]
pub(crate) fn is_synchronised() -> Option<bool> {
    // SAFETY: all bytes zero are a valid timex, and with modes = 0 the kernel only writes to it.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    (state >= 0).then_some(state != libc::TIME_ERROR)
}
