//! Configuration files: the options of the long-lived verbs, written down.
//!
//! A key is an option's long name without its dashes. Keys at the top hold for every verb that has such an option; those
//! in a table hold for the verb that the table is named after. The command line goes before the file, and the file
//! before the environment.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::DeTable;
use toml::{Table, Value};

/// The option that names the file; a verb with it can be configured by one.
const OPTION: &str = "config";

/// Arguments of every verb that a file can configure.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    /// A file with options, as `key = value` below [VERB]; the command line goes before it. Check it with `starhop check`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A fault of a configuration file.
#[derive(Debug)]
pub(crate) struct ConfigError {
    path: PathBuf,
    /// Counted from 1.
    line: Option<usize>,
    /// As `relay.cache`.
    field: Option<String>,
    problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "`{field}`: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// One setting of a verb.
#[derive(Clone, PartialEq, Debug)]
struct Setting {
    /// As `relay.cache`.
    field: String,
    line: usize,
    value: Value,
}

/// The settings of a verb in a file, by option.
pub(crate) type Settings = BTreeMap<String, Vec<String>>;

/// A file that was read.
pub(crate) struct File {
    path: PathBuf,
    text: String,
    table: Table,
}

impl File {
    /// Reads a file and finds keys that no verb knows.
    pub(crate) fn read(path: &Path, program: &Command) -> Result<Self, ConfigError> {
        let problem =
            |line, problem: String| Err(ConfigError { path: path.to_owned(), line, field: None, problem });
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return problem(None, error.to_string()),
        };
        match text.parse() {
            Ok(table) => {
                let file = Self { path: path.to_owned(), text, table };
                file.check_keys(program).map(|()| file)
            }
            Err(error) => {
                let line = error.span().map(|span| line_of(&text, &span));
                problem(line, error.message().trim_end().to_owned())
            }
        }
    }

    /// The verbs that it has a table for.
    pub(crate) fn verbs<'a>(&'a self, program: &'a Command) -> impl Iterator<Item = &'a Command> {
        configurable(program).filter(|verb| self.table.get(verb.get_name()).is_some_and(Value::is_table))
    }

    fn error(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        let (path, line) = (self.path.clone(), self.line(field));
        ConfigError { path, line, field: Some(field.to_owned()), problem: problem.into() }
    }

    /// The line of a key, written as `relay.cache`.
    fn line(&self, field: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let mut table = root.into_inner();
        let mut line = None;
        for part in field.split('.') {
            let (key, value) = table.iter().find(|(key, _)| key.get_ref() == part)?;
            line = Some(line_of(&self.text, &key.span()));
            let inner = value.get_ref().as_table().cloned();
            match inner {
                Some(inner) => table = inner,
                None => break,
            }
        }
        line
    }

    fn check_keys(&self, program: &Command) -> Result<(), ConfigError> {
        let verbs: Vec<&Command> = configurable(program).collect();
        for (key, value) in &self.table {
            if let (Some(verb), Value::Table(table)) =
                (verbs.iter().find(|verb| verb.get_name() == key), value)
            {
                if let Some(key) = table.keys().find(|key| option(verb, key).is_none()) {
                    let field = format!("{}.{key}", verb.get_name());
                    return Err(self.error(&field, format!("is unknown here; known are: {}", known(verb))));
                }
            } else if !verbs.iter().any(|verb| option(verb, key).is_some()) {
                let names: Vec<&str> = verbs.iter().map(|verb| verb.get_name()).collect();
                let problem =
                    format!("is neither an option nor one of the tables for verbs: {}", names.join(", "));
                return Err(self.error(key, problem));
            }
        }
        Ok(())
    }

