use super::FetchError;
use super::state::State;
use crate::content::ContentName;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::AccessFlags;
use starhop_proto::name::RangeSet;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

const PART_SUFFIX: &str = ".starhop-part";
const STATE_SUFFIX: &str = ".starhop-state";

/// Whether a file of this name is an unfinished download or belongs to one.
pub fn is_partial(name: &str) -> bool {
    name.ends_with(PART_SUFFIX) || name.contains(STATE_SUFFIX)
}

/// Where the bytes of `output` are until they are complete.
pub(super) fn part_of(output: &Path) -> PathBuf {
    with_suffix(output, PART_SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// A file that is being downloaded, locked against a second download into it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) output: PathBuf,
    pub(super) part: PathBuf,
    pub(super) state_path: PathBuf,
    pub(super) file: Flock<File>,
    pub(super) state: State,
    /// What is there from an earlier attempt.
    pub(super) have: RangeSet,
    pub(super) name: String,
    pub(super) length: Option<u64>,
}

/// Refuses early what cannot be a file.
pub(super) fn check(output: &Path) -> Result<(), FetchError> {
    if output.is_dir() {
        let source = io::Error::from(io::ErrorKind::IsADirectory);
        return Err(FetchError::disk("write to", output, source));
    }
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let access = nix::unistd::access(parent, AccessFlags::W_OK | AccessFlags::X_OK);
    access.map_err(|errno| FetchError::disk("write into", parent, errno.into()))
}

impl Target {
    /// Opens or makes the partial file and finds out what it holds already.
    pub(super) fn open(
        output: &Path,
        name: &ContentName,
        length: Option<u64>,
        hash: blake3::Hash,
    ) -> Result<Self, FetchError> {
        let (part, state_path) = (part_of(output), with_suffix(output, STATE_SUFFIX));
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&part);
        let file = open.map_err(|source| FetchError::disk("create", &part, source))?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
            let source = io::Error::other("another download writes to it");
            FetchError::disk("write to", &part, source)
        })?;
        let size = file.metadata().map_or(0, |meta| meta.len());
        let have = State::load(&state_path, &hash, length, size);
        if have.is_none() && size > 0 {
            file.set_len(0).map_err(|source| FetchError::disk("empty", &part, source))?;
        }
        let have = have.unwrap_or_default();
        let target = Self {
            output: output.to_owned(),
            state: State::new(&name.to_string(), &hash, length),
            name: name.to_string(),
            part,
            state_path,
            file,
            have,
            length,
        };
        target.check_space()?;
        Ok(target)
    }

    /// A download that cannot fit is better refused now than after an hour.
    fn check_space(&self) -> Result<(), FetchError> {
        let Some(length) = self.length else { return Ok(()) };
        let Ok(disk) = nix::sys::statvfs::fstatvfs(&*self.file) else { return Ok(()) };
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        if length.saturating_sub(self.have.byte_count()) <= free {
            return Ok(());
        }
        if self.have.is_empty() {
            self.remove();
        }
        let source = io::Error::from(io::ErrorKind::StorageFull);
        Err(FetchError::disk("fit the object into", &self.output, source))
    }

    pub(super) fn save(&mut self, have: &RangeSet) -> Result<(), FetchError> {
        let synced = self.file.sync_data().and_then(|()| self.state.save(&self.state_path, have));
        synced.map_err(|source| FetchError::disk("write to", &self.part, source))
    }

    /// Gives the complete file its name.
    pub(super) fn complete(&self, length: u64) -> Result<(), FetchError> {
        let renamed = self
            .file
            .set_len(length)
            .and_then(|()| self.file.sync_all())
            .and_then(|()| std::fs::rename(&self.part, &self.output));
        renamed.map_err(|source| FetchError::disk("finish", &self.output, source))?;
        self.remove_state();
        Ok(())
    }

    pub(super) fn remove(&self) {
        // Whoever cannot remove them will see them; the error that led here matters more.
        let _ = std::fs::remove_file(&self.part);
        self.remove_state();
    }

    fn remove_state(&self) {
        let _ = std::fs::remove_file(&self.state_path);
    }
}
