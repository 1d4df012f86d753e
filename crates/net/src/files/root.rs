//! A path that is served: opened once, and never left.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// One path that the operator wants served.
#[derive(Debug)]
pub struct Root {
    /// The directory: the served one, or the one that holds the served file.
    directory: File,
    shown: PathBuf,
    /// The one file to serve, where a file was named.
    only: Option<String>,
}

/// A path that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve `{}`: {cause}", .path.display())]
pub struct RootError {
    path: PathBuf,
    cause: io::Error,
}

impl Root {
    /// Opens a directory or a file.
    ///
    /// # Errors
    /// When it is not there, not readable, or neither file nor directory.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        Self::try_open(path).map_err(|cause| RootError { path: path.to_owned(), cause })
    }

    fn try_open(path: &Path) -> io::Result<Self> {
        let real = path.canonicalize()?;
        let shown = path.to_owned();
        let kind = real.metadata()?;
        if kind.is_dir() {
            std::fs::read_dir(&real)?;
            return Ok(Self { directory: File::open(&real)?, shown, only: None });
        }
        if !kind.is_file() {
            return Err(io::Error::other("it is neither a file nor a directory"));
        }
        File::open(&real)?;
        let invalid = || io::Error::other("its name is not UTF-8");
        let name = real.file_name().and_then(|name| name.to_str()).ok_or_else(invalid)?.to_owned();
        let parent = real.parent().unwrap_or(Path::new("/"));
        Ok(Self { directory: File::open(parent)?, shown, only: Some(name) })
    }

    /// Opens a file below the root; the kernel refuses every path, symbolic links included, that leaves it.
    pub(super) fn open_below(&self, path: &Path) -> io::Result<File> {
        let how = OpenHow::new()
            // Without O_NONBLOCK a named pipe would wait for its writer.
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Ok(File::from(openat2(&self.directory, path, how)?))
    }

    /// Paths of all regular files below, sorted; `warn` hears of directories that cannot be read.
    pub(super) fn list(&self, warn: impl Fn(String)) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        if let Some(name) = &self.only {
            found.insert(PathBuf::from(name));
            return found;
        }
        let mut waiting = vec![PathBuf::new()];
        // A link to a directory above would lead in circles: each directory is entered once.
        let mut entered = BTreeSet::new();
        while let Some(directory) = waiting.pop() {
            if let Err(error) = self.list_one(&directory, &mut waiting, &mut entered, &mut found) {
                let path = self.shown.join(&directory);
                warn(format!("not served: `{}`: {error}", path.display()));
            }
        }
        found
    }

    fn list_one(
        &self,
        directory: &Path,
        waiting: &mut Vec<PathBuf>,
        entered: &mut BTreeSet<(u64, u64)>,
        found: &mut BTreeSet<PathBuf>,
    ) -> io::Result<()> {
        let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        let opened = self.open_below(here)?;
        let stat = nix::sys::stat::fstat(&opened)?;
        if !entered.insert((stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        let mut listing = nix::dir::Dir::from_fd(opened.into())?;
        for entry in listing.iter() {
            let Ok(name) = entry?.file_name().to_str().map(str::to_owned) else { continue };
            if name == "." || name == ".." || crate::fetch::is_partial(&name) {
                continue;
            }
            let path = directory.join(name);
            // A link that leaves the directory, a file without permission: not served, and no error.
            let Ok(file) = self.open_below(&path) else { continue };
            match file.metadata() {
                Ok(kind) if kind.is_dir() => waiting.push(path),
                Ok(kind) if kind.is_file() => drop(found.insert(path)),
                _ => {}
            }
        }
        Ok(())
    }
}
