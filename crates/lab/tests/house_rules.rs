//! The rules that hold the workspace together, read from its manifests and sources: the edges between crates, the
//! dependencies of proto, and the wording of comments. docs/ARCHITECTURE.md has the reasons; a change here is a
//! change of design.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Which of our crates a crate may use.
const EDGES: [(&str, &[&str]); 7] = [
    ("proto", &[]),
    ("orbit", &[]),
    ("sim", &["proto", "orbit"]),
    ("net", &["proto"]),
    ("kernel", &[]),
    ("lab", &["proto", "sim", "orbit", "net", "kernel"]),
    ("cli", &["proto", "sim", "orbit", "net", "kernel", "lab"]),
];

/// All dependencies of proto.
const PROTO_USES: [&str; 5] = ["foldhash", "hashbrown", "libm", "reed-solomon-simd", "smallvec"];

/// Dependencies on sockets, runtimes and file hashes, and the crates of ours that may have them.
const OF_THE_REAL_WORLD: [&str; 3] = ["blake3", "quinn-udp", "tokio"];
const IN_THE_REAL_WORLD: [&str; 3] = ["net", "lab", "cli"];

/// A crate's manifest.
struct Manifest {
    /// The crate's folder: proto, orbit and so on.
    folder: String,
    path: PathBuf,
    toml: Table,
}

/// One dependency of a manifest.
struct Dependency<'a> {
    name: &'a str,
    /// The heading that it stands under, such as `dev-dependencies`.
    section: &'a str,
    value: &'a Value,
}

fn workspace() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.ancestors().nth(2).expect("lab lies two folders below the workspace").to_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(path: &Path) -> Table {
    read(path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifests() -> Vec<Manifest> {
    let crates = workspace().join("crates");
    let folders = fs::read_dir(&crates).unwrap_or_else(|error| panic!("{}: {error}", crates.display()));
    let mut manifests: Vec<Manifest> = folders
        .map(|folder| folder.expect("a folder that can be listed").path())
        .filter(|folder| folder.join("Cargo.toml").is_file())
        .map(|folder| Manifest {
            folder: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            path: folder.join("Cargo.toml"),
            toml: parse(&folder.join("Cargo.toml")),
        })
        .collect();
    manifests.sort_by(|a, b| a.folder.cmp(&b.folder));
    manifests
}

impl Manifest {
    fn dependencies(&self) -> Vec<Dependency<'_>> {
        let mut found = dependencies_in(&self.toml);
        for target in self.toml.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values) {
            found.extend(target.as_table().map(dependencies_in).unwrap_or_default());
        }
        found
    }

    fn package_name(&self) -> Option<&str> {
        self.toml.get("package")?.get("name")?.as_str()
    }
}

fn dependencies_in(table: &Table) -> Vec<Dependency<'_>> {
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let of = |section| {
        table.get(section).and_then(Value::as_table).into_iter().flatten().map(move |d| (section, d))
    };
    let all = sections.into_iter().flat_map(of);
    all.map(|(section, (name, value))| Dependency { name, section, value }).collect()
}

/// Fails with everything that is wrong at once.
#[track_caller]
fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn our_crates_know_only_whom_they_may_know() {
    let manifests = manifests();
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let folders: BTreeMap<&str, &str> =
        manifests.iter().filter_map(|m| Some((m.package_name()?, m.folder.as_str()))).collect();
    assert_eq!(folders.len(), manifests.len(), "a manifest below crates/ has no package.name");
    let mut wrong = Vec::new();
    for manifest in &manifests {
        let (path, folder) = (manifest.path.display(), manifest.folder.as_str());
        let Some(allowed) = allowed.get(folder) else {
            wrong.push(format!(
                "{path}: a new crate; say in EDGES of this test and in docs/ARCHITECTURE.md whom it may use"
            ));
            continue;
        };
        for dependency in manifest.dependencies() {
            let Some(other) = folders.get(dependency.name) else { continue };
            if !allowed.contains(other) {
                wrong.push(format!(
                    "{path}: `{folder}` may not use `{other}`; remove it from [{}], or move the code to a crate that may",
                    dependency.section
                ));
            }
        }
    }
    expect_none(&wrong);
}

