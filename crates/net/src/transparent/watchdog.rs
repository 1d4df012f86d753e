//! The watchdog of a transparent relay: a process of its own that holds the firewall open only while the relay
//! proves, four times a second, that it is alive. When the relay is killed or hangs, packets pass it by.

use super::firewall::Firewall;
use super::news::News;
use crate::sys::passing;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, execv};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The option of a watchdog that begins with rules in force.
const IN_FORCE: &str = "--in-force";
/// Between two signs of life.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(250);
/// Silence that means that the relay hangs.
const SILENCE: Duration = Duration::from_millis(1000);
/// Between two tries to change the rules.
const RETRY: Duration = Duration::from_millis(50);
/// So many changes in a row that fail, each tried a few times, and the watchdog gives up: more than five seconds.
const MOST_FAILURES: u32 = 30;
/// So many changes in a row are tried by a program that goes on with rules in force, each a few times: some two seconds.
const RESUMES: u32 = 8;
/// Tries to tell the relay something.
const SAYS: u32 = 10;
/// Longest time for installing the rules.
pub(crate) const INSTALL: Duration = Duration::from_secs(5);
/// Bytes of the relay that are not understood yet, at most.
const MOST_UNHEARD: usize = 8192;

/// A sign of life: divert packets.
const DIVERT: u8 = b'1';
/// A sign of life: alive, but let packets pass.
const LET_PASS: u8 = b'0';
/// Go on as the program that has this one's name now. The rules stay.
const RENEW: u8 = b'x';
/// Put the rules in force that were checked last.
const RULES: u8 = b'r';
/// The length of the longest packet that is carried in one piece follows: 2 bytes, big-endian.
const WHOLE: u8 = b'w';

/// The words of a watchdog that diverts packets.
const DIVERTING: &str = "diverting";
/// The words of a watchdog that cannot go on as another program, before the reason.
const STAYS: &str = "stays: ";

/// The relay's end of its watchdog. Dropping it lets packets pass.
#[derive(Debug)]
pub(crate) struct Watchdog {
    process: Pid,
    heart: Option<File>,
    firewall: Firewall,
}

/// The watchdog of the program that had this process before.
#[derive(Debug)]
pub(crate) struct Former {
    process: Pid,
    heart: File,
    channel: OwnedFd,
}

impl Former {
    /// The watchdog of process `process`, at the other ends of the pipe `heart` and of `channel`. It gets a sign of life.
    pub(crate) fn new(process: i32, heart: OwnedFd, channel: OwnedFd) -> Self {
        let mut former = Self { process: Pid::from_raw(process), heart: heart.into(), channel };
        // Its end shows at the next sign.
        let _ = former.heart.write_all(&[DIVERT]);
        former
    }
}

impl Watchdog {
    /// Starts the watchdog, `program` with the arguments `arguments`, and waits until packets are diverted. Returns the channel at
    /// whose other end it has its standard output.
    pub(crate) fn start(
        program: &Path,
        arguments: &[String],
        firewall: Firewall,
    ) -> io::Result<(Self, OwnedFd)> {
        let (channel, theirs) = passing::pair()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(theirs).stderr(Stdio::inherit());
        // A terminal's Ctrl-C is for the relay, which then ends its watchdog.
        command.process_group(0);
        let mut child = command.spawn()?;
        // The command holds a copy of the watchdog's end.
        drop(command);
        let heart = child.stdin.take().map(|heart| File::from(OwnedFd::from(heart)));
        let mut watchdog = Self { process: Pid::from_raw(child.id() as i32), heart, firewall };
        watchdog.beat(true)?;
        match heard(&channel)?.as_str() {
            DIVERTING => Ok((watchdog, channel)),
            problem => Err(io::Error::other(problem.to_owned())),
        }
    }

    /// Goes on with a `former` watchdog. It is told to go on as the new program, too, with its rules in force; if it cannot, it stays.
    ///
    /// # Errors
    /// It is gone, or cannot set the rules.
    pub(crate) fn go_on(former: Former, firewall: Firewall) -> io::Result<(Self, OwnedFd)> {
        let Former { process, heart, channel } = former;
        let mut watchdog = Self { process, heart: Some(heart), firewall };
        watchdog.tell(&[RENEW])?;
        let said = loop {
            let said = heard(&channel)?;
            if said == DIVERTING || said.starts_with(STAYS) {
                break said;
            }
        };
        if let Some(error) = said.strip_prefix(STAYS) {
            tracing::warn!("the watchdog goes on as the program that it was: {error}");
        }
        watchdog.beat(true)?;
        Ok((watchdog, channel))
    }

