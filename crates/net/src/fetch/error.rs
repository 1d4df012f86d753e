use super::Job;
use crate::endpoint::BindError;
use crate::security::{HopSuite, ReloadError};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Why a download did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The source has no object of this name.
    #[error("no such name: {from} has no `{name}`; names are paths below what `starhop serve` was given")]
    NoSuchName {
        /// The name.
        name: String,
        /// Who was asked.
        from: SocketAddr,
    },
    /// Nothing came for too long.
    #[error(
        "timed out: nothing new from {from} for {seconds:.0} s ({received} bytes had come). Is it running, is UDP \
         to it open, is the file still being hashed there?{hint}"
    )]
    Silent {
        /// Who was asked.
        from: SocketAddr,
        /// For how long.
        seconds: f64,
        /// Bytes that had arrived.
        received: u64,
        /// How to go on.
        hint: String,
    },
    /// The bytes are not what the name promised.
    #[error(
        "verification failed: `{name}` should have BLAKE3 {expected}, what arrived has {found}; the partial file \
         was removed, because nobody can tell which of its bytes are wrong"
    )]
    Verification {
        /// The name.
        name: String,
        /// The promise.
        expected: blake3::Hash,
        /// The truth.
        found: blake3::Hash,
    },
    /// A part of the object is wrong, and there is nobody else to ask.
    #[error(
        "verification failed: what {from}, or somebody behind it, gives for `{name}` from byte {offset} on is not what \
         the name promised. What was verified is kept; name another source with --bypass ADDR and run the same \
         command again"
    )]
    Poisoned {
        /// The name.
        name: String,
        /// Who gave it.
        from: SocketAddr,
        /// Where it starts.
        offset: u64,
    },
    /// The object is longer or shorter than its manifest says.
    #[error("verification failed: `{name}` should have {expected} bytes, the source ended it after {found}")]
    Length {
        /// The name.
        name: String,
        /// The promise.
        expected: u64,
        /// The truth.
        found: u64,
    },
    /// The disk does not take the bytes.
    #[error("cannot {action} `{}`: {cause}{hint}", .path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// What the source says about the name makes no sense.
    #[error("{from} answers for `{name}` with a manifest that makes no sense: {problem}")]
    Manifest {
        /// The name.
        name: String,
        /// Who answered.
        from: SocketAddr,
        /// What is wrong.
        problem: String,
    },
    /// A signal ended it.
    #[error("interrupted{hint}")]
    Interrupted {
        /// How to go on.
        hint: String,
    },
    /// No keys.
    #[error(transparent)]
    Security(#[from] ReloadError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The socket failed.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
}

impl FetchError {
    pub(super) fn disk(action: &'static str, path: &Path, cause: io::Error) -> Self {
        let hint = match cause.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; free some space and run the same command again to resume"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose another place with -o FILE"
            }
            io::ErrorKind::NotFound => "; its directory must exist",
            _ => "",
        };
        Self::Disk { action, path: path.to_owned(), cause, hint }
    }

    pub(super) fn interrupted(job: &Job) -> Self {
        Self::Interrupted { hint: resume_hint(job) }
    }

    pub(super) fn silent(job: &Job, received: u64, suite: &HopSuite) -> Self {
        let mut hint = if received > 0 { resume_hint(job) } else { String::new() };
        hint.extend(suite.complaint().map(|complaint| format!(". {complaint}")));
        Self::Silent { from: job.from, seconds: job.timeout.as_secs_f64(), received, hint }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchName { .. } => 3,
            Self::Silent { .. } => 4,
            Self::Verification { .. } | Self::Poisoned { .. } | Self::Length { .. } => 5,
            Self::Disk { .. } => 6,
            Self::Manifest { .. } | Self::Security(_) | Self::Bind(_) | Self::Socket(_) => 1,
            // 128 + SIGINT, as shells count.
            Self::Interrupted { .. } => 130,
        }
    }
}

fn resume_hint(job: &Job) -> String {
    match &job.output {
        Some(path) => format!(
            "; what arrived is kept in `{}`: run the same command again to resume",
            super::target::part_of(path).display()
        ),
        None => String::new(),
    }
}
