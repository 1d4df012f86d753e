//! Why an experiment could not be run.

use starhop_net::emu::EmuError;
use std::io;

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No emulated network.
    #[error(transparent)]
    Emulation(#[from] EmuError),
    /// The scenario asks for what is not to be had here.
    #[error("the scenario cannot be emulated: {0}")]
    Scenario(String),
    /// A process of ours failed.
    #[error("{what} failed: {problem}")]
    Process {
        /// Which.
        what: String,
        /// What it said.
        problem: String,
    },
    /// Something of the system failed.
    #[error("{action}: {cause}")]
    System {
        /// What was tried.
        action: String,
        /// What the system said.
        cause: io::Error,
    },
}

impl LabError {
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { action: action.into(), cause }
    }
}
