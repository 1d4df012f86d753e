//! A path that is served: opened once, and never left.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One path that the operator wants served.
#[derive(Debug)]
pub struct Root {
    /// The directory: the served one, or the one that holds the served file.
    directory: File,
    shown: PathBuf,
    /// The one file to serve, where a file was named.
    only: Option<String>,
    /// Names that begin with a dot are served, too.
    with_hidden: bool,
}

/// The events of a walk below a [`Root`].
pub(super) trait Walk {
    /// A directory was entered.
    fn enter(&mut self, directory: &File);
    /// Something below the root cannot be served; `path` is as the operator would write it.
    fn skip(&mut self, path: &Path, reason: &str);
}

/// A path that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve `{}`: {cause}", .path.display())]
pub struct RootError {
    path: PathBuf,
    cause: io::Error,
}

impl Root {
    /// Opens a directory or a file. Files and directories whose names begin with a dot are left out of a directory
    /// unless `with_hidden`: they are more likely to hold settings, histories and keys than content to share.
    ///
    /// # Errors
    /// The path does not exist, cannot be read, or is neither file nor directory.
    pub fn open(path: &Path, with_hidden: bool) -> Result<Self, RootError> {
        Self::try_open(path, with_hidden).map_err(|cause| RootError { path: path.to_owned(), cause })
    }

    fn try_open(path: &Path, with_hidden: bool) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let shown = path.to_owned();
        let kind = real.metadata()?;
        if kind.is_dir() {
            std::fs::read_dir(&real)?;
            return Ok(Self { directory: File::open(&real)?, shown, only: None, with_hidden });
        }
        if !kind.is_file() {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        File::open(&real)?;
        let invalid = || io::Error::other("its name is not UTF-8");
        let name = real.file_name().and_then(|name| name.to_str()).ok_or_else(invalid)?.to_owned();
        let parent = real.parent().unwrap_or(Path::new("/"));
        Ok(Self { directory: File::open(parent)?, shown, only: Some(name), with_hidden })
    }

    /// Opens a file below the root; the kernel refuses every path, symbolic links included, that leaves it.
    pub(super) fn open_below(&self, path: &Path) -> io::Result<File> {
        let how = OpenHow::new()
            // Without O_NONBLOCK a named pipe would wait for its writer.
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Ok(File::from(openat2(&self.directory, path, how)?))
    }

    /// A path below the root as the operator would write it.
    pub(super) fn shown(&self, path: &Path) -> PathBuf {
        if self.only.is_some() { self.shown.clone() } else { self.shown.join(path) }
    }

    /// Paths of all regular files below, sorted; `walk` is called with directories and with files that cannot be
    /// served.
    pub(super) fn list(&self, walk: &mut impl Walk) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        if let Some(name) = &self.only {
            walk.enter(&self.directory);
            found.insert(PathBuf::from(name));
            return found;
        }
        let mut waiting = vec![PathBuf::new()];
        // A link to a directory above would lead in circles: each directory is entered once.
        let mut entered = BTreeSet::new();
        while let Some(directory) = waiting.pop() {
            let opened = match self.open_below(here(&directory)) {
                Ok(opened) => opened,
                Err(error) => {
                    walk.skip(&self.shown(&directory), &error.to_string());
                    continue;
                }
            };
            let is_new = nix::sys::stat::fstat(&opened).is_ok_and(|s| entered.insert((s.st_dev, s.st_ino)));
            if !is_new {
                continue;
            }
            walk.enter(&opened);
            if let Err(error) = self.list_one(opened, &directory, walk, &mut waiting, &mut found) {
                walk.skip(&self.shown(&directory), &error.to_string());
            }
        }
        found
    }

    fn list_one(
        &self,
        opened: File,
        directory: &Path,
        walk: &mut impl Walk,
        waiting: &mut Vec<PathBuf>,
        found: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let mut listing = nix::dir::Dir::from_fd(opened.into())?;
        for entry in listing.iter() {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." || (bytes.starts_with(b".") && !self.with_hidden) {
                continue;
            }
            let path = directory.join(OsStr::from_bytes(bytes));
            let Ok(name) = entry.file_name().to_str() else {
                walk.skip(&self.shown(&path), "its name is not UTF-8, and names are");
                continue;
            };
            if crate::fetch::is_partial(name) {
                continue;
            }
            match self.open_below(&path).and_then(|file| file.metadata()) {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() => drop(found.insert(path)),
                Ok(_) => walk.skip(&self.shown(&path), "it is neither a file nor a directory"),
                Err(error) => walk.skip(&self.shown(&path), &reason(&error)),
            }
        }
        Ok(())
    }
}

/// The name under which a root knows one of its directories.
fn here(directory: &Path) -> &Path {
    if directory.as_os_str().is_empty() { Path::new(".") } else { directory }
}

/// The reason why a path below a root cannot be opened.
fn reason(error: &io::Error) -> String {
    // The kernel's word for a path that leaves the root.
    match error.raw_os_error() {
        Some(libc::EXDEV) => "it is a link that leads out of what is served".to_owned(),
        _ => error.to_string(),
    }
}
