//! Names of stored objects: a human name, or the hash of the object's bytes.
//!
//! The bytes of an object travel under the first 128 bits of their BLAKE3 hash. A human name leads there by a
//! [`Manifest`], a small object of its own whose flow is derived from the name alone. Relays never keep manifests,
//! because a name may stand for another object later.

use serde::{Deserialize, Serialize};
use starhop_proto::name::{FlowId, MAX_OFFSET};
use std::fmt;

/// Separates flows of names from every other use of BLAKE3.
const NAME_CONTEXT: &str = "starhop 2026 manifest name v1";

/// The longest name, in bytes.
pub const MAX_NAME: usize = 1024;

/// The longest manifest that is believed, in bytes.
pub const MAX_MANIFEST: u64 = 8192;

/// The name of an object that `get` fetches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContentName {
    /// A path below the served directory, with `/`.
    Path(String),
    /// `b3:` and the BLAKE3 hash of the bytes.
    Hash(blake3::Hash),
}

/// A name of the wrong form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{}` is no name of a file: {problem}", .name.escape_debug())]
pub struct NameError {
    name: String,
    problem: &'static str,
}

impl ContentName {
    /// Reads a name as a user writes it.
    ///
    /// # Errors
    /// [`NameError`] names the fault.
    pub fn parse(name: &str) -> Result<Self, NameError> {
        if let Some(hex) = name.strip_prefix("b3:") {
            let problem = "after `b3:` stand the 64 hexadecimal digits of a BLAKE3 hash";
            return match blake3::Hash::from_hex(hex) {
                Ok(hash) => Ok(Self::Hash(hash)),
                Err(_) => Err(NameError { name: name.to_owned(), problem }),
            };
        }
        match problem_of_path(name) {
            Some(problem) => Err(NameError { name: name.to_owned(), problem }),
            None => Ok(Self::Path(name.to_owned())),
        }
    }

    /// The last part of the name: the file name of a download unless the user gives another.
    pub fn file_name(&self) -> String {
        match self {
            Self::Path(path) => path.rsplit('/').next().unwrap_or(path).to_owned(),
            Self::Hash(hash) => hash.to_hex().to_string(),
        }
    }
}

impl fmt::Display for ContentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Hash(hash) => write!(f, "b3:{hash}"),
        }
    }
}

/// The reason why `path` cannot name a file below a directory, if there is one.
pub fn problem_of_path(path: &str) -> Option<&'static str> {
    let rules = [
        (path.is_empty(), "it is empty"),
        (path.len() > MAX_NAME, "it is longer than 1024 bytes"),
        (path.chars().any(char::is_control), "it holds control characters"),
        (path.starts_with('/'), "it starts with `/`; names are relative to what is served"),
        (path.split('/').any(|part| part == ".."), "it holds `..`"),
        (path.split('/').any(|part| part.is_empty() || part == "."), "it holds an empty part or `.`"),
    ];
    rules.iter().find(|(broken, _)| *broken).map(|&(_, problem)| problem)
}

/// The flow of the manifest of `name`.
pub fn manifest_flow(name: &str) -> FlowId {
    FlowId::of_content(&blake3::derive_key(NAME_CONTEXT, name.as_bytes()))
}

/// The object that a name stands for. Written as TOML; unknown fields of later versions are ignored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Of this format: 1.
    pub version: u32,
    /// Bytes of the object.
    pub length: u64,
    /// Its BLAKE3 hash, 64 hexadecimal digits.
    pub blake3: String,
}

impl Manifest {
    const VERSION: u32 = 1;

    /// The manifest of an object.
    pub fn new(length: u64, hash: &blake3::Hash) -> Self {
        Self { version: Self::VERSION, length, blake3: hash.to_hex().to_string() }
    }

    /// The bytes that are served.
    pub fn to_bytes(&self) -> Vec<u8> {
        format!("version = {}\nlength = {}\nblake3 = \"{}\"\n", self.version, self.length, self.blake3)
            .into_bytes()
    }

    /// Reads received bytes, which are not authenticated.
    ///
    /// # Errors
    /// Names the fault of the bytes.
    pub fn parse(bytes: &[u8]) -> Result<(u64, blake3::Hash), String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let manifest: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if manifest.version != Self::VERSION {
            return Err(format!("its version is {}, this program knows {}", manifest.version, Self::VERSION));
        }
        if manifest.length >= MAX_OFFSET {
            return Err(format!("its length {} is beyond what can be named", manifest.length));
        }
        let hash =
            blake3::Hash::from_hex(&manifest.blake3).map_err(|_| "its hash is malformed".to_owned())?;
        Ok((manifest.length, hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_leave_the_directory_are_refused_with_the_reason() {
        for (name, reason) in [
            ("", "empty"),
            ("/etc/passwd", "starts with"),
            ("a/../b", "`..`"),
            ("..", "`..`"),
            ("a//b", "empty part"),
            ("a/./b", "empty part"),
            ("a\nb", "control"),
            ("b3:12", "64 hexadecimal"),
        ] {
            let error = ContentName::parse(name).expect_err(name).to_string();
            assert!(error.contains(reason), "{name:?}: {error}");
        }
        assert!(ContentName::parse(&"x".repeat(MAX_NAME + 1)).is_err());
    }

    #[test]
    fn ordinary_names_and_hashes_are_accepted() {
        for name in ["a", "films/a b.mkv", "ä/ö", "..a/b..", "b3"] {
            assert_eq!(ContentName::parse(name).map(|n| n.to_string()).as_deref(), Ok(name));
        }
        let hash = format!("b3:{}", blake3::hash(b"x"));
        assert_eq!(ContentName::parse(&hash).map(|n| n.to_string()), Ok(hash));
    }

    #[test]
    fn a_manifest_survives_its_journey_and_nonsense_does_not() {
        let hash = blake3::hash(b"x");
        let bytes = Manifest::new(1, &hash).to_bytes();
        assert_eq!(Manifest::parse(&bytes), Ok((1, hash)));
        assert!(Manifest::parse(b"version = 2\nlength = 1\nblake3 = \"\"").is_err());
        assert!(Manifest::parse(&[0xff]).is_err());
        let later = [&bytes[..], b"sealed = true\n"].concat();
        assert_eq!(Manifest::parse(&later), Ok((1, hash)), "fields of later versions are no error");
    }
}
