//! The Unix socket on which a node answers `starhop status` and takes orders about its log.
//!
//! One line of text is one question: `status`, `log LEVELS` or `capture WHAT`. The answer is one line of JSON, behind which
//! a capture's file follows.

use super::desk::Bell;
use super::{capture, log};
use crate::sys::mtu::path_mtu;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

/// A question is no longer than this.
const LONGEST_QUESTION: u64 = 4096;
/// An answer takes no longer than this.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// As `relay-4433`: the role and the port.
    pub name: String,
    /// The socket.
    pub path: PathBuf,
}

/// Why a node cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// It does not answer.
    #[error("`{}` does not answer: {cause}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
    /// It answered that it cannot.
    #[error("{0}")]
    Refused(String),
}

impl Address {
    /// The usual socket of a role on a port: below systemd's directory for the service, the user's directory, or
    /// `/run/starhop`.
    pub fn usual(role: &str, port: u16) -> Self {
        let name = format!("{role}-{port}");
        let path = directory().join(format!("{name}.{}.sock", std::process::id()));
        Self { name, path }
    }
}

/// The directory for sockets of this user's nodes.
fn directory() -> PathBuf {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given("STARHOP_RUNTIME_DIR")
        .or_else(|| given("RUNTIME_DIRECTORY"))
        .or_else(|| given("XDG_RUNTIME_DIR").map(|path| path.join("starhop")))
        .unwrap_or_else(|| "/run/starhop".into())
}

/// The nodes of this host that this user may ask, by name. Sockets without a living process are left out.
pub fn nodes() -> Vec<Address> {
    let mut directories = vec![directory(), "/run/starhop".into()];
    directories.dedup();
    let entries = directories.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten().flatten();
    let mut found: Vec<Address> = entries.filter_map(|entry| address_of(&entry.path())).collect();
    found.retain(|address| UnixStream::connect(&address.path).is_ok());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn address_of(path: &Path) -> Option<Address> {
    let file = path.file_name()?.to_str()?.strip_suffix(".sock")?;
    let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
    Some(Address { name: name.to_owned(), path: path.to_owned() })
}

/// Asks the node behind a socket.
///
/// # Errors
/// [`NodeError`] when it does not answer, or refuses.
pub fn ask(path: &Path, question: &str) -> Result<Value, NodeError> {
    let answer =
        exchange(path, question).map_err(|cause| NodeError::Silent { path: path.to_owned(), cause })?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(NodeError::Refused(error.to_owned())),
        None => Ok(answer),
    }
}

fn exchange(path: &Path, question: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{question}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Listens on `path`, in place of a node that was killed.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot answer `starhop status` on `{}`: {error}", path.display()),
        )
    };
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(named)?;
    }
    if path.exists() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(named)?;
    }
    let listener = UnixListener::bind(path).map_err(named)?;
    // Its owner and group may ask: a status contains names of files and addresses of clients.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Answers every client that connects.
pub(super) async fn serve(listener: UnixListener, bell: Bell) {
    let Ok(listener) = tokio::net::UnixListener::from_std(listener) else { return };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let bell = bell.clone();
                tokio::task::spawn_local(async move { drop(converse(stream, bell).await) });
            }
            // Out of descriptors, which others may give back.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn converse(mut stream: tokio::net::UnixStream, bell: Bell) -> io::Result<()> {
    let (read, mut write) = stream.split();
    let mut question = String::new();
    let mut asked = tokio::io::BufReader::new(read.take(LONGEST_QUESTION));
    tokio::time::timeout(PATIENCE, asked.read_line(&mut question)).await??;
    if let Some(wanted) = question.trim().strip_prefix("capture ") {
        return capture::serve(wanted, &mut write).await;
    }
    let answer = match question.trim().split_once(' ').unwrap_or((question.trim(), "")) {
        ("status", "") => match bell.status().await {
            Some(status) => json!(status),
            None => json!({"error": "the node is ending"}),
        },
        ("log", levels) => match log::set_levels(levels) {
            Ok(()) => {
                tracing::info!("the log's levels are {levels} now");
                json!({"levels": levels})
            }
            Err(error) => json!({"error": error.to_string()}),
        },
        (other, _) => {
            json!({"error": format!("`{other}` is no question: ask `status`, `log LEVELS` or `capture WHAT`")})
        }
    };
    tokio::time::timeout(PATIENCE, write.write_all(format!("{answer}\n").as_bytes())).await?
}

/// The largest packet that the kernel would send to `peer`, from the route and from ICMP; `None` if the kernel does
/// not say.
///
/// # Errors
/// There is no route.
pub(super) fn mtu_of(peer: SocketAddr) -> io::Result<Option<u32>> {
    let any = if peer.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    // Connecting a UDP socket sends nothing: it looks the route up.
    socket.connect(peer)?;
    Ok(path_mtu(&socket))
}

/// As [`mtu_of`]; `None` where there is no route, too.
pub(super) fn mtu_towards(peer: SocketAddr) -> Option<u32> {
    mtu_of(peer).ok().flatten()
}