    /// The settings for a verb: those of its table, and those at the top that its table does not have.
    fn settings(&self, verb: &Command) -> Vec<Setting> {
        let name = verb.get_name();
        let own = self.table.get(name).and_then(Value::as_table).cloned().unwrap_or_default();
        let at_top =
            self.table.iter().filter(|(key, _)| option(verb, key).is_some() && !own.contains_key(*key));
        let at_top = at_top.map(|(key, value)| (key.clone(), value.clone()));
        let own = own.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone()));
        let setting = |(field, value): (String, Value)| {
            let line = self.line(&field).unwrap_or(1);
            Setting { field, line, value }
        };
        at_top.chain(own).map(setting).collect()
    }

    /// The settings for a verb as arguments, without those that `given` says are on the command line.
    fn arguments(&self, verb: &Command, given: impl Fn(&str) -> bool) -> Result<Vec<String>, ConfigError> {
        let (mut options, mut positional) = (Vec::new(), Vec::new());
        for Setting { field, value, .. } in self.settings(verb) {
            let name = field.rsplit('.').next().unwrap_or_default();
            let Some(arg) = option(verb, name).filter(|_| !given(name)) else { continue };
            let values = values(&value).map_err(|problem| self.error(&field, problem))?;
            match (arg.get_long(), arg.get_action()) {
                (None, _) => positional.extend(values),
                (Some(long), ArgAction::SetTrue) => match value {
                    Value::Boolean(true) => options.push(format!("--{long}")),
                    Value::Boolean(false) => {}
                    _ => return Err(self.error(&field, "is true or false")),
                },
                (Some(long), ArgAction::Append) => {
                    options.extend(values.iter().map(|value| format!("--{long}={value}")));
                }
                (Some(long), _) => match values.as_slice() {
                    [value] => options.push(format!("--{long}={value}")),
                    _ => return Err(self.error(&field, "takes one value")),
                },
            }
        }
        Ok([options, positional].concat())
    }

    /// The settings for a verb, to compare with later ones.
    pub(crate) fn compare(&self, verb: &Command) -> Settings {
        let settings = self.settings(verb).into_iter();
        let by_option = |Setting { field, value, .. }: Setting| {
            let name = field.rsplit('.').next().unwrap_or_default().to_owned();
            Some((name, values(&value).ok()?))
        };
        settings.filter_map(by_option).collect()
    }

    /// Parses the settings of a verb as if they were given on the command line.
    pub(crate) fn check(&self, program: &Command, verb: &Command) -> Result<clap::ArgMatches, ConfigError> {
        let arguments = self.arguments(verb, |_| false)?;
        let all = [program.get_name(), verb.get_name()].map(str::to_owned).into_iter().chain(arguments);
        program.clone().try_get_matches_from(all).map_err(|error| self.explain(verb, &error))
    }

    /// An error of clap about an option, as a fault of the file.
    pub(crate) fn explain(&self, verb: &Command, error: &clap::Error) -> ConfigError {
        let arg = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(arg)) => Some(arg.clone()),
            Some(ContextValue::Strings(args)) => args.first().cloned(),
            _ => None,
        };
        let name = arg.as_deref().and_then(|arg| arg.trim_start_matches('-').split([' ', '=', '>']).next());
        let setting = |name: &str| {
            let settings = self.settings(verb);
            settings.into_iter().find(|setting| setting.field.rsplit('.').next() == Some(name))
        };
        let (line, field) = match name.and_then(setting) {
            Some(setting) => (Some(setting.line), Some(setting.field)),
            None => (self.line(verb.get_name()), Some(verb.get_name().to_owned())),
        };
        let plain = error.to_string();
        let first = plain.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let missing = plain.lines().nth(1).filter(|_| first.ends_with(':')).unwrap_or_default();
        let problem = error.source().map_or(format!("{first}{missing}"), ToString::to_string);
        ConfigError { path: self.path.clone(), line, field, problem }
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

/// The verbs that can be configured.
fn configurable(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|verb| verb.get_arguments().any(|arg| arg.get_id() == OPTION))
}

/// The argument of a verb behind a key. A file names no other file, and `json` is left to the command line.
fn option<'a>(verb: &'a Command, key: &str) -> Option<&'a Arg> {
    let is_named = |arg: &&Arg| match arg.get_long() {
        Some(long) => long == key && ![OPTION, "help", "version"].contains(&key),
        None => arg.is_positional() && arg.get_id() == key,
    };
    verb.get_arguments().find(is_named)
}

fn known(verb: &Command) -> String {
    let visible = verb.get_arguments().filter(|arg| !arg.is_hide_set());
    let names = visible.filter_map(|arg| arg.get_long().or_else(|| Some(arg.get_id().as_str())));
    names.filter(|name| option(verb, name).is_some()).collect::<Vec<_>>().join(", ")
}

