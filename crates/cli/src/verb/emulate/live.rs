//! The display of a running emulation: a view of flows, links and nodes on a terminal, a line every second
//! elsewhere.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use starhop_lab::emulate::{Progress, Snapshot};
use std::io::{self, IsTerminal, Stderr};
use std::time::{Duration, Instant};

use super::view;

/// Between two pictures on a terminal.
const FRAME: Duration = Duration::from_millis(200);
/// Between two lines elsewhere.
const LINE: Duration = Duration::from_secs(1);

/// The form in which a run is shown.
pub(super) enum Live {
    /// A view on the whole terminal.
    Screen(Box<Screen>),
    /// Line by line.
    Lines(Instant),
    /// Not at all.
    Nothing,
}

impl Live {
    /// A view where both outputs are a terminal, lines elsewhere.
    pub(super) fn new(title: &str, is_quiet: bool) -> Self {
        if is_quiet {
            return Self::Nothing;
        }
        if io::stdout().is_terminal() && io::stderr().is_terminal() {
            // A terminal that cannot do it gets lines.
            return Screen::open(title).map_or(Self::Lines(Instant::now()), |s| Self::Screen(Box::new(s)));
        }
        Self::Lines(Instant::now())
    }

    /// Shows how a run is going; false when the user wants its end.
    pub(super) fn show(&mut self, progress: Progress<'_>) -> bool {
        match self {
            Self::Nothing => true,
            Self::Screen(screen) => screen.show(progress),
            Self::Lines(told_at) => {
                if told_at.elapsed() >= LINE {
                    *told_at += LINE;
                    eprintln!("{}", line(progress.at.as_secs_f64(), &progress.snapshot()));
                }
                true
            }
        }
    }
}

/// One line: the time, every flow, and the link that has most to do.
fn line(seconds: f64, now: &Snapshot) -> String {
    let mut line = format!("{seconds:6.1} s");
    for flow in &now.flows {
        let delay = flow.delay_ms.map_or_else(|| "no way".to_owned(), |delay| format!("{delay:.1} ms"));
        line += &format!("  {} {} {:.2} Mbit/s {delay}", flow.name, flow.state, flow.mbps);
    }
    let busiest = now
        .links
        .iter()
        .max_by(|a, b| (a.used, a.mbps).partial_cmp(&(b.used, b.mbps)).unwrap_or(std::cmp::Ordering::Equal));
    if let Some(link) = busiest {
        let share = link.used * 100.0;
        line += &format!("  {} {share:.0} % queue {:.1} ms", link.name, link.queue_ms);
    }
    line
}

/// The terminal, while a view has it.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
    title: String,
    drawn_at: Option<Instant>,
}

impl Screen {
    fn open(title: &str) -> io::Result<Self> {
        enable_raw_mode()?;
        let opened = execute!(io::stderr(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stderr())));
        let terminal = opened.inspect_err(|_| close())?;
        Ok(Self { terminal, title: title.to_owned(), drawn_at: None })
    }

    fn show(&mut self, progress: Progress<'_>) -> bool {
        if wants_end() {
            return false;
        }
        if self.drawn_at.is_some_and(|at| at.elapsed() < FRAME) {
            return true;
        }
        self.drawn_at = Some(Instant::now());
        let (at, of) = (progress.at.as_secs_f64(), progress.of.as_secs_f64());
        let snapshot = progress.snapshot();
        // A picture that could not be drawn is followed by the next.
        let _ = self.terminal.draw(|frame| view::draw(frame, &self.title, (at, of), &snapshot));
        true
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        close();
    }
}

fn close() {
    // Restores the terminal as far as it can; errors are ignored.
    let _ = execute!(io::stderr(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// Whether `q` or Ctrl-C was pressed: in raw mode the terminal sends no signal.
fn wants_end() -> bool {
    while event::poll(Duration::ZERO).unwrap_or(false) {
        let Ok(Event::Key(key)) = event::read() else { continue };
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if is_interrupt || key.code == KeyCode::Char('q') {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_lab::emulate::{FlowNow, LinkNow};

    #[test]
    fn a_line_names_every_flow_and_the_busiest_link() {
        let flow = |name: &str, delay_ms| FlowNow {
            name: name.to_owned(),
            transport: "starhop".to_owned(),
            bytes: 0,
            size: None,
            mbps: 18.75,
            delay_ms,
            state: "running",
        };
        let link = |name: &str, used| LinkNow {
            name: name.to_owned(),
            is_up: true,
            mbps: 1.0,
            used,
            queue_ms: 2.5,
            lost: 0,
            dropped: 0,
            packets: 0,
        };
        let now = Snapshot {
            flows: vec![flow("a", Some(61.25)), flow("b", None)],
            links: vec![link("x-y", 0.5), link("y-z", 0.99), link("z-y", 0.1)],
            nodes: Vec::new(),
        };
        assert_eq!(
            line(3.04, &now),
            "   3.0 s  a running 18.75 Mbit/s 61.2 ms  b running 18.75 Mbit/s no way  y-z 99 % queue 2.5 ms"
        );
    }
}
