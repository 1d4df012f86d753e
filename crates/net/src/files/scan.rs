//! Finds and hashes what is served, on a thread of its own.

use super::catalogue::{Catalogue, Entry, Object, Place, Shared, Stamp};
use crate::content::{Manifest, manifest_flow, problem_of_path};
use crate::outboard::{TreeHasher, outboard_flow, outboard_len};
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use starhop_proto::name::FlowId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two walks over the served paths, at least; and at least twenty times what a walk took.
const RESCAN: Duration = Duration::from_secs(2);
const HASH_CHUNK: usize = 1 << 20;

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

    /// Paths of all regular files below, sorted.
    fn list(&self, shared: &Shared) -> BTreeSet<PathBuf> {
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
                shared.warn(format!("not served: `{}`: {error}", path.display()));
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

/// Keeps the catalogue true until told to stop.
pub(super) fn run(roots: &[Arc<Root>], shared: &Shared) {
    let mut known = BTreeMap::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        round(roots, shared, &mut known);
        let until = Instant::now() + RESCAN.max(start.elapsed() * 20);
        while Instant::now() < until && !shared.stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

type Known = BTreeMap<String, Arc<Entry>>;

fn round(roots: &[Arc<Root>], shared: &Shared, known: &mut Known) {
    let places = find(roots, shared);
    known.retain(|name, entry| places.get(name).is_some_and(|(_, stamp)| *stamp == entry.stamp));
    let waiting: Vec<_> = places.iter().filter(|(name, _)| !known.contains_key(*name)).collect();
    shared.files.store(places.len() as u64, Ordering::Relaxed);
    shared.total_bytes.store(waiting.iter().map(|(_, (_, stamp))| stamp.length).sum(), Ordering::Relaxed);
    shared.hashed_bytes.store(0, Ordering::Relaxed);
    let mut published = Instant::now();
    shared.publish(catalogue(&places, known, waiting.is_empty()));
    for (name, (place, _)) in &waiting {
        match hash(place, shared) {
            Ok(Some(entry)) => drop(known.insert((*name).clone(), Arc::new(entry))),
            // It changed while it was read: the next round comes back to it.
            Ok(None) => {}
            Err(error) => shared.warn(format!("not served: `{name}`: {error}")),
        }
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        // Each publication copies the catalogue: not once per file of a large tree.
        if published.elapsed() > Duration::from_millis(200) {
            shared.publish(catalogue(&places, known, false));
            published = Instant::now();
        }
    }
    if !waiting.is_empty() {
        shared.publish(catalogue(&places, known, true));
    }
}

fn find(roots: &[Arc<Root>], shared: &Shared) -> BTreeMap<String, (Place, Stamp)> {
    let mut places = BTreeMap::new();
    for root in roots {
        for path in root.list(shared) {
            let Some(name) = path.to_str().filter(|name| problem_of_path(name).is_none()) else { continue };
            let Ok(stamp) = root.open_below(&path).and_then(|file| Stamp::of(&file)) else { continue };
            let name = name.to_owned();
            // The first path on the command line wins where two hold the same name.
            places.entry(name).or_insert((Place { root: root.clone(), path }, stamp));
        }
    }
    places
}

fn catalogue(places: &BTreeMap<String, (Place, Stamp)>, known: &Known, is_complete: bool) -> Catalogue {
    let mut objects = BTreeMap::new();
    for name in places.keys() {
        let object = match known.get(name) {
            Some(entry) => {
                let flow = FlowId::of_content(entry.hash.as_bytes());
                objects.insert(flow, Object::File(entry.clone()));
                if let Some(outboard) = &entry.outboard {
                    objects.insert(outboard_flow(flow), Object::Outboard(outboard.clone()));
                }
                Object::Manifest(Manifest::new(entry.stamp.length, &entry.hash).to_bytes().into())
            }
            None if is_complete => continue,
            None => Object::Pending,
        };
        objects.insert(manifest_flow(name), object);
    }
    Catalogue { objects, is_complete }
}

/// Reads the whole file; `None` when it changed meanwhile. Plain reads, no mapping: a file that is truncated
/// under a mapping kills the process.
fn hash(place: &Place, shared: &Shared) -> io::Result<Option<Entry>> {
    let mut file = place.root.open_below(&place.path)?;
    let stamp = Stamp::of(&file)?;
    let mut hasher = TreeHasher::default();
    let mut chunk = vec![0; HASH_CHUNK];
    let mut length = 0;
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 || shared.stop.load(Ordering::Relaxed) {
            break;
        }
        hasher.update(&chunk[..count]);
        length += count as u64;
        shared.hashed_bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
    let is_same = length == stamp.length && Stamp::of(&file)? == stamp;
    let (hash, outboard) = hasher.finish();
    let outboard = outboard.filter(|_| outboard_len(length).is_some()).map(Into::into);
    Ok(is_same.then(|| Entry { place: place.clone(), stamp, hash, outboard }))
}
