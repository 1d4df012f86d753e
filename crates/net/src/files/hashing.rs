//! Files that are being hashed, the shortest rest first: a small file never waits for a large one.

use super::catalogue::{Entry, Place, Stamp};
use crate::outboard::{TreeHasher, outboard_len};
use crate::security::holds_a_secret;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};

/// Bytes that are hashed between two looks at other work.
const CHUNK: usize = 1 << 20;

/// Outcome of hashing a file.
#[derive(Debug)]
pub(super) enum Hashed {
    /// The file has its hash.
    Done(Entry),
    /// The file changed while it was read; the next scan finds it again.
    Changed,
    /// The file must not be served, for this reason.
    Refused(String),
}

/// Files that wait for their hash.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By remaining bytes, and by name.
    order: BTreeSet<(u64, String)>,
    jobs: BTreeMap<String, Job>,
    chunk: Vec<u8>,
}

#[derive(Debug)]
struct Job {
    place: Place,
    stamp: Stamp,
    begun: Option<Begun>,
}

#[derive(Debug)]
struct Begun {
    file: File,
    hasher: TreeHasher,
    read: u64,
}

impl Job {
    fn left(&self) -> u64 {
        self.stamp.length.saturating_sub(self.begun.as_ref().map_or(0, |begun| begun.read))
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Bytes that are still to be hashed.
    pub(super) fn left(&self) -> u64 {
        self.order.iter().map(|(left, _)| left).sum()
    }

    /// Waits for exactly these files from now on; hashes already begun go on for unchanged files.
    pub(super) fn set(&mut self, wanted: BTreeMap<String, (Place, Stamp)>) {
        self.jobs.retain(|name, job| wanted.get(name).is_some_and(|(_, stamp)| *stamp == job.stamp));
        for (name, (place, stamp)) in wanted {
            self.jobs.entry(name).or_insert(Job { place, stamp, begun: None });
        }
        self.order = self.jobs.iter().map(|(name, job)| (job.left(), name.clone())).collect();
    }

    /// Reads a piece of the file with the fewest remaining bytes. Returns the number of bytes read, and the file's
    /// name with the outcome if that is known now.
    pub(super) fn step(&mut self) -> (u64, Option<(String, Hashed)>) {
        let Some((_, name)) = self.order.pop_first() else { return (0, None) };
        let Some(mut job) = self.jobs.remove(&name) else { return (0, None) };
        self.chunk.resize(CHUNK, 0);
        match job.read(&mut self.chunk) {
            Ok((count, None)) => {
                self.order.insert((job.left(), name.clone()));
                self.jobs.insert(name, job);
                (count, None)
            }
            Ok((count, Some(hashed))) => (count, Some((name, hashed))),
            Err(error) => (0, Some((name, Hashed::Refused(error.to_string())))),
        }
    }
}

impl Job {
    /// Reads on. Plain reads, no mapping: a file that is truncated under a mapping kills the process.
    fn read(&mut self, chunk: &mut [u8]) -> io::Result<(u64, Option<Hashed>)> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => Begun::new(&self.place)?,
        };
        let count = begun.file.read(chunk)?;
        if begun.read == 0 && holds_a_secret(&chunk[..count]) {
            return Ok((0, Some(Hashed::Refused("it is a Starhop key, which is not given away".to_owned()))));
        }
        if count > 0 {
            begun.hasher.update(&chunk[..count]);
            begun.read += count as u64;
            self.begun = Some(begun);
            return Ok((count as u64, None));
        }
        let length = begun.read;
        if length != self.stamp.length || Stamp::of(&begun.file)? != self.stamp {
            return Ok((0, Some(Hashed::Changed)));
        }
        let (hash, outboard) = begun.hasher.finish();
        let outboard = outboard.filter(|_| outboard_len(length).is_some()).map(Into::into);
        let entry = Entry { place: self.place.clone(), stamp: self.stamp, hash, outboard };
        Ok((0, Some(Hashed::Done(entry))))
    }
}

impl Begun {
    fn new(place: &Place) -> io::Result<Self> {
        Ok(Self { file: place.root.open_below(&place.path)?, hasher: TreeHasher::default(), read: 0 })
    }
}
