//! Tells the program which commit it is built from, and how.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=STARHOP_COMMIT");
    // Changes with each commit, and with each change of branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    // A build from an archive, which is no repository, may be told the commit of the archive.
    let given = std::env::var("STARHOP_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=STARHOP_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    for name in ["PROFILE", "TARGET"] {
        let value = std::env::var(name).unwrap_or_default();
        println!("cargo:rustc-env=STARHOP_{name}={value}");
    }
}

/// The first line of git's output, if git and a repository are there.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}
