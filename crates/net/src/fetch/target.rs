use super::FetchError;
use super::state::State;
use super::stream::Stream;
use crate::content::ContentName;
use crate::sys::replace::with_suffix;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::AccessFlags;
use starhop_proto::name::RangeSet;
use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const PART_SUFFIX: &str = ".starhop-part";
const STATE_SUFFIX: &str = ".starhop-state";

/// Destination of the bytes of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Nowhere, unverified: for measurements.
    Discard,
    /// Standard output, in order.
    Standard,
    /// A file. A device or a pipe is written in order, and never replaced.
    File {
        /// Its path.
        path: PathBuf,
        /// Replace a file that is there.
        force: bool,
    },
}

impl Output {
    /// The path of the file, if it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Discard | Self::Standard => None,
        }
    }
}

/// Whether a file of this name is an unfinished download or belongs to one.
pub fn is_partial(name: &str) -> bool {
    name.ends_with(PART_SUFFIX) || name.contains(STATE_SUFFIX)
}

/// Path of the partial file of `output`.
pub(super) fn part_of(output: &Path) -> PathBuf {
    with_suffix(output, PART_SUFFIX)
}

/// The kind of an output, after a look at its path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Discard,
    /// Something that takes bytes in order; none is standard output.
    Stream(Option<PathBuf>),
    File {
        path: PathBuf,
        force: bool,
    },
}

impl Place {
    /// Determines the kind of an output, and refuses early a path that cannot be written.
    pub(super) fn find(output: &Output) -> Result<Self, FetchError> {
        let (path, force) = match output {
            Output::Discard => return Ok(Self::Discard),
            Output::Standard => return Ok(Self::Stream(None)),
            Output::File { path, force } => (path, *force),
        };
        let refused =
            |problem: &str| FetchError::disk("write to", path, io::Error::other(problem.to_owned()));
        let path = match std::fs::metadata(path).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_dir() => {
                let cause = io::Error::from(io::ErrorKind::IsADirectory);
                return Err(FetchError::disk("write to", path, cause));
            }
            Ok(kind) if takes_a_stream(kind) => return Ok(Self::Stream(Some(path.clone()))),
            Ok(kind) if !kind.is_file() => return Err(refused("it is a socket")),
            // The file behind a link is written; the link is not replaced.
            Ok(_) => path.canonicalize().map_err(|cause| FetchError::disk("find", path, cause))?,
            Err(_) if path.is_symlink() => return Err(refused("it is a symbolic link that leads nowhere")),
            Err(_) => path.clone(),
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let access = nix::unistd::access(parent, AccessFlags::W_OK | AccessFlags::X_OK);
        access.map_err(|errno| FetchError::disk("write into", parent, errno.into()))?;
        Ok(Self::File { path, force })
    }

    /// Whether the file is there already with exactly these bytes.
    ///
    /// # Errors
    /// Another file is there, and may not be replaced.
    pub(super) fn is_complete(&self, length: Option<u64>, hash: blake3::Hash) -> Result<bool, FetchError> {
        let Self::File { path, force: false } = self else { return Ok(false) };
        let Ok(mut file) = File::open(path) else { return Ok(false) };
        let size = file.metadata().map_or(0, |meta| meta.len());
        let mut hasher = blake3::Hasher::new();
        let is_same = length.is_none_or(|length| length == size)
            && hasher.update_reader(&mut file).is_ok_and(|hasher| hasher.finalize() == hash);
        if is_same { Ok(true) } else { Err(FetchError::Exists { path: path.clone() }) }
    }
}

fn takes_a_stream(kind: FileType) -> bool {
    kind.is_char_device() || kind.is_block_device() || kind.is_fifo()
}

/// The file in which an object is put together.
#[derive(Debug)]
pub(super) struct Target {
    /// The bytes, in any order.
    pub(super) file: File,
    /// Bytes from an earlier attempt.
    pub(super) have: RangeSet,
    pub(super) name: String,
    pub(super) length: Option<u64>,
    goal: Goal,
}

/// Destination of the bytes.
#[derive(Debug)]
enum Goal {
    /// They get their name when they are complete.
    File(Part),
    /// They go on in order.
    Stream(Stream),
}

/// A file that is being downloaded, locked against a second download into it.
#[derive(Debug)]
struct Part {
    output: PathBuf,
    force: bool,
    part: PathBuf,
    state_path: PathBuf,
    state: State,
    _lock: Flock<File>,
}

impl Target {
    /// Opens or makes the file that holds the bytes until they are complete, and finds out which bytes it holds
    /// already.
    pub(super) fn open(
        place: &Place,
        name: &ContentName,
        length: Option<u64>,
        hash: blake3::Hash,
    ) -> Result<Option<Self>, FetchError> {
        let name = name.to_string();
        match place {
            Place::Discard => Ok(None),
            Place::Stream(path) => {
                let stream = Stream::new(path.clone());
                let file = stream.spool()?;
                let have = RangeSet::new();
                Ok(Some(Self { file, have, name, length, goal: Goal::Stream(stream) }))
            }
            Place::File { path, force } => Self::open_part(path, *force, name, length, hash).map(Some),
        }
    }

