//! The loader's place in a build without libbpf: everything that would load says so.

use crate::control::{Control, Options};
use crate::error::KernelError;
use crate::state::{Lifetime, Registered, RouterSettings, RouterState};

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

/// Would list the loaded controls.
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

/// An XCP router: there is none in this build.
#[derive(Debug)]
pub enum Router {}

impl Router {
    /// Would attach a router.
    ///
    /// # Errors
    /// [`KernelError::NotBuilt`].
    pub fn attach(_: &str, _: &RouterSettings) -> Result<Self, KernelError> {
        Err(KernelError::NotBuilt)
    }

    /// Would return the router's counters.
    ///
    /// # Errors
    /// None: there is no router.
    pub fn state(&self) -> Result<RouterState, KernelError> {
        match *self {}
    }
}
