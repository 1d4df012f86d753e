use super::catalogue::{Catalogue, Entry, Object, Progress, Shared};
use super::readers::Readers;
use super::root::Root;
use super::scan;
use crate::sys::descriptor;
use crate::trace::Trace;
use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::producer::{Lookup, Source};
use starhop_proto::time::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// Serves files. Dropping it ends the hashing thread.
#[derive(Debug)]
pub struct Files {
    shared: Arc<Shared>,
    catalogue: Arc<Catalogue>,
    version: u64,
    readers: Readers,
    /// Flows whose file has changed: not served until the catalogue has the file's new hash.
    withdrawn: BTreeSet<FlowId>,
    trace: Option<Trace>,
    thread: Option<JoinHandle<()>>,
}

impl Files {
    /// Starts to hash the files below `roots`; with `trace`, notes the time at which each range is read.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new(roots: Vec<Root>, trace: bool) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let roots: Vec<_> = roots.into_iter().map(Arc::new).collect();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("starhop-hash".to_owned())
            .spawn(move || scan::run(&roots, &theirs))?;
        Ok(Self {
            catalogue: shared.current(),
            shared,
            version: 0,
            readers: Readers::new(descriptor::all()),
            withdrawn: BTreeSet::new(),
            trace: trace.then(Trace::default),
            thread: Some(thread),
        })
    }

    /// Progress of hashing.
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// The paths that could not be served, with the reasons, since the last call.
    pub fn take_warnings(&self) -> Vec<String> {
        self.shared.take_warnings()
    }

    /// The path of the file that `flow` is, below its root.
    pub fn name_of(&self, flow: FlowId) -> Option<String> {
        match self.catalogue.objects.get(&flow)? {
            Object::File(entry) => Some(entry.place.path.display().to_string()),
            Object::Manifest(_) | Object::Outboard(_) | Object::Pending => None,
        }
    }

    /// The ranges that were read, with their times, if they are noted.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }

    fn refresh(&mut self) {
        let version = self.shared.version();
        if version != self.version {
            self.version = version;
            self.catalogue = self.shared.current();
            self.withdrawn.clear();
        }
    }

    fn read_file(&mut self, flow: FlowId, entry: &Arc<Entry>, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let done = self.readers.read(flow, entry, range, out);
        if !done {
            self.withdrawn.insert(flow);
        }
        done
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic over there was reported there.
            let _ = thread.join();
        }
    }
}

impl Source for Files {
    fn lookup(&mut self, flow: FlowId) -> Lookup {
        self.refresh();
        if self.withdrawn.contains(&flow) {
            return Lookup::NotYet;
        }
        match self.catalogue.objects.get(&flow) {
            Some(Object::File(entry)) => {
                Lookup::Found { length: Some(entry.stamp.length), is_volatile: false }
            }
            Some(Object::Manifest(bytes)) => {
                Lookup::Found { length: Some(bytes.len() as u64), is_volatile: true }
            }
            Some(Object::Outboard(bytes)) => {
                Lookup::Found { length: Some(bytes.len() as u64), is_volatile: false }
            }
            Some(Object::Pending) => Lookup::NotYet,
            None if self.catalogue.is_complete => Lookup::Unknown,
            None => Lookup::NotYet,
        }
    }

