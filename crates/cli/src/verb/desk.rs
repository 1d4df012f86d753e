//! Arguments of every long-lived verb about the addresses at which it answers questions.

use super::address;
use starhop_net::operate::{Address, Desk, Doors};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The addresses at which a long-lived role answers questions about itself.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct DeskArgs {
    /// The Unix socket of `starhop status`, or `none`; else ROLE-PORT.PID.sock below /run/starhop or the user's directory
    #[arg(long, value_name = "FILE|none")]
    status_socket: Option<PathBuf>,
    /// Answer Prometheus on this TCP address, at /metrics
    #[arg(long, value_parser = address, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Show a page about this node on this TCP address; it only reads, and asks for no password
    #[arg(long, value_parser = address, value_name = "ADDR")]
    page: Option<SocketAddr>,
}

impl DeskArgs {
    /// Opens the doors of a role that listens on `port`. Only the usual socket may fail, because the user did not
    /// ask for it.
    pub(crate) fn open(&self, role: &str, port: u16) -> anyhow::Result<Desk> {
        let mut desk = self.prepare(role, port, false)?;
        desk.open_doors()?;
        Ok(desk)
    }

    /// As [`DeskArgs::open`], without the thread that answers. Where it `must` have the usual socket, that may not fail either.
    pub(crate) fn prepare(&self, role: &str, port: u16, must: bool) -> anyhow::Result<Desk> {
        let doors = Doors { socket: None, metrics: self.metrics, page: self.page };
        if let Some(path) = &self.status_socket {
            let socket = (path.as_os_str() != "none").then(|| path.clone());
            return Ok(Desk::prepare(&Doors { socket, ..doors })?);
        }
        let usual = Address::usual(role, port);
        let opened = Desk::prepare(&Doors { socket: Some(usual.path), ..doors.clone() });
        opened.or_else(|error| {
            if must {
                return Err(error.into());
            }
            tracing::debug!("{error}");
            Ok(Desk::prepare(&doors)?)
        })
    }

    /// The directory of the usual socket; `None` where another one or none is wanted.
    pub(crate) fn usual_directory(&self) -> Option<PathBuf> {
        let usual = Address::usual("", 0).path;
        usual.parent().filter(|_| self.status_socket.is_none()).map(PathBuf::from)
    }
}
