use crate::sys::replace::replace;
use serde::{Deserialize, Serialize};
use starhop_proto::name::{ByteRange, RangeSet};
use std::io;
use std::path::Path;

/// The facts about a partial file, stored beside it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    version: u32,
    name: String,
    blake3: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    /// Start and end of each range that is on the disk.
    ranges: Vec<(u64, u64)>,
}

impl State {
    const VERSION: u32 = 1;

    pub(super) fn new(name: &str, hash: &blake3::Hash, length: Option<u64>) -> Self {
        let blake3 = hash.to_hex().to_string();
        Self { version: Self::VERSION, name: name.to_owned(), blake3, length, ranges: Vec::new() }
    }

    /// The ranges that a partial file of `size` bytes holds of the object, if it is one of this object.
    pub(super) fn load(path: &Path, hash: &blake3::Hash, length: Option<u64>, size: u64) -> Option<RangeSet> {
        let state: Self = toml::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        let is_same_length = state.length.zip(length).is_none_or(|(a, b)| a == b);
        if state.version != Self::VERSION || state.blake3 != hash.to_hex().as_str() || !is_same_length {
            return None;
        }
        let mut have = RangeSet::new();
        let bound = ByteRange::new(0, size.min(length.unwrap_or(u64::MAX)));
        for (start, end) in state.ranges {
            have.insert(ByteRange::new(start, end).intersect(bound));
        }
        Some(have)
    }

    /// Replaces the state file in one step: a crash leaves the old one or the new one.
    pub(super) fn save(&mut self, path: &Path, have: &RangeSet) -> io::Result<()> {
        self.ranges = have.iter().map(|range| (range.start, range.end)).collect();
        let text = toml::to_string(self).map_err(io::Error::other)?;
        replace(path, text.as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_belongs_to_one_content_and_never_claims_more_than_the_file_holds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (hash, other) = (blake3::hash(b"a"), blake3::hash(b"b"));
        let mut have = RangeSet::new();
        have.insert(ByteRange::new(0, 100));
        have.insert(ByteRange::new(200, 300));
        State::new("n", &hash, Some(1000)).save(&path, &have).unwrap();
        let load = |hash, length, size| State::load(&path, hash, length, size);
        assert!(load(&hash, Some(1000), 300) == Some(have.clone()));
        assert!(load(&hash, None, 300) == Some(have.clone()));
        assert!(load(&other, Some(1000), 300).is_none());
        assert!(load(&hash, Some(999), 300).is_none());
        assert_eq!(load(&hash, None, 250).map(|have| have.byte_count()), Some(150));
        std::fs::write(&path, "nonsense").unwrap();
        assert!(load(&hash, None, 300).is_none());
    }
}
