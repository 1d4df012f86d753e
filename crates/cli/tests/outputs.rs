//! Every output that `starhop sim` and `starhop report` document, over every scenario that is shipped.

use starhop_lab::run::load;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let files = std::fs::read_dir(folder).expect("the shipped scenarios").filter_map(Result::ok);
    let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

/// Runs the binary, which must succeed.
fn starhop(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_starhop")).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whether something is drawn in a plot: a line with a point, a dot, a bar or a range.
fn is_drawn(svg: &str) -> bool {
    let shapes = svg.split('<').filter(|tag| {
        ["class=\"line", "class=\"area", "class=\"dot", "class=\"bar", "class=\"range"]
            .iter()
            .any(|class| tag.contains(class))
    });
    shapes.into_iter().any(|tag| !tag.contains("d=\"\""))
}

/// Checks a report: it has plots, and none of them is empty.
fn check_report(file: &Path) {
    let page = std::fs::read_to_string(file).expect("a report");
    let plots: Vec<&str> = page.split("<svg ").skip(1).collect();
    assert!(plots.len() >= 2, "{}: {} plots", file.display(), plots.len());
    for plot in plots {
        let plot = plot.split("</svg>").next().unwrap_or_default();
        assert!(is_drawn(plot), "{}: an empty plot: {plot}", file.display());
        assert!(!plot.contains("NaN") && !plot.contains("inf"), "{}: {plot}", file.display());
    }
}

#[test]
fn every_output_of_every_shipped_scenario_can_be_had_and_no_plot_is_empty() {
    let scenarios = scenarios();
    assert!(scenarios.len() > 30, "{} scenarios are shipped", scenarios.len());
    // Two processors share the work; neighbours in the list cost about the same.
    std::thread::scope(|scope| {
        for half in 0..2 {
            let files = scenarios.iter().skip(half).step_by(2);
            scope.spawn(move || check_outputs(files));
        }
    });
}

/// Checks all outputs of scenarios, one after the other.
fn check_outputs<'a>(files: impl Iterator<Item = &'a PathBuf>) {
    let scratch = TempDir::new().expect("a directory");
    let path = |name: &str| scratch.path().join(name);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    for file in files {
        // The run is long enough for each flow to run for some seconds.
        let scenario = load(file, &[]).expect("a scenario");
        let last_start = scenario.flows.iter().map(|flow| flow.start).max().expect("a flow");
        let duration = format!("duration={}s", last_start.as_secs_f64() + 3.0);
        let (json, report) = (path("result.json"), path("report.html"));
        let series = path(file.file_stem().and_then(|name| name.to_str()).expect("a name"));
        starhop(&[
            "sim",
            &text(file),
            "--quiet",
            "--set",
            &duration,
            "--set",
            "warmup=0s",
            "--json",
            &text(&json),
            "--series",
            &text(&series),
            "--report",
            &text(&report),
        ]);
        check_report(&report);
        for csv in std::fs::read_dir(&series).expect("series").filter_map(Result::ok) {
            let rows = std::fs::read_to_string(csv.path()).expect("a table").lines().count();
            assert!(rows > 1, "{}: {} has no row", file.display(), csv.path().display());
        }
        let compared = path("compared.html");
        starhop(&["report", &text(&json), &text(&json), "-o", &text(&compared)]);
        check_report(&compared);
    }
}
