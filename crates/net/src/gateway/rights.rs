//! The rights of a gateway: what needs root or CAP_NET_ADMIN is opened first, and then nobody but the watchdog has any.

use super::{GatewayConfig, GatewayError};
use crate::security::records;
use crate::sys::rights;
use nix::unistd::{AccessFlags, User, eaccess, geteuid, initgroups, setresgid, setresuid};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Threads that have ended may be counted for a moment.
const LOOKS: u32 = 1_000;

/// Opens with the rights that are kept until everything is opened, where files are root's alone.
pub(super) fn for_opening<T>(open: impl FnOnce() -> T) -> T {
    rights::with(rights::DAC_OVERRIDE, open)
}

/// Leaves the watchdog's thread CAP_NET_ADMIN alone.
pub(super) fn keep_the_watchdogs() -> io::Result<()> {
    rights::keep_only(rights::NET_ADMIN)
}

/// Gives up all capabilities for ever. Threads that begin after this have none either.
///
/// # Errors
/// The kernel refuses, or there is a thread that would keep its own.
pub(super) fn give_up(config: &GatewayConfig) -> io::Result<()> {
    rights::keep_only(0)?;
    let threads = || std::fs::read_dir("/proc/self/task").map_or(2, Iterator::count);
    let is_alone = (0..LOOKS).any(|_| {
        let is_alone = threads() == 1;
        if !is_alone {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_alone
    });
    if !is_alone {
        return Err(io::Error::other("another thread of this process would keep its capabilities"));
    }
    if geteuid().is_root() {
        tracing::info!(
            "this gateway has no capability any more, but stays root, whom root's files obey: `user` in its configuration has \
             it become another user"
        );
        let unread = config.files().into_iter().find(|path| eaccess(*path, AccessFlags::R_OK).is_err());
        if let Some(path) = unread {
            tracing::warn!(
                "`{}` is not root's to read without capabilities: a new configuration will be refused. Give the file and its \
                 directory to root, or name its owner as `user`",
                path.display()
            );
        }
        if let Err(error) = check_records(config, "root") {
            tracing::warn!("{error}");
        }
    }
    Ok(())
}

/// Has a process that root started become the user of the configuration, who can open still what root has to. `directory` is made
/// for that user if it is missing.
///
/// # Errors
/// There is no such user, this process cannot become that one, or a file is not for that user; the error names it.
pub fn become_user(config: GatewayConfig, directory: Option<&Path>) -> Result<GatewayConfig, GatewayError> {
    let Some(user) = user_of(&config)? else { return Ok(config) };
    if user.uid == geteuid() {
        return Ok(config);
    }
    if !geteuid().is_root() {
        let problem = format!("is `{}`, which takes root: this process is of user {}", user.name, geteuid());
        return Err(config.wrong("user", &problem).into());
    }
    if let Some(directory) = directory.filter(|directory| !directory.exists()) {
        let made = std::fs::create_dir_all(directory);
        made.and_then(|()| {
            std::os::unix::fs::chown(directory, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        })
        .map_err(|error| named(directory, &error))?;
    }
    change(&user).map_err(|error| {
        config.wrong("user", &format!("is `{}`, whom this process cannot become: {error}", user.name))
    })?;
    let config = config.again()?;
    check_records(&config, &user.name)?;
    Ok(config)
}

/// Finds that a program that goes on cannot become the user of its configuration.
///
/// # Errors
/// The user is another one.
pub(super) fn check_user(config: &GatewayConfig) -> Result<(), GatewayError> {
    match user_of(config)? {
        Some(user) if user.uid != geteuid() => {
            Err(config.wrong("user", "has changed, which takes a restart").into())
        }
        _ => Ok(()),
    }
}

/// Finds that the port of diverted connections needs a right that this gateway gives up.
///
/// # Errors
/// It does.
pub(super) fn check_port(config: &GatewayConfig) -> Result<(), GatewayError> {
    let first = first_free_port();
    if config.port() < first {
        let problem =
            format!("must be at least {first}: listeners open again when this gateway has no rights");
        return Err(config.wrong("port", &problem).into());
    }
    Ok(())
}

/// The first port that needs no right.
fn first_free_port() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(1024)
}

/// The user that the configuration names.
fn user_of(config: &GatewayConfig) -> Result<Option<User>, GatewayError> {
    let Some(name) = config.user() else { return Ok(None) };
    let found = User::from_name(name).map_err(io::Error::from)?;
    let unknown = || config.wrong("user", &format!("is `{name}`, whom this host does not know"));
    Ok(Some(found.ok_or_else(unknown)?))
}

fn change(user: &User) -> io::Result<()> {
    let name = CString::new(user.name.as_bytes())?;
    nix::sys::prctl::set_keepcaps(true)?;
    initgroups(&name, user.gid)?;
    setresgid(user.gid, user.gid, user.gid)?;
    setresuid(user.uid, user.uid, user.uid)?;
    nix::sys::prctl::set_keepcaps(false)?;
    rights::keep_until_opened()
}

/// Checks that the process's user can keep what a gateway remembers of its keys. Without it a restart would not know an old roster
/// or an old request.
fn check_records(config: &GatewayConfig, user: &str) -> io::Result<()> {
    let refused = |path: &Path, error: nix::errno::Errno| {
        io::Error::other(format!(
            "`{}` is not for the user `{user}` to write: {error}. Give that user its directory, or name another one in \
             STARHOP_STATE",
            path.display()
        ))
    };
    for path in records(&config.sources()) {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_owned);
        // It is replaced by another file of its directory.
        eaccess(&parent, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| refused(&path, error))?;
        match eaccess(&path, AccessFlags::R_OK) {
            Ok(()) | Err(nix::errno::Errno::ENOENT) => {}
            Err(error) => return Err(refused(&path, error)),
        }
    }
    Ok(())
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot make `{}`: {error}", path.display()))
}
