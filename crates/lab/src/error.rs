//! Why an experiment could not be run.

use starhop_net::emu::EmuError;
use std::io;

/// Why an experiment failed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No emulated network.
    #[error(transparent)]
    Emulation(#[from] EmuError),
    /// The scenario needs a feature that this machine or the emulator lacks.
    #[error("the scenario cannot be emulated: {0}")]
    Scenario(String),
    /// A process of ours failed.
    #[error("{what} failed: {problem}")]
    Process {
        /// Name of the process.
        what: String,
        /// Its message.
        problem: String,
    },
    /// Something of the system failed.
    #[error("{action}: {cause}")]
    System {
        /// The action that failed.
        action: String,
        /// The system's error.
        cause: io::Error,
    },
}

impl LabError {
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::System { action: action.into(), cause }
    }
}
