//! Finished runs on disk, so that work that was cut off goes on where it was.

use crate::result::RunResult;
use crate::scenario::Scenario;
use std::path::{Path, PathBuf};

/// The program that ran a scenario, as part of a run's name: real processes give other numbers than models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The simulator, with time series.
    Simulated,
    /// The simulator, without time series.
    WithoutSeries,
    /// Real processes.
    Emulated,
}

/// A folder of finished runs of this very build. Several processes may use one folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
    build: String,
}

impl Store {
    /// Makes the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), build: build_id() })
    }

    /// The kept result of a scenario; `None` where there is none that can be read.
    pub fn kept(&self, kind: Kind, scenario: &Scenario) -> Option<RunResult> {
        serde_json::from_slice(&std::fs::read(self.file(kind, scenario)).ok()?).ok()
    }

    /// Keeps a result whole or not at all: a run that is cut off leaves no half file under the final name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, kind: Kind, scenario: &Scenario, result: &RunResult) -> Result<(), String> {
        let file = self.file(kind, scenario);
        let unfinished = file.with_extension("unfinished");
        let json = serde_json::to_vec(result).map_err(|e| e.to_string())?;
        std::fs::write(&unfinished, json)
            .and_then(|()| std::fs::rename(&unfinished, &file))
            .map_err(|e| format!("cannot write {}: {e}", file.display()))
    }

    /// Named by the inputs that decide the result: this program, and the scenario with every file that it read.
    fn file(&self, kind: Kind, scenario: &Scenario) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.build.as_bytes());
        hasher.update(&[kind as u8]);
        hasher.update(format!("{scenario:?}").as_bytes());
        self.folder.join(format!("{}.json", &hasher.finalize().to_hex()[..32]))
    }
}

/// Another build may compute something else: its runs are not ours.
fn build_id() -> String {
    let program = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    blake3::hash(&program).to_hex().to_string()
}
