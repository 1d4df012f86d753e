//! Finds and hashes the served files, on a thread of its own.

use super::catalogue::{Catalogue, Entry, Object, Place, Shared, Stamp};
use super::hashing::{Hashed, Queue};
use super::root::{Root, Walk};
use super::watch::Watch;
use crate::content::{Manifest, manifest_flow, problem_of_path};
use crate::index::{self, index_flow};
use crate::outboard::outboard_flow;
use starhop_proto::name::FlowId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Shortest time between two walks over the served paths; the time is also at least twenty times the last walk's.
const RESCAN: Duration = Duration::from_secs(2);
/// The same after the kernel reported a change; at least five times the last walk's.
const RESCAN_CHANGED: Duration = Duration::from_millis(100);
/// Between two publications: each copies the catalogue, so not once per file of a large tree.
const PUBLISH: Duration = Duration::from_millis(200);
/// Between two looks for something to do.
const IDLE: Duration = Duration::from_millis(50);

type Places = BTreeMap<String, (Place, Stamp)>;

/// Keeps the catalogue up to date until `stop` is set.
pub(super) fn run(roots: &[Arc<Root>], shared: &Shared) {
    let mut scan = Scan::new(roots, shared);
    while !shared.stop.load(Ordering::Relaxed) {
        scan.turn();
    }
}

/// The scanner's knowledge of the served paths.
struct Scan<'a> {
    roots: &'a [Arc<Root>],
    shared: &'a Shared,
    watch: Watch,
    /// The kernel reported a change since the last walk.
    has_changed: bool,
    walked: Option<Walked>,
    places: Places,
    known: BTreeMap<String, Arc<Entry>>,
    /// Files that were found to be not for serving, as they were then.
    refused: BTreeMap<String, (Stamp, String)>,
    queue: Queue,
    published: Instant,
    /// Paths of which the operator was told already that they are not served.
    told: BTreeSet<String>,
}

/// The last walk.
struct Walked {
    end: Instant,
    took: Duration,
}

impl<'a> Scan<'a> {
    fn new(roots: &'a [Arc<Root>], shared: &'a Shared) -> Self {
        Self {
            roots,
            shared,
            watch: Watch::new(),
            has_changed: false,
            walked: None,
            places: BTreeMap::new(),
            known: BTreeMap::new(),
            refused: BTreeMap::new(),
            queue: Queue::default(),
            published: Instant::now(),
            told: BTreeSet::new(),
        }
    }

    /// Walks if it is time; otherwise hashes a piece of a file, or waits a little.
    fn turn(&mut self) {
        self.has_changed |= self.watch.has_news();
        if self.is_walk_due(Instant::now()) {
            self.walk();
        } else if self.queue.is_empty() {
            std::thread::sleep(IDLE);
        } else {
            self.hash();
        }
    }

    fn is_walk_due(&self, now: Instant) -> bool {
        let Some(Walked { end, took }) = self.walked else { return true };
        let pause = if self.has_changed { RESCAN_CHANGED.max(took * 5) } else { RESCAN.max(took * 20) };
        now >= end + pause
    }

    fn walk(&mut self) {
        let start = Instant::now();
        self.has_changed = false;
        let mut below = Below { watch: &mut self.watch, skipped: BTreeSet::new() };
        self.places = find(self.roots, &mut below);
        let mut skipped = below.skipped;
        let places = &self.places;
        let is_there =
            |name: &String, stamp: &Stamp| places.get(name).is_some_and(|(_, found)| found == stamp);
        self.known.retain(|name, entry| is_there(name, &entry.stamp));
        self.refused.retain(|name, (stamp, _)| is_there(name, stamp));
        skipped.extend(self.refused.values().map(|(_, problem)| problem.clone()));
        let waits = |name: &String| !self.known.contains_key(name) && !self.refused.contains_key(name);
        let waiting = places.iter().filter(|(name, _)| waits(name));
        let was_idle = self.queue.is_empty();
        self.queue.set(waiting.map(|(name, found)| (name.clone(), found.clone())).collect());
        self.tell(skipped);
        self.count(was_idle);
        self.publish();
        self.walked = Some(Walked { end: Instant::now(), took: start.elapsed() });
    }