/// A value as the command line has it.
fn values(value: &Value) -> Result<Vec<String>, String> {
    Ok(match value {
        Value::String(text) => vec![text.clone()],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(flag) => vec![flag.to_string()],
        Value::Datetime(_) => return Err("is a date, which no option takes".to_owned()),
        Value::Array(items) => {
            let items: Result<Vec<_>, _> = items.iter().map(values).collect();
            items?.concat()
        }
        Value::Table(table) => vec![toml::to_string(table).map_err(|error| error.to_string())?],
    })
}

/// The file that a command line names, and the verb that it is for.
fn named(arguments: &[OsString]) -> Option<(String, PathBuf)> {
    let verb = arguments.get(1)?.to_str()?.to_owned();
    let mut rest = arguments.iter().skip(2);
    while let Some(argument) = rest.next() {
        if argument == "--config" {
            return Some((verb, rest.next()?.into()));
        }
        if let Some(path) = argument.to_str().and_then(|argument| argument.strip_prefix("--config=")) {
            return Some((verb, path.into()));
        }
    }
    None
}

/// The command line of this process with the settings of the file that it names.
pub(crate) fn expand(program: &Command, arguments: Vec<OsString>) -> Result<Vec<OsString>, ConfigError> {
    let Some((name, path)) = named(&arguments) else { return Ok(arguments) };
    let Some(verb) = configurable(program).find(|verb| verb.get_name() == name) else { return Ok(arguments) };
    let file = File::read(&path, program)?;
    let has_positional = || {
        // The arguments that remain without options and their values: good enough to tell whether one of them is
        // positional.
        let matches = program.clone().ignore_errors(true).try_get_matches_from(&arguments).ok()?;
        let verb = matches.subcommand_matches(&name)?;
        Some(verb.ids().any(|id| option_is_positional(program, &name, id.as_str())))
    };
    let has_positional = has_positional().unwrap_or(false);
    let given = |option: &str| {
        let (bare, with_value) = (format!("--{option}"), format!("--{option}="));
        let is_it = |argument: &OsString| {
            argument.to_str().is_some_and(|argument| argument == bare || argument.starts_with(&with_value))
        };
        arguments.iter().any(is_it) || (has_positional && option_is_positional(program, &name, option))
    };
    let settings = file.arguments(verb, given)?;
    let (front, rest) = arguments.split_at(2);
    Ok(front
        .iter()
        .cloned()
        .chain(settings.into_iter().map(OsString::from))
        .chain(rest.iter().cloned())
        .collect())
}

fn option_is_positional(program: &Command, verb: &str, name: &str) -> bool {
    let verb = program.find_subcommand(verb);
    verb.and_then(|verb| option(verb, name)).is_some_and(Arg::is_positional)
}

/// A configuration file, to find out on SIGHUP which settings differ from those in use.
pub(crate) struct Reread {
    path: PathBuf,
    verb: String,
    in_use: Settings,
    /// As the file had them at the last call of [`Reread::again`].
    read: Settings,
}

impl Reread {
    /// Remembers the settings of now; `None` where this process has no file.
    pub(crate) fn new(program: &Command) -> Option<Self> {
        let (verb, path) = named(&std::env::args_os().collect::<Vec<_>>())?;
        let in_use = File::read(&path, program).ok()?.compare(program.find_subcommand(&verb)?);
        Some(Self { path, verb, in_use, read: Settings::new() })
    }

    /// Reads the file. Returns the options whose values differ from those in use.
    pub(crate) fn again(&mut self, program: &Command) -> Result<Vec<String>, ConfigError> {
        let file = File::read(&self.path, program)?;
        let Some(verb) = program.find_subcommand(&self.verb) else { return Ok(Vec::new()) };
        self.read = file.compare(verb);
        let names = self.in_use.keys().chain(self.read.keys());
        let mut changed: Vec<String> =
            names.filter(|name| self.in_use.get(*name) != self.read.get(*name)).cloned().collect();
        changed.sort();
        changed.dedup();
        Ok(changed)
    }