    fn read(&mut self, now: Instant, flow: FlowId, range: ByteRange, out: &mut Vec<u8>) -> bool {
        let done = match self.catalogue.objects.get(&flow).cloned() {
            Some(Object::File(entry)) => self.read_file(flow, &entry, range, out),
            Some(Object::Manifest(bytes) | Object::Outboard(bytes)) => {
                match bytes.get(range.start as usize..range.end as usize) {
                    Some(part) => {
                        out.extend_from_slice(part);
                        true
                    }
                    None => false,
                }
            }
            Some(Object::Pending) | None => false,
        };
        if let Some(trace) = self.trace.as_mut().filter(|_| done) {
            trace.note(now, flow, range);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Manifest, manifest_flow};
    use std::fs::File;
    use std::path::Path;
    use std::time::Duration;

    fn serve(path: &Path) -> Files {
        let files = Files::new(vec![Root::open(path, false).unwrap()], false).unwrap();
        wait_until(|| files.progress().is_complete);
        files
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        for _ in 0..1000 {
            if done() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not happen within 10 s");
    }

    fn read(files: &mut Files, flow: FlowId, range: ByteRange) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        files.read(Instant::ZERO, flow, range, &mut out).then_some(out)
    }

    fn manifest(files: &mut Files, name: &str) -> Option<(u64, blake3::Hash)> {
        let flow = manifest_flow(name);
        let Lookup::Found { length: Some(length), is_volatile: true } = files.lookup(flow) else {
            return None;
        };
        let bytes = read(files, flow, ByteRange::new(0, length))?;
        Manifest::parse(&bytes).ok()
    }

    #[test]
    fn a_name_leads_to_a_hash_and_the_hash_to_the_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i * 7 / 3) as u8).collect();
        std::fs::create_dir(directory.path().join("sub")).unwrap();
        std::fs::write(directory.path().join("sub/file"), &bytes).unwrap();
        let mut files = serve(directory.path());
        let (length, hash) = manifest(&mut files, "sub/file").unwrap();
        assert_eq!((length, hash), (1_000_000, blake3::hash(&bytes)));
        let flow = FlowId::of_content(hash.as_bytes());
        let mut all = Vec::new();
        for start in (0..length).step_by(1350) {
            let range = ByteRange::new(start, (start + 1350).min(length));
            all.extend(read(&mut files, flow, range).unwrap());
        }
        assert!(all == bytes);
        let back = ByteRange::new(10, 1360);
        assert_eq!(read(&mut files, flow, back).unwrap(), bytes[10..1360]);
    }

    /// With room for 256 flows, each packet of 300 read 256 KiB from the disk.
    #[test]
    fn many_files_that_are_read_by_turns_are_all_read_ahead() {
        let directory = tempfile::tempdir().unwrap();
        let flows: Vec<FlowId> = (0..400u32)
            .map(|n| {
                let bytes = n.to_be_bytes().repeat(25_000);
                std::fs::write(directory.path().join(n.to_string()), &bytes).unwrap();
                FlowId::of_content(blake3::hash(&bytes).as_bytes())
            })
            .collect();
        let mut files = serve(directory.path());
        files.refresh();
        for turn in 0..20 {
            let range = ByteRange::at(turn * 1350, 1350);
            for &flow in &flows {
                assert!(turn % 12 == 0 || files.readers.has(flow, range), "packet {turn}");
                assert!(read(&mut files, flow, range).is_some());
            }
        }
    }

    #[test]
    fn links_that_leave_the_directory_are_not_served() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        std::fs::write(directory.path().join("public"), "y").unwrap();
        let link = |to: &Path, name: &str| {
            std::os::unix::fs::symlink(to, directory.path().join(name)).unwrap();
        };
        link(&outside.path().join("secret"), "absolute");
        link(outside.path(), "directory");
        link(Path::new("../../../../../../../etc/hostname"), "relative");
        link(Path::new("public"), "inside");
        link(Path::new("."), "circle");
        let mut files = serve(directory.path());
        assert!(manifest(&mut files, "public").is_some());
        assert!(manifest(&mut files, "inside").is_some());
        for name in ["absolute", "directory/secret", "relative", "secret"] {
            assert_eq!(files.lookup(manifest_flow(name)), Lookup::Unknown, "{name}");
        }
    }

    #[test]
    fn a_file_that_changes_is_withdrawn_and_comes_back_under_its_new_hash() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; 600_000]).unwrap();
        let mut files = serve(directory.path());
        let (_, old) = manifest(&mut files, "file").unwrap();
        let flow = FlowId::of_content(old.as_bytes());
        assert!(read(&mut files, flow, ByteRange::new(0, 1000)).is_some());
        std::fs::write(&path, vec![2; 600_000]).unwrap();
        assert_eq!(read(&mut files, flow, ByteRange::new(500_000, 501_000)), None, "stale bytes");
        assert_eq!(files.lookup(flow), Lookup::NotYet);
        let new = blake3::hash(&vec![2; 600_000]);
        wait_until(|| manifest(&mut files, "file").is_some_and(|(_, hash)| hash == new));
        assert_eq!(files.lookup(flow), Lookup::Unknown);
    }

    #[test]
    fn a_new_file_is_offered_within_two_seconds_whatever_else_is_being_hashed() {
        let directory = tempfile::tempdir().unwrap();
        // Without any block on the disk, and hours to hash.
        let large = File::create(directory.path().join("large")).unwrap();
        large.set_len(1 << 43).unwrap();
        let mut files = Files::new(vec![Root::open(directory.path(), false).unwrap()], false).unwrap();
        wait_until(|| files.progress().hashed_bytes > 0);
        for round in 0..3u8 {
            let bytes = [round; 1000];
            let start = std::time::Instant::now();
            std::fs::write(directory.path().join("new"), bytes).unwrap();
            let hash = blake3::hash(&bytes);
            wait_until(|| manifest(&mut files, "new").is_some_and(|(_, found)| found == hash));
            assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        }
        assert!(!files.progress().is_complete);
    }

    #[test]
    fn what_cannot_be_served_is_counted_and_named_once() {
        use std::os::unix::ffi::OsStrExt;
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &[u8]| {
            std::fs::write(directory.path().join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
        };
        [&b"good"[..], b"two\nlines", b"\xff\xfe"].into_iter().for_each(write);
        std::os::unix::fs::symlink("/etc/hostname", directory.path().join("out")).unwrap();
        std::os::unix::fs::symlink("nothing", directory.path().join("dangling")).unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let files = serve(directory.path());
        assert_eq!((files.progress().files, files.progress().skipped), (1, 5));
        let warnings = files.take_warnings();
        for reason in ["control characters", "not UTF-8", "leads out", "No such file", "neither a file"] {
            assert_eq!(warnings.iter().filter(|w| w.contains(reason)).count(), 1, "{reason}: {warnings:?}");
        }
        write(b"another");
        wait_until(|| files.progress().files == 2);
        assert_eq!(files.take_warnings(), [""; 0], "they were told before");
    }

    #[test]
    fn hidden_files_and_keys_are_not_given_away() {
        use crate::security::{Authority, KeyFile, Kind};
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at(".ssh")).unwrap();
        [".env", ".ssh/id", "file"].iter().for_each(|name| std::fs::write(at(name), "x").unwrap());
        KeyFile::new(Kind::Domain, "home", None, 0).unwrap().create(&at("domain.key")).unwrap();
        KeyFile::new(Kind::Node, "home", None, 0).unwrap().create(&at("node.key")).unwrap();
        Authority::new().unwrap().create(&at("authority")).unwrap();
        let key = std::fs::read(at("domain.key")).unwrap();
        let mut files = serve(directory.path());
        assert_eq!(files.progress().files, 1);
        for name in [".env", ".ssh/id", "domain.key", "node.key", "authority"] {
            assert_eq!(files.lookup(manifest_flow(name)), Lookup::Unknown, "{name}");
        }
        assert_eq!(files.lookup(FlowId::of_content(blake3::hash(&key).as_bytes())), Lookup::Unknown);
        assert_eq!(files.take_warnings().iter().filter(|w| w.contains("a Starhop key")).count(), 3);
        let mut files = Files::new(vec![Root::open(directory.path(), true).unwrap()], false).unwrap();
        wait_until(|| files.progress().is_complete);
        assert!(manifest(&mut files, ".ssh/id").is_some(), "the operator asked for it");
        assert_eq!(files.lookup(manifest_flow("domain.key")), Lookup::Unknown, "never");
    }
}
