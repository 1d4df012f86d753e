//! Puts the figures and the scenarios into the program, so that `starhop figure` needs no files beside it.

use std::fmt::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("../..").canonicalize()?;
    let mut files = Vec::new();
    for folder in ["figures", "scenarios"] {
        println!("cargo::rerun-if-changed=../../{folder}");
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut code = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&root)?.to_string_lossy().replace('\\', "/");
        writeln!(code, "    ({name:?}, include_str!({file:?})),")?;
    }
    code += "]\n";
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("library.rs"), code)?;
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<std::path::PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}