    /// Its process, and the number of the pipe to it.
    pub(crate) fn handle(&self) -> (i32, RawFd) {
        (self.process.as_raw(), self.heart.as_ref().map_or(-1, AsRawFd::as_raw_fd))
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
        self.tell(&[if divert { DIVERT } else { LET_PASS }])
    }

    /// Has the watchdog put the rules that it has checked last in the place of those in force.
    ///
    /// # Errors
    /// The watchdog is gone.
    pub(crate) fn set_rules(&mut self) -> io::Result<()> {
        self.tell(&[RULES])
    }

    /// Has TCP that is carried keep to packets of at most `whole` bytes.
    ///
    /// # Errors
    /// The watchdog is gone.
    pub(crate) fn set_whole(&mut self, whole: u16) -> io::Result<()> {
        let [a, b] = whole.to_be_bytes();
        self.tell(&[WHOLE, a, b])
    }

    fn tell(&mut self, word: &[u8]) -> io::Result<()> {
        let told = self.heart.as_mut().map(|heart| heart.write_all(word));
        told.and_then(Result::ok).ok_or_else(|| io::Error::other(self.obituary()))
    }

    /// A message about the end of the watchdog, and its consequence.
    fn obituary(&self) -> String {
        // A pipe closes a moment before its process can be waited for.
        std::thread::sleep(RETRY);
        let how = match waitpid(self.process, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => format!(" (exit status: {code})"),
            Ok(WaitStatus::Signaled(_, signal, _)) => format!(" (signal: {} ({signal}))", signal as i32),
            _ => String::new(),
        };
        format!(
            "the watchdog of this relay ended{how}. Without it nobody would let packets pass if the relay hung: the \
             relay ends, too, and packets pass. Start it again"
        )
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.heart.take());
        let ended = loop {
            match waitpid(self.process, None) {
                Err(Errno::EINTR) => {}
                ended => break ended,
            }
        };
        // A watchdog that was killed left the rules to us; of removing them twice nothing comes.
        if !matches!(ended, Ok(WaitStatus::Exited(_, 0))) {
            let _ = self.firewall.remove();
        }
    }
}

/// A watchdog's next line on `channel`.
fn heard(channel: &OwnedFd) -> io::Result<String> {
    let mut fds = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(INSTALL).unwrap_or(PollTimeout::MAX);
    if poll(&mut fds, timeout)? == 0 {
        return Err(io::Error::other("the watchdog does not answer"));
    }
    match passing::receive(channel.as_fd(), true)?.bytes {
        bytes if bytes.is_empty() => Err(io::Error::other("the watchdog ended at once")),
        bytes => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
    }
}

/// The watchdog itself: runs until the relay is gone.
///
/// # Errors
/// The firewall cannot be changed.
pub fn watch(port: u16) -> io::Result<()> {
    hold_open(&Firewall::relay(port), false, &mut || None)
}

/// Holds a firewall open until the relay is gone. If rules are `in_force` already, these take their place in one transaction. `next`
/// returns the operator's rules that were checked last and are to be put in force.
///
/// # Errors
/// When the firewall cannot be changed.
pub(crate) fn hold_open(
    firewall: &Firewall,
    in_force: bool,
    next: &mut dyn FnMut() -> Option<String>,
) -> io::Result<()> {
    let mut guard = Guard::new(firewall.clone(), in_force)?;
    let done = guard.run(next);
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

/// Tells the relay something. Where it has messages that it has not taken, they are waited for, but not for long: a relay that hangs
/// stops nothing here.
fn say(line: &str) {
    let line = line.replace('\n', " ");
    for _ in 0..SAYS {
        // The line is one message. The relay reads it, or is gone, as the next read shows.
        match passing::send(io::stdout().as_fd(), line.as_bytes(), &[], false) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY),
            _ => return,
        }
    }
}

