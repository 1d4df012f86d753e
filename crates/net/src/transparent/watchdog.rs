//! The watchdog of a transparent relay: a process of its own that holds the firewall open only while the relay
//! proves, four times a second, that it is alive. When the relay is killed or hangs, packets pass it by.

use super::firewall::Firewall;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two signs of life.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(250);
/// Silence that means that the relay hangs.
const SILENCE: Duration = Duration::from_millis(1000);
/// Between two tries to change the rules.
const RETRY: Duration = Duration::from_millis(50);
/// So many changes in a row that fail, each tried a few times, and the watchdog gives up: more than five seconds.
const MOST_FAILURES: u32 = 30;
/// How long installing may take.
const INSTALL: Duration = Duration::from_secs(5);

/// A sign of life: divert packets.
const DIVERT: u8 = b'1';
/// A sign of life: alive, but let packets pass.
const LET_PASS: u8 = b'0';

/// The relay's end of its watchdog. Dropping it lets packets pass.
#[derive(Debug)]
pub(super) struct Watchdog {
    child: Child,
    heart: Option<ChildStdin>,
    firewall: Firewall,
}

impl Watchdog {
    /// Starts the watchdog, `program` with the arguments `arguments`, and waits until packets are diverted.
    pub(super) fn start(program: &Path, arguments: &[String], firewall: Firewall) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // A terminal's Ctrl-C is for the relay, which then ends its watchdog.
        command.process_group(0);
        let mut child = command.spawn()?;
        let (heart, said) = (child.stdin.take(), child.stdout.take());
        let mut watchdog = Self { child, heart, firewall };
        watchdog.beat(true)?;
        let said = said.ok_or_else(|| io::Error::other("the watchdog has no voice"))?;
        let mut fds = [PollFd::new(said.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(INSTALL).unwrap_or(PollTimeout::MAX);
        if poll(&mut fds, timeout)? == 0 {
            return Err(io::Error::other("the watchdog does not answer"));
        }
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        match line.trim() {
            "diverting" => Ok(watchdog),
            "" => Err(io::Error::other("the watchdog ended at once")),
            problem => Err(io::Error::other(problem.to_owned())),
        }
    }

    /// Gives a sign of life.
    ///
    /// # Errors
    /// When the watchdog is gone.
    pub(super) fn beat(&mut self, divert: bool) -> io::Result<()> {
        let sign = if divert { DIVERT } else { LET_PASS };
        let gone = || io::Error::other("the watchdog is gone");
        self.heart.as_mut().ok_or_else(gone)?.write_all(&[sign])
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.heart.take());
        let ended = self.child.wait();
        // A watchdog that was killed left the rules to us; of removing them twice nothing comes.
        if !ended.is_ok_and(|status| status.success()) {
            let _ = self.firewall.remove();
        }
    }
}

/// The watchdog itself: runs until the relay is gone.
///
/// # Errors
/// When the firewall cannot be changed.
pub fn watch(port: u16) -> io::Result<()> {
    let firewall = Firewall::new(port);
    let mut has_diverted = false;
    let done = guard(firewall, &mut has_diverted);
    // Whoever holds the rules now lets go of them at some time, and nobody else removes what is ours.
    let tries = if has_diverted { MOST_FAILURES } else { 1 };
    let removed = (0..tries).find_map(|_| patiently(|| firewall.remove()).ok());
    done.and(removed.ok_or_else(|| io::Error::other("the firewall's table of this relay cannot be removed")))
}

/// Others that change or list rules at the same moment make a change fail: it is tried again, well within the two
/// seconds that a relay may be in the way.
fn patiently(change: impl Fn() -> io::Result<()>) -> io::Result<()> {
    for _ in 0..3 {
        if change().is_ok() {
            return Ok(());
        }
        std::thread::sleep(RETRY);
    }
    change()
}

fn guard(firewall: Firewall, has_diverted: &mut bool) -> io::Result<()> {
    let mut input = io::stdin();
    let mut last = Instant::now();
    let (mut is_diverting, mut has_said) = (false, false);
    let mut failures = 0;
    let mut signs = [0; 64];
    loop {
        let left = SILENCE.saturating_sub(last.elapsed());
        let timeout = if is_diverting {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
        } else {
            PollTimeout::NONE
        };
        let is_silent = poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout)? == 0;
        let wanted = if is_silent {
            false
        } else {
            let count = input.read(&mut signs)?;
            let Some(sign) = signs[..count].last() else { return Ok(()) };
            last = Instant::now();
            *sign == DIVERT
        };
        if wanted == is_diverting {
            continue;
        }
        let done = patiently(|| if wanted { firewall.install() } else { firewall.remove() });
        if !has_said {
            has_said = true;
            let said = done.as_ref().map_or_else(io::Error::to_string, |()| "diverting".to_owned());
            // The relay hears it, or is gone, which the next read tells.
            let _ = writeln!(io::stdout(), "{}", said.replace('\n', " "));
            done?;
            *has_diverted = true;
            is_diverting = wanted;
            continue;
        }
        // What fails now is tried again with the next sign of life, or at once where none comes.
        match done {
            Ok(()) => (is_diverting, failures) = (wanted, 0),
            Err(error) if failures == MOST_FAILURES => return Err(error),
            Err(_) => failures += 1,
        }
    }
}
