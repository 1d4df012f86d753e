//! The log: lines on standard error, for people, for the journal or as JSON, at levels that can be changed at run time.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// A sentence and its fields; with the time and the level unless a terminal or the journal adds them.
    #[default]
    Text,
    /// One JSON object per line, with `timestamp` (RFC 3339, UTC) and `level`.
    Json,
}

/// The levels that are used where none is given.
pub const DEFAULT_LEVELS: &str = "info";

/// Levels that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The text is at fault.
    #[error(
        "`{0}` names no levels: give error, warn, info, debug, trace or off, for all or as TARGET=LEVEL,…"
    )]
    Levels(String),
    /// Nothing logs in this process.
    #[error("this process keeps no log")]
    Missing,
}

static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Starts the log of this process with `levels`, such as `info` or `warn,starhop::transfer=info`. A second call changes
/// the levels only.
///
/// # Errors
/// [`LogError::Levels`] when `levels` cannot be read.
pub fn start(format: Format, levels: &str) -> Result<(), LogError> {
    let targets = parse(levels)?;
    if LEVELS.get().is_some() {
        return set_levels(levels);
    }
    let (filter, handle) = reload::Layer::new(targets);
    let limit = Limit::default();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines: Box<dyn Layer<_> + Send + Sync> = match format {
        Format::Text => lines.event_format(Text::for_standard_error()).with_filter(limit).boxed(),
        Format::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_filter(limit)
            .boxed(),
    };
    // Another library of this process may log already: then its log stays.
    if Registry::default().with(filter).with(lines).try_init().is_ok() {
        let _ = LEVELS.set(handle);
    }
    Ok(())
}

/// Changes the levels of the running process.
///
/// # Errors
/// [`LogError`] when `levels` cannot be read, or the log was never [started](start).
pub fn set_levels(levels: &str) -> Result<(), LogError> {
    let targets = parse(levels)?;
    LEVELS.get().ok_or(LogError::Missing)?.reload(targets).map_err(|_| LogError::Missing)
}

/// Whether `levels` can be read.
///
/// # Errors
/// [`LogError::Levels`] when not.
pub fn check_levels(levels: &str) -> Result<(), LogError> {
    parse(levels).map(drop)
}

fn parse(levels: &str) -> Result<Targets, LogError> {
    let wrong = || LogError::Levels(levels.to_owned());
    // A word alone would be taken for a target.
    let is_level = |part: &str| part.contains('=') || LevelFilter::from_str(part).is_ok();
    let is_known = levels.split(',').all(|part| !part.trim().is_empty() && is_level(part.trim()));
    if is_known { Targets::from_str(levels).map_err(|_| wrong()) } else { Err(wrong()) }
}

/// The time of day as the log writes it: RFC 3339, UTC, microseconds.
pub fn timestamp() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Prefix of a line of text.
#[derive(Clone, Copy)]
enum Text {
    /// `starhop: `, for people at a terminal.
    Terminal,
    /// The severity as systemd's journal reads it: `<4>` is a warning (sd-daemon(3)).
    Journal,
    /// Time and level, for files.
    Stamped,
}

impl Text {
    fn for_standard_error() -> Self {
        if std::env::var_os("JOURNAL_STREAM").is_some() {
            Self::Journal
        } else if std::io::stderr().is_terminal() {
            Self::Terminal
        } else {
            Self::Stamped
        }
    }

    fn front(self, level: Level, writer: &mut Writer<'_>) -> fmt::Result {
        match self {
            Self::Terminal => write!(writer, "starhop: "),
            Self::Journal => {
                let severity = match level {
                    Level::ERROR => 3,
                    Level::WARN => 4,
                    Level::INFO => 6,
                    _ => 7,
                };
                write!(writer, "<{severity}>")
            }
            Self::Stamped => {
                SystemTime.format_time(writer)?;
                write!(writer, " {level:5} starhop: ")
            }
        }
    }
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        self.front(*event.metadata().level(), &mut writer)?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

/// Lets through the first warnings of each kind, so that a fault that repeats cannot fill the disk.
#[derive(Default)]
struct Limit {
    kinds: Mutex<BTreeMap<Kind, Window>>,
}

/// The place in the program that a warning comes from.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind(&'static str, u32);

/// Warnings and errors of one kind that pass within [`PERIOD`].
const BURST: u32 = 10;
/// After this time as many pass again.
const PERIOD: Duration = Duration::from_secs(10);

/// Number of lines of one kind that passed since a moment.
struct Window {
    began: Instant,
    count: u32,
}

impl Window {
    /// Whether one more message may pass at `now`.
    fn admits(&mut self, now: Instant) -> bool {
        if now.duration_since(self.began) >= PERIOD {
            *self = Self { began: now, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count <= BURST
    }
}

impl<S> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN {
            return true;
        }
        let now = Instant::now();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = Kind(metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
        kinds.entry(kind).or_insert(Window { began: now, count: 0 }).admits(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read_for_all_and_for_targets() {
        for levels in ["info", "off", "warn,starhop::transfer=info", "starhop_net=debug"] {
            assert!(check_levels(levels).is_ok(), "{levels}");
        }
        for levels in ["", "loud", "info,", "x=y=z"] {
            assert!(check_levels(levels).unwrap_err().to_string().contains("error, warn, info"), "{levels}");
        }
    }

    #[test]
    fn a_kind_of_warning_passes_ten_times_in_ten_seconds() {
        let start = Instant::now();
        let mut window = Window { began: start, count: 0 };
        let passed = |window: &mut Window, seconds| {
            (0..100).filter(|_| window.admits(start + Duration::from_secs(seconds))).count()
        };
        assert_eq!(passed(&mut window, 0), 10);
        assert_eq!(passed(&mut window, 9), 0);
        assert_eq!(passed(&mut window, 10), 10);
    }

    #[test]
    fn a_timestamp_is_rfc_3339_in_utc() {
        let text = timestamp();
        assert!(text.len() == 27 && text.ends_with('Z') && text.as_bytes()[10] == b'T', "{text}");
    }
}
