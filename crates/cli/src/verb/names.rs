//! `starhop names`: the names that complete a command line, for the shells.

use super::ls;
use crate::Cli;
use clap::{Command, CommandFactory};
use std::process::ExitCode;
use std::time::Duration;

/// A shell waits for this while its user does.
const PATIENCE: Duration = Duration::from_secs(1);

/// Print the names that the source of a command line offers, one per line
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command line from the verb to the word under the cursor, which may be empty
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs the verb. Whatever hinders it is no error of the line that is being written: it prints nothing then.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let program = Cli::command();
    if let Some((asked, begun)) = asked(&program, &args.words)
        && let Ok(offers) = ls::offers(&asked, PATIENCE)
    {
        let names = offers.into_iter().map(|offer| offer.name).filter(|name| name.starts_with(begun));
        super::print(&names.map(|name| name + "\n").collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments of `ls` for the source of this command line, and the begun name; `None` where no name is wanted.
fn asked<'a>(program: &Command, words: &'a [String]) -> Option<(ls::Args, &'a str)> {
    let [verb, before @ .., begun] = words else { return None };
    let command = program.find_subcommand(verb).filter(|_| verb == "get" || verb == "ls")?;
    let takes_value = |word: &str| {
        let option = command.get_arguments().find(|arg| {
            word.strip_prefix("--").is_some_and(|name| arg.get_long() == Some(name))
                || word
                    .strip_prefix('-')
                    .is_some_and(|name| arg.get_short().is_some_and(|c| name == c.to_string()))
        });
        option.is_some_and(|arg| arg.get_action().takes_values())
    };
    if begun.starts_with('-') || before.last().is_some_and(|word| takes_value(word)) {
        return None;
    }
    let mut line = vec!["ls".to_owned()];
    let mut rest = before.iter();
    while let Some(word) = rest.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let is_of_both = ["--from", "--key", "--roster", "--cipher", "--insecure"].contains(&name);
        let value = if word == name && takes_value(word) { rest.next() } else { None };
        if is_of_both && !(name == "--from" && line.iter().any(|word| word.starts_with("--from"))) {
            line.push(word.clone());
            line.extend(value.cloned());
        }
    }
    Some((ls::parse(&line)?, begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(line: &str) -> Option<(String, String)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (args, begun) = asked(&Cli::command(), &words)?;
        Some((args.from.to_string(), begun.to_owned()))
    }

    #[test]
    fn the_source_is_read_wherever_it_stands_and_options_are_not_completed() {
        let read = |from: &str, begun: &str| Some((from.to_owned(), begun.to_owned()));
        assert_eq!(reading("get --from 127.0.0.1:4433 --insecure ho"), read("127.0.0.1:4433", "ho"));
        assert_eq!(reading("get a.mkv -o here --from=127.0.0.1:4433 "), read("127.0.0.1:4433", ""));
        assert_eq!(reading("ls --from 127.0.0.1:1 --from 127.0.0.1:2 x"), read("127.0.0.1:1", "x"));
        for line in [
            "get ho",
            "get --from 127.0.0.1:4433 -o ho",
            "get --from 127.0.0.1:4433 --k",
            "get --from 12",
            "relay x",
        ] {
            assert_eq!(reading(line), None, "{line}");
        }
    }
}
