//! Finds and hashes what is served, on a thread of its own.

use super::catalogue::{Catalogue, Entry, Object, Place, Shared, Stamp};
use super::root::Root;
use crate::content::{Manifest, manifest_flow, problem_of_path};
use crate::outboard::{TreeHasher, outboard_flow, outboard_len};
use starhop_proto::name::FlowId;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two walks over the served paths, at least; and at least twenty times what a walk took.
const RESCAN: Duration = Duration::from_secs(2);
const HASH_CHUNK: usize = 1 << 20;

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
        for path in root.list(|problem| shared.warn(problem)) {
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
