//! The package: installed into a private copy of this system, in which its units' command lines run.
//!
//! The copy is an overlay in a mount namespace of its own. If the kernel or the user may not make one, or dpkg is
//! missing, the tests say so.

mod local;

use local::Place;
use std::path::Path;
use std::process::{Command, Output};

fn main() {
    let has_dpkg = Command::new("dpkg-deb").arg("--version").output().is_ok_and(|out| out.status.success());
    let is_root = nix::unistd::geteuid().is_root();
    if !has_dpkg || !is_root {
        println!("skipped 1 tests: they need root and dpkg-deb");
        return;
    }
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let built = Command::new(root.join("scripts/package.sh"))
        .args([env!("CARGO_BIN_EXE_starhop").as_ref(), place.path("out").as_path()])
        .output()
        .expect("the script");
    succeed("the package is built", &built);
    units_are_confined(root);
    println!("test units_are_confined ... ok");
    for (script, what) in [
        ("install.sh", "it is installed and its units' commands run"),
        ("walk.sh", "what the documents tell a newcomer to type"),
    ] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/package").join(script);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "bash"]).arg(path).arg(place.path("out")).arg(place.path("."));
        let output = command.output().expect("unshare");
        if output.status.code() == Some(77) {
            println!("skipped 1 tests: {}", String::from_utf8_lossy(&output.stderr));
            continue;
        }
        succeed(what, &output);
        print!("{}", String::from_utf8_lossy(&output.stdout));
    }
}

fn succeed(what: &str, output: &Output) {
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{what}:\n{}", String::from_utf8_lossy(&said));
}

/// `systemd-analyze security` rates the permissions of a unit from 0 to 10.
fn units_are_confined(root: &Path) {
    let units = [
        ("starhop-relay", 2.5),
        ("starhop-serve", 2.5),
        ("starhop-relay-transparent", 4.0),
        ("starhop-gateway", 4.0),
        ("starhop-fec", 4.0),
    ];
    for (unit, most) in units {
        let path = root.join(format!("packaging/systemd/{unit}.service"));
        let analyze =
            Command::new("systemd-analyze").args(["security", "--offline=true"]).arg(&path).output();
        let Ok(output) = analyze else {
            println!("skipped 1 tests: systemd-analyze is not here");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("Overall exposure level"));
        let line = line.unwrap_or_else(|| panic!("{unit}: {}", String::from_utf8_lossy(&output.stderr)));
        let level = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        assert!(level <= Some(most) && level.is_some(), "{unit}: {line}");
        println!("{unit}: exposure {}", level.unwrap_or_default());
    }
}
