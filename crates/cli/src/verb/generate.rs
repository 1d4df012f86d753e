//! `starhop generate`: manual pages and completions, for packages.

use crate::Cli;
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate_to};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the manual pages and the completions for bash, zsh and fish
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory, which is made
    directory: PathBuf,
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let pages = args.directory.join("man");
    std::fs::create_dir_all(&pages).with_context(|| format!("cannot make `{}`", pages.display()))?;
    let mut program = Cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut program, "starhop", &args.directory)?;
    }
    complete_names(&args.directory)?;
    program.build();
    write_page(&program, "starhop", &pages)?;
    Ok(ExitCode::SUCCESS)
}

/// Has the shells ask `starhop names` where a name of an object is written: the generator knows words of the program only.
fn complete_names(directory: &Path) -> anyhow::Result<()> {
    let change = |name: &str, change: &dyn Fn(String) -> String| {
        let path = directory.join(name);
        let script = std::fs::read_to_string(&path)?;
        std::fs::write(&path, change(script))
    };
    change("starhop.bash", &|script| script + include_str!("names.bash"))?;
    change("starhop.fish", &|script| script + include_str!("names.fish"))?;
    change("_starhop", &|script| {
        let mut verb = "";
        let mut lines = String::new();
        for line in script.lines() {
            verb = if line.starts_with('(') { line } else { verb };
            let is_name = (verb == "(get)" || verb == "(ls)") && line.starts_with("'*::");
            // With one colon the options stay in `words`: the source is among them.
            let asked = line.replacen("'*::", "'*:", 1).replace(":_default'", ":_starhop_names'");
            lines += if is_name { &asked } else { line };
            lines.push('\n');
        }
        lines.replacen("_starhop() {", &[include_str!("names.zsh"), "_starhop() {"].concat(), 1)
    })?;
    Ok(())
}

/// The page of a command, and those of its verbs: `starhop-key-new.1` and so on.
fn write_page(command: &Command, name: &str, directory: &Path) -> anyhow::Result<()> {
    // A manual page's name is that of the file: leaked, because clap takes names that live for ever.
    let renamed = command.clone().name(name.to_owned().leak() as &'static str).display_name(name.to_owned());
    let mut page = Vec::new();
    clap_mangen::Man::new(renamed).render(&mut page)?;
    let path = directory.join(format!("{name}.1"));
    std::fs::write(&path, page).with_context(|| format!("cannot write `{}`", path.display()))?;
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help");
    verbs.into_iter().try_for_each(|verb| write_page(verb, &format!("{name}-{}", verb.get_name()), directory))
}
