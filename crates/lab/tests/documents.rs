//! The claims of README and guides: each number of the README has a test or a table of measurements behind it, and
//! every link and every test that a document names exists. `make docs` runs this.

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors().nth(2).expect("lab lies two folders below the workspace").to_owned()
}

fn read(name: &str) -> String {
    let path = workspace().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a document outside of its blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
        .collect()
}

/// The targets of the links of a line, and the line without them.
fn links(line: &str) -> (Vec<String>, String) {
    let (mut targets, mut rest) = (Vec::new(), String::new());
    let mut pieces = line.split("](");
    rest.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (target, behind) = piece.split_once(')').unwrap_or((piece, ""));
        targets.push(target.to_owned());
        rest.push_str(behind);
    }
    (targets, rest)
}

/// The numbers of a text: digits with at most one point between them.
fn numbers(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_digit() && c != '.');
    words.map(|word| word.trim_matches('.')).filter(|word| !word.is_empty()).collect()
}

/// The text of a test function; `None` if there is no function of that name.
fn test_of<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let from = source.find(&format!("fn {name}("))?;
    let body = &source[from..];
    Some(body.find("\n}\n").map_or(body, |end| &body[..end]))
}

/// Whether a test holds a bound: as it stands, or as a share of one.
fn asserts(body: &str, number: &str) -> bool {
    let value: f64 = number.parse().expect("digits");
    let as_share = format!("{}", value / 100.0);
    numbers(body).iter().any(|found| found.parse() == Ok(value) || *found == as_share)
}

/// The cells behind the first one of the row that is cited as "ROW", or as "TABLE: ROW" where several tables have such a row.
/// ROW is how its first cell begins, TABLE how the paragraph above the table begins; marks of footnotes and code are left out.
fn cited_row<'a>(document: &'a str, citation: &str) -> Result<&'a str, String> {
    let (table, row) = citation.split_once(": ").unwrap_or(("", citation));
    let plain = |text: &str| text.replace(['`', '¹', '²', '³'], "").trim().to_owned();
    let (mut above, mut is_paragraph, mut found) = ("", false, Vec::new());
    for line in prose(document) {
        let cells = line.strip_prefix('|').and_then(|line| line.split_once('|'));
        match cells {
            Some((first, rest)) if plain(first).starts_with(row) && above.starts_with(table) => {
                found.push((plain(first), rest));
            }
            None if !line.is_empty() && !is_paragraph => above = line,
            _ => {}
        }
        is_paragraph = cells.is_none() && !line.is_empty();
    }
    // A row of exactly this name goes before longer ones.
    if let [(_, rest)] = found.iter().filter(|(first, _)| first == row).collect::<Vec<_>>()[..] {
        return Ok(rest);
    }
    match found[..] {
        [(_, rest)] => Ok(rest),
        [] => Err(format!("no row begins with \"{row}\" in a table below \"{table}\"")),
        _ => Err(format!("{} rows begin with \"{row}\": cite \"TABLE: ROW\"", found.len())),
    }
}

#[test]
fn a_number_is_looked_for_in_the_row_that_is_cited() {
    let document = "The first:\n\n| | |\n|---|---|\n| `one`¹, of 5 | 7 ms |\n| one, long | 8 |\n\nSecond\nlines\n\n| | |\n| two | 9 |\n| one | 6 |\n";
    let cited = |citation: &str| cited_row(document, citation).map(numbers);
    assert_eq!(cited("one, of 5"), Ok(vec!["7"]));
    assert_eq!(cited("two"), Ok(vec!["9"]));
    assert_eq!(cited("The first: one, l"), Ok(vec!["8"]));
    assert_eq!(cited("Second: one"), Ok(vec!["6"]));
    assert_eq!(cited("one"), Ok(vec!["6"]), "the row of exactly this name");
    for citation in ["three", "one,", "lines: one", "The first: two"] {
        assert!(cited(citation).is_err(), "{citation}");
    }
}

/// The texts in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_number_of_the_readme_has_a_test_or_a_measurement_behind_it() {
    let readme = read("README.md");
    let mut rows = 0;
    for line in prose(&readme) {
        let (targets, text) = links(line);
        let columns: Vec<&str> = text.trim_matches('|').split('|').collect();
        let is_row = line.starts_with('|') && columns.len() == 3 && columns[2].contains('[');
        if !is_row {
            assert_eq!(numbers(&text), [""; 0], "a number without a source: {line}");
            continue;
        }
        assert_eq!(numbers(columns[0]), [""; 0], "a number beside the source: {line}");
        let source = targets.last().expect("a source");
        let found = read(source);
        let citation = columns[2].split('"').nth(1);
        for number in numbers(columns[1]) {
            rows += 1;
            match quoted(columns[2]).first() {
                Some(test) => {
                    let body = test_of(&found, test).unwrap_or_else(|| panic!("{source} has no {test}"));
                    assert!(asserts(body, number), "{test} asserts no {number}: {line}");
                }
                None => {
                    let citation = citation.unwrap_or_else(|| panic!("cite the row of {source}: {line}"));
                    let cited =
                        cited_row(&found, citation).unwrap_or_else(|error| panic!("{source}: {error}"));
                    assert!(numbers(cited).contains(&number), "{source} has no {number} there: {line}");
                }
            }
        }
    }
    assert!(rows >= 8, "{rows} numbers were looked at");
}

#[test]
fn the_readme_is_read_on_one_screen_and_a_table() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 60, "{} lines", readme.lines().count());
    let first = readme.lines().take(30).collect::<Vec<_>>().join("\n");
    for word in ["install", "first transfer", "first gateway"] {
        assert!(first.contains(word), "the first screen does not tell of {word}");
    }
}

#[test]
fn every_link_of_a_document_leads_to_a_file() {
    let guides = fs::read_dir(workspace().join("docs/guide")).expect("the guides");
    let guides =
        guides.map(|file| format!("docs/guide/{}", file.expect("a file").file_name().to_string_lossy()));
    let fixed =
        ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/BENCHMARKS.md", "docs/PROTOCOL.md"];
    let fixed = fixed.into_iter().chain(["docs/SECURITY.md"]).map(str::to_owned);
    for name in fixed.chain(guides).filter(|name| name.ends_with(".md")) {
        let folder = workspace().join(&name);
        let folder = folder.parent().expect("a folder");
        for line in prose(&read(&name)) {
            for target in links(line).0.iter().filter(|target| !target.contains("://")) {
                let file = target.split('#').next().unwrap_or_default();
                assert!(file.is_empty() || folder.join(file).exists(), "{name} links to {target}");
            }
        }
    }
}

#[test]
fn every_expectation_of_the_operators_guide_names_tests_that_are_there() {
    let guide = read("docs/guide/operators.md");
    let table = guide.split("## What to expect").nth(1).expect("the section on expectations");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows: Vec<Vec<&str>> = (table.lines())
        .filter(|line| line.starts_with("| ") && line[2..].starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 22);
    for (nth, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), 4, "{row:?}");
        assert_eq!(row[0], (nth + 1).to_string());
        let answer = row[2].split(':').next().unwrap_or_default();
        assert!(["yes", "partly", "no"].contains(&answer), "{row:?}");
        assert!(answer == "yes" || row[2].contains(':'), "what is missing is said: {row:?}");
        let tests = quoted(row[3]);
        assert!(!tests.is_empty() || answer == "no", "{row:?} has no test");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("`{test}` is no FILE::TEST"));
            let source = read(&format!("crates/{file}"));
            assert!(
                source.contains(&format!("fn {name}(")) || source.contains(&format!("\"{name}\"")),
                "no test {test}"
            );
        }
    }
}
