//! The changes that `starhop setup` makes on a host, and their undoing.
//!
//! A [`Plan`] is a list of [`Step`]s. Carrying it out notes for each step the state of the host before, in a
//! [`Journal`]; undoing reads the journal backwards.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A file with this content and mode, in place of an earlier file of the same path.
    Write {
        /// Its path, below the root.
        path: PathBuf,
        /// Its content.
        content: String,
        /// Its permissions.
        mode: u32,
    },
    /// A command, and the one that takes it back.
    Run {
        /// The program and its arguments.
        command: Vec<String>,
        /// The same; empty where there is nothing to take back.
        undo: Vec<String>,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Write { path, content, mode } => {
                writeln!(f, "write {} (mode {mode:o}):", path.display())?;
                content.lines().try_for_each(|line| writeln!(f, "    {line}"))
            }
            Self::Run { command, .. } => writeln!(f, "run   {}", command.join(" ")),
        }
    }
}

/// A step that was done, and how the host was before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Done {
    step: Step,
    /// Content and mode of the earlier file, if there was one.
    before: Option<(String, u32)>,
}

/// The changes that were made to a host, as stored on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Journal {
    done: Vec<Done>,
}

/// Path of the journal of a role, below the root.
fn journal_of(root: &Path, role: &str) -> PathBuf {
    root.join(format!("var/lib/starhop/setup-{role}.json"))
}

/// Changes to a host for one role.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The role: `relay`, `serve`.
    pub role: String,
    /// The directory that stands for `/`.
    pub root: PathBuf,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Why a host was not changed, or not as a whole.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file is at fault.
    #[error("cannot {action} `{}`: {cause}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file of the action.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A command is at fault.
    #[error("`{command}` failed: {problem}")]
    Command {
        /// The command.
        command: String,
        /// Its message, or the system's.
        problem: String,
    },
    /// Something was set up before.
    #[error("`{0}` was set up already: take it back with --undo first")]
    Already(String),
    /// Nothing was set up.
    #[error("`{0}` was not set up here by this program: there is nothing to take back")]
    Nothing(String),
}

