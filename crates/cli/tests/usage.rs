//! The command line as a user meets it: exit codes, refusals, versions.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Runs the binary without any variable of ours, and with those of `variables`.
fn starhop(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
    command.env_remove("STARHOP_KEY").env_remove("STARHOP_ROSTER").envs(variables.iter().copied());
    command.args(arguments).current_dir(directory).output().expect("it runs")
}

/// The exit code, and all that was said.
fn said(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = starhop(directory, arguments, &[]);
    let all = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(all).expect("text"))
}

fn scratch() -> TempDir {
    TempDir::new().expect("a directory")
}

#[test]
fn help_and_version_are_no_error_and_every_verb_tells_its_exit_codes() {
    let here = scratch();
    let verbs = [
        "serve", "relay", "get", "ls", "key", "roster", "demo", "bench", "sim", "emulate", "report", "sweep",
        "figure", "compare", "orbit",
    ];
    for verb in verbs {
        let (code, text) = said(here.path(), &["help", verb]);
        assert_eq!(code, Some(0), "{verb}: {text}");
        assert!(text.to_lowercase().contains("exit code") && text.contains('2'), "{verb}: {text}");
        let (code, text) = said(here.path(), &[verb, "--no-such-option"]);
        assert_eq!(code, Some(2), "{verb}: {text}");
    }
    for (arguments, expected) in [
        (&["help"][..], 0),
        (&["--help"], 0),
        (&["--version"], 0),
        (&[], 2),
        (&["help", "nonsense"], 2),
        (&["key"], 2),
    ] {
        assert_eq!(said(here.path(), arguments).0, Some(expected), "{arguments:?}");
    }
}

#[test]
fn the_version_names_commit_build_and_features() {
    let (_, text) = said(scratch().path(), &["--version"]);
    for word in [env!("CARGO_PKG_VERSION"), "commit: ", "build: ", "features: "] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn counters_told_every_0_seconds_and_a_cache_that_cannot_fit_are_refused() {
    let here = scratch();
    for verb in [&["relay", "--upstream", "127.0.0.1:9"][..], &["serve", "."]] {
        let arguments = [verb, &["--insecure", "--stats-every", "0s"]].concat();
        let (code, text) = said(here.path(), &arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("longer than 0"), "{text}");
    }
    let (code, text) =
        said(here.path(), &["relay", "--upstream", "127.0.0.1:9", "--insecure", "--cache", "900000GiB"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("does not fit"), "{text}");
}

#[test]
fn an_empty_variable_for_the_key_is_no_key() {
    let here = scratch();
    let get = ["get", "x", "--from", "127.0.0.1:9", "--timeout", "100ms"];
    let empty = [("STARHOP_KEY", ""), ("STARHOP_ROSTER", "")];
    let output = starhop(here.path(), &[&get[..], &["--insecure"]].concat(), &empty);
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    let output = starhop(here.path(), &get, &empty);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("no key"), "{text}");
    let output = starhop(here.path(), &[&get[..], &["--insecure"]].concat(), &[("STARHOP_KEY", "some.key")]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("leave one of them out"), "{text}");
}

#[test]
fn an_authoritys_key_is_shown_and_is_no_nodes() {
    let here = scratch();
    let (code, text) = said(here.path(), &["roster", "init", "r", "--authority", "a"]);
    assert_eq!(code, Some(0), "{text}");
    let public = text.trim().strip_prefix("authority ").expect("its public key").to_owned();
    let (code, text) = said(here.path(), &["key", "show", "a"]);
    assert!(code == Some(0) && text.contains(&public), "{text}");
    let (code, text) = said(here.path(), &["key", "show", "a", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&text).expect("a document");
    assert_eq!((code, &shown["kind"], &shown["public"][0]), (Some(0), &"authority".into(), &public.into()));
    let (code, text) = said(here.path(), &["relay", "--upstream", "127.0.0.1:9", "--key", "a"]);
    assert!(code == Some(1) && text.contains("no node runs with it"), "{text}");
}

#[test]
fn a_node_is_taken_off_a_roster_and_spans_are_told_in_units_that_they_fill() {
    let here = scratch();
    let run = |arguments: &[&str]| {
        let (code, text) = said(here.path(), arguments);
        assert_eq!(code, Some(0), "{text}");
        text
    };
    run(&["roster", "init", "r", "--authority", "a"]);
    run(&["roster", "add", "r", "--name", "n", "--public", &"5".repeat(64)]);
    let (code, text) = said(here.path(), &["roster", "remove", "r", "--name", "m"]);
    assert!(code == Some(1) && text.contains("`m`"), "{text}");
    assert!(run(&["roster", "remove", "r", "--name", "n"]).starts_with("0 nodes"));
    assert!(run(&["roster", "sign", "r", "--authority", "a", "--valid", "12h"]).contains("for 12 hours"));
    assert!(run(&["key", "new", "k"]).contains("seconds old"));
}

#[test]
fn a_relay_says_that_its_upstream_is_itself_not_on_the_roster_or_silent() {
    use std::io::{BufRead, BufReader};
    let here = scratch();
    let (code, text) = said(here.path(), &["relay", "--upstream", "127.0.0.1:4433", "--insecure"]);
    assert!(code == Some(1) && text.contains("this relay itself"), "{text}");
    said(here.path(), &["roster", "init", "r", "--authority", "a", "--domain", "d"]);
    said(here.path(), &["key", "new", "k", "--node", "--authority", "a", "--domain", "d"]);
    let (_, shown) = said(here.path(), &["key", "show", "k", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("a document");
    let public = shown["public"][0].as_str().expect("a key");
    said(here.path(), &["roster", "add", "r", "--name", "n", "--public", public]);
    said(here.path(), &["roster", "sign", "r", "--authority", "a"]);
    let lines_of = |arguments: &[&str], word: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
        command.args(["relay", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(here.path());
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stderr.take().expect("its words")).lines();
        let mut heard = lines.map_while(Result::ok);
        let found = heard.any(|line| line.contains(word));
        let _ = child.kill().and_then(|()| child.wait());
        assert!(found, "{word}");
    };
    lines_of(&["--upstream", "127.0.0.1:9", "--key", "k", "--roster", "r"], "no node of the roster");
    // At boot a name may not be known yet.
    lines_of(&["--upstream", "no-such-host.invalid:9", "--insecure"], "tried again");
}