    fn open_part(
        output: &Path,
        force: bool,
        name: String,
        length: Option<u64>,
        hash: blake3::Hash,
    ) -> Result<Self, FetchError> {
        let (part, state_path) = (part_of(output), with_suffix(output, STATE_SUFFIX));
        let file = open_own(&part)?;
        let lock = file.try_clone().map_err(|cause| FetchError::disk("open", &part, cause))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|_| {
            let cause = io::Error::other("another download writes to it");
            FetchError::disk("write to", &part, cause)
        })?;
        let size = file.metadata().map_or(0, |meta| meta.len());
        let have = State::load(&state_path, &hash, length, size);
        if have.is_none() && size > 0 {
            file.set_len(0).map_err(|cause| FetchError::disk("empty", &part, cause))?;
        }
        let have = have.unwrap_or_default();
        let state = State::new(&name, &hash, length);
        let goal =
            Goal::File(Part { output: output.to_owned(), force, part, state_path, state, _lock: lock });
        let target = Self { file, have, name, length, goal };
        target.check_space(output)?;
        Ok(target)
    }

    /// A download that cannot fit is better refused now than after an hour.
    fn check_space(&self, output: &Path) -> Result<(), FetchError> {
        let Some(length) = self.length else { return Ok(()) };
        let Ok(disk) = nix::sys::statvfs::fstatvfs(&self.file) else { return Ok(()) };
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        if length.saturating_sub(self.have.byte_count()) <= free {
            return Ok(());
        }
        if self.have.is_empty() {
            self.remove();
        }
        let cause = io::Error::from(io::ErrorKind::StorageFull);
        Err(FetchError::disk("fit the object into", output, cause))
    }

    /// Each byte that is written from now on is verified: a stream need not wait for the last one.
    pub(super) fn set_verified(&mut self) {
        if let Goal::Stream(stream) = &mut self.goal {
            stream.set_verified();
        }
    }

    /// Whether a write may block without limit, such as for a pipe's reader.
    pub(super) fn may_block(&self) -> bool {
        matches!(self.goal, Goal::Stream(_))
    }

    /// The path that errors name.
    pub(super) fn path(&self) -> &Path {
        match &self.goal {
            Goal::File(part) => &part.part,
            Goal::Stream(stream) => stream.path(),
        }
    }

    /// The next bytes in order were written at `start`.
    pub(super) fn on_order(&mut self, start: u64, bytes: &[u8]) -> Result<(), FetchError> {
        match &mut self.goal {
            Goal::File(_) => Ok(()),
            Goal::Stream(stream) => stream.on_order(&self.file, start, bytes),
        }
    }

    pub(super) fn save(&mut self, have: &RangeSet) -> Result<(), FetchError> {
        let Goal::File(part) = &mut self.goal else { return Ok(()) };
        let synced = self.file.sync_data().and_then(|()| part.state.save(&part.state_path, have));
        synced.map_err(|cause| FetchError::disk("write to", &part.part, cause))
    }

    /// Gives the complete and verified file its name, or a stream the rest of its bytes.
    pub(super) fn complete(&mut self, length: u64) -> Result<(), FetchError> {
        let part = match &mut self.goal {
            Goal::File(part) => part,
            Goal::Stream(stream) => return stream.finish(&self.file, length),
        };
        let synced = self.file.set_len(length).and_then(|()| self.file.sync_all());
        let named = synced.and_then(|()| part.name());
        named.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => FetchError::Exists { path: part.output.clone() },
            _ => FetchError::disk("finish", &part.output, cause),
        })?;
        part.remove_state();
        Ok(())
    }

    pub(super) fn remove(&self) {
        if let Goal::File(part) = &self.goal {
            // A file that cannot be removed stays; the error that led here matters more.
            let _ = std::fs::remove_file(&part.part);
            part.remove_state();
        }
    }
}

impl Part {
    fn name(&self) -> io::Result<()> {
        if !self.force {
            match std::fs::hard_link(&self.part, &self.output) {
                Ok(()) => return std::fs::remove_file(&self.part),
                // Another process made it meanwhile: unlike renaming, linking replaces nothing.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                // A file system without links.
                Err(_) => {}
            }
        }
        std::fs::rename(&self.part, &self.output)
    }

    fn remove_state(&self) {
        let _ = std::fs::remove_file(&self.state_path);
    }
}

/// Opens or makes a partial file, which must be this user's own: another user who can write to the directory could
/// have planted a link there, to have another file overwritten.
fn open_own(part: &Path) -> Result<File, FetchError> {
    let failed = |cause| FetchError::disk("create", part, cause);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let planted =
        || failed(io::Error::other("it is a link, or not this user's file: look at it, and remove it"));
    let file = match options.open(part) {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => return Err(planted()),
        opened => opened.map_err(failed)?,
    };
    let meta = file.metadata().map_err(failed)?;
    let is_own = meta.is_file() && meta.nlink() == 1 && meta.uid() == nix::unistd::geteuid().as_raw();
    if is_own { Ok(file) } else { Err(planted()) }
}
