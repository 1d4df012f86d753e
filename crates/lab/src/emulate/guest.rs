//! A command of the user's in a node.

use super::leftovers;
use super::world::World;
use crate::error::LabError;
use crate::process::Sealing;
use nix::mount::{MsFlags, mount};
use starhop_net::emu::Process;
use std::path::Path;
use std::process::Command;

/// A command that runs in a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Guest {
    /// A command; the run lasts as long as it does, and no longer than the scenario.
    Command {
        /// The node.
        node: String,
        /// The program and its arguments.
        words: Vec<String>,
    },
    /// The user's shell; the run lasts as long as it does.
    Shell {
        /// The node.
        node: String,
    },
}

impl Guest {
    fn node(&self) -> &str {
        match self {
            Self::Command { node, .. } | Self::Shell { node } => node,
        }
    }

    fn command(&self) -> Option<Command> {
        match self {
            Self::Command { words, .. } => {
                let (program, arguments) = words.split_first()?;
                let mut command = Command::new(program);
                command.args(arguments);
                Some(command)
            }
            Self::Shell { node } => {
                let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
                let mut command = Command::new(shell);
                command.env("PS1", format!("{node}$ "));
                Some(command)
            }
        }
    }

    /// Starts the guest on this process's terminal, with the keys to speak to the run's own processes.
    pub(super) fn start(&self, world: &World, sealing: &Sealing) -> Result<Process, LabError> {
        let unknown = || {
            let nodes: Vec<&str> = world.nodes.iter().map(|node| node.namespace.name()).collect();
            let problem = format!("\"{}\" is no node; nodes are {}", self.node(), nodes.join(", "));
            LabError::Scenario(problem)
        };
        let node = world.node_named(self.node()).ok_or_else(unknown)?;
        let mut command =
            self.command().ok_or_else(|| LabError::Scenario("there is no command".to_owned()))?;
        command.env(leftovers::MARKER, leftovers::marker()).env("STARHOP_NODE", self.node());
        command.env_remove("STARHOP_KEY").env_remove("STARHOP_ROSTER");
        if let Sealing::Key(path) = sealing {
            command.env("STARHOP_KEY", path);
        }
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = LabError::system(format!("cannot start `{program}` in {}", self.node()));
        node.namespace.spawn(command).map_err(failed)
    }
}

/// The file in which programs look names up.
pub(super) const HOSTS: &str = "/etc/hosts";

/// Gives every node a name that programs can resolve, for the processes of this run only.
pub(super) fn name_nodes(world: &World, scratch: &Path) -> Result<(), LabError> {
    let mut hosts = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
    for node in &world.nodes {
        // No host's name has a space: New York is New-York.
        let name = node.namespace.name().replace(char::is_whitespace, "-");
        hosts += &format!("{} {name}\n{} {name}\n", node.v4(), node.v6());
    }
    let file = scratch.join("hosts");
    let failed = || LabError::system("cannot name the nodes");
    std::fs::write(&file, hosts).map_err(failed())?;
    // This process has a mount namespace of its own: no other process sees the file.
    let bound = mount(Some(&file), HOSTS, None::<&str>, MsFlags::MS_BIND, None::<&str>);
    bound.map_err(|errno| failed()(errno.into()))
}
