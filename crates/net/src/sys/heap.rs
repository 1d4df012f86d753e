//! The memory that the C library keeps for the next allocations.

/// Gives unused pages of the heap back to the system. It walks the free pieces, some milliseconds for 100 MB of them.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no library wraps malloc_trim")]
pub(crate) fn trim() {
    // SAFETY: it touches memory that is not allocated, and may be called at any time by any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) fn trim() {}
