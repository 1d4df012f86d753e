//! Files that appear in one step, under a name beside theirs that no other user can have planted.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces the file at `path`, or makes it, with `mode`: a crash leaves the old file or the new one.
///
/// # Errors
/// The system's error.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, bytes, mode, File::sync_all)
}

/// The same without waiting for the disk: after a crash the file may be the old one, or empty.
///
/// # Errors
/// The system's error.
pub(crate) fn replace_soon(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, bytes, mode, |_| Ok(()))
}

fn replace_with(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    sync: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let fresh = with_suffix(path, ".new");
    let mut file = create_new(&fresh, mode)?;
    file.write_all(bytes)?;
    sync(&file)?;
    std::fs::rename(&fresh, path)
}

/// Makes a file anew. A file or link of that name is removed and not followed.
pub(crate) fn create_new(path: &Path, mode: u32) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// `path` with a longer last part. Names that are too long for the file system are cut, and get a hash to stay
/// distinct.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    /// The most bytes of a name before its last suffix: the file system's limit, less the longest suffix that is
    /// added.
    const MOST: usize = 255 - ".new".len();
    let name = path.file_name().unwrap_or_default();
    let mut long = OsString::from(name);
    long.push(suffix);
    if long.len() <= MOST {
        return path.with_file_name(long);
    }
    let hash = blake3::hash(name.as_encoded_bytes()).to_hex();
    let text = name.to_string_lossy();
    let room = MOST - suffix.len() - 17;
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= room).last().unwrap_or(0);
    path.with_file_name(format!("{}~{}{suffix}", &text[..end], &hash[..16]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (directory.path().join("key"), directory.path().join("other"));
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, directory.path().join("key.new")).unwrap();
        replace(&file, b"ours", 0o600).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"ours");
        assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file());
    }

    #[test]
    fn long_names_are_cut_where_a_letter_ends_and_differ_still() {
        let long =
            |last: &str| with_suffix(Path::new(&format!("d/{}{last}", "ä".repeat(125))), ".starhop-part");
        for name in [long("bcd"), long("bce")] {
            let name = name.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(name.len() <= 251 && name.len() > 240, "{name}");
            assert!(name.ends_with(".starhop-part"));
        }
        assert_ne!(long("bcd"), long("bce"));
        assert_eq!(with_suffix(Path::new("d/a.b"), ".new"), Path::new("d/a.b.new"));
    }
}
