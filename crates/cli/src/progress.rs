//! Progress bars on a terminal; silent if the error output is not a terminal.

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

/// Bytes done, of a total that may be unknown at first. Without a total there is nothing that a bar could be a part of, and
/// one that was drawn would be full.
pub(crate) struct Amount {
    bar: ProgressBar,
    /// The template once the total is known.
    with_total: &'static str,
}

impl Amount {
    /// An amount on `bar`, drawn by one template until its total is known, and by the other from then on.
    pub(crate) fn new(bar: ProgressBar, without_total: &str, with_total: &'static str) -> Self {
        bar.unset_length();
        style(&bar, without_total);
        Self { bar, with_total }
    }

    /// Shows how many bytes are done. A total of nothing counts as unknown.
    pub(crate) fn show(&self, done: u64, total: Option<u64>) {
        if let Some(total) = total.filter(|&total| total > 0 && self.bar.length() != Some(total)) {
            style(&self.bar, self.with_total);
            self.bar.set_length(total);
        }
        self.bar.set_position(done);
    }

    /// The bar itself, for its message and its end.
    pub(crate) fn bar(&self) -> &ProgressBar {
        &self.bar
    }
}

fn style(bar: &ProgressBar, template: &str) {
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::TermLike;
    use std::io;
    use std::sync::{Arc, Mutex};

    /// A terminal that keeps the line that was drawn last.
    #[derive(Clone, Default, Debug)]
    struct Screen(Arc<Mutex<String>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            120
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no panic").push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().expect("no panic").clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_size_there_is_no_full_bar() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let amount = Amount::new(
            ProgressBar::with_draw_target(None, target),
            "reading {bytes}",
            "reading {bar:30} {bytes}/{total_bytes}",
        );
        let full = || {
            amount.bar().force_draw();
            screen.0.lock().expect("no panic").matches('\u{2588}').count()
        };
        for total in [None, Some(0)] {
            amount.show(700, total);
            assert_eq!(full(), 0, "{screen:?}");
            assert!(screen.0.lock().expect("no panic").contains("reading 700 B"), "{screen:?}");
        }
        amount.show(1000, Some(2000));
        assert!((14..=15).contains(&full()), "{screen:?}");
        amount.show(2000, Some(2000));
        assert_eq!(full(), 30, "{screen:?}");
    }
}
