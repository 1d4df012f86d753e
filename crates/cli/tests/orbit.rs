//! `starhop orbit` as a user meets it.

use std::path::PathBuf;
use std::process::{Command, Output};

fn starhop(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_starhop")).arg("orbit").args(args).output().expect("the binary runs")
}

fn stdout(args: &[&str]) -> String {
    let output = starhop(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

fn complaint(args: &[&str]) -> String {
    let output = starhop(args);
    assert!(!output.status.success(), "{args:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("starhop-orbit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a scratch directory can be made");
        Self(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is text").to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_path_in_json_has_the_published_delay() {
    let text = stdout(&["path", "Beijing", "Hong Kong", "--for", "600s", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rtt = result["mean_rtt_ms"].as_f64().unwrap();
    assert!((rtt / 22.32 - 1.0).abs() < 0.01, "{rtt} ms");
    assert_eq!(result["availability"], 1.0);
    assert!(result["routes"].as_array().unwrap().len() as u64 == result["changes"].as_u64().unwrap() + 1);
}

#[test]
fn bad_input_is_named_with_a_way_out() {
    for (args, parts) in [
        (&["path", "Bejing", "Paris"][..], ["`Bejing`", "`Beijing`"]),
        (&["path", "Paris", "paris"], ["paris", "different"]),
        (&["path", "Lima", "Paris", "--shell", "x"], ["`x`", "starlink-550"]),
        (&["path", "Lima", "Paris", "--for", "600"], ["`600`", "600s"]),
        (&["path", "Lima", "Paris", "--step", "15ms"], ["the step", "10 ms"]),
        (&["path", "Lima", "Paris", "--tle", "/nowhere"], ["/nowhere", "cannot read"]),
        (&["globe", "Lima", "Paris", "Tokyo"], ["pairs", "Beijing"]),
    ] {
        let complaint = complaint(args);
        assert!(parts.iter().all(|p| complaint.contains(p)), "{args:?}: {complaint}");
    }
}

#[test]
fn an_exported_hypatia_directory_can_be_imported_and_used() {
    let scratch = Scratch::new("hypatia");
    let dir = scratch.path("state");
    stdout(&["export", "hypatia", "Beijing", "Paris", "--for", "2s", "--out", &dir]);
    let summary: serde_json::Value =
        serde_json::from_str(&stdout(&["import", "hypatia", &dir, "--json"])).unwrap();
    assert_eq!((summary["satellites"].as_u64(), summary["isls"].as_u64()), (Some(1584), Some(3168)));
    assert!(scratch.0.join("state/dynamic_state_1000ms_for_2s/fstate_1000000000.txt").exists());
    let path = stdout(&["path", "Beijing", "Paris", "--hypatia", &dir, "--for", "10s", "--json"]);
    assert!(path.contains("\"availability\":1.0"), "{path}");
}

#[test]
fn changes_scenes_and_globes_are_written() {
    let scratch = Scratch::new("files");
    for (format, name, sign) in [("csv", "a.csv", "at_s,event"), ("czml", "a.czml", "\"document\"")] {
        let file = scratch.path(name);
        stdout(&["export", format, "Lima", "Tokyo", "--for", "5s", "--out", &file]);
        assert!(std::fs::read_to_string(&file).unwrap().contains(sign));
    }
    let file = scratch.path("globe.html");
    stdout(&["globe", "Lima", "Tokyo", "--for", "5s", "--out", &file]);
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn every_subcommand_has_help_with_an_example() {
    for task in ["path", "export", "import", "globe", "shells"] {
        let help = stdout(&[task, "--help"]);
        assert!(help.contains(&format!("starhop orbit {task} ")), "{help}");
    }
}