/// Goes on as the program that has this one's name, with the same arguments, and with rules in force. Returns only with the error.
fn renew(program: &Path) -> io::Error {
    let name = |text: OsString| CString::new(text.into_vec()).map_err(io::Error::from);
    let is_kept = |argument: &OsString| argument.as_os_str() != IN_FORCE;
    let arguments = std::env::args_os().filter(is_kept).chain([IN_FORCE.into()]);
    let arguments: io::Result<Vec<_>> = arguments.map(name).collect();
    let named = arguments.and_then(|arguments| Ok((name(program.as_os_str().to_owned())?, arguments)));
    match named {
        // Standard input and output are the relay's, and stay.
        Ok((program, arguments)) => match execv(&program, &arguments) {
            Err(error) => error.into(),
            Ok(never) => match never {},
        },
        Err(error) => error,
    }
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
    /// Rules may be there that are to be replaced, and not removed before: those of the program before, or some of ours.
    in_force: bool,
    failures: u32,
    /// This program, which is replaced by what has its name.
    program: PathBuf,
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
    /// The rules that were checked last.
    Rules,
    /// The longest packet that is carried in one piece.
    Whole(u16),
    /// Go on as another program.
    Renew,
}

impl Voice {
    /// Hears `bytes`. Returns whether they can be a relay's.
    fn hear(&mut self, bytes: &[u8]) -> bool {
        self.0.extend_from_slice(bytes);
        self.0.len() <= MOST_UNHEARD
    }

    /// The next word, and of signs of life in a row the last one.
    fn next(&mut self) -> Option<Word> {
        let signs = self.0.iter().take_while(|byte| ![RULES, RENEW, WHOLE].contains(byte)).count();
        if signs > 0 {
            return self.0.drain(..signs).next_back().map(|sign| Word::Sign(sign == DIVERT));
        }
        let (length, word) = match *self.0.first()? {
            WHOLE => (3, Word::Whole(u16::from_be_bytes(*self.0.get(1..3)?.first_chunk()?))),
            RULES => (1, Word::Rules),
            _ => (1, Word::Renew),
        };
        self.0.drain(..length);
        Some(word)
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
        let program = std::env::current_exe()?;
        Ok(Self {
            firewall,
            news,
            last_sign,
            is_diverting: false,
            is_in_doubt: false,
            has_diverted: false,
            in_force,
            failures: 0,
            program,
            voice: Voice::default(),
        })
    }

    fn run(&mut self, next: &mut dyn FnMut() -> Option<String>) -> io::Result<()> {
        if self.in_force {
            self.resume()?;
        }
        loop {
            match self.wait()? {
                Heard::Voice => {
                    self.last_sign = Instant::now();
                    while let Some(word) = self.voice.next() {
                        match word {
                            Word::Sign(wanted) => self.set(wanted)?,
                            Word::Rules => {
                                if let Some(rules) = next() {
                                    self.replace(self.firewall.with_rules(&rules));
                                }
                            }
                            Word::Whole(whole) => self.replace(self.firewall.with_whole(whole)),
                            Word::Renew => say(&format!("{STAYS}{}", renew(&self.program))),
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

    /// Puts rules in the place of those in force. The relay waits for it, and gives no sign meanwhile; its users' connections depend on
    /// it, so that it is tried for longer than other changes.
    fn resume(&mut self) -> io::Result<()> {
        let done = (0..RESUMES).find_map(|_| patiently(|| self.firewall.restore()).ok());
        if done.is_none() {
            return self.set(true);
        }
        (self.is_diverting, self.has_diverted, self.in_force) = (true, true, false);
        self.last_sign = Instant::now();
        say(DIVERTING);
        Ok(())
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
            let said = done.as_ref().map_or_else(io::Error::to_string, |()| DIVERTING.to_owned());
            say(&said);
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
    fn words_arrive_whole_between_signs_of_life_however_the_pipe_cuts_them() {
        let said = b"11w\x0501r10x1";
        let expected = [
            Word::Sign(true),
            Word::Whole(0x0530),
            Word::Sign(true),
            Word::Rules,
            Word::Sign(false),
            Word::Renew,
            Word::Sign(true),
        ];
        for length in 1..said.len() {
            let (mut voice, mut words) = (Voice::default(), Vec::new());
            for piece in said.chunks(length) {
                assert!(voice.hear(piece));
                words.extend(std::iter::from_fn(|| voice.next()));
            }
            words.dedup();
            // Signs in a row may be told one by one.
            let signs = |word: &&Word| !matches!(word, Word::Sign(_));
            assert!(
                words.iter().filter(signs).eq(expected.iter().filter(signs)),
                "pieces of {length}: {words:?}"
            );
            assert_eq!(words.last(), expected.last(), "pieces of {length}");
        }
    }

    #[test]
    fn a_voice_without_end_is_not_kept() {
        let mut voice = Voice::default();
        assert!((0..1000).any(|_| !voice.hear(&[WHOLE; 4096])));
    }
}
