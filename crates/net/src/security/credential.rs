//! Keys that systemd hands to a service (`LoadCredential=`, `LoadCredentialEncrypted=`): files below a directory that only
//! the service can enter.

use std::path::{Path, PathBuf};

/// The credential of this name, where systemd gave one to this process.
pub fn credential(name: &str) -> Option<PathBuf> {
    directory().map(|directory| directory.join(name)).filter(|path| path.is_file())
}

/// Whether `path` is a credential.
pub(super) fn is_one(path: &Path) -> bool {
    directory().is_some_and(|directory| path.parent() == Some(&directory))
}

fn directory() -> Option<PathBuf> {
    std::env::var_os("CREDENTIALS_DIRECTORY").filter(|value| !value.is_empty()).map(PathBuf::from)
}
