//! The place from which figures and their scenarios are read: the disk, or this program.

use std::path::{Component, Path, PathBuf};

/// Name and text of every file of `figures/` and `scenarios/`.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/library.rs"));

/// A place that has files by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// The files that came with this program.
    BuiltIn,
    /// The file system.
    Disk,
}

impl Library {
    /// The text of a file.
    ///
    /// # Errors
    /// Its name, and why it cannot be read.
    pub fn read(self, path: &Path) -> Result<String, String> {
        match self {
            Self::Disk => std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display())),
            Self::BuiltIn => {
                let path = normal(path);
                let found = FILES.iter().find(|(name, _)| Path::new(name) == path);
                let missing = || format!("{} is not among the files of this program", path.display());
                found.map(|(_, text)| (*text).to_owned()).ok_or_else(missing)
            }
        }
    }

    /// The ids of the figures that came with this program, in order.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        FILES.iter().filter_map(|(name, _)| name.strip_prefix("figures/")?.strip_suffix(".toml"))
    }

    /// Every file that came with this program: its name and its text.
    pub fn files() -> &'static [(&'static str, &'static str)] {
        FILES
    }
}

/// The path without `..` and `.`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_files_are_found_by_relative_paths() {
        let text = Library::BuiltIn.read(Path::new("figures/../scenarios/./five-lossy-hops.toml"));
        assert!(text.is_ok_and(|text| text.contains("Five lossy hops")));
        let missing = Library::BuiltIn.read(Path::new("figures/none.toml"));
        assert!(missing.is_err_and(|problem| problem.contains("figures/none.toml")));
    }
}