#[test]
fn proto_has_no_std() {
    let proto = workspace().join("crates/proto/src");
    let lib = proto.join("lib.rs");
    assert!(
        read(&lib).lines().any(|line| line.trim() == "#![no_std]"),
        "{}: put `#![no_std]` back: it keeps clocks, sockets and threads out",
        lib.display()
    );
    let mut wrong = Vec::new();
    for path in sources(&proto) {
        if read(&path).lines().any(|line| line.trim_start().starts_with("extern crate std")) {
            wrong.push(format!(
                "{}: remove `extern crate std`; what needs it belongs to net or sim",
                path.display()
            ));
        }
    }
    expect_none(&wrong);
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("a file that can be listed").path()) {
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn proto_is_built_on_five_small_crates() {
    let manifests = manifests();
    let proto = manifests.iter().find(|m| m.folder == "proto").expect("crates/proto/Cargo.toml");
    let used: BTreeSet<&str> =
        proto.dependencies().iter().filter(|d| d.section != "dev-dependencies").map(|d| d.name).collect();
    assert_eq!(
        used,
        PROTO_USES.into_iter().collect(),
        "{}: whoever embeds the protocol builds all of [dependencies]; a new one is a change of design",
        proto.path.display()
    );
}

#[test]
fn sockets_runtimes_and_file_hashes_stay_in_the_real_world() {
    let mut wrong = Vec::new();
    for manifest in manifests().iter().filter(|m| !IN_THE_REAL_WORLD.contains(&m.folder.as_str())) {
        for dependency in manifest.dependencies() {
            if OF_THE_REAL_WORLD.contains(&dependency.name) {
                wrong.push(format!(
                    "{}: `{}` is for {IN_THE_REAL_WORLD:?} only; move what needs it there",
                    manifest.path.display(),
                    dependency.name
                ));
            }
        }
    }
    expect_none(&wrong);
}

/// docs/SECURITY.md promises nothing without a test: a name with three underscores or more in backticks is one.
#[test]
fn every_test_that_the_security_document_names_exists() {
    let root = workspace();
    let code: String = sources(&root.join("crates")).iter().map(|path| read(path)).collect();
    let text = read(&root.join("docs/SECURITY.md"));
    let quoted = text.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.rsplit("::").next());
    let is_name = |name: &&str| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    let names: Vec<&str> = quoted.filter(is_name).filter(|name| name.matches('_').count() >= 3).collect();
    assert!(names.len() >= 40, "{names:?}");
    let exists = |name: &&str| code.contains(&format!("fn {name}(")) || code.contains(&format!("\"{name}\""));
    let wrong = names.into_iter().filter(|name| !exists(name));
    expect_none(
        &wrong.map(|name| format!("docs/SECURITY.md names `{name}`, which is no test")).collect::<Vec<_>>(),
    );
}

/// A hook for tests only: it is in no program that is built without asking for it.
#[test]
fn no_program_can_have_its_clock_set_unless_it_is_built_for_tests() {
    const HOOK: &str = "clock-steps";
    let mut wrong = Vec::new();
    for manifest in manifests() {
        let default = manifest.toml.get("features").and_then(|features| features.get("default"));
        if default.is_some_and(|default| default.to_string().contains(HOOK)) {
            wrong.push(format!("{}: {HOOK} is a default feature", manifest.folder));
        }
        let asks = |dependency: &Dependency<'_>| dependency.value.to_string().contains(HOOK);
        let built_in = |dependency: &Dependency<'_>| dependency.section != "dev-dependencies";
        let dependencies = manifest.dependencies();
        let shipped = dependencies.iter().filter(|dependency| asks(dependency) && built_in(dependency));
        wrong
            .extend(shipped.map(|dependency| format!("{}: {} has {HOOK}", manifest.folder, dependency.name)));
    }
    expect_none(&wrong);
}

#[test]
fn versions_stand_in_the_root_manifest_only() {
    let root = workspace().join("Cargo.toml");
    let table = parse(&root);
    let named =
        table.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    let named = named.unwrap_or_else(|| panic!("{}: has no [workspace.dependencies]", root.display()));
    let mut wrong = Vec::new();
    for manifest in &manifests() {
        for dependency in manifest.dependencies() {
            let is_inherited = dependency.value.get("workspace").and_then(Value::as_bool) == Some(true);
            if !is_inherited || !named.contains_key(dependency.name) {
                wrong.push(format!(
                    "{}: write `{name}.workspace = true` under [{}], and the version in {}",
                    manifest.path.display(),
                    dependency.section,
                    root.display(),
                    name = dependency.name,
                ));
            }
        }
    }
    expect_none(&wrong);
}

/// A comment says its fact with a noun: behind a question word its reader has to look for that noun.
#[test]
fn no_comment_opens_with_what_who_or_how() {
    const OPENINGS: [&str; 6] = ["What", "Whatever", "Who", "Whoever", "Whom", "How"];
    let mut wrong = Vec::new();
    for path in sources(&workspace().join("crates")) {
        for (index, line) in read(&path).lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!']).trim_start();
            let first = text.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default();
            if OPENINGS.contains(&first) {
                wrong.push(format!(
                    "{}:{}: open the comment with a noun or a verb, not with `{first}`: {text}",
                    path.display(),
                    index + 1
                ));
            }
        }
    }
    expect_none(&wrong);
}
