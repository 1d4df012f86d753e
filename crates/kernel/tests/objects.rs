//! The checked-in programs match their sources, and their arithmetic is right.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &str, extension: Option<&str>) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).expect("a folder that can be listed");
    let names = entries.map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned());
    let is_wanted = |name: &String| extension.is_none_or(|extension| name.ends_with(extension));
    names.filter(is_wanted).map(|name| format!("{folder}/{name}")).collect()
}

#[test]
fn every_object_belongs_to_its_source() {
    let sums = fs::read_to_string(root().join("objects/SHA256SUMS")).expect("objects/SHA256SUMS");
    let named: BTreeSet<String> =
        sums.lines().filter_map(|line| line.split_once("  ")).map(|(_, name)| name.to_owned()).collect();
    let there: BTreeSet<String> = files("bpf", None).union(&files("objects", Some(".o"))).cloned().collect();
    assert_eq!(named, there, "run `make bpf` and commit crates/kernel/objects");
    let check = ["--check", "--strict", "--quiet", "objects/SHA256SUMS"];
    let done =
        Command::new("sha256sum").args(check).current_dir(root()).output().expect("sha256sum of coreutils");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}run `make bpf` and commit crates/kernel/objects");
}

#[test]
fn every_source_says_both_licences() {
    for name in files("bpf", None).iter().filter(|name| name.ends_with(".c") || name.ends_with(".h")) {
        let text = fs::read_to_string(root().join(name)).expect("a source");
        assert!(text.starts_with("// SPDX-License-Identifier: MIT OR GPL-2.0-only\n"), "{name}");
    }
}

/// A program for this machine that answers lines of "function argument argument argument".
struct Arithmetic(PathBuf);

const MAIN: &str = r#"
#include "arithmetic.h"
#include <stdio.h>
#include <string.h>
int main(void)
{
    char name[32];
    unsigned long long a, b, c, r;
    struct sample sample = {0};
    while (scanf("%31s %llu %llu %llu", name, &a, &b, &c) == 4) {
        if (!strcmp(name, "rho")) r = rho(a, b);
        else if (!strcmp(name, "exp2")) r = exp2_less_one(a);
        else if (!strcmp(name, "avoidance")) r = hybla_avoidance(a, b, c);
        else if (!strcmp(name, "waiting")) r = waiting(a, b, c);
        else if (!strcmp(name, "share")) r = share(a, b, c);
        else if (!strcmp(name, "bandwidth")) r = bandwidth(a, b);
        else if (!strcmp(name, "under_way")) r = under_way(a, b);
        else if (!strcmp(name, "see_550_ms")) see(&sample, a, b, c, 550000), r = sample.bandwidth;
        else return 1;
        printf("%llu\n", r);
    }
    return 0;
}
"#;

impl Arithmetic {
    /// Compiled anew for each test, under its name.
    fn build(test: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let (source, program) = (folder.join(format!("{test}.c")), folder.join(test));
        fs::write(&source, MAIN).expect("a source");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-fsanitize=undefined", "-fno-sanitize-recover", "-I"]).arg(root().join("bpf"));
        let done =
            cc.arg(&source).arg("-o").arg(&program).output().expect("a C compiler, as the build needs one");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self(program)
    }

