//! Runs a scenario for real: its nodes are network namespaces with addresses and routes of their own, its links are
//! the simulator's, driven by the machine's clock, and its flows are Starhop's own processes or the kernel's TCP.

mod choice;
mod gateways;
mod guest;
mod interrupt;
mod kernel;
mod leftovers;
mod live;
mod model;
mod outcome;
mod pace;
mod record;
mod run;
mod splits;
mod starhop;
mod tcp;
mod terrain;
mod world;

use crate::error::LabError;
use crate::result::RunResult;
use crate::scenario::Scenario;
pub use guest::Guest;
pub use interrupt::Interrupts;
pub use live::{FlowNow, LinkNow, NodeNow, Snapshot};
use run::Run;
pub use starhop::Deployment;
use starhop_proto::time::Duration;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Options of a run beside its scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `starhop` binary.
    pub program: PathBuf,
    /// Flows, by name, that the kernel's TCP carries with this congestion control instead of the scenario's
    /// transport.
    pub kernel: BTreeMap<String, String>,
    /// Deployment of relays; by default transparent where the machine can.
    pub deployment: Option<Deployment>,
    /// A command of the user's.
    pub guest: Option<Guest>,
    /// Nodes speak IPv6 with each other.
    pub is_v6: bool,
    /// Directory into which every link's packets are captured.
    pub captures: Option<PathBuf>,
    /// Starhop's packets are plain, so that captures show their contents; otherwise sealed with a key of the run.
    pub insecure: bool,
}

impl Options {
    /// With `program`, the `starhop` binary, and everything as the scenario says.
    pub fn new(program: PathBuf) -> Self {
        let (kernel, deployment, guest, captures) = Default::default();
        Self { program, kernel, deployment, guest, is_v6: false, captures, insecure: false }
    }
}

/// Progress of a run.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    /// Time since the scenario's time zero.
    pub at: Duration,
    /// Its longest duration.
    pub of: Duration,
    run: &'a Run<'a>,
}

impl Progress<'_> {
    /// The present state of every node, link and flow. Takes some microseconds per link.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(self.run)
    }
}

/// Runs a scenario in real time. The process must have [entered](starhop_net::emu::enter) namespaces. `watch` gets
/// the progress, many times a second, and ends the run early by answering false.
///
/// # Errors
/// See [`LabError`]; a flow that does not get through is no error.
pub fn emulate(
    scenario: &Scenario,
    options: &Options,
    watch: impl FnMut(Progress<'_>) -> bool,
) -> Result<RunResult, LabError> {
    leftovers::remove();
    let began = std::time::Instant::now();
    let mut run = Run::prepare(scenario, options)?;
    let done = run.carry_out(options.guest.as_ref(), watch);
    let result = done.and_then(|()| run.finish(began.elapsed().as_secs_f64()));
    let scratch = run.processes.scratch.clone();
    drop(run);
    leftovers::remove_own();
    starhop_net::emu::release(&scratch, &[guest::HOSTS]);
    result
}
