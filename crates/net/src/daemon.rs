//! Runs a role until a signal ends it.

use crate::driver::Driver;
use crate::operate::notify::Notifier;
use crate::operate::{Desk, Status};
use starhop_proto::Node;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// SIGINT and SIGTERM, which ask a program to end in good order.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes the signals over from the system's default, which ends the process.
    ///
    /// # Errors
    /// The kernel refuses handlers for the signals.
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits for SIGINT or SIGTERM, and calls `tick` every so often.
///
/// # Errors
/// Signals cannot be handled.
pub fn wait_for_end(every: Option<Duration>, mut tick: impl FnMut()) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let mut interval = tokio::time::interval(every.unwrap_or(Duration::from_secs(3600)));
        interval.tick().await;
        loop {
            tokio::select! {
                () = signals.recv() => return Ok(()),
                _ = interval.tick() => tick(),
            }
        }
    })
}

/// The tasks of a role besides carrying packets.
pub trait Chores<N: Node> {
    /// Some time has passed.
    fn tick(&mut self, driver: &mut Driver<N>);

    /// SIGHUP: the operator has changed files.
    fn reload(&mut self, driver: &mut Driver<N>);

    /// The node has something to tell.
    fn event(&mut self, driver: &mut Driver<N>, event: N::Event);

    /// The status of the node, for a question at its desk.
    fn status(&mut self, driver: &Driver<N>) -> Status;
}

/// Runs `driver` until SIGINT or SIGTERM, does its `chores` and answers at its `desk`; a tick comes at the interval
/// `every`.
///
/// # Errors
/// The socket fails, or signals cannot be handled.
pub async fn run<N: Node>(
    driver: &mut Driver<N>,
    every: Duration,
    chores: &mut impl Chores<N>,
    desk: &mut Desk,
) -> io::Result<()> {
    let mut signals = Signals::new()?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval.tick().await;
    let mut notifier = Notifier::ready();
    loop {
        tokio::select! {
            biased;
            () = signals.recv() => return Ok(()),
            () = notifier.beat() => {}
            _ = hangup.recv() => chores.reload(driver),
            _ = interval.tick() => chores.tick(driver),
            inquiry = desk.next() => inquiry.answer(chores.status(driver)),
            done = driver.turn() => done?,
        }
        while let Some(event) = driver.poll_event() {
            chores.event(driver, event);
        }
    }
}

/// A single-threaded runtime for drivers.
///
/// # Errors
/// The kernel provides no event queue.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if crate::clock::STEPS.is_some_and(|name| std::env::var_os(name).is_some()) {
        runtime.spawn(crate::clock::follow_steps());
    }
    Ok(runtime)
}