    /// Names each path that is not served, once.
    fn tell(&mut self, mut skipped: BTreeSet<String>) {
        self.shared.skipped.store(skipped.len() as u64, Ordering::Relaxed);
        if self.watch.is_spent() {
            skipped.insert(
                "the kernel gives no more watches (sysctl fs.inotify.max_user_watches): changes in some \
                 directories are found by the next walk only"
                    .to_owned(),
            );
        }
        skipped.difference(&self.told).for_each(|problem| self.shared.warn(problem.clone()));
        self.told = skipped;
    }

    fn count(&self, is_new_round: bool) {
        let shared = self.shared;
        shared.files.store((self.places.len() - self.refused.len()) as u64, Ordering::Relaxed);
        if is_new_round {
            shared.hashed_bytes.store(0, Ordering::Relaxed);
        }
        let hashed = shared.hashed_bytes.load(Ordering::Relaxed);
        shared.total_bytes.store(hashed + self.queue.left(), Ordering::Relaxed);
    }

    fn hash(&mut self) {
        let (count, hashed) = self.queue.step();
        self.shared.hashed_bytes.fetch_add(count, Ordering::Relaxed);
        match hashed {
            Some((name, Hashed::Done(entry))) => drop(self.known.insert(name, Arc::new(entry))),
            Some((name, Hashed::Refused(problem))) => self.refuse(name, &problem),
            // The next walk comes back to it.
            Some((_, Hashed::Changed)) => self.has_changed = true,
            None => {}
        }
        if self.queue.is_empty() || self.published.elapsed() > PUBLISH {
            self.publish();
        }
    }

    fn refuse(&mut self, name: String, problem: &str) {
        let Some((place, stamp)) = self.places.get(&name) else { return };
        let problem = not_served(&place.root.shown(&place.path), problem);
        self.refused.insert(name, (*stamp, problem.clone()));
        let mut skipped = self.told.clone();
        skipped.insert(problem);
        self.tell(skipped);
        self.count(false);
    }

    fn publish(&mut self) {
        self.published = Instant::now();
        self.shared.publish(catalogue(&self.places, &self.known, self.queue.is_empty()));
    }
}

/// The observer of a walk.
struct Below<'a> {
    watch: &'a mut Watch,
    skipped: BTreeSet<String>,
}

impl Walk for Below<'_> {
    fn enter(&mut self, directory: &File) {
        self.watch.add(directory);
    }

    fn skip(&mut self, path: &Path, reason: &str) {
        self.skipped.insert(not_served(path, reason));
    }
}

fn not_served(path: &Path, reason: &str) -> String {
    // A name may hold control sequences that a terminal obeys.
    format!("not served: {path:?}: {reason}")
}

fn find(roots: &[Arc<Root>], below: &mut Below<'_>) -> Places {
    let mut places = BTreeMap::new();
    for root in roots {
        for path in root.list(below) {
            let name = path.to_string_lossy().into_owned();
            if let Some(problem) = problem_of_path(&name) {
                below.skip(&root.shown(&path), problem);
                continue;
            }
            match root.open_below(&path).and_then(|file| Stamp::of(&file)) {
                // The first path on the command line wins where two hold the same name.
                Ok(stamp) => drop(places.entry(name).or_insert((Place { root: root.clone(), path }, stamp))),
                Err(error) => below.skip(&root.shown(&path), &error.to_string()),
            }
        }
    }
    places
}

fn catalogue(places: &Places, known: &BTreeMap<String, Arc<Entry>>, is_complete: bool) -> Catalogue {
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
    // The index waits for the hashes of all files: names alone would be of no use.
    if is_complete {
        let offers = known.iter().map(|(name, entry)| (name.as_str(), entry.stamp.length, entry.hash));
        let index = index::write(offers);
        objects.extend(index.map(|bytes| (index_flow(), Object::Manifest(bytes.into()))));
    }
    Catalogue { objects, is_complete }
}
