//! What every verb that sends packets takes: a key, or the word that none is wanted.

use anyhow::bail;
use starhop_net::security::{HopSuite, Sources};
use std::path::PathBuf;

/// The keys of a node.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SealArgs {
    /// The key file of the domain or of this node; `starhop key new FILE` makes one
    #[arg(long, env = "STARHOP_KEY", value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) key: Option<PathBuf>,
    /// The signed list of nodes, for a key that is this node's own
    #[arg(long, env = "STARHOP_ROSTER", value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) roster: Option<PathBuf>,
    /// Send and take plain packets: anybody on the network can read, change and forge them
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl SealArgs {
    /// Where keys come from.
    pub(crate) fn sources(&self) -> anyhow::Result<Sources> {
        match (&self.key, self.insecure) {
            (Some(key), _) => Ok(Sources::Files { key: key.clone(), roster: self.roster.clone() }),
            (None, true) => Ok(Sources::Insecure),
            (None, false) => bail!(
                "no key: packets are sealed unless --insecure is given. `starhop key new FILE` makes a key; give the \
                 same file to every node, and name it with --key FILE or in the variable STARHOP_KEY"
            ),
        }
    }

    /// The suite of a long-lived role. Says so when nothing is protected.
    pub(crate) fn suite(&self) -> anyhow::Result<HopSuite> {
        let sources = self.sources()?;
        if sources == Sources::Insecure {
            warn_insecure();
        }
        Ok(HopSuite::new(&sources)?)
    }
}

/// Says on standard error that nothing is protected.
pub(crate) fn warn_insecure() {
    eprintln!(
        "starhop: --insecure: packets are PLAIN; anybody on the network can read, change and forge them"
    );
}
