//! Arguments of every verb that sends packets: a key, or `--insecure`.

use anyhow::bail;
use clap::builder::{OsStringValueParser, TypedValueParser};
use starhop_net::security::{HopSuite, Sources, credential};
use starhop_proto::security::Algorithm;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The keys of a node.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SealArgs {
    /// The key file of the domain or of this node; `starhop key new FILE` makes one
    #[arg(long, env = "STARHOP_KEY", value_name = "FILE", value_parser = file_or_none())]
    pub(crate) key: Option<PathBuf>,
    /// The signed list of nodes, for a key that is this node's own
    #[arg(long, env = "STARHOP_ROSTER", value_name = "FILE", value_parser = file_or_none())]
    pub(crate) roster: Option<PathBuf>,
    /// The cipher that seals, in place of the fastest of this processor: aes-128-gcm, chacha20-poly1305, aes-256-gcm or
    /// aes-256-gcm-siv. Neighbours open them all
    #[arg(long, env = "STARHOP_CIPHER", value_name = "NAME", value_parser = cipher, conflicts_with = "insecure")]
    pub(crate) cipher: Option<Algorithm>,
    /// Send and take plain packets: any host on the network can read, change and forge them
    #[arg(long)]
    pub(crate) insecure: bool,
    /// The address at which others reach this node, where a NAT or a container's port mapping stands before it:
    /// requests are bound to the address that they are sent to
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) public: Option<SocketAddr>,
}

fn cipher(name: &str) -> Result<Algorithm, String> {
    let names = Algorithm::ALL.map(|(name, _)| name).join(", ");
    Algorithm::named(name).ok_or_else(|| format!("there are {names}"))
}

/// Takes an empty name, too, which clap's own parser of paths refuses.
pub(super) fn file_or_none() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl SealArgs {
    /// The source of the keys: options, variables, or else the credentials `starhop.key` and `starhop.roster` of
    /// systemd. An empty name, such as that of an empty variable, counts as missing.
    ///
    /// # Errors
    /// A [`clap::Error`] when keys and `--insecure` are given, and another one when neither is.
    pub(crate) fn sources(&self) -> anyhow::Result<Sources> {
        let given = |file: &Option<PathBuf>| file.clone().filter(|file| !file.as_os_str().is_empty());
        let handed = |name| credential(name).filter(|_| !self.insecure);
        let key = given(&self.key).or_else(|| handed("starhop.key"));
        let roster = given(&self.roster).or_else(|| handed("starhop.roster"));
        match (key, roster, self.insecure) {
            (None, None, true) => Ok(Sources::Insecure),
            (_, _, true) => Err(clap::Error::raw(
                clap::error::ErrorKind::ArgumentConflict,
                "--insecure sends plain packets, and a key or roster is given, too, with --key, --roster or the \
                 variables STARHOP_KEY, STARHOP_ROSTER: leave one of them out\n",
            )
            .into()),
            (Some(key), roster, false) => Ok(Sources::Files { key, roster, cipher: self.cipher }),
            (None, _, false) => bail!(
                "no key: packets are sealed unless --insecure is given. `starhop key new FILE` makes a key; give the \
                 same file to every node, and name it with --key FILE or in the variable STARHOP_KEY"
            ),
        }
    }

    /// The suite of a long-lived role. Says so when nothing is protected.
    pub(crate) fn suite(&self) -> anyhow::Result<HopSuite> {
        let sources = self.sources()?;
        if sources == Sources::Insecure {
            tracing::warn!("{PLAIN}");
        }
        let mut suite = HopSuite::new(&sources)?;
        suite.set_public(self.public);
        Ok(suite)
    }
}

/// The warning of a node without keys.
const PLAIN: &str = "--insecure: packets are PLAIN; anybody on the network can read, change and forge them";

/// Warns on standard error that packets are plain, for verbs that keep no log.
pub(crate) fn warn_insecure() {
    eprintln!("starhop: {PLAIN}");
}
