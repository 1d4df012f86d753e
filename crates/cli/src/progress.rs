//! A progress bar on a terminal; silent if the error output is not a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use starhop_lab::sweep::Progress;

/// A bar for many runs.
pub(crate) struct Bar(ProgressBar);

/// Steps of the whole bar.
const STEPS: u64 = 10_000;

impl Bar {
    /// A bar with a name in front of it.
    pub(crate) fn new(name: &str, is_quiet: bool) -> Self {
        // The library draws nothing where the error output is no terminal.
        let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        let style = ProgressStyle::with_template("{prefix:18} {bar:30} {percent:>3} %  {msg}  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        Self(bar)
    }

    /// Shows how far a batch is; cheap to call often, and from any thread.
    pub(crate) fn show(&self, progress: Progress) {
        self.0.set_position((progress.share * STEPS as f64) as u64);
        self.0.set_message(format!("{}/{} runs", progress.done, progress.total));
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
