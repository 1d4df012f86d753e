use super::EmuError;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The right by which this process makes namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// It has CAP_SYS_ADMIN.
    Root,
    /// It is root of a user namespace of its own.
    UserNamespace,
}

/// Acquires the right to make namespaces. Leaves the process in a mount namespace of its own, so that no other
/// process sees its mounts.
///
/// Call it first thing: a process with a second thread cannot enter a user namespace.
///
/// # Errors
/// [`EmuError::Forbidden`] names the permission that is missing.
pub fn enter() -> Result<Privilege, EmuError> {
    if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
        keep_mounts_private();
        return Ok(Privilege::Root);
    }
    let (uid, gid) = (nix::unistd::getuid(), nix::unistd::getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .map_err(|error| EmuError::Forbidden(error.into()))?;
    // An unprivileged process may map its own user and group only, the latter once it has given up setgroups.
    let map = || -> io::Result<()> {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
    };
    map().map_err(EmuError::Forbidden)?;
    keep_mounts_private();
    Ok(Privilege::UserNamespace)
}

fn keep_mounts_private() {
    use nix::mount::{MsFlags, mount};
    // Refused where it is so already.
    let _ = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>);
}

/// Unmounts `scratch`, the directory of [`scratch`], and the mounts on `others` in this mount namespace.
pub fn release(scratch: &Path, others: &[&str]) {
    use nix::mount::{MntFlags, umount2};
    for place in others.iter().map(Path::new).chain([scratch]) {
        // A file that is still open there goes when it is closed; a place that is not mounted needs no unmounting.
        let _ = umount2(place, MntFlags::MNT_DETACH);
    }
}

/// A directory in memory for up to `bytes`, which no other process sees and which goes with this process. Call
/// [`enter`] before.
///
/// # Errors
/// Nothing may be mounted here.
pub fn scratch(bytes: u64) -> Result<PathBuf, EmuError> {
    use nix::mount::{MsFlags, mount};
    // Directories that every system has, and that the run does not need; they are covered in this mount namespace
    // only.
    let places = ["/mnt", "/media", "/srv", "/opt"].iter().map(Path::new);
    let place = places.filter(|place| place.is_dir()).find(|place| {
        let options = format!("size={bytes},mode=0700");
        mount(Some("starhop"), *place, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())).is_ok()
    });
    let problem = || io::Error::other("no tmpfs may be mounted on /mnt, /media, /srv or /opt");
    place.map(Path::to_owned).ok_or_else(problem).map_err(EmuError::system("cannot make a scratch directory"))
}
