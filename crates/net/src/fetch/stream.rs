//! Bytes that must come in order: a pipe, a device, standard output.

use super::FetchError;
use crate::sys::replace::create_new;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of one copy.
const PIECE: usize = 1 << 20;

/// Takes bytes that were put together in any order in a spool, and hands them on in order.
#[derive(Debug)]
pub(super) struct Stream {
    /// None is standard output.
    path: Option<PathBuf>,
    /// Opened with the first byte: a pipe without a reader makes its writer wait.
    sink: Option<File>,
    is_verified: bool,
    handed_on: u64,
}

impl Stream {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, sink: None, is_verified: false, handed_on: 0 }
    }

    pub(super) fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new("standard output"))
    }

    /// Bytes are verified before they come here, and can be handed on at once.
    pub(super) fn set_verified(&mut self) {
        self.is_verified = true;
    }

    /// A file without a name for bytes that came before their turn.
    pub(super) fn spool(&self) -> Result<File, FetchError> {
        let nonce = crate::clock::seed();
        let path = std::env::temp_dir().join(format!("starhop-{}-{nonce:016x}", std::process::id()));
        let made = create_new(&path, 0o600).and_then(|file| std::fs::remove_file(&path).map(|()| file));
        made.map_err(|cause| FetchError::disk("create", &path, cause))
    }

    /// The next bytes in order are here, and in the spool from `start` on.
    pub(super) fn on_order(&mut self, spool: &File, start: u64, bytes: &[u8]) -> Result<(), FetchError> {
        if !self.is_verified {
            return Ok(());
        }
        self.hand_on(bytes)?;
        // They are not read again. A file system that cannot free them keeps them.
        let freed = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let _ = fallocate(spool, freed, start as libc::off_t, bytes.len() as libc::off_t);
        Ok(())
    }

    /// All bytes are in the spool, verified: hands on the rest.
    pub(super) fn finish(&mut self, spool: &File, length: u64) -> Result<(), FetchError> {
        let mut piece = vec![0; PIECE];
        while self.handed_on < length {
            let count = (length - self.handed_on).min(PIECE as u64) as usize;
            let read = spool.read_exact_at(&mut piece[..count], self.handed_on);
            read.map_err(|cause| FetchError::disk("read back", self.path(), cause))?;
            self.hand_on(&piece[..count])?;
        }
        Ok(())
    }

    fn hand_on(&mut self, bytes: &[u8]) -> Result<(), FetchError> {
        let sink = match self.sink.take() {
            Some(sink) => sink,
            None => self.open().map_err(|cause| FetchError::disk("open", self.path(), cause))?,
        };
        let written = (&sink).write_all(bytes);
        self.sink = Some(sink);
        written.map_err(|cause| FetchError::disk("write to", self.path(), cause))?;
        self.handed_on += bytes.len() as u64;
        Ok(())
    }

    fn open(&self) -> io::Result<File> {
        match &self.path {
            Some(path) => OpenOptions::new().write(true).open(path),
            None => Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?)),
        }
    }
}
