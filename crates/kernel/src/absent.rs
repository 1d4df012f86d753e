//! The loader's place in a build without libbpf: everything that would load says so.

use crate::control::{Control, Options};
use crate::error::KernelError;
use crate::state::{Lifetime, Registered};

/// A loaded control: there is none in this build.
#[derive(Debug)]
pub enum Loaded {}

/// Would load a control.
///
/// # Errors
/// [`KernelError::NotBuilt`].
pub fn load(_: &'static Control, _: &Options, _: Lifetime) -> Result<Loaded, KernelError> {
    Err(KernelError::NotBuilt)
}

/// Would say what is loaded.
///
/// # Errors
/// [`KernelError::NotBuilt`].
pub fn registered() -> Result<Vec<Registered>, KernelError> {
    Err(KernelError::NotBuilt)
}

/// Would unload a control.
///
/// # Errors
/// [`KernelError::NotBuilt`].
pub fn unload(_: &'static Control) -> Result<u64, KernelError> {
    Err(KernelError::NotBuilt)
}