impl Plan {
    /// Carries out every step. If one fails, the steps before it are undone.
    ///
    /// # Errors
    /// [`SetupError`] names the file or the command.
    pub fn carry_out(&self) -> Result<(), SetupError> {
        let path = journal_of(&self.root, &self.role);
        if path.exists() {
            return Err(SetupError::Already(self.role.clone()));
        }
        let mut journal = Journal::default();
        for step in &self.steps {
            let before = match step {
                Step::Write { path, .. } => read(&self.root, path)?,
                Step::Run { .. } => None,
            };
            // Noted before it is done: a step half done is taken back, too.
            journal.done.push(Done { step: step.clone(), before });
            let done = keep(&path, &journal).and_then(|()| apply(&self.root, step));
            if let Err(error) = done {
                let _ = take_back(&self.root, &journal);
                let _ = std::fs::remove_file(&path);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Undoes the setup of a role.
///
/// # Errors
/// [`SetupError`] names the step that failed; all other steps are undone.
pub fn undo(root: &Path, role: &str) -> Result<(), SetupError> {
    let path = journal_of(root, role);
    let text = std::fs::read_to_string(&path).map_err(|_| SetupError::Nothing(role.to_owned()))?;
    let journal = serde_json::from_str(&text).map_err(|error| SetupError::File {
        action: "read",
        path: path.clone(),
        cause: error.into(),
    })?;
    take_back(root, &journal)?;
    std::fs::remove_file(&path).map_err(|cause| SetupError::File { action: "remove", path, cause })
}

fn take_back(root: &Path, journal: &Journal) -> Result<(), SetupError> {
    let mut result = Ok(());
    for Done { step, before } in journal.done.iter().rev() {
        let undone = match (step, before) {
            (Step::Write { path, .. }, Some((content, mode))) => write(root, path, content, *mode),
            (Step::Write { path, .. }, None) => {
                let path = below(root, path);
                match std::fs::remove_file(&path) {
                    Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                        Err(SetupError::File { action: "remove", path, cause })
                    }
                    _ => Ok(()),
                }
            }
            (Step::Run { undo, .. }, _) => run(undo),
        };
        result = result.and(undone);
    }
    result
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn apply(root: &Path, step: &Step) -> Result<(), SetupError> {
    match step {
        Step::Write { path, content, mode } => write(root, path, content, *mode),
        Step::Run { command, .. } => run(command),
    }
}

fn read(root: &Path, path: &Path) -> Result<Option<(String, u32)>, SetupError> {
    let path = below(root, path);
    let read = std::fs::read_to_string(&path).and_then(|text| {
        let mode = std::fs::metadata(&path)?.permissions().mode() & 0o7777;
        Ok((text, mode))
    });
    match read {
        Ok(found) => Ok(Some(found)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(SetupError::File { action: "read", path, cause }),
    }
}

fn write(root: &Path, path: &Path, content: &str, mode: u32) -> Result<(), SetupError> {
    write_at(below(root, path), content, mode)
}

fn write_at(path: PathBuf, content: &str, mode: u32) -> Result<(), SetupError> {
    use io::Write;
    let written = (|| {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&path)?;
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
        file.write_all(content.as_bytes())
    })();
    written.map_err(|cause| SetupError::File { action: "write", path, cause })
}

fn keep(path: &Path, journal: &Journal) -> Result<(), SetupError> {
    let text = serde_json::json!(journal).to_string();
    write_at(path.to_owned(), &text, 0o600)
}

fn run(command: &[String]) -> Result<(), SetupError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let failed = |problem: String| SetupError::Command { command: command.join(" "), problem };
    let output = Command::new(program).args(arguments).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}; {}", output.status, said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &str) -> Step {
        Step::Write { path: path.into(), content: content.to_owned(), mode: 0o640 }
    }

    fn command(root: &Path, program: &str, name: &str) -> Vec<String> {
        vec![program.to_owned(), root.join(name).display().to_string()]
    }

    #[test]
    fn what_was_set_up_is_taken_back_to_the_byte() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::create_dir(at("etc")).unwrap();
        std::fs::write(at("etc/old"), "as it was").unwrap();
        let run = Step::Run {
            command: command(root.path(), "mkdir", "made"),
            undo: command(root.path(), "rmdir", "made"),
        };
        let steps = vec![file("/etc/old", "changed"), file("/etc/new/file", "new"), run];
        let plan = Plan { role: "relay".to_owned(), root: root.path().to_owned(), steps };
        plan.carry_out().unwrap();
        assert_eq!(std::fs::read_to_string(at("etc/old")).unwrap(), "changed");
        assert_eq!(std::fs::metadata(at("etc/new/file")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(at("made").is_dir());
        assert!(matches!(plan.carry_out(), Err(SetupError::Already(_))));
        undo(root.path(), "relay").unwrap();
        assert_eq!(std::fs::read_to_string(at("etc/old")).unwrap(), "as it was");
        assert!(!at("etc/new/file").exists() && !at("made").exists());
        assert!(matches!(undo(root.path(), "relay"), Err(SetupError::Nothing(_))));
    }

    #[test]
    fn a_step_that_fails_takes_back_those_before_it() {
        let root = tempfile::tempdir().unwrap();
        let fails = Step::Run { command: vec!["false".to_owned()], undo: Vec::new() };
        let steps = vec![file("/etc/new", "new"), fails];
        let plan = Plan { role: "relay".to_owned(), root: root.path().to_owned(), steps };
        assert!(plan.carry_out().unwrap_err().to_string().contains("`false` failed"));
        assert!(!root.path().join("etc/new").exists());
        assert!(matches!(undo(root.path(), "relay"), Err(SetupError::Nothing(_))));
    }
}
