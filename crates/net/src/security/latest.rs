//! The latest time that a node's clock has shown, kept on disk. A start whose clock is right again knows by it which
//! requests a start before it may have answered while the clock was ahead.

use super::floor::beside;
use crate::sys::replace::replace_soon;
use starhop_proto::security::TOLERANCE_EPOCHS;
use std::path::{Path, PathBuf};

/// Behind the name of the key.
const SUFFIX: &str = ".clock";

/// The record of one key's nodes on this host.
#[derive(Debug)]
pub(super) struct Latest {
    path: PathBuf,
    /// The epoch in the record.
    kept: u64,
    has_failed: bool,
}

impl Latest {
    /// The record of the nodes with the key at `key`. Without one, or with one that cannot be read, nothing is known.
    pub(super) fn of(key: &Path) -> Self {
        let path = place(key);
        let kept = read(&path);
        Self { path, kept, has_failed: false }
    }

    /// The latest epoch that an earlier start may have seen.
    pub(super) fn known(&self) -> Option<u64> {
        (self.kept > 0).then_some(self.kept + TOLERANCE_EPOCHS)
    }

    /// Keeps the epoch `latest`, with an error of one tolerance (32 s): one short write in that time.
    pub(super) fn keep(&mut self, latest: u64) {
        if self.kept > 0 && latest < self.kept + TOLERANCE_EPOCHS {
            return;
        }
        // Another program with this key may have seen more.
        self.kept = read(&self.path).max(latest);
        let written = replace_soon(&self.path, format!("{}\n", self.kept).as_bytes(), 0o600);
        let Err(error) = written else { return };
        if !std::mem::replace(&mut self.has_failed, true) {
            tracing::warn!(
                "the latest time of this node's clock cannot be kept in `{}`: {error}. If the clock is ahead now and set right \
                 before the next start, that start takes recorded requests for new ones; name a directory that it may \
                 write to in STARHOP_STATE",
                self.path.display()
            );
        }
    }
}

/// The place of the record of the nodes with the key at `key`.
pub(super) fn place(key: &Path) -> PathBuf {
    beside(key, SUFFIX)
}

/// The epoch in a record; 0 if there is none.
fn read(path: &Path) -> u64 {
    std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_never_goes_back_whoever_writes_it() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        let [mut one, mut other] = [(); 2].map(|()| Latest::of(&key));
        assert_eq!(one.known(), None);
        one.keep(1000);
        assert_eq!(Latest::of(&key).known(), Some(1000 + TOLERANCE_EPOCHS));
        other.keep(500);
        one.keep(1000 + TOLERANCE_EPOCHS - 1);
        assert_eq!(Latest::of(&key).kept, 1000, "what is within the error is not written");
        one.keep(1000 + TOLERANCE_EPOCHS);
        assert_eq!(Latest::of(&key).kept, 1000 + TOLERANCE_EPOCHS);
        std::fs::write(directory.path().join("key.clock"), "no number").unwrap();
        assert_eq!(Latest::of(&key).known(), None);
    }

    #[test]
    fn a_record_that_cannot_be_written_is_told_once_and_written_when_it_can_be() {
        use std::io::{Read, Seek};
        let directory = tempfile::tempdir().unwrap();
        let (key, obstacle) = (directory.path().join("key"), directory.path().join("key.clock.new"));
        // Root may write to every file, but to no directory.
        std::fs::create_dir(&obstacle).unwrap();
        let mut log = tempfile::tempfile().unwrap();
        let writer = std::sync::Arc::new(log.try_clone().unwrap());
        let mut latest = Latest::of(&key);
        tracing::subscriber::with_default(tracing_subscriber::fmt().with_writer(writer).finish(), || {
            [1000, 2000, 3000].into_iter().for_each(|epoch| latest.keep(epoch));
        });
        let mut told = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut told).unwrap();
        assert_eq!(told.matches("cannot be kept in").count(), 1, "{told}");
        assert!(told.contains("key.clock`") && told.contains("STARHOP_STATE"), "{told}");
        assert_eq!((latest.known(), Latest::of(&key).known()), (Some(3000 + TOLERANCE_EPOCHS), None));
        std::fs::remove_dir(&obstacle).unwrap();
        latest.keep(4000);
        assert_eq!(Latest::of(&key).known(), Some(4000 + TOLERANCE_EPOCHS));
    }
}
