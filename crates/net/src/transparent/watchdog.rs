//! The watchdog of a transparent relay: a process of its own that holds the firewall open only while the relay
//! proves, four times a second, that it is alive. When the relay is killed or hangs, packets pass it by.

use super::firewall::{Devices, Firewall};
use super::news::News;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// The option of a watchdog that begins with rules in force.
pub(crate) const IN_FORCE: &str = "--in-force";
/// Between two signs of life.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(250);
/// Silence that means that the relay hangs.
const SILENCE: Duration = Duration::from_millis(1000);
/// Between two tries to change the rules.
const RETRY: Duration = Duration::from_millis(50);
/// So many changes in a row that fail, each tried a few times, and the watchdog gives up: more than five seconds.
const MOST_FAILURES: u32 = 30;
/// Longest time for installing the rules.
const INSTALL: Duration = Duration::from_secs(5);

/// A sign of life: divert packets.
const DIVERT: u8 = b'1';
/// A sign of life: alive, but let packets pass.
const LET_PASS: u8 = b'0';
/// Another watchdog holds the firewall open from now on: end, and leave the rules as they are.
const RELIEVED: u8 = b'q';
/// Other rules follow: their length (4 bytes, big-endian) and their text.
const RULES: u8 = b'r';
/// The length of the longest packet that is carried in one piece follows: 2 bytes, big-endian.
const WHOLE: u8 = b'w';
/// The longest text of rules: some 10,000 policies.
const MOST_RULES: usize = 1 << 20;

/// The relay's end of its watchdog. Dropping it lets packets pass.
#[derive(Debug)]
pub(crate) struct Watchdog {
    child: Child,
    heart: Option<ChildStdin>,
    firewall: Firewall,
}

/// The watchdog of the program that had this process before: it holds the firewall open until the next one does.
#[derive(Debug)]
pub(crate) struct Former {
    process: Pid,
    heart: File,
}

impl Former {
    /// The watchdog of process `process`, at the other end of the pipe `heart`. It gets a sign of life.
    pub(crate) fn new(process: i32, heart: OwnedFd) -> Self {
        let mut former = Self { process: Pid::from_raw(process), heart: heart.into() };
        // If it is gone, the rules are gone with it, and the next one sets them.
        let _ = former.heart.write_all(&[DIVERT]);
        former
    }

    /// Ends it; the rules stay.
    fn relieve(mut self) {
        let _ = self.heart.write_all(&[RELIEVED]);
        drop(self.heart);
        let _ = waitpid(self.process, None);
    }
}

