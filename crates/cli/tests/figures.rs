//! `starhop figure` and `starhop sweep` as a user meets them.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn starhop(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starhop"));
    command.args(args).current_dir(directory).output().expect("the binary runs")
}

fn stdout(directory: &Path, args: &[&str]) -> String {
    let output = starhop(directory, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the output is text")
}

const SWEEP: &[&str] = &[
    "sweep",
    "small.toml",
    "-q",
    "--set",
    "topology.link.loss=0,1%",
    "--set",
    "flow.a.transport=cubic,starhop",
    "--seeds",
    "2",
];

fn small_scenario(directory: &Path) {
    let text = "title = \"Small\"\nduration = \"3s\"\nwarmup = \"1s\"\n[topology]\nkind = \"chain\"\nhops = 2\n\
                [topology.link]\nrate = \"10Mbit\"\ndelay = \"5ms\"\nqueue = \"100p\"\n[[flow]]\nname = \"a\"\n";
    std::fs::write(directory.join("small.toml"), text).expect("a scenario");
}

#[test]
fn a_figure_leaves_data_plots_verdicts_and_a_page_and_goes_on_where_it_was() {
    let scratch = TempDir::new().expect("a directory");
    let args = ["figure", "leotp-fig3", "--seeds", "1", "--quiet", "--json"];
    let first = stdout(scratch.path(), &args);
    let verdicts: Value = serde_json::from_str(&first).expect("verdicts");
    assert!(first.contains("hop-by-hop retransmission"), "{verdicts}");
    let out = scratch.path().join("figures-out/leotp-fig3");
    let names = |end: &str| {
        let files = std::fs::read_dir(&out).expect("results").filter_map(Result::ok);
        files.filter(|file| file.file_name().to_string_lossy().ends_with(end)).count()
    };
    assert!(
        names(".csv") > 0 && names(".svg") > 1 && names("index.html") == 1 && names("verdicts.json") == 1
    );
    let page = std::fs::read_to_string(out.join("index.html")).expect("a page");
    assert!(!page.contains("http://") && !page.contains("src="), "the page needs a network");

    let started = std::time::Instant::now();
    assert_eq!(stdout(scratch.path(), &args), first);
    println!("again in {:?}", started.elapsed());

    stdout(scratch.path(), &["figure", "leotp-fig3", "--seeds", "1", "--quiet", "--results", "results.md"]);
    let document = std::fs::read_to_string(scratch.path().join("results.md")).expect("a document");
    assert!(
        document.contains("| met | the mean hop-by-hop delay is that of equation 3 within 5 %"),
        "{document}"
    );
    // One run is not enough for *agrees*, and other figures say that they have not been measured.
    assert!(document.contains("| open | 99th percentile of 300 ms with end-to-end"), "{document}");
    assert!(document.contains("Not measured yet."), "{document}");
}

#[test]
fn an_unknown_figure_is_answered_with_where_the_known_ones_are() {
    let scratch = TempDir::new().expect("a directory");
    let output = starhop(scratch.path(), &["figure", "leotp-fig99"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("leotp-fig99") && said.contains("--list"), "{said}");
}

#[test]
fn a_copied_figure_can_be_changed_and_a_missed_goal_is_an_exit_code() {
    let scratch = TempDir::new().expect("a directory");
    stdout(scratch.path(), &["figure", "--copy", "mine"]);
    small_scenario(&scratch.path().join("mine/scenarios"));
    let text = "title = \"Mine\"\nsource = \"me\"\n[[panel]]\nscenario = \"../scenarios/small.toml\"\n[[panel.series]]\nname = \"starhop\"\n\
                [[panel.plot]]\nkind = \"bars\"\ny = \"flow.a.goodput_mbps\"\nlabel = \"Mbit/s\"\n[[panel.claim]]\nby = \"ours\"\n\
                text = \"twice the link\"\nvalue = \"flow.a.goodput_mbps\"\nseries = \"starhop\"\nleast = 20\nwhy = \"It cannot be.\"\n";
    std::fs::write(scratch.path().join("mine/figures/mine.toml"), text).expect("a figure");
    let output = starhop(scratch.path(), &["figure", "mine/figures/mine.toml", "--check", "-q"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("missed") && said.contains("twice the link") && said.contains("It cannot be."),
        "{said}"
    );
}

#[test]
fn a_sweep_does_not_depend_on_the_number_of_threads() {
    let scratch = TempDir::new().expect("a directory");
    small_scenario(scratch.path());
    let table = |threads: &str, file: &str| {
        let args = [SWEEP, &["--threads", threads, "--csv", file]].concat();
        stdout(scratch.path(), &args);
        std::fs::read_to_string(scratch.path().join(file)).expect("a table")
    };
    let one = table("1", "one.csv");
    assert_eq!(one.lines().count(), 5, "{one}");
    assert_eq!(one, table("3", "three.csv"));
}

#[test]
fn a_sweep_over_a_field_that_is_not_there_is_refused_by_name() {
    let scratch = TempDir::new().expect("a directory");
    small_scenario(scratch.path());
    let output = starhop(scratch.path(), &["sweep", "small.toml", "-q", "--set", "topology.link.lost=0,1%"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("topology.link.lost"), "{said}");
}
