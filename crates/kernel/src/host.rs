//! The offers of this kernel, read from its files.

use crate::error::KernelError;
use std::fs;
use std::io;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

fn read(path: &str) -> Result<String, KernelError> {
    fs::read_to_string(path).map_err(KernelError::system(format!("cannot read {path}")))
}

/// Every control that a socket of this namespace may choose: built in, modules in use, and loaded.
///
/// # Errors
/// /proc/sys is missing.
pub fn offered() -> Result<Vec<String>, KernelError> {
    Ok(read(AVAILABLE)?.split_whitespace().map(str::to_owned).collect())
}

/// The control of new sockets in this network namespace.
///
/// # Errors
/// /proc/sys is missing.
pub fn default_control() -> Result<String, KernelError> {
    Ok(read(DEFAULT)?.trim().to_owned())
}

/// Makes a control the default of new sockets in this network namespace.
///
/// # Errors
/// [`KernelError::NotOffered`], and [`KernelError::NotPermitted`] without CAP_NET_ADMIN.
pub fn set_default(kernel_name: &str) -> Result<(), KernelError> {
    fs::write(DEFAULT, kernel_name).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => KernelError::NotPermitted,
        io::ErrorKind::NotFound => KernelError::NotOffered {
            name: kernel_name.to_owned(),
            offered: offered().unwrap_or_default().join(", "),
        },
        _ => KernelError::system(format!("cannot write `{kernel_name}` to {DEFAULT}"))(error),
    })
}

/// The output of `uname -r`.
#[cfg(feature = "loader")]
pub(crate) fn release() -> String {
    nix::sys::utsname::uname()
        .map_or_else(|_| "?".to_owned(), |names| names.release().to_string_lossy().into_owned())
}

/// Whether this is at least Linux `major.minor`.
#[cfg(feature = "loader")]
pub(crate) fn is_at_least(major: u32, minor: u32) -> bool {
    let release = release();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (major, minor)
}

/// The root of the control groups of version 2.
#[cfg(feature = "loader")]
pub(crate) fn control_groups() -> Result<fs::File, KernelError> {
    let mounts = read("/proc/self/mounts")?;
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut roots =
        fields.filter(|fields| fields.get(2) == Some(&"cgroup2")).filter_map(|fields| fields.get(1).copied());
    let root = roots.next().ok_or(KernelError::NoControlGroups)?;
    fs::File::open(root).map_err(KernelError::system(format!("cannot open {root}")))
}

/// The directory in which loaded controls are pinned, on a bpffs that is mounted if necessary.
#[cfg(feature = "loader")]
pub(crate) fn pin_directory() -> Result<std::path::PathBuf, KernelError> {
    use nix::mount::{MsFlags, mount};
    use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
    const ROOT: &str = "/sys/fs/bpf";
    let is_mounted = statfs(ROOT).is_ok_and(|found| found.filesystem_type() == BPF_FS_MAGIC);
    if !is_mounted {
        mount(Some("bpf"), ROOT, Some("bpf"), MsFlags::empty(), None::<&str>)
            .map_err(|error| KernelError::system(format!("cannot mount bpf on {ROOT}"))(error.into()))?;
    }
    let directory = std::path::Path::new(ROOT).join("starhop");
    match fs::create_dir(&directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(KernelError::system(format!("cannot make {}", directory.display()))(error))
        }
        _ => Ok(directory),
    }
}

/// Processes that hold a link open, by /proc.
#[cfg(feature = "loader")]
pub(crate) fn holders(link: u32) -> Vec<u32> {
    let line = format!("link_id:\t{link}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        let mut texts = descriptors.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.any(|text| text.lines().any(|found| found == line))
    };
    pids.filter(holds).collect()
}