    /// Notes that these options are in use as they were read last.
    pub(crate) fn apply(&mut self, options: &[&str]) {
        for &option in options {
            match self.read.get(option) {
                Some(values) => drop(self.in_use.insert(option.to_owned(), values.clone())),
                None => drop(self.in_use.remove(option)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    fn file(text: &str) -> Result<File, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("node.toml");
        std::fs::write(&path, text).expect("a file");
        let read = File::read(&path, &Cli::command());
        read.map_err(|error| error.to_string().replace(&format!("{}/", directory.path().display()), ""))
    }

    fn arguments(text: &str, given: &[&str]) -> Vec<String> {
        let (program, file) = (Cli::command(), file(text).expect("a file without faults"));
        let relay = program.find_subcommand("relay").expect("the verb");
        file.arguments(relay, |name| given.contains(&name)).expect("arguments")
    }

    fn problem(text: &str) -> String {
        let program = Cli::command();
        let relay = program.find_subcommand("relay").expect("the verb");
        match file(text) {
            Err(problem) => problem,
            Ok(file) => {
                let error = file.check(&program, relay).expect_err("a fault").to_string();
                error.rsplit_once("node.toml").map(|(_, rest)| format!("node.toml{rest}")).expect("the name")
            }
        }
    }

    #[test]
    fn settings_of_a_verb_and_of_all_become_arguments_unless_the_command_line_has_them() {
        let text = "insecure = true\nlisten = \"127.0.0.1:1\"\n[relay]\nlisten = \"127.0.0.1:2\"\ncache = \"1MiB\"\n\
                    upstream = \"127.0.0.1:3\"\njson = false\n[serve]\npaths = [\"a\"]\n";
        let expected = ["--insecure", "--cache=1MiB", "--listen=127.0.0.1:2", "--upstream=127.0.0.1:3"];
        assert_eq!(arguments(text, &[]), expected);
        assert_eq!(arguments(text, &["listen", "upstream"]), expected[..2]);
    }

    #[test]
    fn a_table_of_settings_is_passed_on_as_it_is() {
        let arguments = arguments("[relay.options]\nbuffer_target = \"5p\"\n", &[]);
        assert_eq!(arguments, ["--options=buffer_target = \"5p\"\n"]);
    }

    #[test]
    fn faults_name_the_line_and_the_field() {
        for (text, expected) in [
            ("[relay]\ncahce = 1\n", "node.toml: line 2: `relay.cahce`: is unknown here; known are: "),
            ("\ncahce = 1\n", "node.toml: line 2: `cahce`: is neither an option nor one of the tables"),
            ("[relay]\n\ncache = \"12parsecs\"\n", "node.toml: line 3: `relay.cache`: this is not a size"),
            ("[relay]\ninsecure = 1\n", "node.toml: line 2: `relay.insecure`: is true or false"),
            ("[relay]\ncache = [1, 2]\n", "node.toml: line 2: `relay.cache`: takes one value"),
            ("[relay\n", "node.toml: line 1: "),
            ("\n[relay]\ncache = 1\n", "node.toml: line 2: `relay`: the following required arguments"),
        ] {
            let problem = problem(text);
            assert!(problem.starts_with(expected), "{text:?}: {problem}");
        }
    }

    #[test]
    fn a_change_is_told_until_it_is_applied_or_taken_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, program) = (directory.path().join("f"), Cli::command());
        let write = |text: &str| std::fs::write(&path, text).expect("a file");
        write("[relay]\ncache = 1\nupstream = \"127.0.0.1:3\"\n");
        let before = File::read(&path, &program).expect("a file");
        let in_use = before.compare(program.find_subcommand("relay").expect("the verb"));
        let (verb, read) = ("relay".to_owned(), Settings::new());
        let mut reread = Reread { path: path.clone(), verb, in_use, read };
        write("[relay]\ncache = 2\nupstream = [\"127.0.0.1:4\"]\nlog-level = \"warn\"\n");
        for _ in 0..2 {
            assert_eq!(reread.again(&program).expect("a file"), ["cache", "log-level", "upstream"]);
        }
        reread.apply(&["log-level", "upstream"]);
        assert_eq!(reread.again(&program).expect("a file"), ["cache"]);
        write("[relay]\ncache = 1\nupstream = [\"127.0.0.1:4\"]\n");
        assert_eq!(reread.again(&program).expect("a file"), ["log-level"]);
        reread.apply(&["log-level"]);
        assert!(reread.again(&program).expect("a file").is_empty());
        write("nonsense");
        assert!(reread.again(&program).is_err());
    }
}