    fn ask(&self, questions: &[(&str, [u64; 3])]) -> Vec<u64> {
        let mut child =
            Command::new(&self.0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let lines: String =
            questions.iter().map(|(name, [a, b, c])| format!("{name} {a} {b} {c}\n")).collect();
        let mut stdin = child.stdin.take().expect("its input");
        let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
        let output = child.wait_with_output().expect("its answers");
        writer.join().expect("a thread").expect("it reads");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answers = String::from_utf8_lossy(&output.stdout);
        let answers: Vec<u64> = answers.lines().map(|line| line.parse().expect("a number")).collect();
        assert_eq!(answers.len(), questions.len());
        answers
    }
}

const Q16: f64 = 65_536.0;

#[test]
fn powers_of_two_are_right_within_a_fiftieth_of_a_percent() {
    let exponents: Vec<u64> = (65_536..24 * 65_536).step_by(97).collect();
    let questions: Vec<_> = exponents.iter().map(|&rho| ("exp2", [rho, 0, 0])).collect();
    let answers = Arithmetic::build("powers").ask(&questions);
    for (rho, power) in exponents.iter().zip(answers) {
        let right = (*rho as f64 / Q16).exp2() - 1.0;
        let wrong = power as f64 / Q16 / right - 1.0;
        // 2^ρ is wrong by 0.02 %, and 2^ρ - 1 is at least half of it.
        assert!(wrong.abs() < 4e-4, "2^{} - 1: {}", *rho as f64 / Q16, wrong);
    }
}

#[test]
fn the_rest_is_right_within_its_rounding() {
    let arithmetic = Arithmetic::build("rest");
    let (rtt, base, cwnd) = (612_345, 550_000, 777);
    let answers = arithmetic.ask(&[
        ("rho", [rtt, 75_000, 0]),
        ("rho", [10_000, 75_000, 0]),
        ("avoidance", [2, (8.16 * Q16) as u64, cwnd]),
        ("waiting", [cwnd, base, rtt]),
        ("waiting", [cwnd, rtt, base]),
        ("share", [1_000, 2, 5]),
        ("share", [3, 2, 5]),
        ("bandwidth", [1_234, 611_000, 0]),
        ("under_way", [2_019 * 256, 550_000, 0]),
    ]);
    let right = [
        612.345 / 75.0 * Q16,
        Q16,
        2.0 * 8.16 * 8.16 / 777.0 * Q16,
        777.0 * (1.0 - 550.0 / 612.345) * Q16,
        0.0,
        400.0,
        2.0,
        1_234.0 / 0.611 * 256.0,
        1_110.0,
    ];
    for (answer, right) in answers.iter().zip(right) {
        // One unit of the result, and the square's error from a rounded ρ.
        assert!((*answer as f64 - right).abs() <= 1.0 + right * 1e-4, "{answer} and not {right}");
    }
}

#[test]
fn a_sample_of_the_bandwidth_begins_with_the_first_acknowledgement() {
    // Ten segments leave when the connection opens at 1 s; 550 ms later they are acknowledged one by one.
    let first = (1..=10).map(|n| ("see_550_ms", [1_549_000 + 1_000 * n, n, 1]));
    // So are the twenty that they let out.
    let second = (1..=20).map(|n| ("see_550_ms", [2_099_000 + 1_000 * n, 10 + n, 1]));
    let answers = Arithmetic::build("sample").ask(&first.chain(second).collect::<Vec<_>>());
    assert_eq!(answers[..10], [0; 10], "no round trip of data is over");
    // Eleven segments in 550 ms. The idle round trip before them would be a sample of 2 per second.
    assert_eq!(answers[10..], [11 * 256 * 100 / 55; 20]);
}

#[test]
fn nothing_overflows_at_the_ends_of_the_range() {
    let arithmetic = Arithmetic::build("ends");
    let (window, acked, ten_s) = (1 << 20, 1 << 16, 10_000_000);
    let answers = arithmetic.ask(&[
        ("rho", [ten_s, 1_000, 0]),
        ("exp2", [u64::from(u32::MAX), 0, 0]),
        ("avoidance", [acked, 10_000 << 16, 2]),
        ("waiting", [window, 1, ten_s]),
        ("share", [window, 4, 5]),
        ("bandwidth", [window, 50_000, 0]),
    ]);
    assert_eq!(answers[0], 10_000 << 16);
    // So much per segment times the segments of one acknowledgement still fits.
    assert!(answers[1].checked_mul(2 * acked).is_some_and(|growth| growth > window << 16));
    assert!(answers[2] >> 16 >= window);
    assert!((answers[3] >> 16).abs_diff(window) <= 1);
    assert_eq!(answers[4], window * 4 / 5);
    assert_eq!(answers[5], 20 * window * 256);
}
