use super::root::Root;
use nix::sys::stat::FileStat;
use starhop_proto::name::FlowId;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The attributes that tell one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) length: u64,
    modified: (i64, i64),
    /// Changes with the content even if the modification time is set back.
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let stat: FileStat = nix::sys::stat::fstat(file)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: stat.st_size as u64,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }
}

/// Place of a file: its root, and the path below the root.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: Arc<Root>,
    pub(super) path: PathBuf,
}

/// A file whose hash is known.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) stamp: Stamp,
    pub(super) hash: blake3::Hash,
    /// Outboard that verifies its parts, if it has several.
    pub(super) outboard: Option<Arc<[u8]>>,
}

/// The object that a flow stands for.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// The bytes of a file.
    File(Arc<Entry>),
    /// The manifest of a name.
    Manifest(Arc<[u8]>),
    /// The outboard of a file.
    Outboard(Arc<[u8]>),
    /// The manifest of a file that is still being hashed.
    Pending,
}

/// One state of everything that is served.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
    pub(super) objects: BTreeMap<FlowId, Object>,
    /// Some files have no hash yet: an unknown hash may turn out to be one of them.
    pub(super) is_complete: bool,
}

/// Progress of hashing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Files found.
    pub files: u64,
    /// Files and directories that cannot be served; each was named once in a warning.
    pub skipped: u64,
    /// Bytes to hash in the running round.
    pub total_bytes: u64,
    /// Bytes hashed in it.
    pub hashed_bytes: u64,
    /// Every file found has its hash.
    pub is_complete: bool,
}

/// State that the hashing thread and the source share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    catalogue: Mutex<Arc<Catalogue>>,
    version: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) total_bytes: AtomicU64,
    pub(super) hashed_bytes: AtomicU64,
    pub(super) is_complete: AtomicBool,
    pub(super) stop: AtomicBool,
    warnings: Mutex<Vec<String>>,
}

impl Shared {
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<Catalogue> {
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn publish(&self, catalogue: Catalogue) {
        self.is_complete.store(catalogue.is_complete, Ordering::Release);
        *self.catalogue.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(catalogue);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub(super) fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        // The warnings may have no reader.
        if warnings.len() < 100 {
            warnings.push(warning);
        }
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            files: self.files.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            hashed_bytes: self.hashed_bytes.load(Ordering::Relaxed),
            is_complete: self.is_complete.load(Ordering::Acquire),
        }
    }
}
