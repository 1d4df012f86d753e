//! The newest roster that a node has seen, kept on disk: an older one, though signed, readmits no node.

use super::roster::{Roster, RosterError};
use crate::sys::replace::{replace, with_suffix};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Directories for it, if it is not beside the roster. systemd sets the second variable, for units with
/// `StateDirectory=`.
const DIRECTORIES: [&str; 2] = ["STARHOP_STATE", "STATE_DIRECTORY"];

/// Beside or in place of a roster's name.
const SUFFIX: &str = ".seen";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    /// Whose rosters they are: another authority, or another domain, counts anew.
    authority: String,
    domain: String,
    serial: u64,
}

/// Refuses a verified roster that is older than one that was seen, and remembers its serial.
///
/// # Errors
/// The roster is older, or the record cannot be read.
pub(super) fn check(path: &Path, roster: &Roster, authority: &[u8; 32]) -> Result<(), RosterError> {
    let kept = place(path);
    let failed = |cause| RosterError::Seen { path: kept.clone(), cause };
    let mut seen = Seen { authority: super::hex(authority), domain: roster.domain().to_owned(), serial: 0 };
    match std::fs::read_to_string(&kept) {
        Ok(text) => {
            let found: Seen = toml::from_str(&text).map_err(|error| failed(io::Error::other(error)))?;
            if (&found.authority, &found.domain) == (&seen.authority, &seen.domain) {
                seen.serial = found.serial;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    refuse_older(roster.serial(), seen.serial)?;
    if roster.serial() > seen.serial {
        seen.serial = roster.serial();
        let written = toml::to_string(&seen)
            .map_err(io::Error::other)
            .and_then(|text| replace(&kept, text.as_bytes(), 0o600));
        if let Err(error) = written {
            tracing::warn!(
                "the serial of the roster cannot be kept in `{}`: {error}. After a restart this node would believe an \
                 older roster; name a directory that it may write to in STARHOP_STATE",
                kept.display()
            );
        }
    }
    Ok(())
}

/// Refuses a roster with `serial` after one with `seen`.
pub(super) fn refuse_older(serial: u64, seen: u64) -> Result<(), RosterError> {
    if serial < seen { Err(RosterError::Older { serial, seen }) } else { Ok(()) }
}

/// The place of the record of the roster at `roster`.
pub(super) fn place(roster: &Path) -> PathBuf {
    beside(roster, SUFFIX)
}

/// The name of a record about `file`.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let directory = DIRECTORIES.iter().find_map(std::env::var_os).filter(|name| !name.is_empty());
    let name = with_suffix(file, suffix);
    match directory.zip(name.file_name()) {
        // systemd may name several, with colons between them.
        Some((directory, name)) => std::env::split_paths(&directory).next().unwrap_or_default().join(name),
        None => name,
    }
}