impl Watchdog {
    /// Starts the watchdog, `program` with the arguments `arguments`, and waits until packets are diverted.
    /// A `former` watchdog's rules stay in force until those of this one take their place.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        firewall: Firewall,
        former: Option<Former>,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(former.is_some().then_some(IN_FORCE))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
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
            "diverting" => {
                former.into_iter().for_each(Former::relieve);
                Ok(watchdog)
            }
            "" => Err(io::Error::other("the watchdog ended at once")),
            problem => Err(io::Error::other(problem.to_owned())),
        }
    }

    /// Its process, and the number of the pipe to it.
    pub(crate) fn handle(&self) -> (i32, RawFd) {
        (self.child.id() as i32, self.heart.as_ref().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// The pipe to it.
    ///
    /// # Errors
    /// It was closed.
    pub(crate) fn heart(&self) -> io::Result<BorrowedFd<'_>> {
        self.heart.as_ref().map(AsFd::as_fd).ok_or_else(|| io::Error::other("the watchdog ended"))
    }

    /// Gives a sign of life.
    ///
    /// # Errors
    /// The watchdog is gone.
    pub(crate) fn beat(&mut self, divert: bool) -> io::Result<()> {
        let sign = if divert { DIVERT } else { LET_PASS };
        let told = self.heart.as_mut().map(|heart| heart.write_all(&[sign]));
        told.and_then(Result::ok).ok_or_else(|| io::Error::other(self.obituary()))
    }

    /// Has the watchdog put other rules of the operator's in the place of those in force.
    ///
    /// # Errors
    /// The rules are too long, or the watchdog is gone.
    pub(crate) fn set_rules(&mut self, rules: &str) -> io::Result<()> {
        if rules.len() > MOST_RULES {
            return Err(io::Error::other("the policies make more rules than the watchdog takes"));
        }
        let mut message = vec![RULES];
        message.extend_from_slice(&(rules.len() as u32).to_be_bytes());
        message.extend_from_slice(rules.as_bytes());
        let told = self.heart.as_mut().map(|heart| heart.write_all(&message));
        told.and_then(Result::ok).ok_or_else(|| io::Error::other(self.obituary()))
    }

    /// Has TCP that is carried keep to packets of at most `whole` bytes.
    ///
    /// # Errors
    /// The watchdog is gone.
    pub(crate) fn set_whole(&mut self, whole: u16) -> io::Result<()> {
        let [a, b] = whole.to_be_bytes();
        let told = self.heart.as_mut().map(|heart| heart.write_all(&[WHOLE, a, b]));
        told.and_then(Result::ok).ok_or_else(|| io::Error::other(self.obituary()))
    }

    /// A message about the end of the watchdog, and its consequence.
    fn obituary(&mut self) -> String {
        // A pipe closes a moment before its process can be waited for.
        std::thread::sleep(RETRY);
        let how =
            self.child.try_wait().ok().flatten().map_or_else(String::new, |status| format!(" ({status})"));
        format!(
            "the watchdog of this relay ended{how}. Without it nobody would let packets pass if the relay hung: the \
             relay ends, too, and packets pass. Start it again"
        )
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
/// The firewall cannot be changed.
pub fn watch(port: u16) -> io::Result<()> {
    hold_open(&Firewall::relay(port), false)
}

/// As [`watch`], for the firewall of a gateway with these devices. If rules are `in_force` already, these take
/// their place in one transaction.
///
/// # Errors
/// When the firewall cannot be changed.
pub fn watch_gateway(port: u16, rules: &str, devices: Devices, in_force: bool) -> io::Result<()> {
    hold_open(&Firewall::gateway(port, rules, devices), in_force)
}

fn hold_open(firewall: &Firewall, in_force: bool) -> io::Result<()> {
    let mut guard = Guard::new(firewall.clone(), in_force)?;
    let done = guard.run();
    if guard.is_relieved {
        return done;
    }
    // Another program that locks the rules now will release them at some time, and only this watchdog removes ours.
    let tries = if guard.has_diverted { MOST_FAILURES } else { 1 };
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

/// The watchdog's knowledge of its relay and of the firewall.
#[derive(Debug)]
struct Guard {
    firewall: Firewall,
    news: News,
    last_sign: Instant,
    is_diverting: bool,
    /// Another program changed rules: ours may be gone.
    is_in_doubt: bool,
    has_diverted: bool,
    /// Rules may be there that are to be replaced, and not removed before: another watchdog's, or some of ours.
    in_force: bool,
    /// Another watchdog has taken over.
    is_relieved: bool,
    failures: u32,
    voice: Voice,
}

/// Bytes from the relay that are not processed yet.
#[derive(Debug, Default)]
struct Voice(Vec<u8>);

/// A word of the relay.
#[derive(PartialEq, Eq, Debug)]
enum Word {
    /// A sign of life: divert packets, or let them pass.
    Sign(bool),
    /// Other rules.
    Rules(String),
    /// The longest packet that is carried in one piece.
    Whole(u16),
    /// Another watchdog has taken over.
    Relieved,
}

impl Voice {
    /// Hears `bytes`. Returns whether they can be a relay's.
    fn hear(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= MOST_RULES + 4096
    }

    /// The next word, and of signs of life in a row the last one.
    fn next(&mut self) -> Option<Word> {
        if self.0.first() == Some(&RELIEVED) {
            return Some(Word::Relieved);
        }
        let signs = self.0.iter().take_while(|byte| ![RULES, RELIEVED, WHOLE].contains(byte)).count();
        if signs > 0 {
            return self.0.drain(..signs).next_back().map(|sign| Word::Sign(sign == DIVERT));
        }
        if self.0.first() == Some(&WHOLE) {
            let whole = self.0.get(1..3).and_then(|bytes| bytes.try_into().ok()).map(u16::from_be_bytes)?;
            self.0.drain(..3);
            return Some(Word::Whole(whole));
        }
        let length = self.0.get(1..5).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes)?;
        let end = 5 + length as usize;
        let text = String::from_utf8_lossy(self.0.get(5..end)?).into_owned();
        self.0.drain(..end);
        Some(Word::Rules(text))
    }
}

/// The events that the watchdog waits for.
enum Heard {
    /// The relay said something.
    Voice,
    /// The relay gave no sign for too long.
    Silence,
    /// Another program changed firewall or routing rules.
    News,
    /// The relay is gone.
    End,
}

impl Guard {
    fn new(firewall: Firewall, in_force: bool) -> io::Result<Self> {
        let (news, last_sign) = (News::new()?, Instant::now());
        Ok(Self {
            firewall,
            news,
            last_sign,
            is_diverting: false,
            is_in_doubt: false,
            has_diverted: false,
            in_force,
            is_relieved: false,
            failures: 0,
            voice: Voice::default(),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            match self.wait()? {
                Heard::Voice => {
                    self.last_sign = Instant::now();
                    while let Some(word) = self.voice.next() {
                        match word {
                            Word::Sign(wanted) => self.set(wanted)?,
                            Word::Rules(rules) => self.replace(self.firewall.with_rules(&rules)),
                            Word::Whole(whole) => self.replace(self.firewall.with_whole(whole)),
                            Word::Relieved => {
                                self.is_relieved = true;
                                return Ok(());
                            }
                        }
                    }
                    self.look(false);
                }
                Heard::Silence => self.set(false)?,
                Heard::News => self.look(true),
                Heard::End => return Ok(()),
            }
        }
    }

    fn wait(&mut self) -> io::Result<Heard> {
        let mut input = io::stdin();
        let left = SILENCE.saturating_sub(self.last_sign.elapsed());
        let timeout = if self.is_diverting {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
        } else {
            PollTimeout::NONE
        };
        let [firewall, rules] = self.news.fds();
        let mut fds = [input.as_fd(), firewall, rules].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        if poll(&mut fds, timeout)? == 0 {
            return Ok(Heard::Silence);
        }
        if !fds[0].any().unwrap_or(true) {
            return Ok(Heard::News);
        }
        let mut bytes = [0; 4096];
        let count = input.read(&mut bytes)?;
        let is_said = count > 0 && self.voice.hear(&bytes[..count]);
        Ok(if is_said { Heard::Voice } else { Heard::End })
    }

    /// Puts other rules in force, at once or as soon as packets are diverted again.
    fn replace(&mut self, other: Firewall) {
        if self.is_diverting
            && let Err(error) = patiently(|| other.replace())
        {
            eprintln!("starhop: the firewall's rules stay as they were: {error}");
            return;
        }
        self.firewall = other;
    }

    /// Diverts packets or lets them pass, as `wanted`. A failed change is tried again with the next sign of life,
    /// or at once if no sign comes.
    fn set(&mut self, wanted: bool) -> io::Result<()> {
        if wanted == self.is_diverting {
            return Ok(());
        }
        let in_force = std::mem::take(&mut self.in_force);
        let done = patiently(|| match (wanted, in_force) {
            (true, true) => self.firewall.restore(),
            (true, false) => self.firewall.install(),
            (false, _) => self.firewall.remove(),
        });
        if !self.has_diverted {
            let said = done.as_ref().map_or_else(io::Error::to_string, |()| "diverting".to_owned());
            // The relay reads it, or is gone, as the next read shows.
            let _ = writeln!(io::stdout(), "{}", said.replace('\n', " "));
            done?;
            (self.has_diverted, self.is_diverting) = (true, wanted);
            return Ok(());
        }
        match done {
            Ok(()) => (self.is_diverting, self.failures) = (wanted, 0),
            Err(error) if self.failures == MOST_FAILURES => return Err(error),
            Err(_) => self.failures += 1,
        }
        Ok(())
    }

    /// After a change, or where that is in doubt, looks whether the rules are there still. Where they are not, the next
    /// sign of life sets them again.
    fn look(&mut self, has_news: bool) {
        if has_news {
            // Changes come in groups.
            std::thread::sleep(RETRY);
            self.is_in_doubt |= self.news.take();
        }
        if !self.is_in_doubt || !self.is_diverting {
            return;
        }
        // While a transaction runs, such as a check of another configuration, a list of the rules may be cut short.
        let look = || {
            let is_installed = self.firewall.is_installed();
            if let Ok(false) = is_installed {
                std::thread::sleep(RETRY);
                return self.firewall.is_installed();
            }
            is_installed
        };
        let Ok(is_installed) = look() else { return };
        self.is_in_doubt = false;
        if !is_installed {
            // Rules that are still there stay in force.
            (self.is_diverting, self.in_force) = (false, true);
            eprintln!(
                "starhop: somebody removed the firewall's rules of this relay (`nft flush ruleset`, `ip rule flush`, a \
                 firewall's reload?); they are set again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_arrive_whole_between_signs_of_life_however_the_pipe_cuts_them() {
        let mut said = b"11r".to_vec();
        said.extend_from_slice(&6u32.to_be_bytes());
        said.extend_from_slice(b"10 r\n10");
        let expected = [Word::Sign(true), Word::Rules("10 r\n1".into()), Word::Sign(false)];
        for length in 1..said.len() {
            let (mut voice, mut words) = (Voice::default(), Vec::new());
            for piece in said.chunks(length) {
                assert!(voice.hear(piece));
                words.extend(std::iter::from_fn(|| voice.next()));
            }
            words.dedup();
            assert_eq!(words, expected, "pieces of {length}");
        }
    }

    #[test]
    fn a_voice_without_end_is_not_kept() {
        let mut voice = Voice::default();
        let mut said = vec![RULES, 0xff, 0xff, 0xff, 0xff];
        said.resize(4096, 0);
        assert!((0..1000).any(|_| !voice.hear(&said)));
    }
}
