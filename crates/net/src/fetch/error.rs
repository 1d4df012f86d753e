use super::Job;
use crate::endpoint::BindError;
use crate::security::ReloadError;
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
        /// The source that was asked.
        from: SocketAddr,
    },
    /// Nothing came for too long, or too little.
    #[error("timed out: {} from {from} in {seconds} s ({received} had come in all). {seen}{hint}", bytes(.lately))]
    Silent {
        /// The source that was asked.
        from: SocketAddr,
        /// In this time.
        seconds: f64,
        /// Bytes that arrived in that time.
        lately: u64,
        /// Bytes that had arrived.
        received: u64,
        /// Observations of this host about the source.
        seen: String,
        /// Advice on how to go on.
        hint: String,
    },
    /// The name stands for something else by now.
    #[error(
        "changed: `{name}` is not at {from} any more what it was when this download began; run the same command again \
         to get what it is now"
    )]
    Changed {
        /// The name.
        name: String,
        /// The source that was asked.
        from: SocketAddr,
    },
    /// A file is there that this download did not begin.
    #[error(
        "`{}` exists, and holds something else: --force replaces it, --no-clobber leaves it alone, -o FILE chooses \
         another place", .path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The bytes differ from the object that was promised.
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
    /// A part of the object is wrong, and there is no other source.
    #[error(
        "verification failed: what {from}, or somebody behind it, gives for `{name}` from byte {offset} on is not what \
         the name promised. What was verified is kept; name another source with --bypass ADDR and run the same \
         command again"
    )]
    Poisoned {
        /// The name.
        name: String,
        /// The source that gave the wrong part.
        from: SocketAddr,
        /// Start of the wrong part.
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
        /// The action that failed.
        action: &'static str,
        /// The file of the action.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
        /// The remedy.
        hint: &'static str,
    },
    /// The manifest that the source sent makes no sense.
    #[error("{from} answers for `{name}` with a manifest that makes no sense: {problem}")]
    Manifest {
        /// The name.
        name: String,
        /// The source that answered.
        from: SocketAddr,
        /// The fault.
        problem: String,
    },
    /// A signal ended it.
    #[error("interrupted{hint}")]
    Interrupted {
        /// Advice on how to go on.
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

    pub(super) fn silent(job: &Job, from: SocketAddr, lately: u64, received: u64, seen: String) -> Self {
        let hint = if received > 0 { resume_hint(job) } else { String::new() };
        Self::Silent { from, seconds: job.timeout.as_secs_f64(), lately, received, seen, hint }
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchName { .. } => 3,
            Self::Silent { .. } => 4,
            Self::Verification { .. } | Self::Poisoned { .. } | Self::Length { .. } => 5,
            Self::Disk { .. } | Self::Exists { .. } => 6,
            Self::Changed { .. } => 7,
            Self::Manifest { .. } | Self::Security(_) | Self::Bind(_) | Self::Socket(_) => 1,
            // 128 + SIGINT, as shells count.
            Self::Interrupted { .. } => 130,
        }
    }
}

fn resume_hint(job: &Job) -> String {
    // Devices and pipes have no partial file to keep.
    let part = job.output.path().map(super::target::part_of).filter(|part| part.exists());
    part.map_or_else(String::new, |part| {
        format!("; what arrived is kept in `{}`: run the same command again to resume", part.display())
    })
}

/// So many bytes, for a message.
fn bytes(count: &u64) -> String {
    if *count == 0 { "nothing new".to_owned() } else { format!("only {count} bytes") }
}
